"""Rows of checked values: numbers that are finite, texts that are not blank."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metaclust.data.input_table import InputTable
from metaclust.data.rows import DataError, DataWarning, Rows, shown

Missing = Literal["auto", "error", "drop", "mean"]
"""What happens to gaps. "auto" fills and marks them in tables of several types, and is "error" in all other rows."""


@dataclass(frozen=True)
class Reading:
    """Where rows come from, and what happens to those with an empty cell or label."""

    source: str = "X"
    missing: Missing = "auto"
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unlabelled: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Masks of the rows to leave out for want of a label, by the reason to give."""
    has_missing: bool = True
    """Whether the caller has an argument ``missing`` that messages can point to."""
    partial: bool = False
    """Whether some rows may lack a label."""
    table: InputTable | None = None
    """The table that the rows come from."""

    def __post_init__(self) -> None:
        if self.missing not in ("auto", "error", "drop", "mean"):
            raise ValueError(f"missing={self.missing!r}: choose 'auto', 'error', 'drop' or 'mean'")

    def remedy(self, mean: bool = False) -> str:
        """Return what to do about rows with an empty cell, in the words of the caller."""
        if not self.has_missing:
            return "Fill it, or leave such rows out"
        filled = ", or missing='mean' (--missing mean) to fill with the column's mean" if mean else ""
        return f"Fill it, or choose missing='drop' (--missing drop) to leave such rows out{filled}"


def vector_rows(
    values: NDArray[Any] | sparse.csr_array, ids: list[str], labels: list[str] | None, reading: Reading
) -> Rows:
    """Return float32 vectors without NaN or infinity; with missing="mean" NaN stays, for the preparation to fill."""
    given, source = values, reading.source
    with np.errstate(over="ignore"):
        values = values if sparse.issparse(values) else np.ascontiguousarray(values, np.float32)
    cells: Any = values.data if sparse.issparse(values) else values
    rows = Rows("vectors", values, ids, labels, reading.columns, source, reading.notes, table=reading.table)
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(cells.sum(dtype=np.float64))
    if finite:
        return without(rows, reading.unlabelled)
    if sparse.issparse(values):
        if not np.isfinite(cells).all():
            raise DataError(f"{source} is sparse and holds NaN or infinity: replace such entries")
        return without(rows, reading.unlabelled)
    infinite = np.isinf(values)
    if infinite.any():
        row, column = (int(i) for i in np.argwhere(infinite)[0])
        raise DataError(
            f"{source}: row {row} (counting from 0), column {named(reading.columns, column)}: {given[row, column]} is "
            "not a finite float32 number; correct or remove it"
        )
    absent = np.isnan(values)
    incomplete = absent.any(1)
    if reading.missing == "drop":
        return without(rows, {"an empty cell or NaN": incomplete, **reading.unlabelled})
    if reading.missing != "mean" and incomplete.any():
        row = int(incomplete.argmax())
        column = int(absent[row].argmax())
        raise DataError(
            f"{source}: row {row} (counting from 0), column {named(reading.columns, column)}: the cell is empty or NaN "
            f"({int(incomplete.sum()):,} such rows). {reading.remedy(mean=True)}"
        )
    return rows


def text_rows(values: list[Any], ids: list[str], labels: list[str] | None, reading: Reading) -> Rows:
    """Return texts that are not blank."""
    for i, value in enumerate(values):
        if value is not None and not isinstance(value, str):
            raise DataError(
                f"{reading.source}: row {i} (counting from 0) is {shown(value)}, not a string: texts must be strings"
            )
    texts = [value or "" for value in values]
    rows = Rows("text", texts, ids, labels, reading.columns, reading.source, reading.notes, table=reading.table)
    blank = np.array([not value or value.isspace() for value in values], bool)
    if reading.missing == "drop":
        return without(rows, {"an empty text": blank, **reading.unlabelled})
    if blank.any():
        raise DataError(
            f"{reading.source}: row {int(blank.argmax())} (counting from 0) has an empty text "
            f"({int(blank.sum()):,} such rows). {reading.remedy()}"
        )
    return rows


def without(rows: Rows, reasons: Mapping[str, NDArray[np.bool_]]) -> Rows:
    """Return the rows that no mask marks, with a warning and a note for each reason to leave rows out."""
    marked = {why: mask for why, mask in reasons.items() if mask.any()}
    if not marked:
        return rows
    bad = np.logical_or.reduce(list(marked.values()))
    if bad.all():
        raise DataError(f"{rows.source}: every row has {' or '.join(marked)}, so none is left: fill some of them")
    notes = []
    for why, mask in marked.items():
        what = f"left out {int(mask.sum()):,} rows with {why}, first row {int(mask.argmax())} (counting from 0)"
        warnings.warn(f"{rows.source}: {what}", DataWarning, stacklevel=3)
        notes.append(what)
    return replace(rows.take(~bad), notes=(*rows.notes, *notes))


def named(columns: Sequence[str], column: int) -> str:
    return shown(columns[column]) if columns else str(column)
