"""Columns of numbers in a table: which ones hold numbers, and what those are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from metaclust.data.rows import DataError, shown

Table = dict[str, pl.Series]
"""Columns by name."""
ABSENT = ("", "na", "n/a", "nan", "null", "none", "-", "?")
"""How people write that a number is missing; compared without case."""


def is_list(column: pl.Series) -> bool:
    return isinstance(column.dtype, pl.List | pl.Array)


class Cells:
    """The cells of several columns of strings, one column after the other.

    All are treated in one call: a call for each of very many columns takes minutes.
    """

    def __init__(self, columns: Sequence[pl.Series]) -> None:
        self.stripped = pl.concat(columns, rechunk=True).str.strip_chars()
        self.count, self.rows = len(columns), len(columns[0])
        self.absent = self.stripped.is_null() | self.stripped.str.to_lowercase().is_in(ABSENT)

    def numbers(self, cells: pl.Series | None = None) -> pl.Series:
        """Return the numbers that the cells, or what was made of them, can be read as."""
        read = (self.stripped if cells is None else cells).cast(pl.Float64, strict=False)
        return read.set(self.absent, None)

    def per_column(self, mask: pl.Series) -> NDArray[np.int64]:
        """Return how many cells of each column a mask marks."""
        counts: NDArray[np.int64] = mask.to_numpy().reshape(self.count, self.rows).sum(1, dtype=np.int64)
        return counts


def are_numbers(columns: Sequence[pl.Series]) -> list[bool]:
    """Return which columns hold numbers, truth values or lists of numbers, or strings that mostly are numbers."""
    kinds = [column.dtype for column in columns]
    found = [
        bool(kind.inner.is_numeric())
        if isinstance(kind, pl.List | pl.Array)
        else bool(kind.is_numeric()) or kind == pl.Boolean
        for kind in kinds
    ]
    strings = [i for i, kind in enumerate(kinds) if kind == pl.String]
    if strings:
        cells = Cells([columns[i] for i in strings])
        present = cells.per_column(~cells.absent)
        other = present - cells.per_column(cells.numbers().is_not_null())
        for i, is_number in zip(strings, ((present > 0) & (other * 2 < present)).tolist(), strict=True):
            found[i] = is_number
    return found


def mean_words(columns: Sequence[pl.Series]) -> list[float]:
    """Return the mean number of words in the first cells of each column of strings."""
    if not columns:
        return []
    first = [column.head(1000) for column in columns]
    words = pl.concat(first, rechunk=True).str.split(" ").list.len().fill_null(0).to_numpy().reshape(len(first), -1)
    # A cell has a word at least, if only an empty one; one that is missing has none.
    means: list[float] = (words.sum(1) / np.maximum((words > 0).sum(1), 1)).tolist()
    return means


def refuse_written_numbers(table: Table, names: Sequence[str], source: str, remedy: str) -> None:
    """Raise DataError for numbers such as "1,5", "10 %" and "$1,000": they would be left out, or be taken for text."""
    if not names:
        return
    cells = Cells([table[name] for name in names])
    bare = cells.stripped.str.replace_all(r"\s*[%$€£]\s*", "").str.replace_all(",", ".", literal=True)
    # At most one point is the decimal point: the others separate thousands.
    bare = bare.str.replace_all(r"\.(\d{3})", "$1")
    present = cells.per_column(~cells.absent)
    other = present - cells.per_column(cells.numbers(bare).is_not_null())
    written = np.flatnonzero((present > 0) & (other * 10 < present))
    if len(written):
        place = int(written[0])
        of_column = slice(place * cells.rows, (place + 1) * cells.rows)
        example = cells.stripped[of_column].filter(~cells.absent[of_column])[0]
        raise DataError(
            f"{source}: column {shown(names[place])} has numbers written as {shown(example)}: write them with a "
            f"decimal point and nothing else{remedy}"
        )


def number_table(table: Table, used: list[str], source: str, remedy: str) -> tuple[list[str], NDArray[np.float64]]:
    """Return the names and the numbers of columns; a column of lists becomes several.

    ``remedy`` is what the caller can do about a column that does not hold numbers, for messages.
    """
    if not any(is_list(table[name]) for name in used):
        return list(used), as_numbers(table, used, source, remedy)
    names: list[str] = []
    parts: list[NDArray[np.float64]] = []
    for name in used:
        column = table[name]
        part = list_numbers(column, name, source) if is_list(column) else as_numbers(table, [name], source, remedy)
        parts.append(part)
        names += [f"{name}[{i}]" for i in range(part.shape[1])] if is_list(column) else [name]
    return names, np.concatenate(parts, 1)


def as_numbers(table: Table, names: Sequence[str], source: str, remedy: str) -> NDArray[np.float64]:
    """Return (rows, columns) of columns of numbers or of strings that are numbers; NaN where there is none."""
    columns = [table[name] for name in names]
    for name, column in zip(names, columns, strict=True):
        if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String)):
            cells = column.drop_nulls()
            example = f", such as {shown(str(cells[0]))}" if len(cells) and not column.dtype.is_nested() else ""
            raise DataError(
                f"{source}: column {shown(name)} holds {shown_type(column)}{example}, not numbers: turn it into "
                f"numbers{remedy}"
            )
    strings = [i for i, column in enumerate(columns) if column.dtype == pl.String]
    plain = [i for i, column in enumerate(columns) if column.dtype != pl.String]
    side_by_side = pl.DataFrame([columns[i].alias(str(i)) for i in plain]).cast(pl.Float64).to_numpy(order="c")
    if not strings:
        return side_by_side
    values = np.empty((len(columns[0]), len(columns)))
    if plain:
        values[:, plain] = side_by_side
    written = Cells([columns[i] for i in strings])
    numbers = written.numbers()
    wrong = numbers.is_null() & ~written.absent
    if wrong.any():
        counts = written.per_column(wrong)
        place = int(np.flatnonzero(counts)[0])
        row = int(np.flatnonzero(wrong.to_numpy())[0]) - place * written.rows
        text = columns[strings[place]][row]
        raise DataError(
            f"{source}: row {row} (counting from 0), column {shown(names[strings[place]])}: {shown(text)} is not a "
            f"number ({counts[place]:,} such cells). Correct it{remedy}"
        )
    values[:, strings] = numbers.to_numpy().reshape(written.count, written.rows).T
    return values


def shown_type(column: pl.Series) -> str:
    """Return the type of a column for a message, without the quotation marks of a string."""
    return shown(str(column.dtype))[1:-1]


def list_numbers(column: pl.Series, name: str, source: str) -> NDArray[np.float64]:
    """Return (rows, numbers) of a column of lists that all have the same length."""
    if not are_numbers([column])[0]:
        raise DataError(f"{source}: column {shown(name)} holds {shown_type(column)}, not lists of numbers")
    lengths = column.list.len() if isinstance(column.dtype, pl.List) else column.arr.len()
    widths = lengths.fill_null(0).to_numpy()
    wrong = np.flatnonzero((widths != widths[0]) | (widths == 0))
    if len(wrong):
        row = int(wrong[0])
        if widths[row] == 0:
            raise DataError(f"{source}: row {row} (counting from 0), column {shown(name)}: the cell is empty: fill it")
        raise DataError(
            f"{source}: row {row} (counting from 0), column {shown(name)} has {widths[row]} numbers where row 0 has "
            f"{widths[0]}: give every row the same number of them, one or more"
        )
    flat = column.explode(empty_as_null=True, keep_nulls=True)
    return flat.cast(pl.Float64).to_numpy().reshape(len(column), -1)
