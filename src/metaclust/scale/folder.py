"""The folder that labels go to, and in it, until the run is done, what a run that was stopped goes on from."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from metaclust._util.tensors import CheckpointError
from metaclust.data.rows import listed
from metaclust.scale.shards import Bad, Shard

RESULT = "_result.json"
RUN = "_run"


class RunFolder:
    """``out`` with the labels, ``_result.json`` when it is done, and ``_run`` until then.

    Readers of folders of .parquet files leave out names that begin with an underscore.
    """

    def __init__(self, out: Path) -> None:
        self.out, self.run = out, out / RUN
        self.state, self.model = self.run / "fit.safetensors", self.run / "model.safetensors"
        self.shards, self.encoded = self.run / "shards", self.run / "encoded"
        self.known: dict[str, Any] | None = None
        self.old = False
        """Whether what is in it is to be overwritten."""

    def check(self, sources: Sequence[Path], resume: bool, force: bool) -> None:
        """Before anything is started: find what is in it. Only what a run has written is ever overwritten."""
        if self.out.exists() and not self.out.is_dir():
            raise NotADirectoryError(f"out={str(self.out)!r} is a file: give a folder for the labels")
        if not self.out.parent.is_dir():
            raise FileNotFoundError(f"cannot write {self.out}: the folder {self.out.parent} is not there; create it")
        if self.out in sources:
            raise ValueError(f"out={str(self.out)!r} is the folder of the shards: give the labels another")
        ours = self.run.exists() or (self.out / RESULT).exists()
        if self.out.is_dir() and any(self.out.iterdir()) and not ours:
            raise FileExistsError(f"{self.out} holds other files: give a folder that is empty or not there")
        if ours and not (resume and self.run.exists()):
            if not force:
                what, remedy = "a finished clustering", "start anew with --force (force=True)"
                if self.run.exists():
                    what, remedy = "a run that was interrupted", f"go on with --resume (resume=True), or {remedy}"
                raise FileExistsError(f"{self.out} holds {what}: {remedy}, or give another folder")
            self.old = True
        about = self.run / "shards.json"
        if about.exists() and not self.old:
            try:
                self.known = json.loads(about.read_text(encoding="utf-8"))
            except ValueError as error:
                raise CheckpointError(f"{about} is broken ({error}): start anew with --force") from error

    def begin(self) -> None:
        """Make it, without what is to be overwritten."""
        if self.old:
            shutil.rmtree(self.run, ignore_errors=True)
            (self.out / RESULT).unlink(missing_ok=True)
            for part in self.out.glob("*.parquet"):
                part.unlink()
        self.run.mkdir(parents=True, exist_ok=True)

    def remember(self, shards: Sequence[Shard], skipped: Sequence[Bad]) -> None:
        """Which shards the run is about."""
        counts = [[shard.name, shard.rows] for shard in shards]
        self._write(self.run / "shards.json", {"shards": counts, "skipped": [asdict(bad) for bad in skipped]})

    def recall(self, shards: Sequence[Shard], on_bad_shard: str) -> list[Bad]:
        """The shards that the run leaves out; others than it had are an error."""
        if self.known is None:
            return []
        skipped = [Bad(**one) for one in self.known["skipped"]]
        names = {one.shard for one in skipped}
        before = {str(name): int(rows) for name, rows in self.known["shards"]}
        now = {shard.name: shard.rows for shard in shards if shard.name not in names}
        changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        if changed or list(before) != list(now):
            raise CheckpointError(
                f"{self.run} is a run over other shards ({listed(changed) or 'in another order'}): go on with the "
                "same, or start anew with --force (force=True)"
            )
        if skipped and on_bad_shard != "skip":
            raise CheckpointError(f"{self.run} is a run that skips bad shards: go on with on_bad_shard='skip'")
        return skipped

    def finish(self, facts: dict[str, Any]) -> None:
        self._write(self.out / RESULT, facts)
        shutil.rmtree(self.run)

    def _write(self, target: Path, content: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory(dir=self.run, prefix=f".{target.name}.") as place:
            beside = Path(place) / target.name
            beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            beside.replace(target)
