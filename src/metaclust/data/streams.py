"""Rows of numbers that need not fit into memory: they come in blocks, as often as they are asked for."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust.data.rows import DataError, listed

WINDOW = 1 << 25
"""Bytes of a file that are looked at together; a file's pages count as memory only as long as they are mapped."""


@runtime_checkable
class RowStream(Protocol):
    """(rows, width) of float32 or float64; the same rows in the same order each time ``arrays`` is called."""

    @property
    def name(self) -> str: ...
    def count(self) -> int | None:
        """How many rows there are, where that is known before they have been seen."""

    def arrays(self) -> Iterator[Tensor]:
        """Some rows at a time, any number of them."""


def row_stream(X: Any, columns: Iterable[str] | None = None) -> RowStream:  # noqa: N803 - scikit-learn's name
    """Rows of an array or tensor, of a .npy or .parquet file, or of a function that returns an iterator of arrays."""
    if isinstance(X, str | os.PathLike):
        path = Path(X).expanduser()
        if not path.is_file():
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
    """The same rows in blocks of at most ``size``; an array is cut where it ends, so nothing is copied."""
    for array in arrays:
        yield from array.split(size)


def joined(parts: Iterable[NDArray[Any]], count: int | None) -> NDArray[Any] | None:
    """The parts as one array; None where there are none.

    Where their number of rows is known, they are copied into it as they come: many small arrays that are kept between
    large ones that are not would leave holes in memory, of many times their size.
    """
    if count is None:
        kept = list(parts)
        return np.concatenate(kept) if kept else None
    out: NDArray[Any] | None = None
    first = 0
    for part in parts:
        if out is None:
            out = np.empty((count, *part.shape[1:]), part.dtype)
        out[first : first + len(part)] = part
        first += len(part)
    return out


def as_block(values: Any, name: str) -> Tensor:
    """(n, width) of float32 or float64; float16 becomes float32 and whole numbers float64."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} holds {array.dtype} values: give real numbers (array.astype(float))")
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"{name} has shape {array.shape}: give rows and columns (array.reshape(-1, 1) for one column)")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    if not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    with warnings.catch_warnings():
        # torch warns of read-only memory; nothing here writes to it.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


@dataclass(frozen=True)
class ArrayStream:
    """Rows in memory, or in a file that the caller has mapped."""

    values: Any
    name: str = "X"

    def count(self) -> int | None:
        return len(self.values)

    def arrays(self) -> Iterator[Tensor]:
        yield as_block(self.values, self.name)


@dataclass(frozen=True)
class NpyStream:
    """A .npy file, mapped a window at a time."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def count(self) -> int | None:
        return len(self.mapped())

    def mapped(self) -> NDArray[Any]:
        try:
            array: NDArray[Any] = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise DataError(f"{self.path} is no .npy file of numbers, or it is cut short: {error}") from error
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            raise DataError(
                f"{self.path} holds {array.dtype} values of shape {array.shape}: give real numbers in rows and columns"
            )
        return array

    def arrays(self) -> Iterator[Tensor]:
        rows, row_bytes = self.count() or 0, max(1, self.mapped()[:1].nbytes)
        step = max(1, WINDOW // row_bytes)
        for first in range(0, rows, step):
            yield as_block(self.mapped()[first : first + step], self.name)


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
        return self.rows()

    def rows(self) -> int:
        """How many there are, whatever is in the columns."""
        return int(self.opened().select(pl.len()).collect().item())

    def names(self) -> list[str]:
        """Of all columns."""
        return self.opened().collect_schema().names()

    def check(self, name: str) -> None:
        if name not in self.names():
            raise DataError(f"{self.path} has no column {name!r}: it has {listed(self.names())}")

    def column(self, name: str) -> pl.Series:
        """One column, of numbers or not."""
        self.check(name)
        return self.opened().select(name).collect().to_series()

    def opened(self) -> pl.LazyFrame:
        try:
            frame = pl.scan_parquet(self.path, glob=False)
            frame.collect_schema()
            return frame
        except (pl.exceptions.PolarsError, OSError) as error:
            raise DataError(f"{self.path} is no .parquet file, or it is cut short: {error}") from error

    def scan(self) -> pl.LazyFrame:
        frame = self.opened()
        schema = frame.collect_schema()
        missing = [column for column in self.columns or () if column not in schema]
        if missing:
            raise DataError(f"{self.path} has no column {listed(missing)}: it has {listed(list(schema))}")
        chosen = self.columns or tuple(schema)
        other = [column for column in chosen if not (schema[column].is_numeric() or schema[column] == pl.Boolean)]
        if other:
            raise DataError(
                f"{self.path} has columns that are no numbers ({listed(other)}): name those that are as columns="
            )
        return frame.select(chosen)

    def arrays(self) -> Iterator[Tensor]:
        frame, rows = self.scan(), self.count() or 0
        step = max(1, WINDOW // (8 * len(frame.collect_schema())))
        for first in range(0, rows, step):
            # A missing value becomes NaN, which is refused with its row.
            yield as_block(frame.slice(first, step).collect().to_numpy(), self.name)


@dataclass(frozen=True)
class FunctionStream:
    """Rows of the arrays that a function's iterator gives; it is called once for every pass."""

    function: Callable[[], Iterable[Any]]
    name: str = "X"

    def count(self) -> int | None:
        return None

    def arrays(self) -> Iterator[Tensor]:
        for values in self.function():
            yield as_block(values, self.name)


@dataclass(frozen=True)
class EncodedStream:
    """What an encoder makes of the rows of another stream, in every pass anew."""

    stream: RowStream
    encoder: Callable[[Tensor], Any]
    block: int = 1 << 14

    @property
    def name(self) -> str:
        return f"what the encoder makes of {self.stream.name}"

    def count(self) -> int | None:
        return self.stream.count()

    def arrays(self) -> Iterator[Tensor]:
        for rows in in_blocks(self.stream.arrays(), self.block):
            with torch.no_grad():
                encoded = as_block(self.encoder(rows), self.name)
            if len(encoded) != len(rows):
                raise DataError(f"encoder gave {len(encoded)} rows for {len(rows)}: it must give one for each")
            yield encoded


def encode_to_file(X: Any, encoder: Callable[[Tensor], Any], path: str | os.PathLike[str]) -> NpyStream:  # noqa: N803
    """Encode rows once into a .npy file, which every pass then reads; written beside and moved into place."""
    stream, target = row_stream(X), Path(path)
    rows = stream.count()
    if rows is None:
        rows = sum(len(array) for array in stream.arrays())
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        beside, first = Path(folder) / "encoded.npy", 0
        out: np.memmap[Any, Any] | None = None
        for encoded in EncodedStream(stream, encoder).arrays():
            values = encoded.numpy()
            if out is None:
                out = np.lib.format.open_memmap(beside, "w+", values.dtype, (rows, values.shape[1]))
            out[first : first + len(values)] = values
            first += len(values)
        if out is None:
            raise DataError(f"{stream.name} has no rows: give at least one")
        out.flush()
        beside.replace(target)
    return NpyStream(target)
