"""What a worker does with a shard, and how what it gives adds up. The work itself is in ``mixture`` and ``data``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust.data.rows import DataError
from metaclust.data.streams import ParquetStream, in_blocks
from metaclust.data.survey import PartialSurvey, survey_part
from metaclust.inference.cluster import sizes_of
from metaclust.mixture.blocks import BlockSums, Map, Worker, block_size
from metaclust.mixture.components import Components
from metaclust.mixture.families import Family
from metaclust.mixture.fit import WeightedRows
from metaclust.mixture.streaming import sum_blocks
from metaclust.mixture.threads import over_blocks
from metaclust.scale.shards import Bad, Reader, Shard, named


@dataclass(frozen=True)
class LookJob:
    """The first pass: see :func:`metaclust.data.survey.survey_part`."""

    reader: Reader
    most: int
    seed: int
    width: int | None


@dataclass(frozen=True)
class Looked:
    """What shards add to the survey, and those that cannot be read."""

    look: PartialSurvey | None
    bad: tuple[Bad, ...] = ()

    def __add__(self, other: Looked) -> Looked:
        both = [part for part in (self.look, other.look) if part is not None]
        return Looked(both[0] + both[1] if len(both) == 2 else both[0] if both else None, self.bad + other.bad)


def look_at(job: LookJob, shard: Shard) -> Looked:
    path = Path(shard.path)
    try:
        with named(path):
            seen = survey_part(job.reader.stream(path), None, job.most, job.seed, job.width, shard.before)
            check_count(seen.rows, shard)
    except DataError as error:
        return Looked(None, (Bad(shard.name, str(error)),))
    return Looked(seen)


def check_count(rows: int, shard: Shard) -> None:
    if rows != shard.rows:
        raise DataError(f"{shard.path} has {rows:,} rows and had {shard.rows:,} before: shards must not change")


@dataclass(frozen=True)
class SumsJob:
    """A pass: see :func:`metaclust.mixture.streaming.sum_blocks`."""

    reader: Reader
    width: int
    family: Family
    transform: Map
    weights: Tensor
    dtype: torch.dtype


@dataclass(frozen=True)
class Summed:
    """What shards add, and their number of rows."""

    sums: BlockSums
    rows: int

    def __add__(self, other: Summed) -> Summed:
        return Summed(self.sums + other.sums, self.rows + other.rows)


def sums_of(job: SumsJob, shard: Shard) -> Summed:
    path = Path(shard.path)
    with named(path):
        blocks = WeightedRows(job.reader.stream(path), job.width).blocks(block_size(len(job.weights)))
        sums, rows = sum_blocks(blocks, job.family, job.transform, job.weights, job.dtype)
        check_count(rows, shard)
    return Summed(sums, rows)


@runtime_checkable
class Labeller(Protocol):
    """Gives rows their clusters, a block after another: labels, and probabilities if asked, else how sure or None."""

    @property
    def clusters(self) -> int: ...
    def __call__(self, blocks: Iterator[Tensor], probabilities: bool) -> Iterator[tuple[Any, Any]]: ...


@dataclass(frozen=True)
class MixtureLabels:
    """By the score weights, in float64, as ``InfiniteGaussianMixture.predict`` does."""

    family: Family
    transform: Map
    weights: Tensor

    @property
    def clusters(self) -> int:
        return len(self.weights)

    def __call__(self, blocks: Iterator[Tensor], probabilities: bool) -> Iterator[tuple[Any, Any]]:
        def make() -> Worker:
            return Worker(self.family, self.transform, self.weights, torch.float64, block_size(len(self.weights)))

        def each(worker: Worker, x: Tensor) -> tuple[Any, Any]:
            labels = worker.labels(x).numpy()
            return labels, worker.probabilities(x).numpy() if probabilities else None

        yield from over_blocks(make, each, ((x,) for x in blocks))


@dataclass(frozen=True)
class ComponentLabels:
    """By the components, as ``Clustering.assign`` does."""

    components: Components

    @property
    def clusters(self) -> int:
        return len(self.components.weights)

    def __call__(self, blocks: Iterator[Tensor], probabilities: bool) -> Iterator[tuple[Any, Any]]:
        for x in blocks:
            if probabilities:
                chances = self.components.probabilities(x.numpy())
                yield chances.argmax(1), chances
            else:
                yield self.components.assigned(x.numpy())


@dataclass(frozen=True)
class LabelsJob:
    """The last pass: the labels of each shard as a .parquet file of its name; without ``out`` they are only counted."""

    reader: Reader
    labeller: Labeller
    out: tuple[str, str] | None = None
    """Where to, and a folder beside it for files that are not finished."""
    ids: str | None = None
    probabilities: bool = False


@dataclass(frozen=True)
class Sizes:
    """How many rows of shards are in each cluster, and the first of them among all rows."""

    sizes: NDArray[np.int64]
    first: NDArray[np.int64]

    def __add__(self, other: Sizes) -> Sizes:
        return Sizes(self.sizes + other.sizes, np.minimum(self.first, other.first))


NONE = np.iinfo(np.int64).max
"""The first row of a cluster without rows."""


def labels_of(job: LabelsJob, shard: Shard) -> Sizes:
    path = Path(shard.path)
    with named(path):
        blocks = in_blocks(job.reader.stream(path).arrays(), block_size(job.labeller.clusters))
        labels = np.empty(shard.rows, np.int64)
        chances, rows = [], 0
        for found, probable in job.labeller(blocks, job.probabilities):
            check_count(max(shard.rows, rows + len(found)), shard)
            labels[rows : rows + len(found)] = found
            rows += len(found)
            if job.out is not None and probable is not None:
                chances.append(probable)
        check_count(rows, shard)
        if job.out is not None:
            write_labels(*job.out, path, job.ids, labels, np.concatenate(chances) if chances else None)
    sizes, first = sizes_of(labels, job.labeller.clusters)
    return Sizes(sizes, np.where(sizes > 0, shard.before + first, NONE))


def write_labels(
    out: str, beside: str, path: Path, ids: str | None, labels: NDArray[np.int64], chances: NDArray[Any] | None
) -> None:
    """Beside the target, then moved into place."""
    columns: dict[str, Any] = {"shard": pl.repeat(path.name, len(labels), eager=True), "row": np.arange(len(labels))}
    if ids is not None:
        columns["id"] = ParquetStream(path).column(ids)
    columns["cluster"] = labels
    if chances is not None:
        columns["confidence"] = chances if chances.ndim == 1 else chances.max(1)
        if chances.ndim == 2:
            columns["probabilities"] = pl.Series(chances, dtype=pl.Array(pl.Float64, chances.shape[1]))
    name = f"{path.stem}.parquet"
    with tempfile.TemporaryDirectory(dir=beside, prefix=f"{name}.") as place:
        pl.DataFrame(columns).write_parquet(Path(place) / name)
        (Path(place) / name).replace(Path(out) / name)
