"""Very many clusters: rows are divided into regions, and each region is clustered as a pile of its own.

A selector is learned from tasks of up to some hundred categories, and knows nothing of thousands. Near each other there
are never that many: a region has about as many rows, and as many clusters, as the tasks that the selector knows. What
regions cut apart at their borders is mended afterwards, by inference with all rows and all clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from metaclust.inference.initialise import nearest
from metaclust.inference.pipeline import Pipeline, Selection
from metaclust.inference.stages import Floats, Labels, Sample
from metaclust.inference.trees import MergeTree, merge_trees
from metaclust.model.clustering_model import ClusteringModel

REGION_ROWS = 2500
"""About the most rows of a region."""
SMALL = 10
"""The most rows of a small subtree. A row is in the region of the nearest of these, so that borders of regions follow
them. The centres of whole regions would divide what lies between."""


@dataclass(frozen=True, eq=False)
class Part:
    """Rows that were clustered together, and the clusters that were selected."""

    sample: Sample
    selection: Selection


def region_of_rows(z: Floats, some: Labels, most: int) -> Labels:
    """Return the region of each row: a subtree of few enough rows, by the nearest of its small subtrees.

    Parameters
    ----------
    z : ndarray of shape (rows, S)
        Rows around their mean.
    some : ndarray
        The places of rows of which Ward's tree is made.
    most : int
        About the most rows of a region.
    """
    (tree,) = merge_trees(z[some], ("ward",))
    share = len(some) / len(z)
    region = tree.labelled(largest_nodes(tree, most * share))
    small = tree.labelled(largest_nodes(tree, min(SMALL, most * share)))
    _, first = np.unique(small, return_index=True)
    centres = np.stack([z[some[small == node]].mean(0) for node in range(len(first))])
    return np.unique(region[first][nearest(z, centres)], return_inverse=True)[1]


def largest_nodes(tree: MergeTree, most: float) -> Labels:
    """Return the largest nodes of a tree with at most ``most`` rows, which have all rows between them."""
    rows = len(tree)
    few = tree.size <= max(1, most)
    parent_few = few[tree.parent]
    parent_few[2 * rows - 2] = False
    return np.flatnonzero(few & ~parent_few)


def clustered_regions(
    model: ClusteringModel,
    pipeline: Pipeline,
    sample: Sample,
    regions: Labels,
    seed: int,
    phase: Callable[[str], object],
    advance: Callable[[], object],
) -> tuple[list[Part], Labels]:
    """Cluster each region by itself; also return the cluster of each row, counted over all regions."""
    parts: list[Part] = []
    labels = np.empty(len(sample), np.int64)
    clusters = 0
    count = int(regions.max()) + 1
    for region in range(count):
        phase(f"region {region + 1} of {count}")
        place = np.flatnonzero(regions == region)
        own = pipeline.sample(sample.z[place] + sample.mean)
        selection = pipeline(model, own, None, seed, advance)
        parts.append(Part(own, selection))
        labels[place] = clusters + selection.best.labels
        clusters += selection.best.clusters
    return parts, labels


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
