"""Shards, which are .npy or .parquet files, and how workers read them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import polars as pl

from metaclust.data.npy_format import opened_npy
from metaclust.data.readers.sources import read_data
from metaclust.data.rows import DataError, listed
from metaclust.data.streams import NpyStream, ParquetStream, RowStream, encode_to_file, row_stream
from metaclust.estimator import MetaClusterer

ENDINGS = (".npy", ".parquet")


@dataclass(frozen=True)
class Shard:
    """One file of rows."""

    path: str
    rows: int
    before: int
    """Number of rows of the shards before it."""

    @property
    def name(self) -> str:
        return Path(self.path).name


@dataclass(frozen=True)
class BadShard:
    """A shard that cannot be read, and the reason."""

    shard: str
    why: str


@runtime_checkable
class Reader(Protocol):
    """Reads the rows of a shard as numbers; it is sent to the workers."""

    def header(self, path: Path) -> tuple[int, int | None]:
        """Return the number of rows and, if known before reading them, of columns."""

    def stream(self, path: Path) -> RowStream:
        """Return the rows in blocks."""


@dataclass(frozen=True)
class Numbers:
    """Reads numeric rows without encoding them."""

    columns: tuple[str, ...] | None = None
    """Columns of .parquet files; None for all but the ids."""
    ids: str | None = None

    def header(self, path: Path) -> tuple[int, int | None]:
        stream = self.stream(path)
        if isinstance(stream, NpyStream):
            return stream.shape()
        return stream.count() or 0, len(stream.scan().collect_schema()) if isinstance(stream, ParquetStream) else None

    def stream(self, path: Path) -> RowStream:
        columns = self.columns
        if columns is None and self.ids is not None:
            columns = tuple(name for name in ParquetStream(path).names() if name != self.ids)
        return row_stream(path, columns)


@dataclass(frozen=True)
class Encoded:
    """Reads the rows encoded by a model; they are encoded once and cached in a file."""

    model: str
    """Model file that every worker can read."""
    folder: str
    """Folder of the cached shards. A missing one is encoded again, so each machine may have its own."""
    device: str

    def header(self, path: Path) -> tuple[int, int | None]:
        if path.suffix.lower() == ".parquet":
            return ParquetStream(path).rows(), None
        with opened_npy(path, str(path), "a .npy file of rows") as (_, header):
            if not header.shape:
                raise DataError(f"{path} holds a single value: give an array of rows")
            return header.shape[0], None

    def stream(self, path: Path) -> RowStream:
        target = Path(self.folder) / f"{path.stem}.npy"
        if not target.is_file():
            estimator = loaded(self.model, self.device)
            _, z = estimator.represent(read_data(path, keep=[], like=estimator.preparation_, progress=False))
            target.parent.mkdir(parents=True, exist_ok=True)
            encode_to_file(lambda: [z], lambda rows: rows, target)
        return NpyStream(target)


@lru_cache(maxsize=1)
def loaded(model: str, device: str) -> MetaClusterer:
    """Load a model, once per process."""
    return MetaClusterer.load(model, device)


def shard_paths(shards: Any) -> list[Path]:
    """Return the files of a folder sorted by name, or those of a list in its order."""
    if isinstance(shards, str | os.PathLike):
        folder = Path(shards).expanduser()
        if not folder.is_dir():
            what = "is a file" if folder.is_file() else "does not exist"
            raise NotADirectoryError(f"shards={str(shards)!r} {what}: give a folder of .npy or .parquet files")
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS and path.name[0] not in "._")
        if not paths:
            raise DataError(f"shards={str(shards)!r} holds no .npy or .parquet file: give a folder of shards")
    elif isinstance(shards, Iterable) and all(isinstance(path, str | os.PathLike) for path in shards):
        paths = [Path(path).expanduser() for path in shards]
        if not paths:
            raise DataError("shards is an empty list: give the paths of .npy or .parquet files")
        other = [str(path) for path in paths if path.suffix.lower() not in ENDINGS]
        if other:
            raise DataError(f"shards has {listed(other)}: shards are .npy or .parquet files")
    else:
        raise TypeError(
            f"shards is {type(shards).__name__}: give a folder of .npy or .parquet files, a list of their paths, or a "
            "Dask array or data frame"
        )
    if len({path.suffix.lower() for path in paths}) > 1:
        raise DataError("the shards are .npy and .parquet files: give shards of one kind")
    twice = sorted(name for name, count in Counter(path.stem for path in paths).items() if count > 1)
    if twice:
        raise DataError(
            f"several shards are called {listed(twice)}: rename them, since their labels are written by name"
        )
    return [path.absolute() for path in paths]


def read_headers(
    paths: Sequence[Path], reader: Reader, ids: str | None = None
) -> tuple[list[Shard], list[BadShard], int | None]:
    """Return the shards that can be opened, those that cannot, and the number of columns; empty ones are omitted."""
    if ids is not None and any(path.suffix.lower() == ".npy" for path in paths):
        raise ValueError(f"ids={ids!r}: .npy shards have no column names; omit it, labels have shard and row")
    good, bad, before, columns = [], [], 0, None
    for path in paths:
        try:
            with named(path):
                rows, own_columns = reader.header(path)
                if ids is not None:
                    ParquetStream(path).check(ids)
        except DataError as error:
            bad.append(BadShard(path.name, str(error)))
            continue
        if rows:
            columns = own_columns if columns is None else columns
            good.append(Shard(str(path), rows, before))
            before += rows
    return good, bad, columns


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Turn errors of reading a shard into a DataError that names it."""
    try:
        yield
    except (DataError, OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        message = str(error).split("\n")[0]
        raise DataError(message if path.name in message else f"{path}: {message}") from error
