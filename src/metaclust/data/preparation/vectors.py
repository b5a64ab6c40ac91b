"""Vectors: columns by name, missing numbers filled with the mean, each column scaled."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from metaclust._util.checks import is_count
from metaclust.data.extremes import (
    Extremes,
    Place,
    check_columns,
    check_magnitude,
    check_scaled,
    check_sparse_magnitude,
    row_with_id,
)
from metaclust.data.kinds import Kind
from metaclust.data.preparation.base import (
    Options,
    Scaling,
    are_numbers,
    are_strings,
    require,
    short_repr,
    values_of,
)
from metaclust.data.rows import DataError, DataWarning, Rows, listed
from metaclust.data.sparse import SparseRows, of_unit_length

BLOCK = 16_384
"""Rows that are in float64 at a time."""
LARGEST_MOMENT = 1e100
"""The largest mean or standard deviation of a column; the smallest standard deviation is its inverse."""


@dataclass(frozen=True)
class VectorPreparation:
    """Columns by name, missing numbers filled with the mean, each column scaled."""

    name: ClassVar[str] = "vectors"
    kind: ClassVar[Kind] = "vectors"
    width: int
    columns: tuple[str, ...] = ()
    mean: tuple[float, ...] | None = None
    """Means and standard deviations of the training rows; None leaves the numbers as they are."""
    scale: tuple[float, ...] | None = None
    fill: bool = False
    """Whether missing numbers are filled with the means."""

    __repr__ = short_repr

    def __post_init__(self) -> None:
        require(is_count(self.width), "width", self.width)
        require(are_strings(self.columns) and len(self.columns) in (0, self.width), "columns", self.columns)
        for name, low in (("mean", -LARGEST_MOMENT), ("scale", 1 / LARGEST_MOMENT)):
            values = getattr(self, name)
            require(values is None or are_numbers(values, self.width, low, LARGEST_MOMENT), name, values)
        require(isinstance(self.fill, bool), "fill", self.fill)
        require(self.mean is not None or (self.scale is None and not self.fill), "mean", self.mean)

    @classmethod
    def from_rows(cls, rows: Rows, options: Options) -> tuple[VectorPreparation, Rows]:
        """Return how to prepare rows like these, and the rows.

        ``scaling="auto"`` leaves rows as they are if all have length one, as embeddings have.
        """
        scaling: Scaling = options.scaling
        if scaling not in ("auto", "standard", "none"):
            raise ValueError(f"scaling={scaling!r}: choose 'auto', 'standard' or 'none'")
        values = values_of(rows, cls.kind)
        width = int(values.shape[1])
        if sparse.issparse(values):
            # Centred, they would no longer be sparse.
            check_sparse_magnitude(values, *of_rows(rows))
            return cls(width, rows.columns), rows
        empty = np.isnan(values).all(0)
        if empty.any():
            name = rows.columns[int(empty.argmax())] if rows.columns else int(empty.argmax())
            raise DataError(f"{rows.source}: column {name!r} has no number at all: leave it out")
        fill = bool(np.isnan(values).any())
        if scaling == "auto":
            if width > 1 and not fill and of_unit_length(values):
                return cls(width, rows.columns), rows
            scaling = "standard"
        scaler, extremes = StandardScaler(), None
        for start in range(0, len(values), BLOCK):
            block = values[start : start + BLOCK].astype(np.float64)
            scaler.partial_fit(block)
            own = Extremes.of_array(block, start)
            extremes = own if extremes is None else extremes + own
        if extremes is not None and scaling == "standard":
            check_columns(values, extremes, scaler.mean_, np.sqrt(scaler.var_), *of_rows(rows))
        if scaling == "none":
            check_magnitude(values, *of_rows(rows))
            if not fill:
                return cls(width, rows.columns), rows
        scale = tuple(float(value) for value in scaler.scale_) if scaling == "standard" else None
        return cls(width, rows.columns, tuple(float(value) for value in scaler.mean_), scale, fill), rows

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.width,)

    def reading(self) -> dict[str, Any]:
        return {"columns": self.columns or None, "missing": "mean" if self.fill else "error"}

    def __call__(self, rows: Rows) -> Tensor | SparseRows:
        values = values_of(rows, self.kind)
        if values.shape[1] != self.width:
            raise DataError(f"{rows.source} has {values.shape[1]} columns, but the model was trained on {self.width}")
        if self.columns and rows.columns and rows.columns != self.columns:
            raise DataError(
                f"{rows.source} has the columns {listed(rows.columns)}, but the model was trained on "
                f"{listed(self.columns)}"
            )
        if sparse.issparse(values):
            if self.scale is not None:
                raise DataError(f"{rows.source} is sparse, but the model was trained on dense rows: pass X.toarray()")
            check_sparse_magnitude(values, *of_rows(rows))
            return SparseRows(values)
        absent = np.isnan(values)
        if absent.any() and not self.fill:
            raise DataError(
                f"{rows.source}: row {int(absent.any(1).argmax())} (counting from 0) has an empty cell or NaN, but "
                "there was none in training: fill it, or leave such rows out"
            )
        return torch.from_numpy(self._scaled(values, absent, rows))

    def _scaled(self, values: NDArray[np.float32], absent: NDArray[np.bool_], rows: Rows) -> NDArray[np.float32]:
        """Return the prepared values; cells far from the training rows are announced or refused."""
        if absent.any():
            values = np.where(absent, np.array(self.mean, np.float32), values)
        if self.scale is None or self.mean is None:
            check_magnitude(values, *of_rows(rows))
            return np.ascontiguousarray(values) if values.flags.writeable else np.array(values)
        # In blocks: a column far from zero needs the difference in float64, but not all rows at once.
        scaled = np.empty(values.shape, np.float32)
        mean, scale = np.array(self.mean), np.array(self.scale)
        far, furthest, words = 0, 0.0, ""
        for start in range(0, len(values), BLOCK):
            block = values[start : start + BLOCK]
            with np.errstate(over="ignore"):
                scaled[start : start + BLOCK] = (block - mean) / scale
            part = scaled[start : start + BLOCK]
            found, distance, where = check_scaled(block, part, *of_rows(rows), start, scale == 1)
            far += found
            if distance > furthest:
                furthest, words = distance, where
        if far:
            more = f" ({far:,} such cells)" if far > 1 else ""
            warnings.warn(
                f"{words}{more}: such a cell can decide the clusters of all rows; check it", DataWarning, stacklevel=4
            )
        return scaled


def of_rows(rows: Rows) -> tuple[str, tuple[str, ...], Place]:
    """Return what messages call the rows, their columns and one of them."""
    return rows.source, rows.columns, row_with_id(rows.ids)
