"""The dimensionless features of merges: what tells whether the two sides of a merge are of one category."""

from __future__ import annotations

from dataclasses import dataclass

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
        for merge, (one, two) in enumerate(zip(tree.first.tolist(), tree.second.tolist(), strict=True)):
            ones, twos = tree.size[one], tree.size[two]
            apart = centre[one] - centre[two]
            centre[rows + merge] = centre[two] + apart * (ones / (ones + twos))
            squares[rows + merge] = squares[one] + squares[two] + (apart @ apart) * (ones * twos / (ones + twos))
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
    ordered, place = z[tree.order], np.empty(rows, np.int64)
    place[tree.order] = np.arange(rows)
    near_place = place[near][tree.order]
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
    shape = np.empty((rows - 1, 5))
    for merge in range(rows - 1):
        shape[merge] = across(
            ordered,
            near_place,
            (int(tree.start[small[merge]]), int(ones[merge])),
            (int(tree.start[large[merge]]), int(twos[merge])),
            (nodes.centre[small[merge]], nodes.centre[large[merge]], apart[merge] / distance[merge]),
            float(distance[merge]),
            float(pooled[merge] / columns),
        )
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
            shape,
            np.clip(to_parent, -HIGHEST, HIGHEST),
            np.clip(to_child, -HIGHEST, HIGHEST),
            np.log(rank),
            rank / rows,
            *(np.full(rows - 1, value) for value in common),
        ]
    )


def across(
    ordered: Floats,
    near: Labels,
    small: tuple[int, int],
    large: tuple[int, int],
    axis: tuple[Floats, Floats, Floats],
    distance: float,
    variance: float,
) -> tuple[float, float, float, float, float]:
    """Return what lies between the two sides of a merge, each given as its first place and its number of rows.

    The log distance of the centres in standard deviations along the axis between them; the share of rows beyond the
    middle; how far from Gaussian the rows are along the axis; and the log share of neighbours on the other side, over
    what chance would give, for the rows of either side.
    """
    (one, ones), (two, twos) = small, large
    first, second, direction = axis
    along_one = (ordered[one : one + ones] - first) @ direction
    along_two = (ordered[two : two + twos] - second) @ direction
    spread = along_one @ along_one + along_two @ along_two
    deviation = np.sqrt((spread + AXIS_ROWS * variance) / (ones + twos - 2 + AXIS_ROWS))
    beyond = ((along_one > distance / 2).sum() + (along_two < -distance / 2).sum()) / (ones + twos)
    flatness = 0.9
    if ones > 2:
        share = ones / (ones + twos)
        both = np.concatenate((along_one - distance * (1 - share), along_two + distance * share))
        flatness = np.abs(both).mean() / np.sqrt(np.square(both).mean() + TINY * variance + 1e-300)
    near_one, near_two = near[one : one + ones], near[two : two + twos]
    crossing = []
    for neighbour, (start, count), (other, others) in ((near_one, small, large), (near_two, large, small)):
        to_own = np.count_nonzero((neighbour >= start) & (neighbour < start + count))
        to_other = np.count_nonzero((neighbour >= other) & (neighbour < other + others))
        chance = others / (ones + twos - 1)
        crossing.append(np.log((to_other + 0.5) / (to_own + to_other + 0.5) / chance))
    return (
        float(np.log(distance / (deviation + 1e-300) + 1e-2)),
        float(beyond),
        float(flatness),
        crossing[0],
        crossing[1],
    )
