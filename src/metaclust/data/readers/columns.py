"""Which columns of a table are the rows, the labels and the ids, and what kind of rows they make."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from metaclust.data.readers.arrays import Missing, text_rows, vector_rows
from metaclust.data.rows import DataError, Kind, Rows, listed

TEXT_NAMES = ("text", "document", "content", "body", "sentence", "message", "description", "abstract", "title")
LABEL_NAMES = ("label", "category")
ID_NAMES = ("id", "row_id", "", "unnamed: 0")
"""The last two are how pandas writes its index into a csv."""
STRINGS = {*LABEL_NAMES, *ID_NAMES}
ABSENT = ("", "na", "n/a", "nan", "null", "none", "-", "?")
"""How people write that a number is missing; compared without case."""
WORDS = 3.0
"""A column of strings with so many words in the mean is text."""


@dataclass(frozen=True)
class Columns:
    """What to read from a table; what is None is found out."""

    label: str | None = None
    text: str | None = None
    vector: Sequence[str] | None = None
    ids: str | None = None
    usual_text: str | None = None
    """The column of text if there is one of that name."""


FOUND_OUT = Columns()
Table = dict[str, pl.Series]
"""Columns by name."""


def rows_from_table(
    frame: pl.DataFrame,
    columns: Columns = FOUND_OUT,
    *,
    kind: Kind | Literal["auto"] = "auto",
    missing: Missing = "error",
    source: str = "the table",
) -> Rows:
    """Labels, ids and the column of text or the columns of numbers, named or found out."""
    if frame.height == 0:
        raise DataError(f"{source} has no rows: give at least one below the header")
    # Under their own names, which may look like patterns to polars, some of its methods would not find them.
    table = {series.name: series.alias("") for series in frame}
    fixed = (pl.Categorical, pl.Enum)
    table = {name: column.cast(pl.String) if column.dtype in fixed else column for name, column in table.items()}
    columns = with_lists(columns, table)
    asked = [columns.label, columns.text, columns.ids, *(columns.vector or ())]
    unknown = [name for name in asked if name is not None and name not in table]
    if unknown:
        raise DataError(f"{source} has no column {listed(unknown, 20)}: its columns are {listed(list(table), 20)}")
    notes: list[str] = []
    label = columns.label or first_of(LABEL_NAMES, [name for name in table if not is_list(table[name])])
    if label in (columns.text, *(columns.vector or ())):
        label = columns.label
    ids = columns.ids or unique_ids(table, label)
    named = (columns.text, *(columns.vector or ()))
    free = [n for n in table if n not in (label, ids) and (n in named or n.strip().lower() not in ID_NAMES)]
    found, used = choose_columns(table, free, columns, kind, source)
    left = [name for name in table if name not in (label, ids, *used)]
    notes.append(
        f"{'text' if found == 'text' else 'numbers'} from {'column' if len(used) == 1 else 'columns'} {listed(used)}"
    )
    if label is not None:
        notes.append(f"labels from column {label!r}")
    if ids is not None:
        notes.append(f"ids from column {ids!r}")
    if left:
        notes.append(f"not used: {listed(left)}")
    numbers = (
        [str(i) for i in range(frame.height)] if ids is None else table[ids].cast(pl.String).fill_null("").to_list()
    )
    known = None if label is None else label_names(table[label], label, source)
    options: dict[str, Any] = {
        "missing": missing,
        "source": source,
        "notes": tuple(notes),
        "unlabelled": {} if known is None else unlabelled_rows(known, str(label), missing, source),
    }
    if found == "text":
        return text_rows(table[used[0]].cast(pl.String).to_list(), numbers, known, columns=used, **options)
    names, cells = number_table(table, used, source)
    return vector_rows(cells, numbers, known, columns=names, **options)


def choose_columns(
    table: Table, free: list[str], columns: Columns, kind: Kind | Literal["auto"], source: str
) -> tuple[Literal["text", "vectors"], list[str]]:
    """The kind of the rows and the columns they come from."""
    if columns.text is not None and columns.vector is not None:
        raise ValueError(f"text={columns.text!r} and columns={list(columns.vector)!r}: a row is one or the other")
    if columns.text is not None or (kind == "text" and columns.vector is None):
        return "text", [columns.text or text_column(table, free, columns.usual_text, source)]
    if columns.vector is not None:
        if not columns.vector:
            raise DataError(f"columns=[]: name at least one of the columns of {source}: {listed(free, 20)}")
        return "vectors", list(columns.vector)
    numeric = [name for name in free if is_number(table[name])]
    if kind == "vectors":
        if not numeric:
            raise DataError(
                f"{source} has no numeric column besides labels and ids: its columns are {listed(free, 20)}"
            )
        return "vectors", numeric
    strings = [name for name in free if table[name].dtype == pl.String and name not in numeric]
    text = None
    if first_of(TEXT_NAMES, strings) or any(mean_words(table[name]) >= WORDS for name in strings) or not numeric:
        text = text_column(table, free, columns.usual_text, source)
    for name in strings if text is None else [text]:
        refuse_written_numbers(table[name], name, source)
    return ("vectors", numeric) if text is None else ("text", [text])


def with_lists(columns: Columns, table: Table) -> Columns:
    """A column of lists is known by the names of its numbers, name[0], name[1] and so on: back to name."""
    if columns.vector is None:
        return columns
    names = []
    for name in columns.vector:
        base = re.sub(r"\[\d+\]$", "", name)
        names.append(base if name not in table and base in table and is_list(table[base]) else name)
    return replace(columns, vector=list(dict.fromkeys(names)))


def text_column(table: Table, free: list[str], usual: str | None, source: str) -> str:
    """The column that is called like text, or the one with the most words."""
    strings = [name for name in free if table[name].dtype == pl.String]
    called = usual if usual in strings else first_of(TEXT_NAMES, strings)
    if called is not None:
        return called
    if not strings:
        raise DataError(
            f"{source} has no column of text and none of numbers: its columns are {listed(list(table), 20)}"
        )
    return max(strings, key=lambda name: mean_words(table[name]))


def mean_words(column: pl.Series) -> float:
    return float(column.head(1000).drop_nulls().str.split(" ").list.len().mean() or 0)  # type: ignore[arg-type]


def first_of(names: Sequence[str], among: Sequence[str]) -> str | None:
    """The column that has one of the usual names, whatever its case."""
    lower = {name.strip().lower(): name for name in reversed(among)}
    return next((lower[name] for name in names if name in lower), None)


def unique_ids(table: Table, label: str | None) -> str | None:
    name = first_of(ID_NAMES, [name for name in table if name != label and not is_list(table[name])])
    return name if name is not None and table[name].is_unique().all() and table[name].null_count() == 0 else None


def is_list(column: pl.Series) -> bool:
    return isinstance(column.dtype, pl.List | pl.Array)


def is_number(column: pl.Series) -> bool:
    """Numbers, truth values, lists of numbers; strings if most of them are numbers."""
    kind = column.dtype
    if isinstance(kind, pl.List | pl.Array):
        return bool(kind.inner.is_numeric())
    if kind == pl.String:
        cells = column.drop_nulls().str.strip_chars()
        cells = cells.filter(~cells.str.to_lowercase().is_in(ABSENT))
        return len(cells) > 0 and cells.cast(pl.Float64, strict=False).null_count() * 2 < len(cells)
    return bool(kind.is_numeric()) or kind == pl.Boolean


def refuse_written_numbers(column: pl.Series, name: str, source: str) -> None:
    """Numbers as people write them, "1,5", "10 %", "$1,000": they would be left out, or be taken for text."""
    cells = column.drop_nulls().str.strip_chars()
    cells = cells.filter(~cells.str.to_lowercase().is_in(ABSENT))
    bare = cells.str.replace_all(r"\s*[%$€£]\s*", "").str.replace_all(",", ".", literal=True)
    # One point at most may be the decimal one: the others part thousands.
    bare = bare.str.replace_all(r"\.(\d{3})", "$1")
    if len(cells) and bare.cast(pl.Float64, strict=False).null_count() * 10 < len(cells):
        raise DataError(
            f"{source}: column {name!r} has numbers written as {cells[0]!r}: write them with a decimal point and "
            "nothing else, or name the columns to use as columns= or text="
        )


def number_table(table: Table, used: list[str], source: str) -> tuple[list[str], NDArray[np.float64]]:
    """The names and the numbers of columns; a column of lists has a number of columns of its own."""
    if not any(is_list(table[name]) for name in used):
        numbers = pl.DataFrame({str(i): as_numbers(table[name], name, source) for i, name in enumerate(used)})
        return list(used), numbers.to_numpy(order="c")
    names: list[str] = []
    parts: list[NDArray[np.float64]] = []
    for name in used:
        column = table[name]
        part = (
            list_numbers(column, name, source)
            if is_list(column)
            else as_numbers(column, name, source).to_numpy()[:, None]
        )
        parts.append(part)
        names += [f"{name}[{i}]" for i in range(part.shape[1])] if is_list(column) else [name]
    return names, np.concatenate(parts, 1)


def as_numbers(column: pl.Series, name: str, source: str) -> pl.Series:
    if column.dtype != pl.String:
        if not is_number(column):
            raise DataError(
                f"{source}: column {name!r} holds {column.dtype}, not numbers: leave it out, or turn it into numbers"
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
            f"({len(wrong):,} such cells). Correct it, or name the columns to use as columns="
        )
    return numbers.set(absent, None)


def list_numbers(column: pl.Series, name: str, source: str) -> NDArray[np.float64]:
    """(rows, numbers) of a column of lists that all have the same length."""
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


def label_names(column: pl.Series, name: str, source: str) -> list[str]:
    """Labels as strings, "" where there is none; whole numbers lose the point that a table gave them."""
    if column.dtype.is_nested():
        raise DataError(f"{source}: the label column {name!r} holds {column.dtype}: give one label a row")
    if column.dtype.is_float():
        column = column.fill_nan(None)
        known = column.drop_nulls()
        if bool((known.is_finite() & (known.abs() < 2**53) & (known % 1 == 0)).all()):
            column = column.cast(pl.Int64)
    return column.cast(pl.String).fill_null("").to_list()


def unlabelled_rows(labels: list[str], label: str, missing: Missing, source: str) -> dict[str, NDArray[np.bool_]]:
    """Which rows to leave out for want of a label; an error unless they may be left out."""
    blank = np.array([not name.strip() for name in labels], bool)
    if blank.any() and missing != "drop":
        raise DataError(
            f"{source}: row {int(blank.argmax())} (counting from 0) has no label in column {label!r} "
            f"({int(blank.sum()):,} such rows): fill it, pass missing='drop' to leave such rows out, or put rows "
            "without a label into a file of their own"
        )
    return {f"no label in column {label!r}": blank}
