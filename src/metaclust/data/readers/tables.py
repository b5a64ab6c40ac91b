"""Rows from tables: .csv, .tsv, .jsonl, each also .gz, and .parquet, read by polars."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections import Counter
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from metaclust.data.files import DEFAULT_LIMIT, Limit, gunzip, read_whole
from metaclust.data.kinds import Kind, check_kind
from metaclust.data.parquet_footer import CELL, FooterError, check_footer
from metaclust.data.readers.cells import Missing, Reading
from metaclust.data.readers.choice import Columns
from metaclust.data.readers.columns import DETECTED, STRINGS, rows_from_table
from metaclust.data.readers.text_files import (
    blank_lines,
    header_line,
    header_names,
    not_utf8,
    plain_text,
    refuse_deep_nesting,
    separator_of,
)
from metaclust.data.readers.usage import is_code
from metaclust.data.rows import DataError, Rows, listed, reason_of


def read_table(
    path: Path,
    columns: Columns = DETECTED,
    kind: Kind = "auto",
    missing: Missing = "auto",
    limit: Limit = DEFAULT_LIMIT,
) -> Rows:
    """Return the rows of a table file."""
    check_kind(kind)
    reading = Reading(path.name, missing)
    if kind not in ("auto", "vectors", "text", "table"):
        raise DataError(f"{path.name} is a table, which cannot hold {kind}: give a folder, .npy or .npz")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    content = read_whole(path, limit)
    if suffixes[-1] == ".gz":
        suffixes.pop()
        content = gunzip(content, path.name, limit)
    mark = "\t" if suffixes[-1] == ".tsv" else None
    try:
        if suffixes[-1] == ".parquet":
            frame = read_parquet(content, path.name, limit)
        elif suffixes[-1] in (".jsonl", ".ndjson"):
            frame = read_json_lines(content, path.name, limit)
        else:
            return rows_from_csv(content, columns, kind, mark, reading, limit)
        return rows_from_table(frame, columns, kind, reading)
    except (PolarsError, OSError, FooterError, pl.exceptions.PanicException) as error:
        raise DataError(f"{path.name} cannot be read: {what_is_wrong(content, suffixes[-1], mark, error)}") from error


def read_pairs(path: Path, limit: Limit = DEFAULT_LIMIT) -> list[list[str]]:
    """Return the pairs in the first two columns of a .csv or .tsv file, below its header, as they are written."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        raise DataError(f"{path.name}: give a .csv or .tsv file with a header and two columns of ids")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    text = plain_text(read_whole(path, limit).removeprefix(codecs.BOM_UTF8), path.name).decode("utf-8", "replace")
    lines = csv.reader(io.StringIO(text), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    pairs = [line for line in lines if any(cell.strip() for cell in line)][1:]
    for number, pair in enumerate(pairs):
        if len(pair) < 2 or not pair[0].strip() or not pair[1].strip():
            raise DataError(f"{path.name}: pair {number} below the header lacks an id: give two in each line")
    return [[cell.strip() for cell in pair[:2]] for pair in pairs]


def read_parquet(content: bytes, source: str, limit: Limit) -> pl.DataFrame:
    """Return a .parquet file as a table, unless its footer says that it holds too much."""
    footer = check_footer(io.BytesIO(content), len(content), source, limit, len(content))
    check_cells(footer.rows, footer.columns, source, len(content), limit)
    return pl.read_parquet(io.BytesIO(content))


def read_json_lines(content: bytes, source: str, limit: Limit) -> pl.DataFrame:
    """Return lines of JSON objects as a table."""
    content = plain_text(content.removeprefix(codecs.BOM_UTF8), source)
    refuse_deep_nesting(content, source)
    schema = pl.scan_ndjson(io.BytesIO(content), infer_schema_length=None).collect_schema()
    check_cells(content.count(b"\n") + 1, len(schema), source, len(content), limit)
    return pl.read_ndjson(content, schema=schema)


def check_cells(rows: int, columns: int, source: str, packed: int, limit: Limit) -> None:
    """Raise DataError for a table that is far larger than its file: one with few cells in each of many columns."""
    limit.check(source, rows * columns * CELL, packed)


def rows_from_csv(
    content: bytes, columns: Columns, kind: Kind, separator: str | None, reading: Reading, limit: Limit
) -> Rows:
    """Return the rows of a csv."""
    content = plain_text(content, reading.source)
    frame = read_csv(content, columns, separator, reading.source, limit)
    kept = frame.columns if columns.keep is None else [name for name in frame.columns if name in columns.keep]
    texts = [name for name in frame.columns if stays_text(name, columns)]
    written = as_written(frame, kept, texts, content, separator or separator_of(header_line(content, reading.source)))
    if (blank := blank_rows(frame, content)) is not None:
        frame, written = frame.filter(~blank), written.filter(~blank)
    return rows_from_table(frame, columns, kind, reading, written)


def stays_text(name: str, columns: Columns) -> bool:
    """Return whether a column of a csv is read as it is written: of labels, ids, codes and texts, "007" is not 7."""
    treated = {**columns.treat, **{name: each.treatment for name, each in (columns.usage or {}).items()}}
    if name in treated:
        return treated[name] not in ("number", "drop")
    asked = (columns.label, columns.ids, columns.text, columns.usual_text)
    return name in asked or name.strip().lower() in STRINGS or (is_code(name) and name not in (columns.vector or ()))


def as_written(frame: pl.DataFrame, names: list[str], texts: list[str], content: bytes, separator: str) -> pl.DataFrame:
    r"""Return a csv with whole numbers where columns are written as such, and strings where in another way.

    Of the columns, ``names`` may become strings, and ``texts``, which are strings, numbers.

    >>> content = b"code,count,id\n007,7,1\n010,10,2\n"
    >>> frame = pl.read_csv(content, schema_overrides={"id": pl.String})
    >>> as_written(frame, ["code", "count"], ["id"], content, ",").rows()
    [('007', 7, 1), ('010', 10, 2)]
    """
    places = [
        place
        for place, (name, dtype) in enumerate(frame.schema.items())
        if (dtype.is_integer() or dtype == pl.Boolean) and name in names
    ]
    columns = frame.get_columns()
    for place, column in enumerate(columns):
        whole = column.cast(pl.Int64, strict=False) if column.name in texts else None
        if whole is not None and whole.cast(pl.String).equals(column) and whole.null_count() < len(whole):
            columns[place] = whole
    strings: list[pl.Series] = []
    if places:
        strings = pl.read_csv(content, separator=separator, infer_schema=False, columns=places).get_columns()
    for place, string in zip(places, strings, strict=True):
        # Without its name, which may look like a pattern to polars.
        if not columns[place].cast(pl.String).equals(string.alias("").replace("", None)):
            columns[place] = string
    written = pl.DataFrame([column.alias(str(place)) for place, column in enumerate(columns)])
    written.columns = frame.columns  # Polars changes an empty name.
    return written


def read_csv(content: bytes, columns: Columns, separator: str | None, source: str, limit: Limit) -> pl.DataFrame:
    """Return a csv as a table; types are inferred from the first rows, and from all where a later cell contradicts.

    Blank lines are rows of it.
    """
    header = header_line(content, source)
    separator = separator or separator_of(header)
    names = header_names(header, separator, source)
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise DataError(f"{source}: the header names {listed(repeated)} more than once: give every column its own name")
    check_cells(content.count(b"\n") + 1, len(names), source, len(content), limit)
    kept = [stays_text(name, columns) for name in names]

    def read(rows: int | None) -> pl.DataFrame:
        # By position: polars changes the names of columns that are quoted.
        own = pl.read_csv(content, separator=separator, n_rows=0, infer_schema=False).columns
        written = {name: pl.String for name, stays in zip(own, kept, strict=False) if stays}
        return pl.read_csv(content, separator=separator, infer_schema_length=rows, schema_overrides=written)

    try:
        frame = read(1000)
    except PolarsError as error:
        if "could not parse" not in str(error):
            raise
        frame = read(None)
    if len(names) == frame.width:
        frame.columns = names
    return frame


def blank_rows(frame: pl.DataFrame, content: bytes) -> pl.Series | None:
    """Return which rows of a table are blank lines; a line of separators only is a row, with every cell empty."""
    if b"\n\n" not in content and b"\n\r\n" not in content:
        return None
    blank = blank_lines(content)
    if len(blank) == frame.height:
        return pl.Series(blank)
    return frame.select(pl.all_horizontal(pl.all().is_null())).to_series()


def what_is_wrong(content: bytes, suffix: str, separator: str | None, error: BaseException) -> str:
    """Return what is wrong with a file and in which line, which polars does not say."""
    if suffix == ".parquet":
        return reason_of(error)
    try:
        lines = content.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        return not_utf8(content, wrong)
    if not lines.strip():
        return "it is empty: give at least one row"
    found = broken_line(lines) if suffix in (".jsonl", ".ndjson") else wide_line(lines, separator)
    return found or reason_of(error)


def broken_line(lines: str) -> str | None:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    for number, line in enumerate(lines.split("\n"), 1):
        try:
            good = not line.strip() or isinstance(json.loads(line, parse_constant=refuse), dict)
        except (ValueError, RecursionError):
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
