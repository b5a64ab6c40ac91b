"""Columns of numbers in a table: which ones hold numbers, and what those are."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from metaclust.data.rows import DataError

Table = dict[str, pl.Series]
"""Columns by name."""
ABSENT = ("", "na", "n/a", "nan", "null", "none", "-", "?")
"""How people write that a number is missing; compared without case."""


def is_list(column: pl.Series) -> bool:
    return isinstance(column.dtype, pl.List | pl.Array)


def is_number(column: pl.Series) -> bool:
    """Return whether a column holds numbers, truth values or lists of numbers, or strings that mostly are numbers."""
    kind = column.dtype
    if isinstance(kind, pl.List | pl.Array):
        return bool(kind.inner.is_numeric())
    if kind == pl.String:
        cells = column.drop_nulls().str.strip_chars()
        cells = cells.filter(~cells.str.to_lowercase().is_in(ABSENT))
        return len(cells) > 0 and cells.cast(pl.Float64, strict=False).null_count() * 2 < len(cells)
    return bool(kind.is_numeric()) or kind == pl.Boolean


def refuse_written_numbers(column: pl.Series, name: str, source: str, remedy: str) -> None:
    """Raise DataError for numbers such as "1,5", "10 %" and "$1,000": they would be left out, or be taken for text."""
    cells = column.drop_nulls().str.strip_chars()
    cells = cells.filter(~cells.str.to_lowercase().is_in(ABSENT))
    bare = cells.str.replace_all(r"\s*[%$€£]\s*", "").str.replace_all(",", ".", literal=True)
    # At most one point is the decimal point: the others separate thousands.
    bare = bare.str.replace_all(r"\.(\d{3})", "$1")
    if len(cells) and bare.cast(pl.Float64, strict=False).null_count() * 10 < len(cells):
        raise DataError(
            f"{source}: column {name!r} has numbers written as {cells[0]!r}: write them with a decimal point and "
            f"nothing else{remedy}"
        )


def number_table(table: Table, used: list[str], source: str, remedy: str) -> tuple[list[str], NDArray[np.float64]]:
    """Return the names and the numbers of columns; a column of lists becomes several.

    ``remedy`` is what the caller can do about a column that does not hold numbers, for messages.
    """
    if not any(is_list(table[name]) for name in used):
        numbers = pl.DataFrame({str(i): as_numbers(table[name], name, source, remedy) for i, name in enumerate(used)})
        return list(used), numbers.to_numpy(order="c")
    names: list[str] = []
    parts: list[NDArray[np.float64]] = []
    for name in used:
        column = table[name]
        part = (
            list_numbers(column, name, source)
            if is_list(column)
            else as_numbers(column, name, source, remedy).to_numpy()[:, None]
        )
        parts.append(part)
        names += [f"{name}[{i}]" for i in range(part.shape[1])] if is_list(column) else [name]
    return names, np.concatenate(parts, 1)


def as_numbers(column: pl.Series, name: str, source: str, remedy: str) -> pl.Series:
    if column.dtype != pl.String:
        if not is_number(column):
            raise DataError(
                f"{source}: column {name!r} holds {column.dtype}, not numbers: turn it into numbers{remedy}"
            )
        return column.cast(pl.Float64)
    cells = column.str.strip_chars()
    numbers = cells.cast(pl.Float64, strict=False)
    absent = cells.is_null() | cells.str.to_lowercase().is_in(ABSENT)
    wrong = (numbers.is_null() & ~absent).arg_true()
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{source}: row {row} (counting from 0), column {name!r}: {column[row]!r} is not a number "
            f"({len(wrong):,} such cells). Correct it{remedy}"
        )
    return numbers.set(absent, None)


def list_numbers(column: pl.Series, name: str, source: str) -> NDArray[np.float64]:
    """Return (rows, numbers) of a column of lists that all have the same length."""
    if not is_number(column):
        raise DataError(f"{source}: column {name!r} holds {column.dtype}, not lists of numbers")
    lengths = column.list.len() if isinstance(column.dtype, pl.List) else column.arr.len()
    widths = lengths.fill_null(0).to_numpy()
    wrong = np.flatnonzero((widths != widths[0]) | (widths == 0))
    if len(wrong):
        row = int(wrong[0])
        if widths[row] == 0:
            raise DataError(f"{source}: row {row} (counting from 0), column {name!r}: the cell is empty: fill it")
        raise DataError(
            f"{source}: row {row} (counting from 0), column {name!r} has {widths[row]} numbers where row 0 has "
            f"{widths[0]}: give every row the same number of them, one or more"
        )
    flat = column.explode(empty_as_null=True, keep_nulls=True)
    return flat.cast(pl.Float64).to_numpy().reshape(len(column), -1)
