"""What is said of each column of a table: its type, what it is used as, how many values and gaps it has."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from metaclust.data.readers.dates import present
from metaclust.data.readers.numbers import shown_type
from metaclust.data.rows import Rows, shown

EXAMPLE = 30
"""The longest example of a value."""


@dataclass(frozen=True)
class ColumnLine:
    """A column of a table that was read.

    Parameters
    ----------
    column, type : str
        Its name and type.
    treatment : str
        What it is used as: "number", "category", "date", "text", "label" or "id"; "drop" where it is left out.
    distinct, gaps : int or None
        The number of different values, and of cells without one; None where they cannot be counted.
    example : str
        The first value.
    why : str
        Why it is left out.
    """

    column: str
    type: str
    treatment: str
    distinct: int | None
    gaps: int
    example: str
    why: str


def column_lines(rows: Rows) -> list[ColumnLine]:
    """Return a line for each column of the table that rows were read from; none for other rows."""
    if rows.table is None or rows.table.is_pandas:
        return []
    table = rows.table
    lines = []
    for place, name in enumerate(table.names):
        (column,) = table.polars({place: ""})
        usage = rows.usage.get(name)
        treatment = "label" if name == table.label else "drop" if usage is None else usage.treatment
        if name == table.ids and (usage is None or not usage.is_used):
            treatment = "id"
        lines.append(column_line(column, str(name), treatment, "" if usage is None else usage.why))
    return lines


def column_line(column: pl.Series, name: str, treatment: str, why: str) -> ColumnLine:
    """Return the line of one column."""
    values = column
    if column.dtype == pl.String:
        values = present(column)
    elif column.dtype.is_float():
        values = column.fill_nan(None)
    values = values.drop_nulls()
    # Objects and nested values cannot be counted in every version of polars.
    plain = not (column.dtype.is_nested() or column.dtype == pl.Object)
    example = str(values[0]) if len(values) else ""
    return ColumnLine(
        name,
        shown_type(column),
        treatment,
        values.n_unique() if plain else None,
        len(column) - len(values),
        shown(example, EXAMPLE + 2)[1:-1],
        why,
    )
