"""The rows of each cluster as the mixture needs them: sums, to which further rows are added and others taken away."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust.inference.known import Catalogue
from metaclust.inference.stages import Floats, Labels
from metaclust.mixture.components import Components
from metaclust.mixture.families import Family
from metaclust.mixture.posterior import with_tensors
from metaclust.mixture.statistics import Statistics
from metaclust.mixture.step import vb_step
from metaclust.mixture.sticks import Sticks
from metaclust.model.clustering_model import ClusteringModel

BLOCK = 1 << 22
"""Numbers of features that are in memory at a time."""


@dataclass(frozen=True, eq=False)
class Tally:
    """The sufficient statistics of each cluster, of rows around an origin that never changes."""

    origin: Floats
    """(S,)"""
    sums: Floats
    """(clusters, features) of the component family."""
    factor: float
    """The variance that is expected of clusters, as a multiple of that of the model's prior."""

    def __len__(self) -> int:
        return len(self.sums)

    @classmethod
    def empty(cls, model: ClusteringModel, origin: Floats, factor: float, clusters: int = 0) -> Tally:
        """Return that of clusters without rows."""
        return cls(origin, np.zeros((clusters, model.family.feature_count(len(origin)))), factor)

    @classmethod
    def of(
        cls,
        model: ClusteringModel,
        z: NDArray[np.floating[Any]],
        labels: Labels,
        clusters: int,
        origin: Floats,
        factor: float,
    ) -> Tally:
        """Add up the rows of each cluster."""
        return cls.empty(model, origin, factor, clusters).with_rows(model, z, labels)

    def with_rows(
        self,
        model: ClusteringModel,
        z: NDArray[np.floating[Any]],
        labels: Labels,
        sign: float = 1.0,
        clusters: int | None = None,
    ) -> Tally:
        """Return the sums with further rows, or without some (``sign=-1``), and perhaps with further clusters."""
        sums = np.zeros((max(len(self), clusters or 0), self.sums.shape[1]))
        sums[: len(self)] = self.sums
        total = torch.from_numpy(sums)
        family = model.family
        block = max(16, BLOCK // self.sums.shape[1])
        for start in range(0, len(z), block):
            rows = torch.from_numpy(z[start : start + block].astype(np.float64) - self.origin)
            place = torch.tensor(labels[start : start + block])
            total.index_add_(0, place, family.features(rows), alpha=sign)
        return replace(self, sums=sums)

    def take(self, clusters: Labels) -> Tally:
        """Return some of the clusters, in the order given."""
        return replace(self, sums=self.sums[clusters])

    def merged(self, into: Labels, clusters: int) -> Tally:
        """Return the sums of unions of clusters: ``into`` says in which one each is."""
        sums = np.zeros((clusters, self.sums.shape[1]))
        np.add.at(sums, into, self.sums)
        return replace(self, sums=sums)

    def statistics(self, model: ClusteringModel) -> Statistics:
        found: Statistics = model.family.read(torch.tensor(self.sums))
        return found

    def counts(self, model: ClusteringModel) -> Floats:
        """Return the number of rows of each cluster."""
        counts: Floats = self.statistics(model).count.numpy()
        return counts

    @torch.no_grad()
    def mixture(self, model: ClusteringModel) -> tuple[Family, Any, Sticks, Labels]:
        """Return the posterior given these rows, the largest cluster first, and this order of the clusters."""
        order = np.argsort(-self.counts(model), kind="stable")
        family: Family = with_tensors(model.family_of(self.factor), Tensor.cpu)
        sums = torch.from_numpy(self.sums[order])
        prior = family.start(sums[:0], len(order))
        sticks, parameters = vb_step(family, family.read(sums), prior, model.alpha.detach().cpu().to(sums))
        return family, parameters, sticks, order

    def components(self, model: ClusteringModel) -> Components:
        """Return the components of the posterior given these rows, in the order of the clusters."""
        family, parameters, sticks, order = self.mixture(model)
        found = Components.of_parameters(family, parameters, sticks)
        found = replace(found, means=found.means + self.origin)
        return found.take(np.argsort(order))

    def catalogue(self, model: ClusteringModel, trained: NDArray[np.bool_]) -> Catalogue:
        """Describe the clusters as categories that are known; those without rows are taken for single rows."""
        read = self.statistics(model)
        counts, first = np.maximum(read.count.numpy(), 1), read.first.numpy()
        second = read.second
        if second.ndim == 3:
            second = second.diagonal(dim1=-2, dim2=-1)
        total = (second if second.ndim == 1 else second.sum(-1)).numpy()
        squares = np.maximum(total - np.square(first).sum(1) / counts, 0) / counts
        return Catalogue(first / counts[:, None] + self.origin, counts, squares, trained)
