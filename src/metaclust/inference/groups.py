"""Rows in the order of their clusters, and what lies along axes of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metaclust.inference.stages import Floats, Labels

Reals = NDArray[np.floating[Any]]
"""Rows, and what is computed of each, in single or double precision."""

AXIS_ROWS = 5.0
"""As how many rows an even variance counts along the axis to the nearest cluster."""
POWER_ROUNDS = 6
LEAST = 1e-30
"""The smallest divisor, where it may be zero."""


def sums_of_rows(rows: Reals, start: Labels, order: Labels | None = None) -> Reals:
    """Add up rows from each place in ``start`` to the next, in an order; many times faster than ``reduceat``."""
    found: Reals = gathering(rows, start, order) @ rows
    return found


def sums_of_clusters(rows: Reals, partitions: Sequence[Labels]) -> Reals:
    """Add up the rows of each cluster of several partitions: (partitions, most clusters, columns)."""
    labels = np.stack(partitions)
    most = int(labels.max()) + 1
    size = np.bincount((labels + most * np.arange(len(labels))[:, None]).ravel(), minlength=len(labels) * most)
    order = sorted_by(labels).ravel()
    return sums_of_rows(rows, np.cumsum(size) - size, order).reshape(len(labels), most, -1)


def sorted_by(labels: Labels) -> Labels:
    """Return the order of rows by their labels, of several partitions; 16 bits are sorted by faster."""
    short = labels.astype(np.int16) if labels.max() < 1 << 15 else labels
    return np.argsort(short, axis=1, kind="stable")


def gathering(rows: Reals, start: Labels, order: Labels | None = None) -> sparse.csr_array:
    """Return the matrix by which rows are added up."""
    order = np.arange(len(rows)) if order is None else order
    ends = np.append(start, len(order))
    return sparse.csr_array((np.ones(len(order), rows.dtype), order, ends), shape=(len(start), len(rows)))


@dataclass(frozen=True, eq=False)
class Groups:
    """The rows of a sample in the order of their clusters."""

    rows: Reals
    """Sorted by cluster."""
    labels: Labels
    """Of the sorted rows."""
    order: Labels
    size: Floats
    start: Labels
    centre: Reals

    @classmethod
    def of(cls, z: Reals, labels: Labels) -> Groups:
        size = np.bincount(labels)
        order = np.argsort(labels, kind="stable")
        start = np.concatenate(([0], np.cumsum(size)[:-1]))
        rows = z[order]
        centre = sums_of_rows(rows, start) / size[:, None].astype(rows.dtype)
        return cls(rows, labels[order], order, size.astype(np.float64), start, centre)

    @classmethod
    def of_sorted(cls, rows: Reals, sizes: Labels) -> Groups:
        """Take rows that are in the order of their clusters already, of which each has so many."""
        start = np.cumsum(sizes) - sizes
        size = sizes.astype(np.float64)
        centre = sums_of_rows(rows, start) / size[:, None].astype(rows.dtype)
        return cls(rows, np.repeat(np.arange(len(sizes)), sizes), np.arange(len(rows)), size, start, centre)

    def sums(self, values: Reals) -> Floats:
        """Add up values of the sorted rows in each cluster."""
        found: Floats = np.add.reduceat(values, self.start, dtype=np.float64)
        return found


def nearest_gaps(groups: Groups, rest: Reals, within: float) -> Floats:
    """Return the log distance from each centre to the nearest other one, in its standard deviations that way."""
    centre, clusters = groups.centre, len(groups.size)
    if clusters == 1:
        return np.full(1, 3.0)
    apart = np.square(centre).sum(1)[:, None] + np.square(centre).sum(1) - 2 * centre @ centre.T
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(1)
    between = centre - centre[nearest]
    gap = np.sqrt(np.square(between).sum(1))
    direction = between / np.maximum(gap, LEAST)[:, None]
    along = np.einsum("ij,ij->i", rest, direction[groups.labels])
    even = AXIS_ROWS * within / centre.shape[1]
    deviation = np.sqrt((groups.sums(np.square(along)) + even) / (groups.size - 1 + AXIS_ROWS))
    gaps: Floats = np.log(gap / deviation + 1e-6)
    return gaps


def principal_axes(groups: Groups, rest: Reals) -> Reals:
    """Return where each sorted row lies along the principal axis of its cluster."""
    # All start from one direction: the axis of a cluster does not depend on its number.
    start = np.random.default_rng(0).normal(size=(1, groups.centre.shape[1]))
    axes = np.repeat(start.astype(rest.dtype), len(groups.size), 0)
    gather = gathering(rest, groups.start)
    for _ in range(POWER_ROUNDS):
        along = np.einsum("ij,ij->i", rest, axes[groups.labels])
        gather.data = along
        axes = gather @ rest
        length = np.sqrt(np.square(axes, dtype=np.float64).sum(1)) + 1e-300
        axes = (axes / length[:, None]).astype(rest.dtype)
    found: Reals = np.einsum("ij,ij->i", rest, axes[groups.labels])
    return found
