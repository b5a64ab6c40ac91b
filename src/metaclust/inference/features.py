"""The dimensionless features of candidate clusterings from which the learned selector chooses.

They do not depend on which other candidates there are, so that the answer does not depend on how many are tried: the
variance of clusters relative to that of training categories, the distance between neighbours, whether a cluster
resembles two, the balance of sizes, the pairs that are expected to be of one category, and how these change towards
fewer and more clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaclust.inference.links import Links
from metaclust.inference.merges import TINY, merge_features, neighbours
from metaclust.inference.stages import Floats, Labels, Sample
from metaclust.inference.trees import MergeTree, PairEvidence, merge_trees, pair_evidence
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.selector import (
    CONTEXT,
    FEATURES,
    RATIOS,
    SHAPE_FEATURES,
    TREES,
    SelectorNetwork,
    log_odds,
    sigmoid,
)

Reals = NDArray[np.floating[Any]]
"""Rows, and what is computed of each, in single or double precision."""

AXIS_ROWS = 5.0
"""As how many rows an even variance counts along the axis to the nearest cluster."""
SPLIT_ROWS = 6
"""The fewest rows of a cluster that may resemble two."""
POWER_ROUNDS = 6
LEAST = 1e-30
"""The smallest divisor, where it may be zero."""
STEP = 1.5
"""The ratio of the numbers of clusters at which the change of features is known."""
FEWEST_ROWS = 3
"""With fewer rows a cluster, on average, clusters are not looked for."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the rows of a sample say of merges, whichever clusters are compared."""

    z: Floats
    """Rows around their mean."""
    expected: float
    """The expected variance of a category, summed over the columns."""
    links: Links | None = None
    """Which rows have to be together or apart."""

    @cached_property
    def trees(self) -> tuple[MergeTree, ...]:
        return merge_trees(self.z, TREES)

    @cached_property
    def near(self) -> tuple[Labels, Floats]:
        """The nearest neighbours of each row, and their squared distances."""
        return neighbours(self.z)

    @cached_property
    def total(self) -> float:
        """The variance of all rows, summed over the columns."""
        return max(float(np.square(self.z).sum()) / max(1, len(self.z) - 1), TINY * self.expected)

    @cached_property
    def scaled(self) -> NDArray[np.float32]:
        """The rows in units of their standard deviation, in single precision: features of clusters need no more."""
        scaled: NDArray[np.float32] = (self.z / np.sqrt(self.total)).astype(np.float32)
        return scaled

    @cached_property
    def merges(self) -> tuple[Floats, ...]:
        """The features of the merges of each tree; the last says which tree it is."""
        found = []
        for number, tree in enumerate(self.trees):
            features = merge_features(self.z, tree, *self.near, self.expected)
            found.append(np.column_stack([features, np.full(len(features), float(number))]))
        return tuple(found)

    @cached_property
    def most_clusters(self) -> int:
        """The largest number of clusters that is looked for."""
        return max(1, len(self.z) // FEWEST_ROWS)

    @cached_property
    def curve(self) -> tuple[Floats, Floats]:
        """The log numbers of clusters of some cuts of Ward's tree, in order, and their features."""
        numbers = [1]
        while numbers[-1] < self.most_clusters:
            numbers.append(min(self.most_clusters, max(numbers[-1] + 1, round(numbers[-1] * STEP))))
        features = [shape_features(self, self.trees[0].cut(number)) for number in numbers]
        return np.log(numbers), np.stack(features)[:, [SHAPE_FEATURES.index(name) for name in CONTEXT]]


def evidence_of(model: ClusteringModel, sample: Sample) -> Evidence:
    """Return the evidence of a sample, made once."""
    expected = model.expected_variance
    if ("evidence", expected) not in sample.memo:
        sample.memo["evidence", expected] = Evidence(sample.z, expected, sample.links)
    found: Evidence = sample.memo["evidence", expected]
    return found


def describe(evidence: Evidence, probabilities: Sequence[Floats], candidates: Sequence[Labels]) -> Floats:
    """Return (candidates, features), in the order of :data:`metaclust.model.selector.FEATURES`.

    Parameters
    ----------
    evidence : Evidence
    probabilities : sequence of ndarray
        For each tree, the probability that a pair brought together by each merge is of one category.
    candidates : sequence of ndarray of shape (rows,)
        Partitions, with labels from 0 on.
    """
    shape = np.stack([shape_features(evidence, labels) for labels in candidates])
    pairs = [pairs_of(evidence, probabilities, labels) for labels in candidates]
    stated = np.array(
        [
            [v for one in both for v in (one.expected_ari, one.precision, one.recall, one.relative_pairs)]
            for both in pairs
        ]
    )
    reached = np.array([mean_ari(both) for both in pairs])
    numbers, curve = evidence.curve
    own = shape[:, [SHAPE_FEATURES.index(name) for name in CONTEXT]]
    at = np.clip(shape[:, :1] + np.log(RATIOS), numbers[0], numbers[-1])
    context = [
        np.interp(at[:, ratio], numbers, curve[:, column]) - own[:, column]
        for ratio in range(len(RATIOS))
        for column in range(len(CONTEXT))
    ]
    features = np.column_stack([shape, stated, reached - reached.max(), *context])
    if features.shape[1] != len(FEATURES):
        raise AssertionError(f"{features.shape[1]} features, but {len(FEATURES)} names")
    return features


def merge_probabilities(evidence: Evidence, network: SelectorNetwork) -> tuple[Floats, ...]:
    """Return, for each tree, the probability that a pair brought together by each merge is of one category."""
    found = tuple(network.merge_probabilities(features) for features in evidence.merges)
    links = evidence.links
    if links is None:
        return found
    # A link says more of the merge that brings its rows together than any feature does.
    return tuple(
        sigmoid(log_odds(probability) + links.log_odds(tree))
        for probability, tree in zip(found, evidence.trees, strict=True)
    )


def pairs_of(evidence: Evidence, probabilities: Sequence[Floats], labels: Labels) -> list[PairEvidence]:
    """Compare a partition with the pairs that are expected to be of one category, by each tree."""
    both = zip(evidence.trees, probabilities, strict=True)
    return [pair_evidence(tree, probability, labels) for tree, probability in both]


def mean_ari(pairs: Sequence[PairEvidence]) -> float:
    """Return the adjusted Rand index that is expected, in the mean over the trees."""
    return float(np.mean([one.expected_ari for one in pairs]))


@dataclass(frozen=True, eq=False)
class Groups:
    """The rows of a sample in the order of their clusters."""

    rows: Reals
    """Sorted by cluster."""
    labels: Labels
    """Of the sorted rows."""
    order: Labels
    size: Floats
    start: Labels
    centre: Reals

    @classmethod
    def of(cls, z: Reals, labels: Labels) -> Groups:
        size = np.bincount(labels)
        order = np.argsort(labels, kind="stable")
        start = np.concatenate(([0], np.cumsum(size)[:-1]))
        rows = z[order]
        centre = np.add.reduceat(rows, start) / size[:, None].astype(rows.dtype)
        return cls(rows, labels[order], order, size.astype(np.float64), start, centre)

    def sums(self, values: Reals) -> Floats:
        """Add up values of the sorted rows in each cluster."""
        found: Floats = np.add.reduceat(values, self.start, dtype=np.float64)
        return found

    def mean(self, values: Floats) -> float:
        """Return the mean over rows of values of clusters."""
        return float(values @ self.size / self.size.sum())

    def quantiles(self, values: Floats, *shares: float) -> Floats:
        """Return quantiles over rows of values of clusters."""
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(self.size[order])
        place = np.searchsorted(reached, np.asarray(shares) * reached[-1])
        found: Floats = values[order][np.minimum(place, len(values) - 1)]
        return found


def shape_features(evidence: Evidence, labels: Labels) -> Floats:
    """Return the features of one partition in the order of ``SHAPE_FEATURES``."""
    groups = Groups.of(evidence.scaled, labels)
    rows, clusters = len(labels), len(groups.size)
    rest = groups.rows - groups.centre[groups.labels]
    squared = np.square(rest).sum(1)
    squares = groups.sums(squared)
    # Like the rows, in units of the variance of all rows.
    expected = evidence.expected / evidence.total
    within = max(float(squares.sum()) / max(1, rows - clusters), TINY * expected)
    variance = (squares + within) / groups.size
    share = groups.size / rows
    return np.array(
        [
            np.log(clusters),
            np.log(rows),
            np.log(rows / clusters),
            np.log(within + 1e-6),
            np.log(within / expected + 1e-6),
            *np.log(groups.quantiles(variance, 0.1, 0.5, 0.9) / expected + 1e-6),
            *silhouette_features(groups, squared),
            *gap_features(groups, rest, within),
            *neighbour_features(evidence.near[0], labels, groups),
            -(share * np.log(share)).sum() - np.log(clusters),
            np.log(groups.size.min()),
            groups.size[groups.size < 5].sum() / rows,
            groups.size[groups.size < 2].sum() / rows,
            *split_features(evidence.near[0], labels, groups, rest, squares),
        ]
    )


def silhouettes(groups: Groups, squared: Reals) -> Floats:
    """Return the silhouette of each sorted row by the distances to centres, its own without itself."""
    if len(groups.size) == 1:
        return np.zeros(len(squared))
    apart = np.square(groups.centre).sum(1) - 2 * groups.rows @ groups.centre.T
    apart[np.arange(len(apart)), groups.labels] = np.inf
    # The product says which centre is the nearest, but is not exact where distances are small.
    other = np.sqrt(np.square(groups.rows - groups.centre[apart.argmin(1)]).sum(1))
    size = groups.size[groups.labels]
    own = np.sqrt(squared) * size / np.maximum(size - 1, 1)
    highest = np.maximum(other, own)
    return np.where((size > 1) & (highest > 0), (other - own) / np.where(highest > 0, highest, 1), 0.0)


def silhouette_features(groups: Groups, squared: Reals) -> list[float]:
    """Return features of the silhouettes of rows and of clusters."""
    if len(groups.size) == 1:
        return [0.0] * 6
    values = silhouettes(groups, squared)
    of_clusters = groups.sums(values) / groups.size
    low, half = groups.quantiles(of_clusters, 0.25, 0.5)
    return [values.mean(), np.quantile(values, 0.1), (values < 0.02).mean(), of_clusters.min(), low, half]


def nearest_gaps(groups: Groups, rest: Reals, within: float) -> Floats:
    """Return the log distance from each centre to the nearest other one, in its standard deviations that way."""
    centre, clusters = groups.centre, len(groups.size)
    if clusters == 1:
        return np.full(1, 3.0)
    apart = np.square(centre).sum(1)[:, None] + np.square(centre).sum(1) - 2 * centre @ centre.T
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(1)
    between = centre - centre[nearest]
    gap = np.sqrt(np.square(between).sum(1))
    direction = between / np.maximum(gap, LEAST)[:, None]
    along = np.einsum("ij,ij->i", rest, direction[groups.labels])
    even = AXIS_ROWS * within / centre.shape[1]
    deviation = np.sqrt((groups.sums(np.square(along)) + even) / (groups.size - 1 + AXIS_ROWS))
    gaps: Floats = np.log(gap / deviation + 1e-6)
    return gaps


def gap_features(groups: Groups, rest: Reals, within: float) -> list[float]:
    """Return features of the distances between neighbouring clusters."""
    gaps = nearest_gaps(groups, rest, within)
    return [gaps.min(), *np.quantile(gaps, [0.1, 0.5]).tolist(), groups.mean(gaps)]


def neighbour_features(near: Labels, labels: Labels, groups: Groups) -> list[float]:
    """Return features of the share of a row's nearest neighbours that are in its cluster, of those that can be."""
    if not near.shape[1]:
        return [1.0] * 6
    same = labels[near] == labels[:, None]
    found = []
    for count in (1, 5, 10):
        count = min(count, near.shape[1])
        possible = np.clip(groups.size[labels] - 1, 1, count)
        found.append(same[:, :count].sum(1) / possible)
    of_clusters = np.bincount(labels, found[-1]) / groups.size
    return [*(float(one.mean()) for one in found), of_clusters.min(), *groups.quantiles(of_clusters, 0.1, 0.5)]


def principal_axes(groups: Groups, rest: Reals) -> Reals:
    """Return where each sorted row lies along the principal axis of its cluster."""
    # All start from one direction: the axis of a cluster does not depend on its number.
    start = np.random.default_rng(0).normal(size=(1, groups.centre.shape[1]))
    axes = np.repeat(start.astype(rest.dtype), len(groups.size), 0)
    for _ in range(POWER_ROUNDS):
        along = np.einsum("ij,ij->i", rest, axes[groups.labels])
        axes = np.add.reduceat(rest * along[:, None], groups.start)
        length = np.sqrt(np.square(axes, dtype=np.float64).sum(1)) + 1e-300
        axes = (axes / length[:, None]).astype(rest.dtype)
    found: Reals = np.einsum("ij,ij->i", rest, axes[groups.labels])
    return found


def split_features(near: Labels, labels: Labels, groups: Groups, rest: Reals, squares: Floats) -> list[float]:
    """Return features that tell whether clusters resemble two: along their principal axes, and by neighbours.

    A Gaussian has kurtosis 3, two apart have less, down to 1. The neighbours of rows on one side of the middle are on
    the other side less often than chance would have it, if the sides are two clusters.
    """
    along = principal_axes(groups, rest)
    scale = np.sqrt(groups.sums(np.square(along)) / groups.size)
    scale = np.where(scale > 0, scale, 1.0)
    unit = along / scale[groups.labels]
    second, fourth, absolute = (groups.sums(value) / groups.size for value in (unit**2, unit**4, np.abs(unit)))
    large = groups.size >= SPLIT_ROWS
    share = np.where(squares > 0, np.square(scale) * groups.size / np.where(squares > 0, squares, 1), 0.1)
    axis = np.log(np.where(large, share, 0.1) + 1e-6)
    kurtosis = np.where(large & (second > 0), np.minimum(fourth, 6), 3.0)
    flatness = np.where(large & (second > 0), absolute, 0.8)
    side = np.empty(len(labels), bool)
    side[groups.order] = along > 0
    same = labels[near] == labels[:, None]
    crossing = np.bincount(labels, (same & (side[near] != side[:, None])).sum(1))
    inside = np.bincount(labels, same.sum(1))
    right = np.bincount(labels, side) / groups.size
    crossed = np.where(large, (crossing + 1) / (inside * np.maximum(2 * right * (1 - right), 0.05) + 1), 1.0)
    return [
        groups.mean(axis),
        axis.max(),
        groups.mean(kurtosis),
        kurtosis.min(),
        groups.mean(flatness),
        flatness.max(),
        groups.mean(crossed),
        float(groups.quantiles(crossed, 0.1)[0]),
        crossed.min(),
    ]


def adjusted_rand_indices(candidates: Sequence[Labels]) -> Floats:
    """Return the ARI of every two candidates."""
    clusters = [int(labels.max()) + 1 for labels in candidates]
    rows = len(candidates[0])
    squares = np.empty((len(candidates), len(candidates)))
    for one, labels in enumerate(candidates):
        for two in range(one + 1):
            # The contingency table of the two, as one row.
            table = np.bincount(labels * clusters[two] + candidates[two])
            squares[one, two] = squares[two, one] = table @ table
    common_pairs = (squares - rows) / 2
    pairs = np.diagonal(common_pairs)
    expected = pairs[:, None] * pairs / max(1, rows * (rows - 1) / 2)
    highest = (pairs[:, None] + pairs) / 2
    varies = highest > expected
    result: Floats = np.where(varies, (common_pairs - expected) / np.where(varies, highest - expected, 1), 1.0)
    return result
