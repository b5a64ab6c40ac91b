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

import numpy as np
from numpy.typing import NDArray

from metaclust.inference.links import Links
from metaclust.inference.merges import TINY, merge_features, neighbours
from metaclust.inference.partitions import Partitions
from metaclust.inference.shapes import shape_features
from metaclust.inference.stages import Floats, Labels, Sample
from metaclust.inference.trees import MergeTree, PairEvidence, evidence_of_pairs, merge_trees
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
        cuts = Partitions.of([self.trees[0].cut(number) for number in numbers])
        return np.log(numbers), self.shapes(cuts)[:, [SHAPE_FEATURES.index(name) for name in CONTEXT]]

    def shapes(self, partitions: Partitions) -> Floats:
        """Return (partitions, features) in the order of ``SHAPE_FEATURES``."""
        # Like the rows, the expected variance is in units of that of all rows.
        return shape_features(self.scaled, self.near[0], self.expected / self.total, partitions)


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
    partitions = Partitions.of(candidates)
    shape = evidence.shapes(partitions)
    pairs = pairs_of_all(evidence, probabilities, partitions)
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
    return pairs_of_all(evidence, probabilities, Partitions.of([labels]))[0]


def pairs_of_all(
    evidence: Evidence, probabilities: Sequence[Floats], partitions: Partitions
) -> list[list[PairEvidence]]:
    """Compare each of several partitions with these pairs, by each tree."""
    together = partitions.sums(partitions.size * (partitions.size - 1) / 2)
    of_trees = []
    for tree, probability in zip(evidence.trees, probabilities, strict=True):
        found = partitions.sums(partitions.probable_pairs(tree, probability)[partitions.cluster])
        pairs = zip(together.tolist(), found.tolist(), strict=True)
        of_trees.append([evidence_of_pairs(tree, probability, *both) for both in pairs])
    return [list(both) for both in zip(*of_trees, strict=True)]


def mean_ari(pairs: Sequence[PairEvidence]) -> float:
    """Return the adjusted Rand index that is expected, in the mean over the trees."""
    return float(np.mean([one.expected_ari for one in pairs]))


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
