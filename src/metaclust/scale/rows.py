"""The rows of shards, as a source that inference passes over: each pass maps over the shards and adds the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from metaclust.data.extremes import row_number
from metaclust.data.rows import DataError, listed
from metaclust.data.survey import Moments, Survey
from metaclust.mixture.blocks import BlockSums
from metaclust.mixture.rows import Progress
from metaclust.mixture.streaming import BatchSums, BlockMixture, Passes, product_dtype
from metaclust.scale.engines import Engine, map_add
from metaclust.scale.folder import ShardRunFolder
from metaclust.scale.shards import BadShard, Reader, Shard, read_headers
from metaclust.scale.tasks import ShardSurvey, SumsJob, SurveyJob, sum_shard, survey_shard

OnBadShard = Literal["stop", "skip"]


class NoProgress:
    """Discards progress reports."""

    def phase(self, name: str) -> None:
        pass

    def advance(self, rows: int) -> None:
        pass


@dataclass
class ShardRows:
    """The rows of all shards that are not skipped."""

    engine: Engine
    reader: Reader
    name: str
    on_bad_shard: OnBadShard = "stop"
    ids: str | None = None
    """A column that .parquet shards must have."""
    report: Progress = field(default_factory=NoProgress)
    shards: list[Shard] = field(default_factory=list)
    skipped: list[BadShard] = field(default_factory=list)
    columns: int | None = None
    """The number of columns, if the headers state it."""
    save: Callable[[], object] = lambda: None
    """Called once the readable shards are known."""

    def open(self, paths: Sequence[Path], folder: ShardRunFolder | None = None) -> None:
        """Read the headers; a resumed run must have the same shards."""
        self.shards, bad, self.columns = read_headers(paths, self.reader, self.ids)
        if folder is not None:
            self.save = lambda: folder.save_shards(self.shards, self.skipped)
            if folder.previous is not None:
                bad = folder.saved_skips(self.shards, self.on_bad_shard)
        self.skip(bad)
        if not self.shards:
            raise DataError(f"{self.name} has no rows: give at least two")

    @property
    def count(self) -> int:
        """The number of rows."""
        return sum(shard.rows for shard in self.shards)

    def add(self, function: Callable[[Any, Shard], Any], job: Any) -> Any:
        """Return the sum of ``function(job, shard)`` over the shards."""
        return map_add(self.engine, function, job, self.shards, self.report.advance)

    def survey(self, most: int, seed: int, moments: Moments = "mean") -> Survey:
        """Survey the rows; if bad shards are skipped, survey the others again without them."""
        while True:
            if not self.shards:
                raise DataError(f"{self.name} has no rows: give at least two")
            self.report.phase("survey")
            result: ShardSurvey = self.add(survey_shard, SurveyJob(self.reader, most, seed, self.columns, moments))
            if result.part is not None and not result.bad:
                self.save()
                return result.part.survey(self.name, self.place)
            self.skip(result.bad)

    def place(self, row: int) -> str:
        """Return what messages call a row, by its number among all rows."""
        shard = next(shard for shard in reversed(self.shards) if shard.before <= row)
        return f"{row_number(row - shard.before)} of {shard.name}"

    def skip(self, bad: Sequence[BadShard]) -> None:
        """Skip bad shards, or raise DataError, as ``on_bad_shard`` says."""
        if bad and self.on_bad_shard != "skip":
            more = f" ({len(bad)} bad shards: {listed(one.shard for one in bad)})" if len(bad) > 1 else ""
            raise DataError(
                f"{bad[0].why}{more}. Repair or remove it, or skip it with on_bad_shard='skip' (--skip-bad-shards)"
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
        return nullcontext(self.report)

    def passes(self, mixture: BlockMixture, width: int, progress: Progress | None) -> Passes:
        return ShardPasses(self, mixture, width)


@dataclass(frozen=True)
class ShardPasses:
    """Passes over all shards; each pass is one batch."""

    rows: ShardRows
    mixture: BlockMixture
    columns: int

    def batches(self, components: int) -> Iterator[BatchSums]:
        yield self.sums

    def sums(self, weights: Tensor, features: Tensor | None) -> tuple[BlockSums, int]:
        mixture, dtype = self.mixture, product_dtype(self.mixture.float32, weights, features)
        job = SumsJob(self.rows.reader, self.columns, mixture.family, mixture.transform, weights, dtype)
        summed = self.rows.add(sum_shard, job)
        return summed.sums, summed.rows
