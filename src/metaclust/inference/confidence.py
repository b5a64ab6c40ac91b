"""How sure it is that a row is in the right cluster: calibrated on categories that the encoder has not seen.

The probability of a cluster under the mixture says how much nearer its mean is than others, and next to nothing about
whether the clusters are right. The confidence also considers how far a row is from its cluster's mean, whether the
cluster itself resembles a category, and whether other candidates have the same cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from metaclust.inference.features import Evidence, mean_ari, pairs_of
from metaclust.inference.groups import Groups, nearest_gaps, principal_axes
from metaclust.inference.stages import Floats, Labels
from metaclust.mixture.components import Components, Placement
from metaclust.model.selector import CLUSTER_FEATURES, CONFIDENCE_FEATURES, FURTHER, SelectorNetwork, log_odds, sigmoid

MOST_ODDS = 12.0
FARTHEST = 20.0
"""The largest number of standard deviations by which a row may be farther from the mean than the cluster's others."""
PRIOR_ROWS = 5.0
"""As how many rows the average cluster counts in the distances of a cluster's rows."""


@dataclass(frozen=True, eq=False)
class ClusterFacts:
    """What is known of each cluster, besides its component, by which rows are judged."""

    features: Floats
    """(clusters, features), see :data:`metaclust.model.selector.CLUSTER_FEATURES`."""
    mean_square: Floats
    """(clusters,), the mean squared distance of its rows from its mean."""
    deviation: Floats
    """(clusters,), the standard deviation of these squared distances."""

    def take(self, clusters: Labels) -> ClusterFacts:
        """Return some of the clusters, in the order given."""
        return ClusterFacts(*(getattr(self, field.name)[clusters] for field in fields(self)))


def cluster_facts(
    evidence: Evidence,
    probabilities: Sequence[Floats],
    placed: Placement,
    clusters: int,
    candidates: Sequence[Labels],
    weights: Floats,
) -> ClusterFacts:
    """Describe the clusters of the rows of a sample.

    Parameters
    ----------
    evidence : Evidence
        Of the sample.
    probabilities : sequence of ndarray
        Of the merges of each tree.
    placed : Placement
        Where the rows of the sample are.
    clusters : int
        The number of clusters, of which some may have no row of the sample.
    candidates : sequence of ndarray of shape (rows,)
        All partitions that were compared.
    weights : ndarray of shape (candidates,)
        The probability of each.
    """
    present, labels = np.unique(placed.labels, return_inverse=True)
    groups = Groups.of(evidence.z, labels)
    rows, size = len(labels), groups.size
    rest = groups.rows - groups.centre[groups.labels]
    squares = groups.sums(np.square(rest).sum(1))
    within = max(float(squares.sum()) / max(1, rows - len(size)), 1e-9 * evidence.expected)
    along = principal_axes(groups, rest)
    scale = np.sqrt(groups.sums(np.square(along)) / size)
    flatness = np.where(
        (size >= 6) & (scale > 0), groups.sums(np.abs(along)) / size / np.where(scale > 0, scale, 1), 0.8
    )
    score = mean_ari(pairs_of(evidence, probabilities, labels))
    pairs = [tree.mean_within(labels, p) for tree, p in zip(evidence.trees, probabilities, strict=True)]
    features = np.column_stack(
        [
            np.log(size),
            np.log(size / rows),
            np.log((squares + within) / size / evidence.expected + 1e-6),
            nearest_gaps(groups, rest, within),
            *pairs,
            agreement(labels, candidates, weights),
            flatness,
            np.full(len(size), score),
            np.full(len(size), np.log(len(size))),
        ]
    )
    own = placed.own
    total, spread = float(own.mean()), float(own.std())
    count = np.bincount(labels) + PRIOR_ROWS
    mean = (np.bincount(labels, own) + PRIOR_ROWS * total) / count
    deviation = np.sqrt((np.bincount(labels, np.square(own - mean[labels])) + PRIOR_ROWS * spread**2) / count)
    # Clusters that no row of the sample is in are like the least sure of the others.
    worst = int(features[:, CLUSTER_FEATURES.index("agreement")].argmin())
    every = np.full(clusters, worst)
    every[present] = np.arange(len(present))
    return ClusterFacts(features, mean, deviation).take(every)


def agreement(labels: Labels, candidates: Sequence[Labels], weights: Floats) -> Floats:
    """Return, for each cluster, the mean Jaccard index with the most similar cluster of each of the candidates."""
    size = np.bincount(labels).astype(np.float64)
    found = np.zeros(len(size))
    for other, weight in zip(candidates, weights.tolist(), strict=True):
        others = np.bincount(other).astype(np.float64)
        table = np.zeros((len(size), len(others)))
        np.add.at(table, (labels, other), 1)
        found += weight * (table / (size[:, None] + others - table)).max(1)
    return found


def row_features(placed: Placement, facts: ClusterFacts, expected: float, further: bool) -> Floats:
    """Return (rows, features), see :data:`metaclust.model.selector.CONFIDENCE_FEATURES`."""
    own, other = np.sqrt(placed.own), np.sqrt(placed.other)
    farther = np.maximum(own, np.where(np.isfinite(other), other, 0))
    silhouette = np.where(np.isfinite(other) & (farther > 0), (other - own) / np.where(farther > 0, farther, 1), 1.0)
    odds = log_odds(placed.probability)
    mean, deviation = facts.mean_square[placed.labels], facts.deviation[placed.labels]
    tiny = 1e-9 * expected
    features = np.empty((len(own), len(CONFIDENCE_FEATURES)))
    features[:, 0] = np.clip(odds, -MOST_ODDS, MOST_ODDS)
    features[:, 1] = silhouette
    features[:, 2] = np.clip(np.log((placed.own + tiny) / expected), -10, 10)
    features[:, 3] = np.clip(np.log((placed.own + tiny) / (mean + tiny)), -10, 10)
    features[:, 4] = np.clip((placed.own - mean) / (deviation + tiny), -5, FARTHEST)
    features[:, 5:FURTHER] = facts.features[placed.labels]
    features[:, FURTHER] = float(further)
    return features


@dataclass(frozen=True, eq=False)
class Confidence:
    """Assigns rows to clusters with a calibrated confidence."""

    components: Components
    facts: ClusterFacts
    network: SelectorNetwork
    expected: float

    def assigned(self, z: NDArray[np.float32], further: bool = False) -> tuple[Labels, Floats]:
        """Return the most probable cluster of each row, and the probability that it is the right one.

        ``further`` rows are others than those in which the clusters were found.
        """
        placed = self.components.placed(z)
        return placed.labels, self.of(placed, further)

    def of(self, placed: Placement, further: bool = False) -> Floats:
        """Return the probability that each row is in the right cluster."""
        return sigmoid(self.network.confidence.outputs(row_features(placed, self.facts, self.expected, further)))


def right_rows(labels: Labels, y: Labels, clusters: int) -> tuple[NDArray[np.bool_], Labels]:
    """Return which rows are in the cluster that stands for their category, and that category of each cluster.

    Clusters and categories are matched such that as many rows as possible agree; -1 is no category.
    """
    categories = np.unique(y[y >= 0])
    table = np.zeros((clusters, len(categories)))
    known = y >= 0
    np.add.at(table, (labels[known], np.searchsorted(categories, y[known])), 1)
    matched = np.full(clusters, -2)
    rows, columns = linear_sum_assignment(-table)
    matched[rows] = categories[columns]
    return matched[labels] == y, matched
