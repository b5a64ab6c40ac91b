"""What is checked of the text of a table before polars reads it."""

from __future__ import annotations

import codecs
import csv
import io
import re

import numpy as np
from numpy.typing import NDArray

from metaclust.data.rows import DataError

HEADER_LIMIT = 2**25
"""Bytes in which the header of a csv must end."""
DEEPEST_JSON = 32
"""How many lists and objects a line of JSON may have within each other."""
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""How gzip and zstd files begin."""
LIKE_ZLIB = (b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
"""How what polars takes for zlib begins; a header such as "x^2" does, too."""
OPENERS_AND_CLOSERS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
LF, CR, QUOTE = b'\n\r"'


def plain_text(content: bytes, source: str) -> bytes:
    """Return the text such that polars does not take it for a compressed file; UTF-16 and binary files are refused."""
    if content.startswith(COMPRESSED):
        raise DataError(
            f"{source} cannot be read: what should be text is compressed. Unpack it, or give it the ending .gz"
        )
    if b"\0" in content and not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        line = content[: content.index(b"\0")].count(b"\n") + 1
        raise DataError(
            f"{source} cannot be read: line {line} holds a NUL byte, so it is UTF-16 or not a text. Save it as UTF-8"
        )
    return codecs.BOM_UTF8 + content if content.startswith(LIKE_ZLIB) else content


def not_utf8(text: bytes, wrong: UnicodeDecodeError) -> str:
    line = text[: wrong.start].count(b"\n") + 1
    return f"it is not UTF-8: line {line} holds the byte {text[wrong.start]:#x}. Save it as UTF-8"


def header_line(content: bytes, source: str) -> str:
    """Return the header, up to the first line end outside of quotation marks."""
    start, end, quotes = 0, -1, 0
    while (end := content.find(b"\n", start, HEADER_LIMIT)) >= 0:
        quotes += content.count(b'"', start, end)
        if quotes % 2 == 0:
            break
        start = end + 1
    if end < 0 and len(content) > HEADER_LIMIT:
        raise DataError(
            f"{source} cannot be read: its header does not end within {HEADER_LIMIT:,} bytes; check for a quotation "
            "mark that is not closed"
        )
    header = content if end < 0 else content[:end]
    try:
        return header.decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError as wrong:
        raise DataError(f"{source} cannot be read: {not_utf8(header, wrong)}") from wrong


def header_names(header: str, separator: str, source: str) -> list[str]:
    """Return the names of the columns of a csv."""
    try:
        return next(csv.reader(io.StringIO(header, newline=""), delimiter=separator), [])
    except csv.Error as error:
        raise DataError(
            f"{source} cannot be read: its header has a name that is too long ({error}); check for a quotation mark "
            "that is not closed"
        ) from error


def separator_of(header: str) -> str:
    """Return the separator that the header has most of, outside of quotation marks.

    >>> separator_of('id;"text, as it was, written";label')
    ';'
    """
    plain = re.sub(r'"[^"]*"', "", header)
    return max(",;\t|", key=lambda mark: (plain.count(mark), mark == ","))


def blank_lines(content: bytes) -> NDArray[np.bool_]:
    r"""Return for each line of a csv below the header whether it is empty; line ends within quotes do not count.

    >>> blank_lines(b'a,b\n1,2\n\n"x\n\ny",4\n').tolist()
    [False, True, False]
    """
    letters = np.frombuffer(content, np.uint8)
    ends, quotes = np.flatnonzero(letters == LF), np.flatnonzero(letters == QUOTE)
    ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    starts, stops = np.append(0, ends + 1), np.append(ends, len(letters))
    if starts[-1] == len(letters):
        starts, stops = starts[:-1], stops[:-1]
    lengths = stops - starts
    blank: NDArray[np.bool_] = (lengths == 0) | ((lengths == 1) & (letters[np.minimum(starts, len(letters) - 1)] == CR))
    return blank[1:]


def refuse_deep_nesting(content: bytes, source: str) -> None:
    """Raise DataError for lines of JSON that are nested so deeply that a parser could run out of stack."""
    letters = np.frombuffer(content, np.uint8)
    openers = np.flatnonzero((letters == ord("[")) | (letters == ord("{")))
    ends = np.append(np.flatnonzero(letters == LF), len(letters))
    lines, counts = np.unique(np.searchsorted(ends, openers), return_counts=True)
    for line in lines[counts > DEEPEST_JSON].tolist():
        depth = 0
        for found in OPENERS_AND_CLOSERS.finditer(content, ends[line - 1] + 1 if line else 0, int(ends[line])):
            mark = found[0]
            depth += mark in b"[{"
            depth -= mark in b"]}"
            if depth > DEEPEST_JSON:
                raise DataError(
                    f"{source} cannot be read: line {line + 1} is nested more than {DEEPEST_JSON} deep: give one "
                    'object such as {"text": "...", "label": "..."} a line'
                )
