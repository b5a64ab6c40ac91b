"""Progress bars, on the standard error."""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

AnyBar = TypeVar("AnyBar", bound="Bar")


class Bar:
    """A progress bar on the standard error while it is entered."""

    progress: Progress

    def __enter__(self: AnyBar) -> AnyBar:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()


class TrainingBar(Bar):
    """Phase, steps, loss, validation ARI and the time left."""

    def __init__(self, total: int, done: int) -> None:
        self.progress = Progress(
            TextColumn("{task.fields[phase]:5}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}  val. ARI {task.fields[ari]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=Console(stderr=True),
        )
        self.loss: float | None = None
        self.task = self.progress.add_task("training", total=total, completed=done, phase="", loss="-", ari="-")

    def phase(self, name: str) -> None:
        """What is done before the first step of a kind."""
        self.progress.update(self.task, phase=name)

    def update(self, step: int, record: dict[str, Any], last: float | None, best: float) -> None:
        # A single task's loss says little: show the running mean.
        self.loss = record["loss"] if self.loss is None else 0.98 * self.loss + 0.02 * record["loss"]
        ari = "-" if last is None else f"{last:.3f} (best {best:.3f})"
        self.progress.update(self.task, completed=step, phase=record["phase"], loss=f"{self.loss:.3f}", ari=ari)


class CountBar(Bar):
    """What is done, how much of it, and the time left."""

    def __init__(self, words: str, total: int) -> None:
        self.progress = Progress(
            TextColumn(words),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=Console(stderr=True),
        )
        self.task = self.progress.add_task(words, total=total)

    def advance(self) -> None:
        self.progress.advance(self.task)


class RowsBar(Bar):
    """Which pass over how many rows, rows per second and the time left of it."""

    def __init__(self, rows: int) -> None:
        self.progress = Progress(
            TextColumn("{task.description:8}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]} rows/s"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=Console(stderr=True),
        )
        self.task = self.progress.add_task("start", total=rows, rate="-")

    def phase(self, name: str) -> None:
        self.progress.reset(self.task, description=name)

    def advance(self, rows: int) -> None:
        self.progress.advance(self.task, rows)
        speed = self.progress.tasks[0].speed
        if speed is not None:
            self.progress.update(self.task, rate=f"{speed:,.0f}")
