"""The tasks of a worker: survey a shard, sum its statistics, write its labels; their results add up."""

from __future__ import annotations

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
from metaclust.data.survey import Moments, PartialSurvey, survey_part
from metaclust.data.writers import write_table
from metaclust.inference.confidence import Confidence
from metaclust.inference.settle import sizes_of
from metaclust.mixture.blocks import BlockSums, Map, Worker, block_size
from metaclust.mixture.components import Components
from metaclust.mixture.families import Family
from metaclust.mixture.outcome import check_labels, check_probabilities
from metaclust.mixture.rows import WeightedRows
from metaclust.mixture.streaming import sum_blocks
from metaclust.mixture.threads import over_blocks
from metaclust.scale.shards import BadShard, Reader, Shard, named


@dataclass(frozen=True)
class SurveyJob:
    """The first pass: see :func:`metaclust.data.survey.survey_part`."""

    reader: Reader
    most: int
    seed: int
    columns: int | None
    moments: Moments = "mean"


@dataclass(frozen=True)
class ShardSurvey:
    """The survey of some shards, without those that cannot be read."""

    part: PartialSurvey | None
    bad: tuple[BadShard, ...] = ()

    def __add__(self, other: ShardSurvey) -> ShardSurvey:
        both = [part for part in (self.part, other.part) if part is not None]
        return ShardSurvey(both[0] + both[1] if len(both) == 2 else both[0] if both else None, self.bad + other.bad)


def survey_shard(job: SurveyJob, shard: Shard) -> ShardSurvey:
    path = Path(shard.path)
    try:
        with named(path):
            stream = job.reader.stream(path)
            part = survey_part(stream, None, job.most, job.seed, job.columns, shard.before, job.moments)
            check_count(part.rows, shard)
    except DataError as error:
        return ShardSurvey(None, (BadShard(shard.name, str(error)),))
    return ShardSurvey(part)


def check_count(rows: int, shard: Shard) -> None:
    if rows != shard.rows:
        raise DataError(f"{shard.path} has {rows:,} rows and had {shard.rows:,} before: shards must not change")


@dataclass(frozen=True)
class SumsJob:
    """A pass of inference: see :func:`metaclust.mixture.streaming.sum_blocks`."""

    reader: Reader
    columns: int
    family: Family
    transform: Map
    weights: Tensor
    dtype: torch.dtype


@dataclass(frozen=True)
class ShardSums:
    """The statistics of some shards, and their number of rows."""

    sums: BlockSums
    rows: int

    def __add__(self, other: ShardSums) -> ShardSums:
        return ShardSums(self.sums + other.sums, self.rows + other.rows)


def sum_shard(job: SumsJob, shard: Shard) -> ShardSums:
    path = Path(shard.path)
    with named(path):
        blocks = WeightedRows(job.reader.stream(path), job.columns).blocks(block_size(*job.weights.shape))
        sums, rows = sum_blocks(blocks, job.family, job.transform, job.weights, job.dtype)
        check_count(rows, shard)
    return ShardSums(sums, rows)


@runtime_checkable
class Labeller(Protocol):
    """Labels rows block by block: yields labels, confidences or None, and probabilities if requested or None."""

    @property
    def clusters(self) -> int: ...
    @property
    def block(self) -> int:
        """The most rows of a block."""

    def __call__(self, blocks: Iterator[Tensor], probabilities: bool) -> Iterator[tuple[Any, Any, Any]]: ...


@dataclass(frozen=True)
class MixtureLabels:
    """Labels by a mixture's score weights, in float64, like ``InfiniteGaussianMixture.predict``."""

    family: Family
    transform: Map
    weights: Tensor

    @property
    def clusters(self) -> int:
        return len(self.weights)

    @property
    def block(self) -> int:
        return block_size(*self.weights.shape)

    def __call__(self, blocks: Iterator[Tensor], probabilities: bool) -> Iterator[tuple[Any, Any, Any]]:
        def make() -> Worker:
            return Worker(self.family, self.transform, self.weights, torch.float64, self.block)

        def each(worker: Worker, x: Tensor) -> tuple[Any, Any, Any]:
            labels = worker.labels(x).numpy()
            if not probabilities:
                return labels, None, None
            found = worker.probabilities(x).numpy()
            return labels, found.max(1), found

        yield from over_blocks(make, each, ((x,) for x in blocks))


@dataclass(frozen=True)
class ComponentLabels:
    """Labels by the components of a clustering, like ``Clustering.assign``."""

    components: Components
    confidence: Confidence | None = None
    """What assigns rows with a calibrated confidence, if there is such."""

    @property
    def clusters(self) -> int:
        return len(self.components.weights)

    @property
    def block(self) -> int:
        return block_size(*self.components.means.shape)

    def __call__(self, blocks: Iterator[Tensor], probabilities: bool) -> Iterator[tuple[Any, Any, Any]]:
        for x in blocks:
            labels, confidence = (self.confidence or self.components).assigned(x.numpy())
            yield labels, confidence, self.components.probabilities(x.numpy()) if probabilities else None


@dataclass(frozen=True)
class LabelsJob:
    """The last pass: write the labels of each shard to a .parquet file; without ``out``, only count them."""

    reader: Reader
    labeller: Labeller
    out: tuple[str, str] | None = None
    """The folder of the labels, and a folder on the same file system for unfinished files."""
    ids: str | None = None
    probabilities: bool = False


@dataclass(frozen=True)
class ClusterSizes:
    """The number of rows of some shards in each cluster, and the index of the first among all rows."""

    sizes: NDArray[np.int64]
    first: NDArray[np.int64]

    def __add__(self, other: ClusterSizes) -> ClusterSizes:
        return ClusterSizes(self.sizes + other.sizes, np.minimum(self.first, other.first))


NO_ROW = np.iinfo(np.int64).max
"""The first row of a cluster without rows."""


def label_shard(job: LabelsJob, shard: Shard) -> ClusterSizes:
    path = Path(shard.path)
    with named(path):
        blocks = in_blocks(job.reader.stream(path).arrays(), job.labeller.block)
        labels = np.empty(shard.rows, np.int64)
        confidences, probabilities, rows = [], [], 0
        for found, confidence, probability in job.labeller(blocks, job.probabilities):
            check_count(max(shard.rows, rows + len(found)), shard)
            check_labels(found, job.labeller.clusters, str(path), rows)
            for values in (confidence, probability):
                if values is not None:
                    check_probabilities(values, str(path), rows)
            labels[rows : rows + len(found)] = found
            rows += len(found)
            if job.out is not None and confidence is not None:
                confidences.append(confidence)
            if job.out is not None and probability is not None:
                probabilities.append(probability)
        check_count(rows, shard)
        if job.out is not None:
            both = (np.concatenate(parts) if parts else None for parts in (confidences, probabilities))
            write_labels(*job.out, path, job.ids, labels, *both)
    sizes, first = sizes_of(labels, job.labeller.clusters)
    return ClusterSizes(sizes, np.where(sizes > 0, shard.before + first, NO_ROW))


def write_labels(
    out: str,
    beside: str,
    path: Path,
    ids: str | None,
    labels: NDArray[np.int64],
    confidence: NDArray[Any] | None,
    probabilities: NDArray[Any] | None,
) -> None:
    """Write the labels of a shard, with the confidence of each row and the probability of each cluster, if given."""
    columns: dict[str, Any] = {"shard": pl.repeat(path.name, len(labels), eager=True), "row": np.arange(len(labels))}
    if ids is not None:
        columns["id"] = ParquetStream(path).column(ids)
    columns["cluster"] = labels
    if confidence is not None:
        columns["confidence"] = confidence
    if probabilities is not None:
        columns["probabilities"] = pl.Series(probabilities, dtype=pl.Array(pl.Float64, probabilities.shape[1]))
    write_table(pl.DataFrame(columns), Path(out) / f"{path.stem}.parquet", beside=beside)
