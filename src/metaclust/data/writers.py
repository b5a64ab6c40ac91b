"""Tables of labels, written as .csv, .jsonl or .parquet."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl

from metaclust._util.files import replacing

WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    ".csv": lambda frame, path: frame.write_csv(path),
    ".jsonl": lambda frame, path: frame.write_ndjson(path),
    ".parquet": lambda frame, path: frame.write_parquet(path),
}
FORMULA = r"^[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"
"""How a cell begins that spreadsheets run as a formula, by OWASP's list; the last four are full-width = + - @."""
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
    if ending == ".csv" and not raw_cells:
        frame = without_formulas(frame)
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
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    guarded = [
        pl.when(frame[name].str.contains(FORMULA) & ~frame[name].str.contains(NUMBER))
        .then("'" + frame[name])
        .otherwise(frame[name])
        .alias(name)
        for name in texts
    ]
    return frame.with_columns(guarded) if guarded else frame
