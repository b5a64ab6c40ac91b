"""Several partitions of the same rows, of which many share clusters: what is said of a cluster is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from metaclust.inference.groups import sorted_by
from metaclust.inference.stages import Floats, Labels
from metaclust.inference.trees import MergeTree

HASH = 1 << 36
"""Clusters are the same if sums of random whole numbers below this one are, which are exact in double precision."""


@dataclass(frozen=True, eq=False)
class Partitions:
    """Partitions of the same rows, with labels from 0 on, and the different clusters among all of theirs.

    A place is a cluster of one of the partitions: those of the first come first.
    """

    labels: Labels
    """(partitions, rows)"""
    clusters: Labels
    """(partitions,), the number of clusters of each."""

    @classmethod
    def of(cls, partitions: Sequence[Labels]) -> Partitions:
        labels = np.stack(partitions)
        return cls(labels, labels.max(1) + 1)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def rows(self) -> int:
        return int(self.labels.shape[1])

    @cached_property
    def offset(self) -> Labels:
        """The first place of each partition."""
        return np.cumsum(self.clusters) - self.clusters

    @cached_property
    def partition(self) -> Labels:
        """The partition of each place."""
        return np.repeat(np.arange(len(self)), self.clusters)

    @cached_property
    def places(self) -> Labels:
        """(partitions, rows), the place of each row's cluster."""
        return self.labels + self.offset[:, None]

    @cached_property
    def size(self) -> Labels:
        """The number of rows at each place."""
        return np.bincount(self.places.ravel())

    @cached_property
    def order(self) -> Labels:
        """(partitions, rows), the rows of each partition in the order of its clusters."""
        return sorted_by(self.labels)

    @cached_property
    def _different(self) -> tuple[Labels, Labels]:
        weights = np.random.default_rng(0).integers(HASH, size=(2, self.rows)).astype(np.float64)
        shape, places = self.labels.shape, self.places.ravel()
        real, imaginary = (np.bincount(places, np.broadcast_to(each, shape).ravel()) for each in weights)
        _, first, cluster = np.unique(real + 1j * imaginary, return_index=True, return_inverse=True)
        return first, cluster

    @property
    def first(self) -> Labels:
        """The first place of each different cluster."""
        return self._different[0]

    @property
    def cluster(self) -> Labels:
        """Which of the different clusters is at each place."""
        return self._different[1]

    @cached_property
    def cluster_size(self) -> Labels:
        """The number of rows of each different cluster."""
        return self.size[self.first]

    @cached_property
    def cluster_start(self) -> Labels:
        """Where each different cluster begins in :attr:`members`."""
        return np.cumsum(self.cluster_size) - self.cluster_size

    @cached_property
    def members(self) -> Labels:
        """The rows of the first of the different clusters, of the second, and so on."""
        # The places are in the order of the rows of all partitions, sorted by cluster.
        begin = np.cumsum(self.size) - self.size
        shift = np.repeat(begin[self.first] - self.cluster_start, self.cluster_size)
        return self.order.ravel()[shift + np.arange(len(shift))]

    @cached_property
    def position(self) -> Labels:
        """(partitions, rows), where each row of :attr:`order` is in :attr:`members`, as one of its cluster."""
        begin = np.cumsum(self.size) - self.size
        shift = np.repeat(self.cluster_start[self.cluster] - begin, self.size)
        return (shift + np.arange(len(shift))).reshape(self.labels.shape)

    def sums(self, values: Floats) -> Floats:
        """Add up values of places in each partition."""
        found: Floats = np.add.reduceat(values, self.offset)
        return found

    def least(self, values: Floats) -> Floats:
        """Return the least value of places in each partition."""
        found: Floats = np.minimum.reduceat(values, self.offset)
        return found

    def largest(self, values: Floats) -> Floats:
        """Return the largest value of places in each partition."""
        found: Floats = np.maximum.reduceat(values, self.offset)
        return found

    def mean(self, values: Floats) -> Floats:
        """Return the mean over rows of values of places, in each partition."""
        return self.sums(values * self.size) / self.rows

    def quantiles(self, values: Floats, *shares: float) -> list[Floats]:
        """Return quantiles over rows of values of places, in each partition."""
        order = np.lexsort((values, self.partition))
        reached = np.cumsum(self.size[order])
        # Whole numbers: it must not depend on other partitions where exactly as many rows are reached.
        wanted = [np.arange(len(self)) * self.rows + max(1, int(np.ceil(share * self.rows))) for share in shares]
        return [values[order[np.searchsorted(reached, each)]] for each in wanted]

    def quantiles_of_clusters(self, values: Floats, *shares: float) -> list[Floats]:
        """Return quantiles over clusters of values of places, in each partition, as ``numpy.quantile`` does."""
        ordered = values[np.lexsort((values, self.partition))]
        found = []
        for share in shares:
            place = (self.clusters - 1) * share
            below = np.floor(place).astype(np.int64)
            low = ordered[self.offset + below]
            high = ordered[self.offset + np.minimum(below + 1, self.clusters - 1)]
            found.append(low + (high - low) * (place - below))
        return found

    def probable_pairs(self, tree: MergeTree, probability: Floats) -> Floats:
        """Return, for each different cluster, the sum over its pairs of rows of the probability of their merge."""
        rows = self.rows
        if rows == 1:
            return np.zeros(len(self.first))
        where = np.empty(rows, np.int64)
        where[tree.order] = np.arange(rows)
        base = np.repeat(np.arange(len(self.first)) * rows, self.cluster_size)
        keys = np.sort(base + where[self.members])
        # Rows of a cluster that stand side by side are joined by different merges, which are all of those within it.
        low = np.flatnonzero(base[1:] == base[:-1])
        base = base[low]
        merge = tree.joins(keys[low] - base, keys[low + 1] - base)
        counts = []
        for node in (tree.first[merge], tree.second[merge]):
            begin = base + tree.start[node]
            counts.append(np.searchsorted(keys, begin + tree.size[node]) - np.searchsorted(keys, begin))
        expected = probability[merge] * (counts[0] * counts[1])
        return np.bincount(base // rows, expected, len(self.first)).astype(np.float64)
