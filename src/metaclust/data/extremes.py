"""Cells that are too far from all others to be measurements: what is announced, what is refused, and where they are.

A column is squeezed if all but the furthest hundredth of its cells (but at least one) together have less than a
thousandth of its standard deviation: a few cells then decide its scale, and it says next to nothing about the other
rows. That is a warning that names the furthest cell. Where the others have so little that float32 cannot tell them
apart, it is an error, unless they differ by no more than rounding: then nothing is lost, and it is a warning. The rule
does not depend on units. Columns that are constant but for a few cells are not squeezed: nothing is lost.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from metaclust.data.readers.cells import named
from metaclust.data.rows import DataError, DataWarning

FAR = 1000.0
"""Standard deviations beyond which a cell is announced."""
LOST = float(1 / np.finfo(np.float32).eps)
"""Standard deviations beyond which a cell is refused: float32 holds no difference of the other rows beside it."""
LARGEST_FLOAT64 = 1e140
"""The largest number of which float64 holds sums of squares over any number of rows; one over it is the smallest."""
LARGEST_FLOAT32 = 1e18
"""The largest number of which float32 holds sums of squares over a row."""
FEWEST = 10
"""Of fewer rows than this, each says too much about its column to be called far from the others."""
BLOCK = 1 << 22
"""The number of cells that are in float64 at a time."""

Place = Callable[[int], str]
"""What messages call a row."""


def row_number(row: int) -> str:
    return f"row {row} (counting from 0)"


def row_with_id(ids: Sequence[str]) -> Place:
    """Return what messages call a row with an id, which says where it came from if rows before it were left out."""

    def place(row: int) -> str:
        return row_number(row) if ids[row] == str(row) else f"{row_number(row)}, id {ids[row]!r}"

    return place


@dataclass(frozen=True)
class Extremes:
    """The lowest and the highest cell of each column, and their rows; those of more rows are ``a + b``."""

    lowest: Float[Tensor, "s"]
    lowest_rows: Int[Tensor, "s"]
    highest: Float[Tensor, "s"]
    highest_rows: Int[Tensor, "s"]

    @classmethod
    def of(cls, x: Float[Tensor, "n s"], rows: Int[Tensor, "n"]) -> Extremes:
        """The extremes of rows with these numbers."""
        (lowest, low), (highest, high) = x.min(0), x.max(0)
        return cls(lowest.double(), rows[low], highest.double(), rows[high])

    @classmethod
    def of_array(cls, values: NDArray[np.float64], before: int) -> Extremes:
        """The extremes of rows that follow ``before`` others, where NaN is a missing cell."""
        low, high = (torch.from_numpy(np.where(np.isnan(values), end, values)) for end in (np.inf, -np.inf))
        rows = torch.arange(before, before + len(values))
        lowest, highest = cls.of(low, rows), cls.of(high, rows)
        return cls(lowest.lowest, lowest.lowest_rows, highest.highest, highest.highest_rows)

    def __add__(self, other: Extremes) -> Extremes:
        if not isinstance(other, Extremes):
            return NotImplemented
        below, above = other.lowest < self.lowest, other.highest > self.highest
        return Extremes(
            other.lowest.where(below, self.lowest),
            other.lowest_rows.where(below, self.lowest_rows),
            other.highest.where(above, self.highest),
            other.highest_rows.where(above, self.highest_rows),
        )

    def furthest(self, column: int, centre: float) -> tuple[float, int]:
        """The cell of a column that is furthest from ``centre``, and its row."""
        low, high = float(self.lowest[column]), float(self.highest[column])
        if high - centre >= centre - low:
            return high, int(self.highest_rows[column])
        return low, int(self.lowest_rows[column])


def check_columns(
    sample: NDArray[Any],
    extremes: Extremes,
    mean: NDArray[np.float64],
    deviation: NDArray[np.float64],
    name: str,
    columns: Sequence[str] = (),
    place: Place = row_number,
) -> None:
    """Warn of columns that are squeezed by a few cells; raise DataError where float32 cannot hold what is left.

    Parameters
    ----------
    sample : array of shape (n, s)
        All rows, or a sample of them; NaN is a missing cell.
    extremes : Extremes
        Those of all rows.
    mean, deviation : array of shape (s,)
        The mean and the standard deviation of each column over all rows.
    name : str
        What messages call the rows.
    columns : sequence of str
        The names of the columns, if they have any.
    place : callable
        What messages call a row, from its number.
    """
    rows = len(sample)
    if rows < FEWEST:
        return
    trimmed = max(1, rows // 100)
    reach = np.maximum(extremes.highest.numpy() - mean, mean - extremes.lowest.numpy())
    # If so few cells have nearly all of the variance, one of them is at least about so many deviations away.
    suspects = np.flatnonzero((deviation > 0) & (reach >= 0.9 * np.sqrt(min(rows, 100)) * deviation))
    width = max(1, BLOCK // rows)
    for first in range(0, len(suspects), width):
        some = suspects[first : first + width]
        values = sample[:, some].astype(np.float64)
        absent = np.isnan(values)
        centres = np.nanmedian(values, axis=0)
        distance = np.where(absent, -1, np.abs(values - centres))
        limit = np.partition(distance, rows - trimmed - 1, axis=0)[rows - trimmed - 1]
        rest = np.std(values, axis=0, where=(distance <= limit) & ~absent)
        share = rest / deviation[some]
        rounding = rest <= np.finfo(sample.dtype).eps * np.abs(centres)
        for place_in_block in np.flatnonzero((share > 0) & (share < 1 / FAR)).tolist():
            column = int(some[place_in_block])
            value, row = extremes.furthest(column, float(centres[place_in_block]))
            where = f"{name}: {place(row)}, column {named(columns, column)}: {value:.6g}"
            if rounding[place_in_block]:
                warnings.warn(
                    f"{where} is far from the other rows, which differ by no more than rounding in this column: check "
                    "it",
                    DataWarning,
                    stacklevel=4,
                )
                continue
            if share[place_in_block] < 1 / LOST:
                raise DataError(
                    f"{where} is so far from the other rows that float32 holds no difference between those: correct "
                    "it, or leave out the row or the column"
                )
            warnings.warn(
                f"{where} is so far from the other rows that it decides the scale of the column, which then says next "
                "to nothing about them: check it",
                DataWarning,
                stacklevel=4,
            )


def check_scaled(
    values: NDArray[Any],
    scaled: NDArray[np.float32],
    name: str,
    columns: Sequence[str] = (),
    place: Place = row_number,
    first: int = 0,
    single: NDArray[np.bool_] | None = None,
) -> tuple[int, float, str]:
    """Return how many cells are more than ``FAR`` deviations from the mean of training, how far the furthest is, and
    the words for it.

    Raise DataError if one is beyond ``LOST``. ``values`` are the cells before scaling, ``first`` the number of the
    first row. ``single`` marks columns with a scale of 1, as those have that had a single value in training: there is
    no standard deviation to measure in.
    """
    distance = np.abs(scaled)
    # Not a number is infinity minus infinity: beyond what float32 holds.
    far = ~(distance <= FAR)
    count = int(far.sum())
    if not count:
        return 0, 0.0, ""
    furthest = int(np.where(np.isnan(distance), np.inf, distance).argmax())
    row, column = (int(i) for i in np.unravel_index(furthest, distance.shape))
    is_single = single is not None and bool(single[column])
    where = (
        f"{name}: {place(first + row)}, column {named(columns, column)}: {values[row, column]:.6g} is "
        f"{distance[row, column]:.2g}{'' if is_single else ' standard deviations'} from the mean of the training rows"
        + (", in which the column had a single value (or a standard deviation of exactly 1)" if is_single else "")
    )
    if not distance[row, column] <= LOST:
        remedy = "train without the column" if is_single else "give the column in the units of training"
        raise DataError(f"{where}: correct it, leave out the row, or {remedy}")
    return count, float(distance[row, column]), where


def check_magnitude(values: NDArray[Any], name: str, columns: Sequence[str] = (), place: Place = row_number) -> None:
    """Raise DataError for a cell that is too large for rows that are not scaled: float32 cannot hold its square."""
    step = max(1, BLOCK // max(1, values.shape[1]))
    for first in range(0, len(values), step):
        large = np.abs(values[first : first + step]) > LARGEST_FLOAT32
        if large.any():
            row, column = (int(i) for i in np.argwhere(large)[0])
            where = f"{name}: {place(first + row)}, column {named(columns, column)}"
            refuse_large(float(values[first + row, column]), where)


def check_sparse_magnitude(values: Any, name: str, columns: Sequence[str] = (), place: Place = row_number) -> None:
    """The same for sparse rows."""
    large = np.flatnonzero(np.abs(values.data) > LARGEST_FLOAT32)
    if len(large):
        row = int(np.searchsorted(values.indptr, large[0], side="right")) - 1
        column = int(values.indices[large[0]])
        refuse_large(float(values.data[large[0]]), f"{name}: {place(row)}, column {named(columns, column)}")


def refuse_large(value: float, where: str) -> NoReturn:
    raise DataError(
        f"{where}: {value:.6g} is too large for rows that are not scaled: correct it, or train with scaling='standard' "
        "(dense rows)"
    )
