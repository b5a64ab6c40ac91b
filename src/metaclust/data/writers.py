"""Tables of labels, written as .csv, .jsonl or .parquet."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path

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
        guarded = without_formulas(frame)
        changed = [name for name in frame.columns if not guarded[name].equals(frame[name])]
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


def formulas(text: pl.Series) -> pl.Series:
    """Return which texts look like formulas, and not like numbers."""
    return text.str.contains(FORMULA) & ~text.str.contains(NUMBER)
