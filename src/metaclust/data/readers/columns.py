"""Which columns of a table hold the rows, the labels and the ids, and what kind of rows they are."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from metaclust.data.input_table import Index, InputTable, is_whole
from metaclust.data.kinds import Kind
from metaclust.data.labels import marked_whole_numbers, with_labels
from metaclust.data.mixed_table import Usage
from metaclust.data.readers.cells import Reading, text_rows, vector_rows
from metaclust.data.readers.choice import Choice, Columns, choose_columns, first_of, with_lists
from metaclust.data.readers.mixed import left_out_notes, mixed_notes, mixed_rows
from metaclust.data.readers.numbers import Table, is_list, number_table, shown_type
from metaclust.data.readers.usage import is_code
from metaclust.data.rows import DataError, DataWarning, Rows, listed, shown

LABEL_NAMES = ("label", "category")
ID_NAMES = ("id", "row_id", "", "unnamed: 0")
"""The last two are what pandas calls its index in a csv."""
STRINGS = {*LABEL_NAMES, *ID_NAMES}


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
    asked = [columns.label, columns.text, columns.ids, *(columns.vector or ()), *(columns.keep or ()), *columns.treat]
    unknown = [name for name in asked if name is not None and name not in table]
    if unknown:
        raise DataError(f"{source} has no column {listed(unknown, 20)}: its columns are {listed(list(table), 20)}")
    label = columns.label or first_of(LABEL_NAMES, [name for name in table if not is_list(table[name])])
    if label in columns.named:
        label = columns.label
    ids = columns.ids or unique_ids(table, label)
    if columns.label is not None and columns.label in columns.treat:
        raise ValueError(f"treat={dict(columns.treat)!r}: {shown(columns.label)} is the label; omit it")
    named = columns.named
    free = [n for n in table if n != label and (n in named or (n != ids and n.strip().lower() not in ID_NAMES))]
    choice = choose_columns(table, free, columns, kind, source)
    numbers = [str(i) for i in range(frame.height)] if ids is None else strings_of(table[ids], ids, source, "id")
    if columns.ids is not None:
        warn_of_ids(numbers, columns.ids, source)
    known = None if label is None else label_names(table[label], label, source)
    if known is not None and columns.partial:
        known = marked_whole_numbers(known)
    reading = replace(
        reading,
        columns=tuple(choice.used),
        notes=() if choice.kind == "table" else column_notes(choice, label, ids, list(table), columns.remedy()),
        unlabelled={} if known is None or columns.partial else unlabelled_rows(known, str(label), reading),
        table=kept_table(frame if written is None else written, columns.keep, ids, label),
    )
    rows = rows_of(table, choice, numbers, known, reading, columns)
    if choice.kind == "table":
        rows = replace(rows, notes=(*mixed_notes(rows, label, ids, columns.remedy()), *rows.notes))
    unused = {name: Usage("drop", "not used") for name in table if name not in (label, ids)}
    rows = replace(rows, usage={**unused, **choice.usage})
    return with_labels(rows, rows.labels) if columns.partial else rows


def rows_of(
    table: Table, choice: Choice, ids: list[str], labels: list[str] | None, reading: Reading, columns: Columns
) -> Rows:
    """Return the rows of the columns that were chosen."""
    used, source = choice.used, reading.source
    if choice.kind == "table":
        return mixed_rows(table, choice.usage, ids, labels, reading, columns.remedy())
    if choice.kind == "text":
        return text_rows(strings_of(table[used[0]], used[0], source, "text"), ids, labels, reading)
    names, cells = number_table(table, used, source, columns.remedy())
    return vector_rows(cells, ids, labels, replace(reading, columns=tuple(names)))


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


def column_notes(choice: Choice, label: str | None, ids: str | None, every: list[str], remedy: str) -> tuple[str, ...]:
    """Return what to say about the choice of columns of numbers or of text."""
    used = choice.used
    notes = [
        f"{'text' if choice.kind == 'text' else 'numbers'} from {'column' if len(used) == 1 else 'columns'} "
        f"{listed(used)}"
    ]
    if label is not None:
        notes.append(f"labels from column {shown(label)}")
    if ids is not None:
        notes.append(f"ids from column {shown(ids)}")
    taken = {label, ids, *used}
    if unused := [name for name in every if name not in taken]:
        notes.append(f"not used: {listed(unused)}")
    # Numbers that are left out need a reason.
    codes = {name: each for name, each in choice.usage.items() if each.treatment == "id" or is_code(name)}
    return (*notes, *left_out_notes(codes, remedy))


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
