"""Rows of a table whose columns are of several types: cells are checked, and gaps are kept for the preparation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from metaclust.data.mixed_table import MixedTable, Treatment, Usage
from metaclust.data.readers.cells import Reading, vector_rows, without
from metaclust.data.readers.dates import SPACES, first_of, is_temporal, present, read_dates
from metaclust.data.readers.numbers import Table, as_numbers, is_list, shown_type
from metaclust.data.rows import DataError, Rows, listed, shown

PLURALS: dict[Treatment, str] = {"number": "numbers", "category": "categories", "date": "dates", "text": "text"}


def mixed_rows(
    table: Table, usage: Mapping[str, Usage], ids: list[str], labels: list[str] | None, reading: Reading, remedy: str
) -> Rows:
    """Return the rows of the columns that are used; ``remedy`` is how the caller can choose other ones."""
    used = {name: each for name, each in usage.items() if each.is_used}
    numeric = [name for name, each in used.items() if each.treatment == "number"]
    found = {name: column.alias(name) for name, column in numbers(table, numeric, ids, reading, remedy).items()}
    for name, each in used.items():
        column = table[name]
        if each.treatment == "date":
            found[name] = read_dates(column, name, each.written, reading.source, remedy).alias(name)
        elif each.treatment != "number":
            found[name] = read_strings(column, name, each.treatment, reading.source, remedy).alias(name)
    values = MixedTable(pl.DataFrame([found[name] for name in used]), dict(usage))
    rows = Rows(
        "table", values, ids, labels, tuple(used), reading.source, reading.notes, table=reading.table, usage=dict(usage)
    )
    return without(rows, {**incomplete(values, reading), **reading.unlabelled})


def numbers(table: Table, names: list[str], ids: list[str], reading: Reading, remedy: str) -> dict[str, pl.Series]:
    """Return columns of float32; a cell that is no finite number is an error that names it."""
    if not names:
        return {}
    columns = {name: in_seconds(table[name]) for name in names}
    for name, column in columns.items():
        if is_list(column):
            raise DataError(
                f"{reading.source}: column {shown(name)} holds lists, which stand beside numbers only: choose columns "
                "of numbers and lists, or columns of all else"
            )
    cells = as_numbers(columns, names, reading.source, remedy)
    # Gaps are for the preparation to fill; all else is checked as in tables of numbers.
    checked = vector_rows(cells, ids, None, Reading(reading.source, "mean", tuple(names), has_missing=False))
    values: NDArray[np.float32] = np.asarray(checked.values)
    return {name: pl.Series(values[:, place]).fill_nan(None) for place, name in enumerate(names)}


def in_seconds(column: pl.Series) -> pl.Series:
    """Return durations as numbers of seconds, and other columns as they are; one without any value holds numbers."""
    if isinstance(column.dtype, pl.Duration):
        return column.dt.total_microseconds() / 1e6
    return column.cast(pl.Float64) if column.dtype == pl.Null else column


def read_strings(column: pl.Series, name: str, treatment: Treatment, source: str, remedy: str) -> pl.Series:
    """Return a column of categories or texts as strings; whole numbers are written without a decimal point."""
    dtype = column.dtype
    if dtype == pl.Null:
        return column.cast(pl.String)
    whole = dtype.is_integer() or (dtype.is_float() and bool((column.fill_nan(None).drop_nulls() % 1 == 0).all()))
    allowed = dtype == pl.String or (treatment == "category" and (whole or dtype == pl.Boolean))
    if not allowed or is_temporal(column):
        what = (
            "text: give strings" if treatment == "text" else "a category: give strings, whole numbers or truth values"
        )
        raise DataError(
            f"{source}: column {shown(name)} holds {shown_type(column)}, such as {shown(first_of(column))}, not "
            f"{what}{remedy}"
        )
    if dtype.is_float():
        column = column.fill_nan(None).cast(pl.Int64, strict=False)
    if treatment == "category":
        return present(column.cast(pl.String))
    return column.set(column.str.strip_chars(SPACES) == "", None)


def incomplete(values: MixedTable, reading: Reading) -> dict[str, NDArray[np.bool_]]:
    """Return which rows to leave out for want of a value; an error where gaps may not be."""
    if reading.missing not in ("drop", "error"):
        return {}
    gaps = {name: values.gaps(name) for name in values.frame.columns}
    rows = np.logical_or.reduce(list(gaps.values()))
    if reading.missing == "error" and rows.any():
        row = int(rows.argmax())
        column = next(name for name, mask in gaps.items() if mask[row])
        raise DataError(
            f"{reading.source}: row {row} (counting from 0), column {shown(column)}: the cell is empty "
            f"({int(rows.sum()):,} such rows). Fill it, or choose missing='auto' (--missing auto) to mark gaps"
        )
    return {"an empty cell": rows}


def mixed_notes(rows: Rows, label: str | None, ids: str | None, remedy: str) -> tuple[str, ...]:
    """Return what to say about the columns of a table and their gaps."""
    values = rows.values
    if not isinstance(values, MixedTable):
        return ()
    notes = []
    for treatment, plural in PLURALS.items():
        if names := values.names(treatment):
            notes.append(f"{plural} from {'column' if len(names) == 1 else 'columns'} {listed(names)}")
    notes += [
        f"{what} from column {shown(name)}" for what, name in (("labels", label), ("ids", ids)) if name is not None
    ]
    counts = {name: int(values.gaps(name).sum()) for name in values.frame.columns}
    if gaps := [f"{shown(name)} ({count:,})" for name, count in counts.items() if count]:
        more = f" and {len(gaps) - 5} more" if len(gaps) > 5 else ""
        notes.append(f"gaps are filled and marked: {', '.join(gaps[:5])}{more}")
    return (*notes, *left_out_notes(rows.usage, remedy))


def left_out_notes(usage: Mapping[str, Usage], remedy: str) -> tuple[str, ...]:
    """Return which columns are left out and why, and how to change that."""
    left = [f"{shown(name)} ({each.why})" for name, each in usage.items() if not each.is_used and each.why]
    if not left:
        return ()
    more = f" and {len(left) - 5} more" if len(left) > 5 else ""
    how = "; treat= (--treat NAME=category) changes how a column is read" if remedy else ""
    return (f"left out: {', '.join(left[:5])}{more}{how}",)


def check_known(usage: Mapping[str, Usage], table: Table, source: str) -> None:
    """Raise DataError where a table lacks columns that a model was trained on."""
    absent = [name for name, each in usage.items() if each.is_used and name not in table]
    if absent:
        columns = "column" if len(absent) == 1 else "columns"
        raise DataError(
            f"{source} has no {columns} {listed(absent, 20)}, which the model was trained on: its columns are "
            f"{listed(list(table), 20)}. Add {'it' if len(absent) == 1 else 'them'}, with empty cells where nothing is "
            "known"
        )
