"""Which columns of a table hold the rows, the labels and the ids, and what kind of rows they are."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from metaclust.data.input_table import Index, InputTable, is_whole
from metaclust.data.kinds import Kind
from metaclust.data.labels import marked_whole_numbers, with_labels
from metaclust.data.readers.cells import Reading, text_rows, vector_rows
from metaclust.data.readers.numbers import (
    Table,
    are_numbers,
    is_list,
    mean_words,
    number_table,
    refuse_written_numbers,
    shown_type,
)
from metaclust.data.rows import DataError, DataWarning, Rows, listed, shown

TEXT_NAMES = ("text", "document", "content", "body", "sentence", "message", "description", "abstract", "title")
LABEL_NAMES = ("label", "category")
ID_NAMES = ("id", "row_id", "", "unnamed: 0")
"""The last two are what pandas calls its index in a csv."""
STRINGS = {*LABEL_NAMES, *ID_NAMES}
WORDS = 3.0
"""A column of strings with at least so many words on average is text."""


@dataclass(frozen=True)
class Columns:
    """Which columns of a table to read; those that are None are detected."""

    label: str | None = None
    text: str | None = None
    vector: Sequence[str] | None = None
    ids: str | None = None
    keep: Sequence[str] | None = None
    """The columns that results carry; all of them if it is None."""
    partial: bool = False
    """Whether some rows may lack a label."""
    usual_text: str | None = None
    """The column of text if there is one of that name."""
    has_options: bool = True
    """Whether the caller has the arguments ``columns`` and ``text``, which messages can point to."""

    def remedy(self, text: bool = False) -> str:
        """Return how the caller can choose other columns, to end a message."""
        if not self.has_options:
            return ""
        return ", or choose columns with columns= (--columns)" + (" or text= (--text-column)" if text else "")


DETECTED = Columns()


def rows_from_table(
    frame: pl.DataFrame,
    columns: Columns = DETECTED,
    kind: Kind = "auto",
    reading: Reading | None = None,
    written: pl.DataFrame | None = None,
) -> Rows:
    """Return the rows, labels and ids of a table, from the given or the detected columns.

    ``written`` is the same table as results carry it.
    """
    reading = reading or Reading("the table")
    source = reading.source
    if frame.height == 0:
        raise DataError(f"{source} has no rows: give at least one below the header")
    # Without their names, which may look like patterns to polars and would then not be found by some of its methods.
    table = {series.name: series.alias("") for series in frame}
    fixed = (pl.Categorical, pl.Enum)
    table = {name: column.cast(pl.String) if column.dtype in fixed else column for name, column in table.items()}
    columns = with_lists(columns, table)
    asked = [columns.label, columns.text, columns.ids, *(columns.vector or ()), *(columns.keep or ())]
    unknown = [name for name in asked if name is not None and name not in table]
    if unknown:
        raise DataError(f"{source} has no column {listed(unknown, 20)}: its columns are {listed(list(table), 20)}")
    label = columns.label or first_of(LABEL_NAMES, [name for name in table if not is_list(table[name])])
    if label in (columns.text, *(columns.vector or ())):
        label = columns.label
    ids = columns.ids or unique_ids(table, label)
    named = {columns.text, *(columns.vector or ())}
    free = [n for n in table if n not in (label, ids) and (n in named or n.strip().lower() not in ID_NAMES)]
    found, used = choose_columns(table, free, columns, kind, source)
    numbers = [str(i) for i in range(frame.height)] if ids is None else strings_of(table[ids], ids, source, "id")
    if columns.ids is not None:
        warn_of_ids(numbers, columns.ids, source)
    known = None if label is None else label_names(table[label], label, source)
    if known is not None and columns.partial:
        known = marked_whole_numbers(known)
    reading = replace(
        reading,
        columns=tuple(used),
        notes=column_notes(found, used, label, ids, list(table)),
        unlabelled={} if known is None or columns.partial else unlabelled_rows(known, str(label), reading),
        table=kept_table(frame if written is None else written, columns.keep, ids, label),
    )
    if found == "text":
        rows = text_rows(strings_of(table[used[0]], used[0], source, "text"), numbers, known, reading)
    else:
        names, cells = number_table(table, used, source, columns.remedy())
        rows = vector_rows(cells, numbers, known, replace(reading, columns=tuple(names)))
    return with_labels(rows, rows.labels) if columns.partial else rows


def kept_table(frame: pl.DataFrame, keep: Sequence[str] | None, ids: str | None, label: str | None) -> InputTable:
    """Return the columns of a table that results carry."""
    whole = ids is not None and is_whole(frame[ids])
    kept = frame if keep is None else frame.select([frame[name] for name in dict.fromkeys(keep)])
    return InputTable(kept, Index(whole), ids, label)


def warn_of_ids(ids: list[str], column: str, source: str) -> None:
    """Warn of ids that do not tell rows apart."""
    blank = sum(not name.strip() for name in ids)
    twice = [name for name, count in Counter(ids).items() if count > 1 and name.strip()]
    what = [f"{blank:,} rows without one"] if blank else []
    what += [f"{len(twice):,} that several rows have, such as {shown(twice[0])}"] if twice else []
    if what:
        warnings.warn(
            f"{source}: the ids in column {shown(column)} do not tell all rows apart: there are {' and '.join(what)}",
            DataWarning,
            stacklevel=3,
        )


def column_notes(
    found: Literal["text", "vectors"], used: list[str], label: str | None, ids: str | None, every: list[str]
) -> tuple[str, ...]:
    """Return what to say about the choice of columns."""
    notes = [
        f"{'text' if found == 'text' else 'numbers'} from {'column' if len(used) == 1 else 'columns'} {listed(used)}"
    ]
    if label is not None:
        notes.append(f"labels from column {shown(label)}")
    if ids is not None:
        notes.append(f"ids from column {shown(ids)}")
    taken = {label, ids, *used}
    if unused := [name for name in every if name not in taken]:
        notes.append(f"not used: {listed(unused)}")
    return tuple(notes)


def choose_columns(
    table: Table, free: list[str], columns: Columns, kind: Kind, source: str
) -> tuple[Literal["text", "vectors"], list[str]]:
    """Return the kind of the rows and the columns they come from."""
    if columns.text is not None and columns.vector is not None:
        raise ValueError(f"text={columns.text!r} and columns={list(columns.vector)!r}: a row is one or the other")
    if columns.text is not None or (kind == "text" and columns.vector is None):
        return "text", [columns.text or text_column(table, free, columns.usual_text, source)]
    if columns.vector is not None:
        if not columns.vector:
            raise DataError(f"columns=[]: name at least one of the columns of {source}: {listed(free, 20)}")
        return "vectors", list(columns.vector)
    numeric = [
        name for name, is_number in zip(free, are_numbers([table[name] for name in free]), strict=True) if is_number
    ]
    if kind == "vectors":
        if not numeric:
            raise DataError(
                f"{source} has no numeric column besides labels and ids: its columns are {listed(free, 20)}"
            )
        return "vectors", numeric
    among_numbers = set(numeric)
    strings = [name for name in free if table[name].dtype == pl.String and name not in among_numbers]
    text = None
    if (
        first_of(TEXT_NAMES, strings)
        or max(mean_words([table[name] for name in strings]), default=0) >= WORDS
        or not numeric
    ):
        text = text_column(table, free, columns.usual_text, source)
    refuse_written_numbers(table, strings if text is None else [text], source, columns.remedy(text=True))
    return ("vectors", numeric) if text is None else ("text", [text])


def with_lists(columns: Columns, table: Table) -> Columns:
    """Return the columns with name in place of name[0], name[1] and so on, the names of the numbers in a list."""
    if columns.vector is None:
        return columns
    names = []
    for name in columns.vector:
        base = re.sub(r"\[\d+\]$", "", name)
        names.append(base if name not in table and base in table and is_list(table[base]) else name)
    return replace(columns, vector=list(dict.fromkeys(names)))


def text_column(table: Table, free: list[str], usual: str | None, source: str) -> str:
    """Return the column with a usual name for text, or the one with the most words."""
    strings = [name for name in free if table[name].dtype == pl.String]
    called = usual if usual in strings else first_of(TEXT_NAMES, strings)
    if called is not None:
        return called
    if not strings:
        raise DataError(
            f"{source} has no column of text and none of numbers: its columns are {listed(list(table), 20)}"
        )
    words = mean_words([table[name] for name in strings])
    return strings[words.index(max(words))]


def first_of(names: Sequence[str], among: Sequence[str]) -> str | None:
    """Return the column that has one of the usual names, ignoring case."""
    lower = {name.strip().lower(): name for name in reversed(among)}
    return next((lower[name] for name in names if name in lower), None)


def unique_ids(table: Table, label: str | None) -> str | None:
    name = first_of(ID_NAMES, [name for name in table if name != label and not is_list(table[name])])
    return name if name is not None and table[name].is_unique().all() and table[name].null_count() == 0 else None


def label_names(column: pl.Series, name: str, source: str) -> list[str]:
    """Return labels as strings, "" where there is none; whole numbers are written without a decimal point."""
    if column.dtype.is_float():
        column = column.fill_nan(None)
        known = column.drop_nulls()
        if bool((known.is_finite() & (known.abs() < 2**53) & (known % 1 == 0)).all()):
            column = column.cast(pl.Int64)
    return strings_of(column, name, source, "label")


def strings_of(column: pl.Series, name: str, source: str, what: str) -> list[str]:
    """Return cells as strings, "" for empty ones; DataError where they cannot be written as strings."""
    wrong = f"{source}: the {what} column {shown(name)} holds {shown_type(column)}: give one string or number a row"
    if column.dtype.is_nested():
        raise DataError(wrong)
    try:
        return column.cast(pl.String).fill_null("").to_list()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(wrong) from error


def unlabelled_rows(labels: list[str], label: str, reading: Reading) -> dict[str, NDArray[np.bool_]]:
    """Return which rows to leave out for want of a label; an error unless they may be left out."""
    blank = np.array([not name.strip() for name in labels], bool)
    if blank.any() and reading.missing != "drop":
        raise DataError(
            f"{reading.source}: row {int(blank.argmax())} (counting from 0) has no label in column {shown(label)} "
            f"({int(blank.sum()):,} such rows). {reading.remedy()}, or put rows without a label into a file of their "
            "own"
        )
    return {f"no label in column {shown(label)}": blank}
