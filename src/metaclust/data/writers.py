"""Tables of labels, written as .csv, .jsonl or .parquet."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from metaclust._util.files import replacing
from metaclust.data.rows import DataWarning, listed

WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    ".csv": lambda frame, path: frame.write_csv(path),
    ".jsonl": lambda frame, path: frame.write_ndjson(path),
    ".parquet": lambda frame, path: frame.write_parquet(path),
}
FORMULA = r"^[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"
"""How a cell begins that spreadsheets run as a formula, by OWASP's list; the last four are full-width = + - @."""
FLAT_ROWS = 10_000
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def write_table(
    frame: pl.DataFrame, path: Path, *, raw_cells: bool = False, beside: str | os.PathLike[str] | None = None
) -> None:
    """Write a table in the format of its extension, or leave the file that was there.

    Parameters
    ----------
    frame : DataFrame
        The table.
    path : path
        A .csv, .jsonl or .parquet file to write or to replace.
    raw_cells : bool
        Write texts to a .csv as they are. By default those that a spreadsheet would run as a formula begin with an
        apostrophe there.
    beside : path, optional
        The folder for the unfinished file, see :func:`metaclust._util.files.replacing`.
    """
    ending = path.suffix.lower()
    if ending == ".csv":
        frame = frame.with_columns([flat(column) for column in frame if is_nested(column)])
    if ending == ".csv" and not raw_cells:
        guarded = without_formulas(frame)
        changed = [name for name in frame.columns if not guarded[name].equals(frame[name])]
        names = [guarded_name(name) for name in frame.columns]
        changed += [name for name in frame.columns if name not in names and name not in changed]
        if len(set(names)) == len(names):
            guarded.columns = names
        if changed:
            warnings.warn(
                f"{path.name}: texts in {listed(changed)} that a spreadsheet would run as formulas begin with an "
                "apostrophe; pass raw_cells=True (--raw-cells) to write them as they are",
                DataWarning,
                stacklevel=2,
            )
        frame = guarded
    try:
        with replacing(path, beside) as unfinished:
            WRITERS[ending](frame, unfinished)
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(getattr(error, "strerror", None) or error).split("\n")[0]
        kept = "; the file that was there is unchanged" if path.exists() else ""
        raise OSError(f"{path} could not be written ({reason}): make room, or choose another folder{kept}") from error


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table with an apostrophe before texts that look like formulas, as OWASP advises; not before numbers.

    >>> without_formulas(pl.DataFrame({"id": ["=1+1", "-5", "a=1"], "cluster": [-1, 0, 1]}))["id"].to_list()
    ["'=1+1", '-5', 'a=1']
    """
    texts = [frame[name] for name, kind in frame.schema.items() if kind == pl.String]
    guarded = [pl.when(formulas(text)).then("'" + text).otherwise(text).alias(text.name) for text in texts]
    return frame.with_columns(guarded)


def guarded_name(name: str) -> str:
    """Return the name of a column with an apostrophe if it looks like a formula.

    >>> guarded_name("=1+1"), guarded_name("a=1")
    ("'=1+1", 'a=1')
    """
    return f"'{name}" if formulas(pl.Series([name])).any() else name


def is_nested(column: pl.Series) -> bool:
    return column.dtype.is_nested() or column.dtype == pl.Duration


def flat(column: pl.Series) -> pl.Series:
    """Return lists and structs as JSON, and durations as strings: the cells of a .csv are flat.

    >>> flat(pl.Series("a", [[1, 2], None])).to_list()
    ['[1, 2]', None]
    """
    write = str if column.dtype == pl.Duration else lambda value: json.dumps(value, default=str)
    # Some rows at a time: lists of Python's own numbers take many times their memory.
    parts = (column.slice(first, FLAT_ROWS).to_list() for first in range(0, len(column), FLAT_ROWS))
    cells = [None if value is None else write(value) for part in parts for value in part]
    return pl.Series(column.name, cells, dtype=pl.String)


def unwritable(frame: pl.DataFrame, path: Path) -> list[str]:
    """Return the columns that the format of a file cannot hold: bytes in .csv and .jsonl, and objects of Python."""
    texts = path.suffix.lower() != ".parquet"
    return [name for name, dtype in frame.schema.items() if any(is_unwritable(kind, texts) for kind in kinds_in(dtype))]


def is_unwritable(dtype: Any, texts: bool) -> bool:
    if isinstance(dtype, pl.Struct) and not dtype.fields:
        return not texts
    return isinstance(dtype, pl.Object) or (texts and isinstance(dtype, pl.Binary))


def kinds_in(dtype: Any) -> Iterator[Any]:
    """Yield a type and the types of what is nested in it."""
    yield dtype
    if isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            yield from kinds_in(field.dtype)
    elif isinstance(dtype, pl.List | pl.Array):
        yield from kinds_in(dtype.inner)


def formulas(text: pl.Series) -> pl.Series:
    """Return which texts look like formulas, and not like numbers."""
    return text.str.contains(FORMULA) & ~text.str.contains(NUMBER)
