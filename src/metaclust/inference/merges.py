"""The dimensionless features of merges: what tells whether the two sides of a merge are of one category."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from metaclust.inference.stages import Floats, Labels
from metaclust.inference.trees import MergeTree
from metaclust.model.selector import MERGE_FEATURES

NEIGHBOURS = 10
"""The nearest neighbours of a row that are compared."""
PRIOR_ROWS = 0.5
"""As how many rows the expected variance counts beside those of a node."""
AXIS_ROWS = 6.0
"""As how many rows an even variance counts along the axis between two centres."""
TINY = 1e-9
FEW_ROWS = 64
"""Merges of at most so many rows are described together."""
BLOCK = 1 << 18
"""About the most numbers of their rows that are in memory at a time."""
HIGHEST = 5.0
"""The largest log ratio of two heights."""


@dataclass(frozen=True, eq=False)
class Nodes:
    """The centre of each node of a tree, and the squared distances of its rows from it."""

    centre: Floats
    squares: Floats

    @classmethod
    def of(cls, z: Floats, tree: MergeTree) -> Nodes:
        rows = len(z)
        centre, squares = np.empty((2 * rows - 1, z.shape[1])), np.zeros(2 * rows - 1)
        centre[:rows] = z
        for merges in tree.levels:
            one, two = tree.first[merges], tree.second[merges]
            ones, twos = tree.size[one], tree.size[two]
            both = ones + twos
            apart = centre[one] - centre[two]
            centre[rows + merges] = centre[two] + apart * (ones / both)[:, None]
            squares[rows + merges] = (
                squares[one] + squares[two] + np.einsum("ij,ij->i", apart, apart) * (ones * twos / both)
            )
        return cls(centre, squares)


def neighbours(z: Floats, count: int = NEIGHBOURS, block: int = 2000) -> tuple[Labels, Floats]:
    """Return the nearest neighbours of each row, nearest first, and their squared distances."""
    # The squares of any scale are numbers in single precision.
    scale = float(np.abs(z).max()) or 1.0
    rows = (z / scale).astype(np.float32)
    squares = np.square(rows).sum(1)
    count = min(count, len(z) - 1)
    index, distance = np.empty((len(z), count), np.int64), np.empty((len(z), count))
    for start in range(0, len(z), block):
        part = slice(start, start + block)
        apart = squares[part, None] + squares - 2 * (rows[part] @ rows.T)
        own = np.arange(start, start + len(apart))
        apart[own - start, own] = np.inf
        nearest = np.argpartition(apart, count - 1, axis=1)[:, :count] if count else np.empty((len(apart), 0), int)
        near = np.take_along_axis(apart, nearest, 1)
        order = np.argsort(near, axis=1, kind="stable")
        index[part] = np.take_along_axis(nearest, order, 1)
        distance[part] = np.maximum(np.take_along_axis(near, order, 1), 0).astype(np.float64) * scale**2
    return index, distance


def merge_features(z: Floats, tree: MergeTree, near: Labels, near_distance: Floats, expected: float) -> Floats:
    """Return (merges, features), in the order of :data:`metaclust.model.selector.MERGE_FEATURES` but for the last.

    Parameters
    ----------
    z : ndarray of shape (rows, S)
        Rows around their mean.
    tree : MergeTree
    near, near_distance : ndarray of shape (rows, neighbours)
        The nearest neighbours of each row and their squared distances.
    expected : float
        The expected variance of a category, summed over the columns.
    """
    rows, columns = z.shape
    if rows == 1:
        return np.empty((0, len(MERGE_FEATURES) - 1))
    nodes = Nodes.of(z, tree)
    increase = nodes.squares[rows:] - nodes.squares[tree.first] - nodes.squares[tree.second]
    swap = tree.size[tree.first] > tree.size[tree.second]
    small = np.where(swap, tree.second, tree.first)
    large = np.where(swap, tree.first, tree.second)
    ones, twos = tree.size[small], tree.size[large]
    apart = nodes.centre[large] - nodes.centre[small]
    squared = np.square(apart).sum(1)
    distance = np.sqrt(squared) + TINY * np.sqrt(expected)
    own = nodes.squares[small] + nodes.squares[large]
    pooled = (own + PRIOR_ROWS * expected) / (ones + twos - 2 + PRIOR_ROWS)
    sides = Sides(small, large, nodes.centre[small], nodes.centre[large], apart / distance[:, None], distance)
    between = across(z[tree.order], tree, sides, pooled / columns)
    crossing = crossings(tree, small, large, near)
    parent = tree.parent[rows:]
    root = rows - 2
    to_parent = np.log((increase[parent - rows] + TINY * expected) / (increase + TINY * expected))
    to_parent[root] = 0
    child = np.zeros(2 * rows - 1)
    child[rows:] = increase
    higher = np.maximum(child[small], child[large])
    to_child = np.where(higher > 0, np.log((increase + TINY * expected) / (higher + TINY * expected)), 3.0)
    rank = np.empty(rows - 1)
    rank[np.argsort(-increase, kind="stable")] = np.arange(1, rows)
    total = max(float(np.square(z).sum()) / max(1, rows - 1), TINY * expected)
    nearest = float(np.median(near_distance[:, 0]))
    common = [np.log(rows), np.log(total / expected), np.log(nearest / expected + 1e-9), np.log(nearest / total + 1e-9)]
    variance = [
        np.log((nodes.squares[side] + PRIOR_ROWS * expected) / (count - 1 + PRIOR_ROWS) / expected)
        for side, count in ((small, ones), (large, twos))
    ]
    return np.column_stack(
        [
            np.log(ones),
            np.log(twos),
            np.log((ones + twos) / rows),
            np.log(squared / expected + 1e-4),
            *variance,
            np.log(squared / pooled + 1e-4),
            *between,
            *crossing,
            np.clip(to_parent, -HIGHEST, HIGHEST),
            np.clip(to_child, -HIGHEST, HIGHEST),
            np.log(rank),
            rank / rows,
            *(np.full(rows - 1, value) for value in common),
        ]
    )


@dataclass(frozen=True, eq=False)
class Sides:
    """The two sides of some merges."""

    small: Labels
    large: Labels
    """The nodes that are joined."""
    first: Floats
    second: Floats
    """Their centres."""
    direction: Floats
    """From the centre of the smaller to that of the larger, of length one."""
    distance: Floats

    def take(self, merges: Labels) -> Sides:
        """Return those of some of the merges."""
        return Sides(*(getattr(self, field.name)[merges] for field in fields(self)))


def across(ordered: Floats, tree: MergeTree, sides: Sides, variance: Floats) -> tuple[Floats, Floats, Floats]:
    """Return what lies between the two sides of each merge, along the axis between their centres.

    The log distance of the centres in standard deviations that way; the share of rows beyond the middle; and how far
    from Gaussian the rows are. ``ordered`` are the rows in the order of the tree, ``variance`` that of a column.
    """
    merges = np.arange(len(variance))
    rows = tree.size[sides.small] + tree.size[sides.large]
    found = np.empty((len(merges), 4))
    few = rows <= FEW_ROWS
    some = merges[few]
    # Merges of few rows are many: they are taken together, about as many rows at a time as stay in the cache.
    parts = np.split(some, np.flatnonzero(np.diff(np.cumsum(rows[some]) // (BLOCK // ordered.shape[1] + 1))) + 1)
    for part in parts:
        found[part] = along_sides(ordered, tree, sides.take(part))
    for merge in merges[~few].tolist():
        found[merge] = along_sides_of_one(ordered, tree, sides, merge)
    spread, beyond, absolute, square = found.T
    deviation = np.sqrt((spread + AXIS_ROWS * variance) / (rows - 2 + AXIS_ROWS))
    flatness = absolute / rows / np.sqrt(square / rows + TINY * variance + 1e-300)
    flatness = np.where(tree.size[sides.small] > 2, flatness, 0.9)
    return np.log(sides.distance / (deviation + 1e-300) + 1e-2), beyond / rows, flatness


def along_sides(ordered: Floats, tree: MergeTree, sides: Sides) -> Floats:
    """Return sums over the rows of each merge, of where they lie along the axis: (merges, 4).

    They are the squares around the centre of a row's own side, how many rows are beyond the middle, and the absolute
    values and squares around the common centre.
    """
    count = np.stack([tree.size[sides.small], tree.size[sides.large]], 1)
    if not len(count):
        return np.empty((0, 4))
    size = count.ravel()
    side = np.repeat(np.arange(len(size)), size)
    begin = np.cumsum(size) - size
    first = np.stack([tree.start[sides.small], tree.start[sides.large]], 1).ravel()
    row = np.arange(len(side)) + (first - begin)[side]
    centre = np.stack([sides.first, sides.second], 1).reshape(len(size), -1)
    merge = side // 2
    along = np.einsum("ij,ij->i", ordered[row] - centre[side], sides.direction[merge])
    share = count[:, 0] / count.sum(1)
    shift = np.stack([-sides.distance * (1 - share), sides.distance * share], 1).ravel()
    both = along + shift[side]
    beyond = along * np.array([1.0, -1.0])[side % 2] > (sides.distance / 2)[merge]
    values = np.stack([np.square(along), beyond, np.abs(both), np.square(both)], 1)
    found: Floats = np.add.reduceat(values, begin[::2])
    return found


def along_sides_of_one(ordered: Floats, tree: MergeTree, sides: Sides, merge: int) -> tuple[float, float, float, float]:
    """Return what :func:`along_sides` does, for one merge."""
    small, large, direction = sides.small[merge], sides.large[merge], sides.direction[merge]
    ones, twos = tree.size[small], tree.size[large]
    distance, share = sides.distance[merge], ones / (ones + twos)
    along_one = (ordered[tree.start[small] : tree.start[small] + ones] - sides.first[merge]) @ direction
    along_two = (ordered[tree.start[large] : tree.start[large] + twos] - sides.second[merge]) @ direction
    beyond = np.count_nonzero(along_one > distance / 2) + np.count_nonzero(along_two < -distance / 2)
    both = np.concatenate((along_one - distance * (1 - share), along_two + distance * share))
    spread = along_one @ along_one + along_two @ along_two
    return float(spread), float(beyond), float(np.abs(both).sum()), float(both @ both)


def crossings(tree: MergeTree, small: Labels, large: Labels, near: Labels) -> tuple[Floats, Floats]:
    """Return the log share of neighbours on the other side of each merge, over what chance would give.

    For the rows of either side, of those neighbours that are on one of the two.
    """
    rows = len(tree)
    own = np.repeat(tree.place, near.shape[1])
    other = tree.place[near].ravel()
    joined = tree.joins(np.minimum(own, other), np.maximum(own, other))
    # A row and its neighbour are in a node if they are joined there or below, which is by gaps that stand side by side.
    counted = np.zeros(rows)
    counted[1 + tree.gaps] = np.bincount(joined, minlength=rows - 1)
    upto = np.cumsum(counted)
    of_first = own <= tree.gaps[joined]
    found = []
    for side, opposite in ((small, large), (large, small)):
        begin = tree.start[side]
        to_own = upto[begin + tree.size[side] - 1] - upto[begin]
        of_side = of_first == (side == tree.first)[joined]
        to_other = np.bincount(joined[of_side], minlength=rows - 1)
        chance = tree.size[opposite] / (tree.size[rows:] - 1)
        found.append(np.log((to_other + 0.5) / (to_own + to_other + 0.5) / chance))
    return found[0], found[1]
