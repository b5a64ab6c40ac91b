"""Rows of numbers that need not fit into memory: read in blocks, in as many passes as needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util.files import replacing
from metaclust.data.blocks import as_block
from metaclust.data.files import Limit, open_regular
from metaclust.data.npy_format import NpyHeader, opened_npy, read_rows, write_header
from metaclust.data.parquet_footer import Footer, FooterError, check_footer
from metaclust.data.rows import DataError, listed, reason_of

WINDOW = 1 << 25
"""Bytes of a file that are read at a time."""
GROUP_LIMIT = Limit(remedy="Write it with fewer rows in each group of rows")


@runtime_checkable
class RowStream(Protocol):
    """(rows, columns) of float32 or float64; ``arrays`` yields the same rows in the same order each time."""

    @property
    def name(self) -> str: ...
    def count(self) -> int | None:
        """Return the number of rows, or None where it is not known before they have been read."""

    def arrays(self) -> Iterator[Tensor]:
        """Yield some rows at a time, any number of them."""


def row_stream(X: Any, columns: Iterable[str] | None = None) -> RowStream:  # noqa: N803 - scikit-learn's name
    """Return a stream of rows that can be read in several passes.

    Parameters
    ----------
    X : array, tensor, path or callable
        Rows in memory, a .npy or .parquet file, or a function that returns a new iterator of arrays for every pass.
        A stream is returned as it is.
    columns : iterable of str, optional
        The columns to read from a .parquet file; by default all of them.
    """
    if isinstance(X, str | os.PathLike):
        path = Path(X).expanduser()
        if not path.exists():
            raise FileNotFoundError(f"X={str(X)!r}: there is no such file")
        if path.suffix.lower() == ".npy":
            return NpyStream(path)
        if path.suffix.lower() == ".parquet":
            return ParquetStream(path, None if columns is None else tuple(columns))
        raise DataError(
            f"X={str(X)!r}: rows are read in blocks from .npy and .parquet files; convert it to one of them"
        )
    if hasattr(X, "arrays"):
        stream: RowStream = X
        return stream
    if callable(X):
        return FunctionStream(X)
    if isinstance(X, Iterator):
        raise DataError(
            f"X is {type(X).__name__}, which can be gone through only once: pass a function that returns a new "
            "iterator, as lambda: read_blocks()"
        )
    return ArrayStream(X if isinstance(X, Tensor) else np.asarray(X))


def in_blocks(arrays: Iterable[Tensor], size: int) -> Iterator[Tensor]:
    """Yield the rows in blocks of at most ``size``; blocks do not span arrays, so nothing is copied."""
    for array in arrays:
        yield from array.split(size)


def joined(parts: Iterable[NDArray[Any]], count: int | None) -> NDArray[Any] | None:
    """Return the parts as one array, or None where there are none.

    Where the number of rows is known, the parts are copied into the array as they come: small arrays that are kept
    among large ones that are freed would fragment memory.
    """
    if count is None:
        kept = list(parts)
        return np.concatenate(kept) if kept else None
    out: NDArray[Any] | None = None
    first = 0
    for part in parts:
        if out is None:
            out = np.empty((count, *part.shape[1:]), part.dtype)
        check_unchanged(count, max(count, first + len(part)))
        out[first : first + len(part)] = part
        first += len(part)
    check_unchanged(count, first)
    return out


def check_unchanged(before: int, now: int, name: str = "X") -> None:
    if now != before:
        raise DataError(f"{name} had {before:,} rows and now has {now:,}: rows must not change between passes")


@dataclass(frozen=True)
class ArrayStream:
    """Rows in memory, or in a file that the caller has mapped."""

    values: Any = field(repr=False)
    name: str = "X"

    def count(self) -> int | None:
        return len(self.values)

    def arrays(self) -> Iterator[Tensor]:
        yield as_block(self.values, self.name)


@dataclass(frozen=True)
class NpyStream:
    """A .npy file, read a window at a time."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def count(self) -> int | None:
        return self.shape()[0]

    def shape(self) -> tuple[int, int]:
        """Return the number of rows and of columns."""
        with self._opened() as (_, header):
            rows, columns = header.shape
            return rows, columns

    def arrays(self) -> Iterator[Tensor]:
        with self._opened() as (file, header):
            rows, columns = header.shape
            step = max(1, WINDOW // (columns * header.dtype.itemsize))
            for first in range(0, rows, step):
                yield as_block(read_rows(file, header, first, min(step, rows - first)), self.name)

    @contextmanager
    def _opened(self) -> Iterator[tuple[BufferedIOBase, NpyHeader]]:
        with opened_npy(self.path, self.name, "a .npy file of numbers") as (file, header):
            if len(header.shape) != 2 or header.shape[1] == 0 or header.dtype.kind not in "biuf":
                raise DataError(
                    f"{self.path} holds {header.dtype} values of shape {header.shape}: give real numbers in rows and "
                    "columns"
                )
            yield file, header


@dataclass
class CheckedParquet:
    """What has been checked of a .parquet file."""

    footer: Footer | None = None
    pages: bool = False


@lru_cache(maxsize=256)
def checked_parquet(path: Path, size: int, mtime: int, inode: int) -> CheckedParquet:
    """Return what has been checked of a file, and nothing if it has changed: parsing may take as long as reading."""
    return CheckedParquet()


@dataclass(frozen=True)
class ParquetStream:
    """The numeric columns of a .parquet file, some rows at a time."""

    path: Path
    columns: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    def count(self) -> int | None:
        self.scan()
        return self._footer().rows

    def rows(self) -> int:
        """Return the number of rows, whatever is in the columns."""
        self.opened()
        return self._footer().rows

    def names(self) -> list[str]:
        """Return the names of all columns."""
        return self.opened().collect_schema().names()

    def check(self, name: str) -> None:
        if name not in self.names():
            raise DataError(f"{self.path} has no column {name!r}: it has {listed(self.names())}")

    def column(self, name: str) -> pl.Series:
        """Return one column, of numbers or not."""
        self.check(name)
        return self._collected(self.opened(pages=True).select(name)).to_series()

    def opened(self, pages: bool = False) -> pl.LazyFrame:
        """Return the file to select from; ``pages`` checks all of it, before its values are read."""
        self._footer(pages)
        with self._errors():
            frame = pl.scan_parquet(self.path, glob=False)
            frame.collect_schema()
            return frame

    def _footer(self, pages: bool = False) -> Footer:
        """Return what the footer says, after checking what has not been checked before."""
        with open_regular(self.path, self.name) as file, self._errors():
            state = os.fstat(file.fileno())
            checked = checked_parquet(self.path, state.st_size, state.st_mtime_ns, state.st_ino)
            if checked.footer is None or (pages and not checked.pages):
                checked.footer = check_footer(file, state.st_size, self.name, GROUP_LIMIT, None, pages)
                checked.pages = pages
            return checked.footer

    def _collected(self, frame: pl.LazyFrame) -> pl.DataFrame:
        with self._errors():
            return frame.collect()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, FooterError, OSError) as error:
            raise DataError(f"{self.path} is not a .parquet file, or it is cut short: {reason_of(error)}") from error

    def scan(self, pages: bool = False) -> pl.LazyFrame:
        """Return the columns of numbers."""
        frame = self.opened(pages)
        schema = frame.collect_schema()
        missing = [column for column in self.columns or () if column not in schema]
        if missing:
            raise DataError(f"{self.path} has no column {listed(missing)}: it has {listed(list(schema))}")
        chosen = self.columns or tuple(schema)
        other = [column for column in chosen if not (schema[column].is_numeric() or schema[column] == pl.Boolean)]
        if other:
            raise DataError(
                f"{self.path} has columns that are not numbers ({listed(other)}): write the file without them"
            )
        return frame.select(chosen)

    def arrays(self) -> Iterator[Tensor]:
        frame, rows = self.scan(pages=True), self._footer().rows
        step = max(1, WINDOW // (8 * max(1, len(frame.collect_schema()))))
        for first in range(0, rows, step):
            some = self._collected(frame.slice(first, step))
            check_unchanged(min(rows, first + step), first + len(some), self.name)
            # A missing value becomes NaN, which is refused with its row.
            yield as_block(some.to_numpy(), self.name)


@dataclass(frozen=True)
class FunctionStream:
    """Rows of the arrays that a function returns; it is called once for every pass."""

    function: Callable[[], Iterable[Any]]
    name: str = "X"

    def count(self) -> int | None:
        return None

    def arrays(self) -> Iterator[Tensor]:
        for values in self.function():
            yield as_block(values, self.name)


@dataclass(frozen=True)
class EncodedStream:
    """The rows of another stream, encoded anew in every pass.

    Parameters
    ----------
    stream : RowStream
        As :func:`row_stream` returns it.
    encoder : callable
        Takes a tensor of rows and returns an array or tensor with one row for each.
    block : int
        The most rows that are encoded together.
    """

    stream: RowStream
    encoder: Callable[[Tensor], Any]
    block: int = 1 << 14

    @property
    def name(self) -> str:
        return f"the encoded rows of {self.stream.name}"

    def count(self) -> int | None:
        return self.stream.count()

    def arrays(self) -> Iterator[Tensor]:
        for rows in in_blocks(self.stream.arrays(), self.block):
            with torch.no_grad():
                encoded = as_block(self.encoder(rows), self.name)
            if len(encoded) != len(rows):
                raise DataError(f"encoder returned {len(encoded)} rows for {len(rows)}: it must return one for each")
            yield encoded


def encode_to_file(X: Any, encoder: Callable[[Tensor], Any], path: str | os.PathLike[str]) -> NpyStream:  # noqa: N803
    """Encode rows once into a .npy file, and return a stream of that file.

    Parameters
    ----------
    X : array, tensor, path or callable
        As for :func:`row_stream`.
    encoder : callable
        Takes a tensor of rows and returns an array or tensor with one row for each.
    path : str or path
        The file to write; it is replaced when all rows are encoded.
    """
    stream, target = row_stream(X), Path(path)
    rows = stream.count()
    if rows is None:
        rows = sum(len(array) for array in stream.arrays())
    with replacing(target) as unfinished, unfinished.open("wb") as file:
        # Plain writes: a full disk is an OSError, where it would be a bus error with a memory map.
        kept: NDArray[Any] | None = None
        written = 0
        for encoded in EncodedStream(stream, encoder).arrays():
            values = encoded.numpy()
            if kept is None:
                kept = values[:0]
                write_header(file, values.dtype, (rows, values.shape[1]))
            if values.shape[1] != kept.shape[1]:
                raise DataError(
                    f"encoder returned rows of {values.shape[1]} columns after rows of {kept.shape[1]}: it must return "
                    "the same number for all"
                )
            file.write(np.ascontiguousarray(values, kept.dtype).data)
            written += len(values)
        if kept is None:
            raise DataError(f"{stream.name} has no rows: give at least one")
        check_unchanged(rows, written, stream.name)
    return NpyStream(target)
