"""A fitted mixture as plain arrays: what a result stores, and what assigns further rows to its clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from metaclust.mixture.families import Family, family_of_precisions
from metaclust.mixture.posterior import Posterior
from metaclust.mixture.sticks import Sticks, expected_log_weights, expected_weights

BLOCK = 1 << 19
"""The number of differences between rows and means that are in memory at a time."""


@dataclass(frozen=True, eq=False)
class Placement:
    """Where rows are among clusters."""

    labels: NDArray[np.int64]
    """The cluster of each row: the most probable one, or the one where it was put."""
    probability: NDArray[np.float64]
    """Its probability."""
    own: NDArray[np.float64]
    """The squared distance to its mean."""
    other: NDArray[np.float64]
    """The squared distance to the nearest mean of another; infinite if there is none."""


@dataclass(frozen=True)
class Components:
    """The mixture's posterior, one entry for each cluster, the largest cluster first."""

    weights: NDArray[np.float64]
    """The expected share of the data in each cluster."""
    means: NDArray[np.float64]
    """(clusters, S)"""
    precisions: NDArray[np.float64]
    """(clusters,), (clusters, S) or (clusters, S, S): see :attr:`Family.precision_axes`."""
    offsets: NDArray[np.float64]
    """The score of a row is offset_k - (z - mean_k)^T precision_k (z - mean_k) / 2: E[log pi_k] + E[log N(z | k)]."""

    @classmethod
    def of(cls, posterior: Posterior) -> Components:
        """The components of a single task's posterior, in its order."""
        family, parameters = posterior.family, posterior.parameters
        constant = family.constant if posterior.sticks is None else family.expected_constant
        return cls._of(family, parameters, posterior.weights, posterior.expected_log_weights + constant(parameters))

    @classmethod
    def of_parameters(cls, family: Family, parameters: Any, sticks: Sticks) -> Components:
        """The components of a posterior that was found in blocks of rows."""
        offsets = expected_log_weights(sticks) + family.expected_constant(parameters)
        return cls._of(family, parameters, expected_weights(sticks), offsets)

    @classmethod
    def _of(cls, family: Family, parameters: Any, weights: Tensor, offsets: Tensor) -> Components:
        arrays = (weights.double(), parameters.theta, family.expected_precisions(parameters), offsets)
        return cls(*(array.detach().cpu().double().numpy() for array in arrays))

    def take(self, clusters: NDArray[np.int64]) -> Components:
        """Some of the clusters, in the order given."""
        return Components(
            self.weights[clusters], self.means[clusters], self.precisions[clusters], self.offsets[clusters]
        )

    def probabilities(self, z: NDArray[Any]) -> NDArray[np.float64]:
        """The probability of each cluster for rows (rows, S), as (rows, clusters)."""
        result = np.empty((len(z), len(self.weights)))
        for place, probabilities in self._blocks(z):
            result[place] = probabilities
        return result

    def assigned(self, z: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The most probable cluster of each row and its probability, without a (rows, clusters) array."""
        labels, confidence = np.empty(len(z), dtype=np.int64), np.empty(len(z))
        for place, probabilities in self._blocks(z):
            labels[place], confidence[place] = probabilities.argmax(1), probabilities.max(1)
        return labels, confidence

    def placed(self, z: NDArray[Any], labels: NDArray[np.int64] | None = None) -> Placement:
        """The cluster of each row, its probability, and the distances to its mean and the next one.

        By default the most probable cluster.
        """
        if labels is None:
            labels, probability = self.assigned(z)
        else:
            probability = np.empty(len(z))
            for place, probabilities in self._blocks(z):
                probability[place] = probabilities[np.arange(len(probabilities)), labels[place]]
        own, other = np.empty(len(z)), np.full(len(z), np.inf)
        centre = self.means.mean(0)
        means = self.means - centre
        squares = np.square(means).sum(1)
        block = max(16, BLOCK // max(1, len(means)))
        for start in range(0, len(z), block):
            rows, of_block = z[start : start + block].astype(np.float64) - centre, labels[start : start + block]
            own[start : start + block] = np.square(rows - means[of_block]).sum(1)
            if len(means) > 1:
                apart = np.square(rows).sum(1)[:, None] + squares - 2 * rows @ means.T
                apart[np.arange(len(rows)), of_block] = np.inf
                other[start : start + block] = np.maximum(apart.min(1), 0)
        return Placement(labels, probability, own, other)

    def _blocks(self, z: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        family = family_of_precisions(self.precisions.ndim - 1)
        block = max(16, BLOCK // max(1, self.means.size))
        for start in range(0, len(z), block):
            # (clusters, rows, S): the difference itself, because rows may be far from zero and close to each other.
            difference = z[None, start : start + block].astype(np.float64) - self.means[:, None]
            square = family.squares(difference, self.precisions)
            scores = (self.offsets[:, None] - 0.5 * square).T
            scores = np.exp(scores - scores.max(1, keepdims=True))
            yield slice(start, start + block), scores / scores.sum(1, keepdims=True)
