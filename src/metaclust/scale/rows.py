"""Rows in shards as inference sees them: a pass is a map over the shards and an addition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from metaclust.data.rows import DataError, listed
from metaclust.data.survey import Survey
from metaclust.mixture.blocks import BlockSums
from metaclust.mixture.fit import Progress
from metaclust.mixture.streaming import BatchSums, BlockMixture, Passes, product_dtype
from metaclust.scale.engines import Engine, map_add
from metaclust.scale.folder import ShardRunFolder
from metaclust.scale.shards import Bad, Reader, Shard, read_headers
from metaclust.scale.tasks import LookJob, SumsJob, look_at, sums_of

OnBadShard = Literal["stop", "skip"]


class Silent:
    """Tells no one."""

    def phase(self, name: str) -> None:
        pass

    def advance(self, rows: int) -> None:
        pass


@dataclass
class ShardRows:
    """The rows of all shards; those of ``skipped`` are left out."""

    engine: Engine
    reader: Reader
    name: str
    on_bad_shard: OnBadShard = "stop"
    ids: str | None = None
    """A column that .parquet shards must have."""
    told: Progress = field(default_factory=Silent)
    shards: list[Shard] = field(default_factory=list)
    skipped: list[Bad] = field(default_factory=list)
    width: int | None = None
    keep: Callable[[], object] = lambda: None
    """Called when it is known which shards there are."""

    def open(self, paths: Sequence[Path], folder: ShardRunFolder | None = None) -> None:
        """Read the headers; a run that goes on must have the same shards."""
        self.shards, bad, self.width = read_headers(paths, self.reader, self.ids)
        if folder is not None:
            self.keep = lambda: folder.remember(self.shards, self.skipped)
            if folder.known is not None:
                bad = folder.recall(self.shards, self.on_bad_shard)
        self.leave_out(bad)
        if not self.shards:
            raise DataError(f"{self.name} has no rows: give at least two")

    @property
    def count(self) -> int:
        """How many rows there are."""
        return sum(shard.rows for shard in self.shards)

    def add(self, function: Callable[[Any, Shard], Any], job: Any) -> Any:
        return map_add(self.engine, function, job, self.shards, self.told.advance)

    def survey(self, most: int, seed: int) -> Survey:
        """Without bad shards it is the survey of the others alone: they are looked at again."""
        while True:
            if not self.shards:
                raise DataError(f"{self.name} has no rows: give at least two")
            self.told.phase("survey")
            looked = self.add(look_at, LookJob(self.reader, most, seed, self.width))
            if not looked.bad:
                self.keep()
                survey: Survey = looked.look.survey(self.name)
                return survey
            self.leave_out(looked.bad)

    def leave_out(self, bad: Sequence[Bad]) -> None:
        """By choice; else they are an error."""
        if bad and self.on_bad_shard != "skip":
            more = f" ({len(bad)} bad shards: {listed(one.shard for one in bad)})" if len(bad) > 1 else ""
            raise DataError(
                f"{bad[0].why}{more}. Mend or remove it, or leave it out with on_bad_shard='skip' (--skip-bad-shards)"
            )
        names, before = {one.shard for one in bad}, 0
        kept = []
        for shard in self.shards:
            if shard.name not in names:
                kept.append(Shard(shard.path, shard.rows, before))
                before += shard.rows
        self.shards = kept
        self.skipped += bad

    def progress(self, rows: int, wanted: bool) -> AbstractContextManager[Progress | None]:
        return nullcontext(self.told)

    def passes(self, mixture: BlockMixture, width: int, progress: Progress | None) -> Passes:
        return ShardPasses(self, mixture, width)


@dataclass(frozen=True)
class ShardPasses:
    """One batch: all shards."""

    rows: ShardRows
    mixture: BlockMixture
    width: int

    def batches(self, components: int) -> Iterator[BatchSums]:
        yield self.sums

    def sums(self, weights: Tensor, features: Tensor | None) -> tuple[BlockSums, int]:
        mixture, dtype = self.mixture, product_dtype(self.mixture.float32, weights, features)
        job = SumsJob(self.rows.reader, self.width, mixture.family, mixture.transform, weights, dtype)
        summed = self.rows.add(sums_of, job)
        return summed.sums, summed.rows
