"""Features of partitions by the geometry of their clusters, of several partitions at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metaclust.inference.groups import AXIS_ROWS, LEAST, Groups, Reals, principal_axes
from metaclust.inference.merges import TINY
from metaclust.inference.partitions import Partitions
from metaclust.inference.stages import Floats, Labels

Single = NDArray[np.float32]

SPLIT_ROWS = 6
"""The fewest rows of a cluster that may resemble two."""
BLOCK = 4096
"""About the most rows that are looked at together: they stay in the cache."""
COUNTS = (1, 5, 10)
"""The numbers of nearest neighbours of which it is asked how many are in the cluster."""


@dataclass(frozen=True, eq=False)
class Shapes:
    """What is known of each of several different clusters, whichever partitions they are in."""

    rest: Single
    """The members, from the centre of their cluster."""
    squared: Single
    """Their squared distances from it."""
    centre: Single
    squares: Floats
    """The sums of these squared distances."""
    inside: tuple[Floats, ...]
    """The sum over rows of the share of their nearest neighbours that are in the cluster, of those that can be."""
    axis: Floats
    """The log share of the variance along the principal axis."""
    kurtosis: Floats
    flatness: Floats
    crossed: Floats
    """How often neighbours are on the other side of the middle, over what chance would give."""

    @classmethod
    def of(cls, rows: Single, near: Labels, partitions: Partitions) -> Shapes:
        """Describe the different clusters of partitions.

        A Gaussian has kurtosis 3, two apart have less, down to 1. The neighbours of rows on one side of the middle are
        on the other side less often than chance would have it, if the sides are two clusters.
        """
        size = partitions.cluster_size.astype(np.float64)
        count = len(size)
        rest = rows[partitions.members]
        squared, along = np.empty(len(rest), np.float32), np.empty(len(rest), np.float32)
        centre, squares = np.empty((count, rows.shape[1]), np.float32), np.empty(count)
        moments = np.empty((count, 4))
        for some in blocks(partitions.cluster_size):
            first = partitions.cluster_start[some.start]
            here = slice(first, first + int(partitions.cluster_size[some].sum()))
            groups = Groups.of_sorted(rest[here], partitions.cluster_size[some])
            centre[some] = groups.centre
            rest[here] -= groups.centre[groups.labels]
            squared[here] = np.square(rest[here]).sum(1)
            squares[some] = groups.sums(squared[here])
            along[here] = principal_axes(groups, rest[here])
            scale = np.sqrt(groups.sums(np.square(along[here])) / groups.size)
            unit = along[here] / np.where(scale > 0, scale, 1.0)[groups.labels]
            values = (unit**2, unit**4, np.abs(unit))
            moments[some] = np.stack([scale, *(groups.sums(value) / groups.size for value in values)], 1)
        scale, second, fourth, absolute = moments.T
        scale = np.where(scale > 0, scale, 1.0)
        large = size >= SPLIT_ROWS
        share = np.where(squares > 0, np.square(scale) * size / np.where(squares > 0, squares, 1), 0.1)
        inside, crossed = neighbour_shares(near, partitions, along > 0)
        return cls(
            rest,
            squared,
            centre,
            squares,
            inside,
            np.log(np.where(large, share, 0.1) + 1e-6),
            np.where(large & (second > 0), np.minimum(fourth, 6), 3.0),
            np.where(large & (second > 0), absolute, 0.8),
            np.where(large, crossed, 1.0),
        )


def blocks(sizes: Labels) -> Iterator[slice]:
    """Divide clusters into slices of about :data:`BLOCK` rows."""
    ends = np.flatnonzero(np.diff(np.cumsum(sizes) // BLOCK)) + 1
    for first, last in zip([0, *ends.tolist()], [*ends.tolist(), len(sizes)], strict=True):
        yield slice(first, last)


def neighbour_shares(
    near: Labels, partitions: Partitions, side: NDArray[np.bool_]
) -> tuple[tuple[Floats, ...], Floats]:
    """Return what neighbours say of each cluster, see :class:`Shapes`; ``side`` is that of each member."""
    count, members = len(partitions.first), partitions.members
    cluster = np.repeat(np.arange(count), partitions.cluster_size)
    # A neighbour is in a cluster if it has its place, in the first partition that has the cluster.
    base = partitions.partition[partitions.first][cluster] * partitions.rows
    place, sides = partitions.places.ravel(), np.zeros(partitions.places.size, bool)
    sides[base + members] = side
    other = base[:, None] + near[members]
    same = place[other] == partitions.first[cluster][:, None]
    inside = []
    for most in COUNTS:
        most = min(most, near.shape[1])
        possible = np.clip(partitions.cluster_size - 1, 1, max(most, 1))[cluster]
        inside.append(np.bincount(cluster, same[:, :most].sum(1) / possible, count).astype(np.float64))
    crossing = np.bincount(cluster, (same & (sides[other] != side[:, None])).sum(1), count)
    right = np.bincount(cluster, side, count) / partitions.cluster_size
    every = np.bincount(cluster, same.sum(1), count)
    crossed = (crossing + 1) / (every * np.maximum(2 * right * (1 - right), 0.05) + 1)
    return tuple(inside), crossed


def shape_features(rows: Single, near: Labels, expected: float, partitions: Partitions) -> Floats:
    """Return (partitions, features) in the order of ``SHAPE_FEATURES``.

    Parameters
    ----------
    rows : ndarray of shape (rows, S)
        Around their mean, with unit variance, summed over the columns.
    near : ndarray of shape (rows, neighbours)
        The nearest neighbours of each row.
    expected : float
        The expected variance of a category.
    partitions : Partitions
    """
    shapes = Shapes.of(rows, near, partitions)
    number, clusters, size = len(rows), partitions.clusters, partitions.size.astype(np.float64)
    squares = shapes.squares[partitions.cluster]
    within = np.maximum(partitions.sums(squares) / np.maximum(1, number - clusters), TINY * expected)
    variance = (squares + within[partitions.partition]) / size
    share = size / number
    axis, kurtosis, flatness, crossed = (
        each[partitions.cluster] for each in (shapes.axis, shapes.kurtosis, shapes.flatness, shapes.crossed)
    )
    return np.column_stack(
        [
            np.log(clusters),
            np.full(len(clusters), np.log(number)),
            np.log(number / clusters),
            np.log(within + 1e-6),
            np.log(within / expected + 1e-6),
            *(np.log(each / expected + 1e-6) for each in partitions.quantiles(variance, 0.1, 0.5, 0.9)),
            *silhouette_features(rows, shapes, partitions),
            *gap_features(shapes, partitions, within),
            *neighbour_features(near, shapes, partitions),
            -partitions.sums(share * np.log(share)) - np.log(clusters),
            np.log(partitions.least(size)),
            partitions.sums(np.where(size < 5, size, 0.0)) / number,
            partitions.sums(np.where(size < 2, size, 0.0)) / number,
            partitions.mean(axis),
            partitions.largest(axis),
            partitions.mean(kurtosis),
            partitions.least(kurtosis),
            partitions.mean(flatness),
            partitions.largest(flatness),
            partitions.mean(crossed),
            *partitions.quantiles(crossed, 0.1),
            partitions.least(crossed),
        ]
    )


def silhouettes(rows: Single, shapes: Shapes, partitions: Partitions) -> Floats:
    """Return the silhouettes by distances to centres, a row's own without itself: (partitions, rows).

    Rows are in the order of :attr:`Partitions.order`. In a single cluster they are zero.
    """
    number, count = len(rows), len(shapes.centre)
    several = np.flatnonzero(partitions.clusters > 1)
    values = np.zeros((len(partitions), number))
    if not len(several):
        return values
    squares = np.square(shapes.centre).sum(1)
    row = np.arange(number)
    key = np.empty((len(several), number), np.int64)
    for line, partition in enumerate(several.tolist()):
        first = partitions.offset[partition]
        here = partitions.cluster[first : first + partitions.clusters[partition]]
        apart = squares[here] - 2 * rows @ shapes.centre[here].T
        apart[row, partitions.labels[partition]] = np.inf
        key[line] = row * count + here[apart.argmin(1)]
    # The product says which centre is the nearest, but is not exact where distances are small.
    wanted = np.zeros(number * count, bool)
    wanted[key] = True
    pairs = np.flatnonzero(wanted)
    distance = np.empty(number * count, np.float32)
    for start in range(0, len(pairs), BLOCK):
        some = pairs[start : start + BLOCK]
        distance[some] = np.sqrt(np.square(rows[some // count] - shapes.centre[some % count]).sum(1))
    other = np.take_along_axis(distance[key], partitions.order[several], 1)
    size = np.repeat(partitions.size, partitions.size).reshape(values.shape)[several]
    own = np.sqrt(shapes.squared)[partitions.position[several]] * size.astype(np.float64) / np.maximum(size - 1, 1)
    highest = np.maximum(other, own)
    values[several] = np.where((size > 1) & (highest > 0), (other - own) / np.where(highest > 0, highest, 1), 0.0)
    return values


def silhouette_features(rows: Single, shapes: Shapes, partitions: Partitions) -> list[Floats]:
    """Return features of the silhouettes of rows and of clusters."""
    values = silhouettes(rows, shapes, partitions)
    begin = np.cumsum(partitions.size) - partitions.size
    of_clusters = np.add.reduceat(values.ravel(), begin) / partitions.size
    low, half = partitions.quantiles(of_clusters, 0.25, 0.5)
    without = np.where(partitions.clusters > 1, (values < 0.02).mean(1), 0.0)
    return [values.mean(1), np.quantile(values, 0.1, axis=1), without, partitions.least(of_clusters), low, half]


def gap_features(shapes: Shapes, partitions: Partitions, within: Floats) -> list[Floats]:
    """Return features of the log distances from each centre to the nearest other, in deviations that way."""
    count, columns = shapes.centre.shape
    nearest = np.full(len(partitions.size), -1)
    squares = np.square(shapes.centre).sum(1)
    for partition in np.flatnonzero(partitions.clusters > 1).tolist():
        first = partitions.offset[partition]
        places = slice(first, first + partitions.clusters[partition])
        here = partitions.cluster[places]
        centre = shapes.centre[here]
        apart = squares[here][:, None] + squares[here] - 2 * centre @ centre.T
        np.fill_diagonal(apart, np.inf)
        nearest[places] = here[apart.argmin(1)]
    gaps = np.full(len(nearest), 3.0)
    some = nearest >= 0
    if some.any():
        pairs, which = np.unique(partitions.cluster[some] * count + nearest[some], return_inverse=True)
        gap, spread = gaps_between(shapes, partitions, pairs // count, pairs % count)
        even = AXIS_ROWS * within[partitions.partition[some]] / columns
        deviation = np.sqrt((spread[which] + even) / (partitions.size[some] - 1 + AXIS_ROWS))
        gaps[some] = np.log(gap[which] / deviation + 1e-6)
    tenth, half = partitions.quantiles_of_clusters(gaps, 0.1, 0.5)
    return [partitions.least(gaps), tenth, half, partitions.mean(gaps)]


def gaps_between(shapes: Shapes, partitions: Partitions, one: Labels, other: Labels) -> tuple[Reals, Floats]:
    """Return the distances between centres of clusters, and the squares of the rows of the first along the way."""
    between = shapes.centre[one] - shapes.centre[other]
    gap = np.sqrt(np.square(between).sum(1))
    direction = between / np.maximum(gap, LEAST)[:, None]
    spread = np.empty(len(one))
    sizes, starts = partitions.cluster_size[one], partitions.cluster_start[one]
    for some in blocks(sizes):
        begin = np.cumsum(sizes[some]) - sizes[some]
        pair = np.repeat(np.arange(some.start, some.stop), sizes[some])
        row = np.arange(len(pair)) + np.repeat(starts[some] - begin, sizes[some])
        along = np.einsum("ij,ij->i", shapes.rest[row], direction[pair])
        spread[some] = np.add.reduceat(np.square(along), begin, dtype=np.float64)
    return gap, spread


def neighbour_features(near: Labels, shapes: Shapes, partitions: Partitions) -> list[Floats]:
    """Return features of the share of a row's nearest neighbours that are in its cluster, of those that can be."""
    if not near.shape[1]:
        return [np.ones(len(partitions))] * 6
    means = [partitions.sums(each[partitions.cluster]) / partitions.rows for each in shapes.inside]
    of_clusters = shapes.inside[-1][partitions.cluster] / partitions.size
    return [*means, partitions.least(of_clusters), *partitions.quantiles(of_clusters, 0.1, 0.5)]
