"""Rows from tables: .csv, .tsv, .jsonl, each also .gz, and .parquet, read by polars."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from metaclust.data.kinds import Kind, check_kind
from metaclust.data.readers.cells import Missing, Reading
from metaclust.data.readers.columns import DETECTED, STRINGS, Columns, rows_from_table
from metaclust.data.rows import DataError, Rows, listed

HEADER_LIMIT = 2**20
"""Bytes in which the header of a csv must end."""


def read_table(path: Path, columns: Columns = DETECTED, kind: Kind = "auto", missing: Missing = "error") -> Rows:
    """Return the rows of a table file."""
    check_kind(kind)
    reading = Reading(path.name, missing)
    if kind not in ("auto", "vectors", "text"):
        raise DataError(f"{path.name} is a table, which cannot hold {kind}: give a folder, .npy or .npz")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    content: Path | bytes = path
    if suffixes[-1] == ".gz":
        suffixes.pop()
        try:
            content = gzip.decompress(path.read_bytes())
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path.name} is not a gzip file, or it is cut short: {error}") from error
    mark = "\t" if suffixes[-1] == ".tsv" else None
    try:
        # Without glob=False, a file called data[1].csv would be a pattern.
        if suffixes[-1] == ".parquet":
            frame = pl.read_parquet(content, glob=False)
        elif suffixes[-1] in (".jsonl", ".ndjson"):
            text = content if isinstance(content, bytes) else content.read_bytes()
            frame = pl.read_ndjson(text.removeprefix(codecs.BOM_UTF8), infer_schema_length=None)
        else:
            frame = read_csv(content, columns, mark, path.name)
    except (PolarsError, OSError, pl.exceptions.PanicException) as error:
        raise DataError(f"{path.name} cannot be read: {what_is_wrong(content, suffixes[-1], mark, error)}") from error
    return rows_from_table(frame, columns, kind, reading)


def read_csv(content: Path | bytes, columns: Columns, separator: str | None, source: str) -> pl.DataFrame:
    """Return a csv as a table; types are inferred from the first rows, and from all where a later cell contradicts."""
    header = first_line(content, source)
    separator = separator or separator_of(header)
    names = next(csv.reader(io.StringIO(header, newline=""), delimiter=separator), [])
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{source}: the header names {listed(repeated)} more than once: give every column its own name")
    # Labels, ids and texts stay as they are written: "007" is not 7.
    asked = (columns.label, columns.ids, columns.text, columns.usual_text)
    kept = [name in asked or name.lower() in STRINGS for name in names]

    def read(rows: int | None) -> pl.DataFrame:
        # By position: polars changes the names of columns that are quoted.
        own = pl.read_csv(content, separator=separator, n_rows=0, infer_schema=False, glob=False).columns
        written = {name: pl.String for name, stays in zip(own, kept, strict=False) if stays}
        return pl.read_csv(content, separator=separator, infer_schema_length=rows, schema_overrides=written, glob=False)

    try:
        frame = read(1000)
    except PolarsError as error:
        if "could not parse" not in str(error):
            raise
        frame = read(None)
    if len(names) == frame.width:
        frame.columns = names
    return without_blank_lines(frame, content, separator)


def without_blank_lines(frame: pl.DataFrame, content: Path | bytes, separator: str) -> pl.DataFrame:
    """Return the table without its blank lines; a line of separators only is a row, with every cell empty."""
    empty = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    if not empty.any():
        return frame
    text = (content if isinstance(content, bytes) else content.read_bytes()).decode("utf-8-sig")
    _, *lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    if len(lines) != frame.height:
        return frame.filter(~empty)
    return frame.filter(pl.Series([bool(line) for line in lines]))


def first_line(content: Path | bytes, source: str) -> str:
    """Return the header, up to the first line end outside of quotation marks."""
    if isinstance(content, bytes):
        start = content[:HEADER_LIMIT]
    else:
        with content.open("rb") as file:
            start = file.read(HEADER_LIMIT)
    quoted = False
    for place, byte in enumerate(start):
        if byte == ord('"'):
            quoted = not quoted
        elif byte == ord("\n") and not quoted:
            start = start[:place]
            break
    try:
        return start.decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError as wrong:
        raise DataError(f"{source} cannot be read: {not_utf8(start, wrong)}") from wrong


def separator_of(header: str) -> str:
    """Return the separator that the header has most of, outside of quotation marks.

    >>> separator_of('id;"text, as it was, written";label')
    ';'
    """
    plain = re.sub(r'"[^"]*"', "", header)
    return max(",;\t|", key=lambda mark: (plain.count(mark), mark == ","))


def what_is_wrong(content: Path | bytes, suffix: str, separator: str | None, error: BaseException) -> str:
    """Return what is wrong with a file and in which line, which polars does not say."""
    if suffix == ".parquet":
        return str(error).split("\n")[0]
    text = content if isinstance(content, bytes) else content.read_bytes()
    try:
        lines = text.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        return not_utf8(text, wrong)
    if not lines.strip():
        return "it is empty: give at least one row"
    found = broken_line(lines) if suffix in (".jsonl", ".ndjson") else wide_line(lines, separator)
    return found or str(error).split("\n")[0]


def not_utf8(text: bytes, wrong: UnicodeDecodeError) -> str:
    line = text[: wrong.start].count(b"\n") + 1
    return f"it is not UTF-8: line {line} holds the byte {text[wrong.start]:#x}. Save it as UTF-8"


def broken_line(lines: str) -> str | None:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    for number, line in enumerate(lines.split("\n"), 1):
        try:
            good = not line.strip() or isinstance(json.loads(line, parse_constant=refuse), dict)
        except ValueError:
            good = False
        if not good:
            return f'line {number} is not a JSON object such as {{"text": "...", "label": "..."}}: {line[:60]!r}'
    return None


def wide_line(lines: str, separator: str | None) -> str | None:
    separator = separator or separator_of(lines.partition("\n")[0])
    reader = csv.reader(io.StringIO(lines, newline=""), delimiter=separator, strict=True)
    try:
        width = len(next(reader))
        for row in reader:
            if len(row) > width:
                where = f"line {reader.line_num} has {len(row)} cells, the header {width}"
                return f"{where}: quote cells that hold the separator"
    except csv.Error as error:
        return f"line {reader.line_num}: {error}; check for a quotation mark that is not closed"
    odd = next((number for number, line in enumerate(lines.split("\n"), 1) if line.count('"') % 2), None)
    return None if odd is None else f'line {odd} has a single quotation mark: write it twice ("") within quoted cells'
