"""The footer and the headers of the pages of a .parquet file, checked before polars reads the file.

polars allocates what they claim, and a claim that no memory can meet ends the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BufferedIOBase
from typing import Any

from metaclust.data.files import Limit

MAGIC = b"PAR1"
CELL = 8
"""Bytes that a value takes at least."""
DEEPEST_STRUCT = 16
"""How deeply structs and lists of a footer may be nested."""
SCHEMA, NUM_ROWS, ROW_GROUPS = 2, 3, 4
"""Fields of the footer."""
TYPE = 1
"""The field of an element of the schema that only columns of values have, not lists and structs of them."""
COLUMNS, GROUP_ROWS = 1, 3
"""Fields of a group of rows."""
METADATA, NUM_VALUES = 3, 5
"""The field of a column's metadata, and that of its number of values in them."""
PACKED_SIZE, DATA_PLACE, DICTIONARY_PLACE = 7, 9, 11
"""Further fields of a column's metadata."""
PAGE_SIZE, PAGE_PACKED_SIZE, PAGE_VALUES = 2, 3, 1
"""Fields of the header of a page, and that of the number of values in what follows."""
DATA_PAGES, DICTIONARY_PAGE = (5, 8), 7
USUAL_HEADER, LONGEST_HEADER = 2**10, 2**16
"""Bytes of the header of a page."""


class FooterError(ValueError):
    """A .parquet file that is damaged; the message is the reason alone, for callers to say which file it is."""


@dataclass(frozen=True)
class Footer:
    """What a footer says of its file."""

    rows: int
    columns: int
    """Of values: a column of structs is several."""


def check_footer(
    file: BufferedIOBase, size: int, name: str, limit: Limit, packed: int | None, pages: bool = True
) -> Footer:
    """Return what the footer says.

    Raise FooterError if the footer or a page contradicts itself, DataError if rows claim more than ``limit``.
    """
    try:
        footer, groups = read_footer(file, size)
        if pages:
            for group in groups:
                for column in group[COLUMNS]:
                    check_pages(file, size, column[METADATA])
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise FooterError("its footer or a page is damaged") from error
    for group in groups:
        limit.check(name, CELL * sum(column[METADATA][NUM_VALUES] for column in group[COLUMNS]), packed)
    return footer


def read_footer(file: BufferedIOBase, size: int) -> tuple[Footer, list[dict[int, Any]]]:
    """Return what the footer says of the file and of each group of rows."""
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != MAGIC or length > size - 12:
        raise ValueError("no footer")
    file.seek(size - 8 - length)
    content = Compact(file.read(length)).struct()
    groups: list[dict[int, Any]] = content.get(ROW_GROUPS, [])
    footer = Footer(content[NUM_ROWS], sum(TYPE in element for element in content[SCHEMA]))
    if footer.rows != sum(group[GROUP_ROWS] for group in groups):
        raise ValueError("the groups have another number of rows")
    for group in groups:
        if len(group[COLUMNS]) != footer.columns:
            raise ValueError("a group has another number of columns")
        fewest = min((column[METADATA][NUM_VALUES] for column in group[COLUMNS]), default=group[GROUP_ROWS])
        # A column of lists has more values than rows, and none has fewer.
        if group[GROUP_ROWS] < 0 or fewest < group[GROUP_ROWS]:
            raise ValueError("a column has fewer values than rows")
    return footer, groups


def check_pages(file: BufferedIOBase, size: int, column: dict[int, Any]) -> None:
    """Raise ValueError unless the pages of a column lie in the file and hold as many values as the footer says."""
    place = min(column[DATA_PLACE], column.get(DICTIONARY_PLACE) or column[DATA_PLACE])
    end, values = place + column[PACKED_SIZE], 0
    if not 0 < place <= end <= size:
        raise ValueError("a column outside of the file")
    while place < end and values < column[NUM_VALUES]:
        file.seek(place)
        reader, header = page_header(file)
        counts = {kind: header[kind][PAGE_VALUES] for kind in (*DATA_PAGES, DICTIONARY_PAGE) if kind in header}
        if min(*counts.values(), 0, header[PAGE_SIZE], header[PAGE_PACKED_SIZE]) < 0:
            raise ValueError("a negative number of values or bytes")
        values += sum(counts.get(kind, 0) for kind in DATA_PAGES)
        place += reader.place + header[PAGE_PACKED_SIZE]
    # Old writers did not count the header of the dictionary, so that the last page ends a little after the column.
    if values != column[NUM_VALUES] or place > size:
        raise ValueError("pages with another number of values")


def page_header(file: BufferedIOBase) -> tuple[Compact, dict[int, Any]]:
    """Return the header of the page at which a file is; most are short."""
    start = file.read(USUAL_HEADER)
    try:
        reader = Compact(start)
        return reader, reader.struct()
    except (IndexError, ValueError):
        reader = Compact(start + file.read(LONGEST_HEADER - len(start)))
        return reader, reader.struct()


class Compact:
    """A reader of Thrift's compact protocol: structs become mappings from the numbers of fields to their values."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.place = 0

    def byte(self) -> int:
        self.place += 1
        return self.content[self.place - 1]

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.byte()) >= 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number of too many bytes")
        return value | byte << shift

    def struct(self, depth: int = 0) -> dict[int, Any]:
        found: dict[int, Any] = {}
        field = 0
        while (byte := self.byte()) != 0:
            kind = byte & 0x0F
            field = field + (byte >> 4) if byte >> 4 else zigzag(self.varint())
            # The value of a truth value is its type.
            found[field] = kind == 1 if kind in (1, 2) else self.value(kind, depth + 1)
        return found

    def value(self, kind: int, depth: int) -> Any:
        if depth > DEEPEST_STRUCT:
            raise ValueError("nested too deeply")
        if kind in (4, 5, 6):
            return zigzag(self.varint())
        if kind in (1, 2, 3):
            return self.byte()
        if kind in (7, 8):
            return self.skip(8 if kind == 7 else self.varint())
        if kind in (9, 10):
            byte = self.byte()
            count = byte >> 4 if byte >> 4 < 15 else self.varint()
            return [self.value(byte & 0x0F, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.struct(depth)
        raise ValueError(f"a value of type {kind}")

    def skip(self, count: int) -> None:
        if count > len(self.content) - self.place:
            raise ValueError("a string beyond the end")
        self.place += count


def zigzag(number: int) -> int:
    """Return the signed number that an unsigned one stands for.

    >>> [zigzag(number) for number in range(4)]
    [0, -1, 1, -2]
    """
    return (number >> 1) ^ -(number & 1)
