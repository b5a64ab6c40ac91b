"""A fitted mixture as plain arrays: what a result keeps, and what puts further rows into its clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust.mixture.inference import Family, Posterior
from metaclust.mixture.sticks import expected_log_weights, expected_weights
from metaclust.mixture.streaming import Inferred

BLOCK = 1 << 19
"""How many numbers are in hand at a time where rows meet clusters."""


@dataclass(frozen=True)
class Components:
    """The mixture's posterior, one entry for each cluster, the largest cluster first."""

    weights: NDArray[np.float64]
    """How much of all data each cluster is expected to hold."""
    means: NDArray[np.float64]
    """(clusters, S)"""
    precisions: NDArray[np.float64]
    """(clusters,), or (clusters, S, S) for full covariances."""
    offsets: NDArray[np.float64]
    """The score of a row is offset_k - (z - mean_k)^T precision_k (z - mean_k) / 2: E[log pi_k] + E[log N(z | k)]."""

    @classmethod
    def of(cls, posterior: Posterior) -> Components:
        """Those of a single task's posterior, in its order."""
        family, parameters = posterior.family, posterior.parameters
        score = family.log_likelihood if posterior.sticks is None else family.expected_log_likelihood
        scores = score(family.features(parameters.theta), parameters) + posterior.expected_log_weights
        return cls._of(posterior.weights, parameters, scores)

    @classmethod
    def of_blocks(cls, family: Family, posterior: Inferred) -> Components:
        """Those of a posterior that was found in blocks of rows."""
        parameters, sticks = posterior.parameters, posterior.sticks
        scores = family.expected_log_likelihood(family.features(parameters.theta), parameters)
        return cls._of(expected_weights(sticks), parameters, scores + expected_log_weights(sticks))

    @classmethod
    def _of(cls, weights: Tensor, parameters: Any, scores: Tensor) -> Components:
        """``scores`` are those of the means themselves."""
        if parameters.b.ndim == 1:
            precisions = parameters.a / parameters.b
        else:
            precisions = parameters.a[:, None, None] * torch.linalg.inv(parameters.b)
        arrays = (weights.double(), parameters.theta, precisions, scores.diagonal())
        return cls(*(array.detach().cpu().double().numpy() for array in arrays))

    def take(self, clusters: NDArray[np.int64]) -> Components:
        """Some of the clusters, in the order given."""
        return Components(
            self.weights[clusters], self.means[clusters], self.precisions[clusters], self.offsets[clusters]
        )

    def probabilities(self, z: NDArray[Any]) -> NDArray[np.float64]:
        """(rows, S) to (rows, clusters): the E step at these components."""
        result = np.empty((len(z), len(self.weights)))
        for place, probabilities in self._blocks(z):
            result[place] = probabilities
        return result

    def assigned(self, z: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The most probable cluster of each row and its probability; never all rows' by all clusters at once."""
        labels, confidence = np.empty(len(z), dtype=np.int64), np.empty(len(z))
        for place, probabilities in self._blocks(z):
            labels[place], confidence[place] = probabilities.argmax(1), probabilities.max(1)
        return labels, confidence

    def _blocks(self, z: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        block = max(16, BLOCK // max(1, self.means.size))
        for start in range(0, len(z), block):
            # (clusters, rows, S): the difference itself, for rows may be far from zero and near to each other.
            difference = z[None, start : start + block].astype(np.float64) - self.means[:, None]
            if self.precisions.ndim == 1:
                square = self.precisions[:, None] * np.square(difference).sum(-1)
            else:
                square = np.einsum("kns,kst,knt->kn", difference, self.precisions, difference, optimize=True)
            scores = (self.offsets[:, None] - 0.5 * square).T
            scores = np.exp(scores - scores.max(1, keepdims=True))
            yield slice(start, start + block), scores / scores.sum(1, keepdims=True)
