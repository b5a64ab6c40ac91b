"""Rows that a person has said belong together, or apart: by labels of some rows, or by pairs.

Rows that must be together form a group, which is moved as one. Labels say both: rows of one label are a group, and
groups of different labels are apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from metaclust.data.rows import DataError, shown
from metaclust.inference.stages import Floats, Labels, in_order
from metaclust.inference.trees import MergeTree

EXCEPTION, MOST_ODDS = 0.1, 8.0
"""How often a pair of rows is not as most of their clusters are, and the most that links add to log odds."""
MOST_LABEL_PAIRS = 50_000
"""Of the pairs that labels set apart, so many are looked up in a tree."""
FAR = 0.5
"""A labelled group opens a cluster of its own where its mean is farther from the next one, in expected variances."""


@dataclass(frozen=True, eq=False)
class Links:
    """Which rows are linked, and how.

    Attributes
    ----------
    group : ndarray of shape (rows,)
        The group of each row; -1 for rows that are not linked.
    label : ndarray of shape (groups,)
        The label of each group, by its place in ``names``; -1 for none. Groups of different labels are apart.
    apart : ndarray of shape (pairs, 2)
        Further pairs of groups that are apart.
    names : list of str
        The labels.
    """

    group: Labels
    label: Labels
    apart: Labels
    names: list[str]

    @classmethod
    def of(
        cls,
        rows: int,
        codes: Labels | None = None,
        names: Sequence[str] = (),
        must: Labels | None = None,
        cannot: Labels | None = None,
        ids: Sequence[str] | None = None,
    ) -> Links | None:
        """Return the links of labels (-1 for none) and of pairs of places; None where there are none.

        Raise DataError that names rows which have to be both together and apart, by their ids if these are given.
        """
        codes = np.full(rows, -1) if codes is None else codes
        must = np.empty((0, 2), np.int64) if must is None else must
        cannot = np.empty((0, 2), np.int64) if cannot is None else cannot
        linked = np.union1d(np.flatnonzero(codes >= 0), np.union1d(must, cannot)).astype(np.int64)
        if not len(linked):
            return None

        def both(one: int, two: int) -> str:
            shown_as = [row if ids is None or ids[row] == str(row) else shown(ids[row]) for row in (one, two)]
            return "rows {} and {}".format(*shown_as)

        labelled = np.flatnonzero(codes >= 0)
        present, group_of_linked = np.unique(together(codes, must)[linked], return_inverse=True)
        group = np.full(rows, -1)
        group[linked] = group_of_linked
        label = np.full(len(present), -1)
        label[group[labelled]] = codes[labelled]
        wrong = labelled[label[group[labelled]] != codes[labelled]]
        if len(wrong):
            here = int(wrong[0])
            other = int(labelled[(group[labelled] == group[here]) & (codes[labelled] != codes[here])][0])
            raise DataError(
                f"must_link: {both(min(here, other), max(here, other))} have to be together, directly or by other "
                f"rows, but their labels are {shown(names[codes[min(here, other)]])} and "
                f"{shown(names[codes[max(here, other)]])}: correct a label, or leave out a pair"
            )
        apart = group[cannot]
        same = np.flatnonzero(apart[:, 0] == apart[:, 1])
        if len(same):
            first, second = cannot[same[0]].tolist()
            because = "its label" if label[apart[same[0], 0]] >= 0 else "must_link"
            raise DataError(
                f"cannot_link: {both(first, second)} have to be apart, but {because} puts them together, directly "
                "or by other rows: leave out one of both"
            )
        return cls(group, label, np.unique(np.sort(apart, 1), axis=0), list(names))

    def __len__(self) -> int:
        return len(self.group)

    def take(self, rows: Labels) -> Links:
        """Return the links among some of the rows."""
        return Links(self.group[rows], self.label, self.apart, self.names)

    def of_rows(self, drawn: NDArray[np.floating[Any]], rows: NDArray[np.floating[Any]]) -> Links:
        """Return the links among rows that were drawn from ``rows``, which are found by their values."""
        places: dict[bytes, list[int]] = {}
        for place in np.flatnonzero(self.group >= 0).tolist():
            places.setdefault(rows[place].astype(np.float32).tobytes(), []).append(place)
        group = np.full(len(drawn), -1)
        for number, row in enumerate(drawn.astype(np.float32)):
            if found := places.get(row.tobytes()):
                group[number] = self.group[found.pop()]
        return Links(group, self.label, self.apart, self.names)

    @cached_property
    def codes(self) -> Labels:
        """The label of each row, by its place in ``names``; -1 for none."""
        return np.where(self.group >= 0, self.label[self.group], -1)

    @cached_property
    def _conflicts(self) -> list[set[int]]:
        """The groups that each group is apart from, besides those of other labels."""
        found: list[set[int]] = [set() for _ in self.label]
        for one, two in self.apart.tolist():
            found[one].add(two)
            found[two].add(one)
        return found

    def violated(self, labels: Labels) -> tuple[int, int]:
        """Return how many groups are torn, and how many pairs of groups that are apart share a cluster."""
        rows = np.flatnonzero(self.group >= 0)
        both = np.unique(np.column_stack([self.group[rows], labels[rows]]), axis=0)
        torn = int((np.bincount(both[:, 0], minlength=len(self.label)) > 1).sum())
        members: dict[int, set[int]] = {}
        for group, cluster in both.tolist():
            members.setdefault(cluster, set()).add(group)
        together = 0
        for one, two in self.apart.tolist():
            together += any(one in groups and two in groups for groups in members.values())
        for groups in members.values():
            kinds = {int(self.label[group]) for group in groups} - {-1}
            together += len(kinds) * (len(kinds) - 1) // 2
        return torn, together

    def obeyed(self, z: Floats, labels: Labels, expected: float) -> Labels:
        """Return clusters that no link contradicts, numbered in the order of their first rows: see :meth:`moved`."""
        return in_order(self.moved(z, labels, expected))

    def moved(self, z: Floats, labels: Labels, expected: float) -> Labels:
        """Return labels that no link contradicts: each group goes as a whole where most of its rows are.

        Where a group that it is apart from is there already, it goes to the nearest cluster that is free, or opens
        a new one with the next free number. Larger groups come first, those with a label before others.
        """
        rows = np.flatnonzero(self.group >= 0)
        if not len(rows):
            return labels
        groups, index = np.unique(self.group[rows], return_inverse=True)
        clusters = int(labels.max()) + 1
        filled = np.bincount(labels, minlength=clusters) > 0
        size = np.bincount(index)
        means = np.zeros((len(groups), z.shape[1]))
        np.add.at(means, index, z[rows])
        means /= size[:, None]
        centres = centres_of(z, labels, clusters)
        votes = np.zeros((len(groups), clusters))
        np.add.at(votes, (index, labels[rows]), 1)
        distance = cdist(means, centres, "sqeuclidean")
        new, opened = labels.copy(), clusters
        by_group = np.argsort(index, kind="stable")
        rows_of = np.split(rows[by_group], np.cumsum(size)[:-1])
        # The label of each cluster, and of those that are opened; -1 for none.
        owner = np.full(clusters + len(groups), -1)
        holder: dict[int, int] = {}
        labelled = self.label[groups] >= 0
        for place in np.lexsort((groups, -size, ~labelled)).tolist():
            group, label = int(groups[place]), int(self.label[groups[place]])
            taken = [holder[other] for other in self._conflicts[group] if other in holder]
            vote, most = votes[place], int(votes[place].argmax())
            best = None
            if vote[most] and np.count_nonzero(vote == vote[most]) == 1 and most not in taken:
                best = most if label < 0 or owner[most] in (-1, label) else None
            if best is None:
                free = (owner[:opened] == -1) | (owner[:opened] == label) | (label < 0)
                free[taken] = False
                known = np.flatnonzero(free[:clusters] & filled)
                if len(known):
                    known = known[vote[known] == vote[known].max()]
                    best = int(known[distance[place, known].argmin()])
                    if label >= 0 and not vote[best] and distance[place, best] > (FAR + 1 / size[place]) * expected:
                        best = None
                if best is None and label < 0 and free[clusters:].any():
                    best = clusters + int(free[clusters:].argmax())
            if best is None:
                best = opened
                opened += 1
            holder[group] = best
            if label >= 0:
                owner[best] = label
            new[rows_of[place]] = best
        return new

    def log_odds(self, tree: MergeTree) -> Floats:
        """Return what the links add to the log odds that each merge of a tree is within a category.

        Of a merge within a category, pairs that belong together are as often on both sides as chance would have it, and
        hardly any pair is apart. Of one between categories it is the other way round, but for single rows.
        """
        pairs = (self.together_pairs, self.apart_pairs, self.label_pairs)
        together, apart, by_label = (self._pairs_of_merges(tree, each) for each in pairs)
        # Of a few labels there are many pairs, which are not independent.
        apart += np.sqrt(by_label)
        rows = len(tree)
        # Pairs that belong together within each node.
        within = np.zeros(2 * rows - 1)
        for merge, (one, two) in enumerate(zip(tree.first.tolist(), tree.second.tolist(), strict=True)):
            within[rows + merge] = within[one] + within[two] + together[merge]
        ones, twos = tree.size[tree.first], tree.size[tree.second]
        small = np.where(ones <= twos, tree.first, tree.second)
        across = np.clip(np.maximum(ones, twos) / (ones + twos), EXCEPTION, 1 - EXCEPTION)
        pair = np.log(1 - EXCEPTION) - np.log(EXCEPTION)
        odds = together * (np.log(across) - np.log(EXCEPTION)) - apart * pair
        odds += within[small] * (np.log(1 - across) - np.log(1 - EXCEPTION)) * ((together > 0) | (apart > 0))
        found: Floats = np.clip(odds, -MOST_ODDS, MOST_ODDS)
        return found

    @staticmethod
    def _pairs_of_merges(tree: MergeTree, pairs: Labels) -> Floats:
        """Return how many of some pairs of rows each merge brings together."""
        count = len(tree) - 1
        if not count or not len(pairs):
            return np.zeros(count)
        return np.bincount(tree.lowest_merges(pairs[:, 0], pairs[:, 1]), minlength=count).astype(np.float64)

    @cached_property
    def together_pairs(self) -> Labels:
        """Pairs of rows that must be together: each row of a group with some others of it."""
        rows = np.flatnonzero(self.group >= 0)
        rows = rows[np.argsort(self.group[rows], kind="stable")]
        found = []
        for step in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89):
            one, two = rows[:-step], rows[step:]
            same = self.group[one] == self.group[two]
            found.append(np.column_stack([one[same], two[same]]))
        return np.concatenate(found)

    @cached_property
    def apart_pairs(self) -> Labels:
        """Pairs of rows that must be apart, one of each pair of groups, but for those of different labels."""
        first = np.full(len(self.label), -1)
        rows = np.flatnonzero(self.group >= 0)[::-1]
        first[self.group[rows]] = rows
        pairs = first[self.apart]
        return pairs[(pairs >= 0).all(1)]

    @cached_property
    def label_pairs(self) -> Labels:
        """Pairs of rows of different labels; of very many, some."""
        labelled = np.flatnonzero(self.codes >= 0)
        count = len(labelled)
        if count * (count - 1) // 2 <= MOST_LABEL_PAIRS:
            one, two = np.triu_indices(count, 1)
        else:
            one, two = np.random.default_rng(0).integers(count, size=(2, MOST_LABEL_PAIRS))
        one, two = labelled[one], labelled[two]
        apart = self.codes[one] != self.codes[two]
        return np.column_stack([one[apart], two[apart]])


def together(codes: Labels, must: Labels) -> Labels:
    """Return a number for each row, the same for rows that labels (-1 for none) and pairs put together."""
    rows, labelled = len(codes), np.flatnonzero(codes >= 0)
    # A node for each label joins its rows.
    one = np.concatenate([must[:, 0], labelled])
    two = np.concatenate([must[:, 1], rows + codes[labelled]])
    nodes = rows + int(codes.max(initial=-1)) + 1
    graph = coo_array((np.ones(len(one)), (one, two)), shape=(nodes, nodes))
    found: Labels = connected_components(graph, directed=False)[1][:rows].astype(np.int64)
    return found


def agreeing(codes: Labels, must: Labels, cannot: Labels) -> tuple[Labels, Labels]:
    """Return the pairs that labels (-1 for none) do not contradict, nor pairs that must be together those that cannot.

    Of rows that pairs put together, directly or by others, all pairs are left out if there are two labels among them.
    """
    part = together(np.full(len(codes), -1), must)
    labelled = np.flatnonzero(codes >= 0)
    kinds = np.unique(np.column_stack([part[labelled], codes[labelled]]), axis=0)
    torn = np.bincount(kinds[:, 0], minlength=int(part.max(initial=0)) + 1) > 1
    must = must[~torn[part[must[:, 0]]]]
    part = together(codes, must)
    return must, cannot[part[cannot[:, 0]] != part[cannot[:, 1]]]


class Places:
    """Where the rows of ids are."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = ids
        self.first: dict[str, int] = {}
        self.second: dict[str, int] = {}
        for place, name in enumerate(ids):
            if self.first.setdefault(name, place) != place:
                self.second.setdefault(name, place)

    def of(self, name: str, what: str) -> int:
        """Return the place of the row of an id; ``what`` is what messages begin with."""
        if name not in self.first:
            raise DataError(f"{what}: no row has the id {shown(name)}")
        if name in self.second:
            raise DataError(
                f"{what}: id {shown(name)} is of several rows, {self.first[name]} and {self.second[name]} among them: "
                "give places"
            )
        return self.first[name]


def centres_of(z: Floats, labels: Labels, clusters: int) -> Floats:
    """Return the mean of each cluster."""
    sums = np.zeros((clusters, z.shape[1]))
    np.add.at(sums, labels, z)
    return sums / np.maximum(np.bincount(labels, minlength=clusters), 1)[:, None]


def pairs_from(pairs: Any, ids: Sequence[str], name: str) -> Labels:
    """Return pairs of rows as places: each row is given by its place, a whole number, or by its id, a string."""
    if pairs is None:
        return np.empty((0, 2), np.int64)
    if hasattr(pairs, "to_numpy"):
        pairs = pairs.to_numpy()
    if not isinstance(pairs, np.ndarray | Iterable) or isinstance(pairs, str | dict):
        raise DataError(f"{name}={shown(pairs)}: give pairs of rows, as a list or an array of shape (pairs, 2)")
    places: Places | None = None
    found = []
    listed: Iterable[Any] = pairs.tolist() if isinstance(pairs, np.ndarray) else pairs
    for number, pair in enumerate(listed):
        both = list(pair) if isinstance(pair, Sequence | np.ndarray) and not isinstance(pair, str) else []
        if len(both) != 2:
            raise DataError(f"{name}: pair {number} is {shown(pair)}: give two rows, by their places or by their ids")
        row = []
        for value in both:
            if isinstance(value, str):
                places = places or Places(ids)
                row.append(places.of(value, f"{name}: pair {number}"))
            elif isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= value < len(ids):
                row.append(int(value))
            else:
                raise DataError(
                    f"{name}: pair {number} has {shown(value)}: a row is given by its place, 0 to {len(ids) - 1}, or "
                    "by its id as a string"
                )
        if row[0] == row[1] and name == "cannot_link":
            raise DataError(f"{name}: pair {number} is row {row[0]} twice: leave it out")
        if row[0] != row[1]:
            found.append(row)
    return np.array(found, np.int64).reshape(-1, 2)
