"""The output folder of a run over shards: labels and, until the run is finished, the state to resume from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from metaclust._util import schema
from metaclust._util.facts import json_of
from metaclust._util.files import remove_finished, replacing
from metaclust._util.locks import held
from metaclust._util.targets import check_folder, check_space, same
from metaclust._util.tensors import CheckpointError, regular_content, shortened
from metaclust.data.rows import listed
from metaclust.scale.shards import BadShard, Shard

RESULT = "_result.json"
RUN = "_run"
LOCK = "_lock"
LABEL_BYTES = 8
"""Bytes of the labels of a row, about: files of labels are compressed."""
SAVED = {"shards": schema.list_of(schema.list_of(lambda _: None, 2)), "skipped": schema.list_of(schema.mapping)}
ROWS = schema.whole(0, schema.LARGEST_WHOLE)


@dataclass(frozen=True)
class SavedShards:
    """What a run recorded of its shards."""

    rows: dict[str, int]
    """The number of rows of each shard, by name, in the order of the shards."""
    skipped: tuple[BadShard, ...]


def read_shards(path: Path) -> SavedShards:
    """Return the shards of a run that was interrupted; raise CheckpointError if the file is broken."""
    content = regular_content(path)
    try:
        saved = json.loads(content, parse_constant=float)
        schema.check_plain(saved)
        schema.fields(saved, SAVED, name="the file")
        for name, rows in saved["shards"]:
            schema.fields({"name": name, "rows": rows}, {"name": schema.text, "rows": ROWS}, name="shards")
        for bad in saved["skipped"]:
            schema.fields(bad, {"shard": schema.text, "why": schema.text}, name="skipped")
        counts = dict(saved["shards"])
        skipped = tuple(BadShard(bad["shard"], bad["why"]) for bad in saved["skipped"])
        names = [*counts, *(bad.shard for bad in skipped)]
        if len(set(names)) < len(saved["shards"]) + len(skipped):
            raise ValueError("a shard is in it twice")
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is broken ({shortened(error)}): restart with --force (force=True)") from error
    return SavedShards(counts, skipped)


class ShardRunFolder:
    """The folder ``out`` with the labels, ``_result.json`` once the run is finished, and ``_run`` until then.

    Readers of folders of .parquet files ignore names that begin with an underscore.
    """

    def __init__(self, out: Path) -> None:
        self.out, self.run = out, out / RUN
        self.state, self.model = self.run / "fit.safetensors", self.run / "model.safetensors"
        self.shards, self.encoded = self.run / "shards", self.run / "encoded"
        self.previous: SavedShards | None = None
        """The shards of the run to resume."""
        self.overwrite = False

    @contextmanager
    def sole(self, sources: Sequence[Path]) -> Iterator[None]:
        """Check that the folder can be written, and let no other process use it until the end.

        A folder that was made for this is removed if nothing was written to it.
        """
        if self.out.exists() and not self.out.is_dir():
            raise NotADirectoryError(f"out={str(self.out)!r} is a file: give a folder for the labels")
        if not self.out.parent.is_dir():
            raise FileNotFoundError(f"cannot write {self.out}: {self.out.parent} does not exist; create it first")
        if any(same(self.out, source) for source in sources):
            raise ValueError(f"out={str(self.out)!r} is the folder of the shards: choose another one for the labels")
        new = not self.out.exists()
        check_folder(self.out.parent if new else self.out, self.out)
        self.out.mkdir(exist_ok=True)
        try:
            with held(self.out / LOCK, self.out):
                yield
        finally:
            if new:
                with suppress(OSError):
                    self.out.rmdir()

    def check(self, resume: bool, force: bool) -> None:
        """Check the existing content before anything is started. Only the output of a run is ever overwritten."""
        ours = self.run.exists() or (self.out / RESULT).exists()
        if any(path.name != LOCK for path in self.out.iterdir()) and not ours:
            raise FileExistsError(f"{self.out} holds other files: give an empty or a new folder")
        if ours and not (resume and self.run.exists()):
            if not force:
                what, remedy = "a finished clustering", "restart with --force (force=True)"
                if self.run.exists():
                    what, remedy = "an interrupted run", f"continue it with --resume (resume=True), {remedy}"
                raise FileExistsError(f"{self.out} holds {what}: {remedy}, or choose another folder")
            self.overwrite = True
        about = self.run / "shards.json"
        if about.exists() and not self.overwrite:
            self.previous = read_shards(about)

    def check_space(self, rows: int, width: int) -> None:
        """Raise an error if the disk is too full for the labels of rows, and for their ``width`` encoded columns."""
        there = (
            0 if self.overwrite or not self.encoded.is_dir() else sum(x.stat().st_size for x in self.encoded.iterdir())
        )
        check_space(self.out, max(0, rows * (4 * width + LABEL_BYTES) - there), f"clustering {rows:,} rows")

    def begin(self) -> None:
        """Create the folder; remove its content if it is to be overwritten."""
        if self.overwrite:
            shutil.rmtree(self.run, ignore_errors=True)
            (self.out / RESULT).unlink(missing_ok=True)
            for part in self.out.glob("*.parquet"):
                part.unlink()
        self.run.mkdir(parents=True, exist_ok=True)

    def save_shards(self, shards: Sequence[Shard], skipped: Sequence[BadShard]) -> None:
        """Record the shards of the run."""
        counts = [[shard.name, shard.rows] for shard in shards]
        self._write(self.run / "shards.json", {"shards": counts, "skipped": [asdict(bad) for bad in skipped]})

    def saved_skips(self, shards: Sequence[Shard], on_bad_shard: str) -> list[BadShard]:
        """Return the shards that the run skipped; raise CheckpointError if the others have changed."""
        if self.previous is None:
            return []
        before, skipped = self.previous.rows, list(self.previous.skipped)
        names = {one.shard for one in skipped}
        now = {shard.name: shard.rows for shard in shards if shard.name not in names}
        changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        if changed or list(before) != list(now):
            raise CheckpointError(
                f"{self.run} is a run over different shards ({listed(changed) or 'in another order'}): resume it with "
                "the same shards, or restart with --force (force=True)"
            )
        if skipped and on_bad_shard != "skip":
            raise CheckpointError(
                f"{self.run} skips bad shards: resume it with --skip-bad-shards (on_bad_shard='skip')"
            )
        return skipped

    def finish(self, facts: dict[str, Any]) -> None:
        """Write the result and remove the state of the run."""
        self._write(self.out / RESULT, facts)
        remove_finished(self.run, self.out / RESULT)

    def _write(self, target: Path, content: dict[str, Any]) -> None:
        # Unfinished files are in the folder of the run: a killed run must leave nothing among the labels.
        with replacing(target, beside=self.run) as unfinished:
            unfinished.write_text(json_of(content, indent=1) + "\n", encoding="utf-8")
