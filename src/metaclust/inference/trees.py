"""Trees of merges of rows: their cuts, and the pairs of rows that each merge brings together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage

from metaclust.inference.stages import Floats, Labels

COLUMNS = 256
"""Clusters whose rows are counted in one block."""


@dataclass(frozen=True, eq=False)
class MergeTree:
    """A binary tree over n rows: nodes 0 to n - 1 are the rows, node n + m is made by merge m, in order of height.

    Attributes
    ----------
    first, second : ndarray of shape (n - 1,)
        The two nodes that each merge joins.
    size : ndarray of shape (2n - 1,)
        The number of rows of each node.
    start : ndarray of shape (2n - 1,)
        The rows of a node are ``order[start : start + size]``.
    order : ndarray of shape (n,)
        The rows from left to right.
    """

    first: Labels
    second: Labels
    size: Labels
    start: Labels
    order: Labels

    @classmethod
    def of(cls, linked: Floats) -> MergeTree:
        """Take a tree from scipy's linkage matrix."""
        rows = len(linked) + 1
        first, second = linked[:, 0].astype(np.int64), linked[:, 1].astype(np.int64)
        size, start = np.ones(2 * rows - 1, np.int64), np.zeros(2 * rows - 1, np.int64)
        size[rows:] = linked[:, 3].astype(np.int64)
        for merge in range(rows - 2, -1, -1):
            one, two = first[merge], second[merge]
            start[one] = start[rows + merge]
            start[two] = start[rows + merge] + size[one]
        order = np.empty(rows, np.int64)
        order[start[:rows]] = np.arange(rows)
        return cls(first, second, size, start, order)

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def parent(self) -> Labels:
        """The node that each node is merged into; the root has itself."""
        rows = len(self)
        parent = np.full(2 * rows - 1, 2 * rows - 2)
        made = np.arange(rows, 2 * rows - 1)
        parent[self.first], parent[self.second] = made, made
        return parent

    @cached_property
    def levels(self) -> tuple[Labels, ...]:
        """All merges, in groups: what a merge joins are rows, or was made in an earlier group."""
        rows = len(self)
        height = [0] * (2 * rows - 1)
        for merge, (one, two) in enumerate(zip(self.first.tolist(), self.second.tolist(), strict=True)):
            height[rows + merge] = 1 + max(height[one], height[two])
        of_merges = np.array(height[rows:], np.int64)
        order = np.argsort(of_merges, kind="stable")
        return tuple(np.split(order, np.cumsum(np.bincount(of_merges)[1:])[:-1])) if rows > 1 else ()

    @cached_property
    def gaps(self) -> Labels:
        """The place in the order of rows behind which the second side of each merge begins, each place once."""
        return self.start[self.second] - 1

    @cached_property
    def _highest(self) -> Labels:
        """Of 1, 2, 4, ... gaps from each on, the last merge."""
        of_gaps = np.empty(len(self.gaps), np.int64)
        of_gaps[self.gaps] = np.arange(len(self.gaps))
        table = [of_gaps]
        while 2 ** len(table) <= len(of_gaps):
            last, step = table[-1], 2 ** (len(table) - 1)
            both = last.copy()
            np.maximum(last[:-step], last[step:], out=both[:-step])
            table.append(both)
        return np.stack(table)

    def joins(self, low: Labels, high: Labels) -> Labels:
        """Return the merge that brings together the rows at two places of the order, of which ``low`` comes first."""
        power = np.frexp(high - low)[1] - 1
        found: Labels = np.maximum(self._highest[power, low], self._highest[power, high - 2**power])
        return found

    @cached_property
    def place(self) -> Labels:
        """Where each row is in the order."""
        place = np.empty(len(self), np.int64)
        place[self.order] = np.arange(len(self))
        return place

    @cached_property
    def pairs(self) -> Floats:
        """The number of pairs of rows that each merge brings together."""
        return (self.size[self.first] * self.size[self.second]).astype(np.float64)

    def cut(self, number: int) -> Labels:
        """Return the labels of ``number`` clusters: the tree without its last merges."""
        number = min(number, len(self))
        nodes = 2 * len(self) - number
        tops = np.flatnonzero(self.parent[:nodes] >= nodes) if number > 1 else np.array([nodes - 1])
        return self.labelled(tops)

    def labelled(self, tops: Labels) -> Labels:
        """Return the labels of clusters that are given as nodes, none of them within another."""
        tops = tops[np.argsort(self.start[tops])]
        labels = np.empty(len(self), np.int64)
        labels[self.order] = np.repeat(np.arange(len(tops)), self.size[tops])
        return labels

    def best_cuts(self, probability: Floats, thresholds: Sequence[float]) -> list[Labels]:
        """Return the cuts with the most pairs of one category, for each price of a pair.

        For each threshold t, the cut has the highest sum of (probability - t) over the pairs of rows within its
        clusters. Where the trade-off of the adjusted Rand index between the pairs found and the pairs put together is
        t, this is the cut with the highest expected index.

        Parameters
        ----------
        probability : ndarray of shape (n - 1,)
            The probability that a pair brought together by each merge is of one category.
        thresholds : sequence of float
        """
        rows, prices = len(self), np.asarray(thresholds)
        gain = (probability[:, None] - prices) * self.pairs[:, None]
        whole, best = np.zeros((2 * rows - 1, len(prices))), np.zeros((2 * rows - 1, len(prices)))
        kept = np.ones((2 * rows - 1, len(prices)), bool)
        for merges in self.levels:
            nodes, one, two = rows + merges, self.first[merges], self.second[merges]
            whole[nodes] = gain[merges] + whole[one] + whole[two]
            apart = best[one] + best[two]
            kept[nodes] = whole[nodes] >= apart
            best[nodes] = np.maximum(whole[nodes], apart)
        below = np.zeros((2 * rows - 1, len(prices)), bool)
        for merges in reversed(self.levels):
            below[self.first[merges]] = below[self.second[merges]] = below[rows + merges] | kept[rows + merges]
        return [self.labelled(np.flatnonzero(top)) for top in (kept & ~below).T]

    def lowest_merges(self, one: Labels, two: Labels) -> Labels:
        """Return the merge that brings together each pair of two different rows."""
        one, two = self.place[one], self.place[two]
        return self.joins(np.minimum(one, two), np.maximum(one, two))

    def pairs_within(self, labels: Labels) -> Floats:
        """Return, for each merge, how many of the pairs that it brings together have one label."""
        pure, mixed = self._pure_and_mixed(labels)
        within = np.where(pure, self.pairs, 0.0)
        for one, two in self._sides(labels, mixed):
            within[mixed] += np.einsum("mk,mk->m", one, two, dtype=np.float64)
        return within

    def mean_within(self, labels: Labels, probability: Floats) -> Floats:
        """Return, for each cluster, the mean probability of the pairs of its rows; 1 where it has one row."""
        pure, mixed = self._pure_and_mixed(labels)
        size = np.bincount(labels)
        label = labels[self.order[self.start[self.first[pure]]]]
        sums = np.bincount(label, (probability * self.pairs)[pure], len(size)).astype(np.float64)
        of_mixed = probability[mixed]
        sums += np.concatenate([np.einsum("m,mk,mk->k", of_mixed, one, two) for one, two in self._sides(labels, mixed)])
        return np.where(size > 1, sums / np.maximum(size * (size - 1) / 2, 1), 1.0)

    def _pure_and_mixed(self, labels: Labels) -> tuple[NDArray[np.bool_], Labels]:
        """Return which merges are of rows of one label, and the places of those with several labels on one side.

        No other merge brings rows of one label together.
        """
        ordered = labels[self.order]
        changes = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])])
        one, two = ((self.start[node], self.start[node] + self.size[node] - 1) for node in (self.first, self.second))
        apart = [changes[last] != changes[first] for first, last in (one, two)]
        # Rows of a node stand side by side, and so do the two sides of a merge.
        low, high = np.minimum(one[0], two[0]), np.maximum(one[1], two[1])
        return changes[high] == changes[low], np.flatnonzero(apart[0] | apart[1])

    def _sides(self, labels: Labels, merges: Labels) -> Iterator[tuple[Floats, Floats]]:
        """Yield (merges, some clusters): how many of their rows are on either side of each of the merges."""
        clusters = int(labels.max()) + 1
        ordered = labels[self.order]
        nodes = [node[merges] for node in (self.first, self.second)]
        edges = np.concatenate([[self.start[node], self.start[node] + self.size[node]] for node in nodes])
        # Rows are only counted between the ends of sides, which are few.
        ends, place = np.unique(edges, return_inverse=True)
        begin_one, end_one, begin_two, end_two = place.reshape(edges.shape)
        stretch = np.searchsorted(ends, np.arange(len(ordered)), side="right")
        for begin in range(0, clusters, COLUMNS):
            columns = min(COLUMNS, clusters - begin)
            counted = np.zeros((len(ends) + 1, columns), np.float32)
            some = (ordered >= begin) & (ordered < begin + columns)
            np.add.at(counted, (stretch[some], ordered[some] - begin), 1)
            # The first stretch lies before all ends.
            np.cumsum(counted, 0, out=counted)
            yield counted[end_one] - counted[begin_one], counted[end_two] - counted[begin_two]


def merge_trees(z: Floats, methods: Sequence[str]) -> tuple[MergeTree, ...]:
    """Return the trees of all rows by several of scipy's methods, such as "ward" or "average"."""
    if len(z) == 1:
        return tuple(MergeTree.of(np.empty((0, 4))) for _ in methods)
    distances = condensed_distances(z)
    return tuple(MergeTree.of(linkage(distances, method)) for method in methods)


def condensed_distances(z: Floats, block: int = 64) -> Floats:
    """Return the distances of all pairs of rows, as scipy's ``pdist`` does, by products of matrices.

    Rows should be around zero. Distances below a millionth of the largest length are not exact.
    """
    rows = len(z)
    squares = np.square(z).sum(1)
    found = np.empty(rows * (rows - 1) // 2)
    place = 0
    for start in range(0, rows, block):
        part = slice(start, start + block)
        apart = squares[part, None] + squares[start:] - 2 * (z[part] @ z[start:].T)
        np.sqrt(np.maximum(apart, 0, out=apart), out=apart)
        for row, of_row in enumerate(apart):
            count = rows - start - row - 1
            found[place : place + count] = of_row[row + 1 :]
            place += count
    return found


@dataclass(frozen=True)
class PairEvidence:
    """What the probabilities of a tree's merges say of a partition."""

    expected_ari: float
    precision: float
    """The expected share, of pairs within clusters, that are of one category."""
    recall: float
    """The expected share, of pairs of one category, that are within clusters."""
    relative_pairs: float
    """The logarithm of the number of pairs within clusters over the expected number of pairs of one category."""


def pair_evidence(tree: MergeTree, probability: NDArray[np.float64], labels: Labels) -> PairEvidence:
    """Compare a partition with the pairs that are expected to be of one category."""
    within = tree.pairs_within(labels)
    return evidence_of_pairs(tree, probability, float(within.sum()), float(probability @ within))


def evidence_of_pairs(tree: MergeTree, probability: Floats, together: float, found: float) -> PairEvidence:
    """Compare a partition with these pairs, given how many pairs it has together, and of one category as expected."""
    total, alike = max(tree.pairs.sum(), 1.0), float(probability @ tree.pairs)
    by_chance = together * alike / total
    gap = (together + alike) / 2 - by_chance
    ari = (found - by_chance) / gap if gap > 1e-9 * total else 1.0
    if len(tree) > 1 and together == total:
        # A single cluster has an index of one or zero: one if all rows are of one category.
        ari = float(probability[-1])
    return PairEvidence(
        ari, (found + 1) / (together + 1), (found + 1) / (alike + 1), float(np.log((together + 1) / (alike + 1)))
    )
