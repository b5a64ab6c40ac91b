"""Very many clusters: rows are divided into regions, and each region is clustered as a pile of its own.

A selector is learned from tasks of up to some hundred categories, and knows nothing of thousands. Near each other there
are never that many: a region has about as many rows, and as many clusters, as the tasks that the selector knows. A
category that is larger than that is a region of its own: no region ends where a merge is within a category. Rows at
the borders of regions find their place afterwards, by inference with all rows and all clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from metaclust.inference.features import evidence_of, merge_probabilities
from metaclust.inference.initialise import nearest
from metaclust.inference.pipeline import Pipeline, Selection
from metaclust.inference.select import LearnedSelector
from metaclust.inference.stages import Floats, Initial, Labels, Sample
from metaclust.inference.trees import MergeTree, merge_trees
from metaclust.model.clustering_model import ClusteringModel

REGION_ROWS = 2500
"""About the most rows of a region with several clusters."""
SMALL = 10
"""The most rows of a small subtree. A row is in the region of the nearest of these, so that borders of regions follow
them. The centres of whole regions would divide what lies between."""
WHOLE = 0.5
"""A subtree is one cluster where its last merge is within a category with a higher probability."""
DESCRIBED_ROWS = 1000
"""The most rows by which a region that is one cluster is described."""


@dataclass(frozen=True, eq=False)
class Part:
    """Rows that were clustered together, and the clusters that were selected."""

    sample: Sample
    selection: Selection


@dataclass(frozen=True, eq=False)
class Regions:
    """The region of each row, and which regions are one cluster."""

    labels: Labels
    whole: NDArray[np.bool_]


def divided(model: ClusteringModel, select: LearnedSelector, sample: Sample, some: Labels, most: int) -> Regions:
    """Divide rows into subtrees of few enough rows, or of one category.

    Parameters
    ----------
    model : ClusteringModel
    select : LearnedSelector
        Knows which merges are within a category.
    sample : Sample
    some : ndarray
        The places of rows of which Ward's tree is made.
    most : int
        About the most rows of a region of several categories.
    """
    coarse = Sample(sample.z[some], sample.mean)
    evidence = evidence_of(model, coarse)
    tree, alike = evidence.trees[0], merge_probabilities(evidence, select.network)[0] > WHOLE
    share = len(some) / len(sample)
    nodes = top_nodes(tree, most * share, alike)
    nodes = nodes[np.argsort(tree.start[nodes])]
    region = tree.labelled(nodes)
    small = tree.labelled(top_nodes(tree, min(SMALL, most * share), np.zeros(len(alike), bool)))
    _, first = np.unique(small, return_index=True)
    centres = np.stack([coarse.z[small == node].mean(0) for node in range(len(first))])
    present, labels = np.unique(region[first][nearest(sample.z, centres)], return_inverse=True)
    merges = nodes[present] - len(tree)
    return Regions(labels, np.where(merges >= 0, alike[np.maximum(merges, 0)], True))


def top_nodes(tree: MergeTree, most: float, alike: NDArray[np.bool_]) -> Labels:
    """Return the highest nodes of a tree with at most ``most`` rows, or whose merge is of one category.

    They have all rows between them, each once.
    """
    rows = len(tree)
    few = tree.size <= max(1, most)
    few[rows:] |= alike
    # Whatever is below such a node belongs to it.
    covered = np.zeros(2 * rows - 1, bool)
    for merge in range(rows - 2, -1, -1):
        covered[[tree.first[merge], tree.second[merge]]] = covered[rows + merge] | few[rows + merge]
    return np.flatnonzero(few & ~covered)


def clustered_regions(
    model: ClusteringModel,
    pipeline: Pipeline,
    sample: Sample,
    regions: Regions,
    most: int,
    seed: int,
    phase: Callable[[str], object],
    advance: Callable[[], object],
) -> tuple[list[Part], Labels]:
    """Cluster each region by itself; also return the cluster of each row, counted over all regions.

    Of a region with more than ``most`` rows a sample is clustered, and the others join the nearest cluster.
    """
    parts: list[Part] = []
    labels = np.empty(len(sample), np.int64)
    clusters = 0
    generator = np.random.default_rng([seed, 0x2E61])
    for region, whole in enumerate(regions.whole.tolist()):
        phase(f"region {region + 1} of {len(regions.whole)}")
        place = np.flatnonzero(regions.labels == region)
        limit = DESCRIBED_ROWS if whole else most
        some = place if len(place) <= limit else np.sort(generator.choice(place, limit, replace=False))
        links = None if sample.links is None else sample.links.take(some)
        own = pipeline.sample(sample.z[some] + sample.mean, links=links)
        selection = one_cluster(model, pipeline, own) if whole else pipeline(model, own, None, seed, advance)
        parts.append(Part(own, selection))
        found = selection.best.labels
        if len(some) < len(place):
            centres = np.stack([sample.z[some[found == k]].mean(0) for k in range(selection.best.clusters)])
            found = nearest(sample.z[place], centres)
        labels[place] = clusters + found
        clusters += selection.best.clusters
    return parts, np.unique(labels, return_inverse=True)[1]


def one_cluster(model: ClusteringModel, pipeline: Pipeline, sample: Sample) -> Selection:
    """Return all rows as one cluster, as the only candidate."""
    (best,) = pipeline.refine(model, sample, [Initial(np.zeros(len(sample), np.int64))])
    return Selection(best, (best,), np.zeros(1), 0)


def at_most(z: Floats, labels: Labels, limit: int | None) -> Labels:
    """Return clusters of which the nearest are merged, by Ward's method on their means, until there are ``limit``."""
    clusters = int(labels.max()) + 1
    if limit is None or clusters <= limit:
        return labels
    means = np.stack([z[labels == cluster].mean(0) for cluster in range(clusters)])
    (tree,) = merge_trees(means, ("ward",))
    return tree.cut(limit)[labels]


def sum_of_numbers(probabilities: Sequence[Mapping[int, float]], least: float = 1e-4) -> dict[int, float]:
    """Return the distribution of the sum of independent numbers of clusters.

    >>> sum_of_numbers([{1: 0.5, 2: 0.5}, {3: 1.0}])
    {4: 0.5, 5: 0.5}
    """
    if len(probabilities) == 1:
        return dict(probabilities[0])

    def dense(each: Mapping[int, float]) -> Floats:
        values = np.zeros(max(each) + 1)
        values[list(each)] = list(each.values())
        return values

    total: Floats = reduce(np.convolve, map(dense, probabilities))
    kept = np.flatnonzero(total >= min(least, total.max()))
    share = total[kept] / total[kept].sum()
    return dict(zip(kept.tolist(), share.tolist(), strict=True))
