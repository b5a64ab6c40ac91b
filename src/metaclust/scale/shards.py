"""Shards: the files of one folder, all .npy or all .parquet, and how a worker reads one of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import polars as pl

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
    """How many rows the shards before it have."""

    @property
    def name(self) -> str:
        return Path(self.path).name


@dataclass(frozen=True)
class Bad:
    """A shard that cannot be read, and why."""

    shard: str
    why: str


@runtime_checkable
class Reader(Protocol):
    """How a shard becomes rows of numbers; it is sent to the workers."""

    def header(self, path: Path) -> tuple[int, int | None]:
        """How many rows, and, where that is known before they are read, how wide."""

    def stream(self, path: Path) -> RowStream:
        """Its rows, some at a time."""


@dataclass(frozen=True)
class Numbers:
    """The rows as they are."""

    columns: tuple[str, ...] | None = None
    """Of .parquet files; None for all but the ids."""
    ids: str | None = None

    def header(self, path: Path) -> tuple[int, int | None]:
        stream = self.stream(path)
        if isinstance(stream, NpyStream):
            rows, width = stream.mapped().shape
            return rows, width
        return stream.count() or 0, len(stream.scan().collect_schema()) if isinstance(stream, ParquetStream) else None

    def stream(self, path: Path) -> RowStream:
        columns = self.columns
        if columns is None and self.ids is not None:
            columns = tuple(name for name in ParquetStream(path).names() if name != self.ids)
        return row_stream(path, columns)


@dataclass(frozen=True)
class Encoded:
    """What a model makes of the rows: encoded once, and kept in a file from then on."""

    model: str
    """A file that every worker can read."""
    folder: str
    """Where encoded shards are kept. One that is not there is encoded again, so each machine may have its own."""
    device: str

    def header(self, path: Path) -> tuple[int, int | None]:
        if path.suffix.lower() == ".parquet":
            return ParquetStream(path).rows(), None
        try:
            return len(np.load(path, mmap_mode="r", allow_pickle=False)), None
        except (ValueError, TypeError, EOFError) as error:
            raise DataError(f"{path} is no .npy file of rows, or it is cut short: {error}") from error

    def stream(self, path: Path) -> RowStream:
        target = Path(self.folder) / f"{path.stem}.npy"
        if not target.is_file():
            estimator = loaded(self.model, self.device)
            _, z = estimator.represent(read_data(path, like=estimator.preparation_, progress=False))
            target.parent.mkdir(parents=True, exist_ok=True)
            encode_to_file(lambda: [z], lambda rows: rows, target)
        return NpyStream(target)


@lru_cache(maxsize=1)
def loaded(model: str, device: str) -> MetaClusterer:
    """Once for each process."""
    return MetaClusterer.load(model, device)


def shard_paths(shards: Any) -> list[Path]:
    """The files of a folder in the order of their names, or those of a list in its order."""
    if isinstance(shards, str | os.PathLike):
        folder = Path(shards).expanduser()
        if not folder.is_dir():
            what = "is a file" if folder.is_file() else "is not there"
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
        raise DataError("the shards are .npy and .parquet files: give shards of one kind, the others apart")
    names = [path.stem for path in paths]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"several shards are called {listed(twice)}: the labels of each are a file of its name")
    return [path.absolute() for path in paths]


def read_headers(
    paths: Sequence[Path], reader: Reader, ids: str | None = None
) -> tuple[list[Shard], list[Bad], int | None]:
    """The shards that can be opened, those that cannot, and how wide the first is; empty ones are left out."""
    if ids is not None and any(path.suffix.lower() == ".npy" for path in paths):
        raise ValueError(f"ids={ids!r}: .npy shards have no columns; leave it out, labels have shard and row")
    good, bad, before, width = [], [], 0, None
    for path in paths:
        try:
            with named(path):
                rows, wide = reader.header(path)
                if ids is not None:
                    ParquetStream(path).check(ids)
        except DataError as error:
            bad.append(Bad(path.name, str(error)))
            continue
        if rows:
            width = wide if width is None else width
            good.append(Shard(str(path), rows, before))
            before += rows
    return good, bad, width


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Whatever is wrong with a shard is a DataError that names it."""
    try:
        yield
    except (DataError, OSError, pl.exceptions.PolarsError) as error:
        words = str(error).split("\n")[0]
        raise DataError(words if path.name in words else f"{path}: {words}") from error
