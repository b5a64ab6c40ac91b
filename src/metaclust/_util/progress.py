"""Progress on standard error: a bar on a terminal, elsewhere a plain line about every 30 seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from metaclust._util.terminal import printable

INTERVAL = 30.0
"""Seconds between two plain lines."""
DELAY = 1.0
"""Seconds before :class:`Waiting` shows anything."""
SPEED_PERIOD = 300.0
"""Seconds over which the speed is averaged: long enough for steps that take a minute each."""
MEGABYTE = 1_000_000
AnyBar = TypeVar("AnyBar", bound="Bar")


class Bar:
    """Progress of one piece of work, shown while the context is entered.

    ``facts`` are shown after the count. With a ``delay`` in seconds, work that ends sooner shows nothing, and the bar
    is removed at the end.
    """

    def __init__(
        self,
        description: str,
        total: int | None = None,
        *,
        done: int = 0,
        facts: str = "",
        unit: Literal["steps", "bytes"] = "steps",
        delay: float = 0.0,
        enabled: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        console = Console(stderr=True)
        self.live = (console.file.isatty() and console.is_interactive) or console.is_jupyter
        self.unit, self.delay, self.enabled, self.clock = unit, delay, enabled, clock
        self.started = clock()
        self.shown = self.ended = False
        self.timer: threading.Timer | None = None
        self.lock = threading.Lock()
        columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False), BarColumn(bar_width=12)]
        if total is not None:
            columns.append(DownloadColumn() if unit == "bytes" else MofNCompleteColumn())
        columns.append(TextColumn("{task.fields[facts]}", markup=False))
        if total is not None:
            columns += [TimeRemainingColumn(), TextColumn("left")]
        self.progress = Progress(
            *columns,
            console=console,
            speed_estimate_period=SPEED_PERIOD,
            transient=delay > 0,
            get_time=clock,
            disable=not (enabled and self.live),
        )
        self.progress.add_task(printable(description), total=total, completed=done, facts=facts)
        (self.task,) = self.progress.tasks

    def advance(self, count: int = 1, *, facts: str | None = None) -> None:
        """Count further steps."""
        self.set(int(self.task.completed) + count, facts=facts)

    def set(self, done: int, *, description: str | None = None, facts: str | None = None) -> None:
        """Set the number of steps done and, where given, the description and the facts."""
        if facts is not None:
            self.task.fields["facts"] = facts
        self.progress.update(
            self.task.id, completed=done, description=None if description is None else printable(description)
        )

    def phase(self, name: str) -> None:
        """Set the description."""
        self.progress.update(self.task.id, description=printable(name))

    def line(self) -> str:
        """Return the state as one line without control characters."""
        task = self.task
        words = task.description
        if task.total is not None:
            # "pass 3, 10/20", for "pass 3 10/20" would be hard to read.
            words += f"{',' if words[-1:].isdigit() else ''} {self._count()}"
        parts = [words, task.fields["facts"], self._time()]
        text = ", ".join(part for part in parts if part)
        return f"metaclust: {printable(text)}"

    def _count(self) -> str:
        done, total = self.task.completed, self.task.total or 0
        if self.unit == "bytes":
            return f"{done / MEGABYTE:.1f}/{total / MEGABYTE:.1f} MB"
        return f"{done:.0f}/{total:.0f}"

    def _time(self) -> str:
        passed = self.clock() - self.started
        if self.ended:
            return f"{duration(passed)} in total"
        left = self.task.time_remaining
        if left:
            return f"{duration(left)} left"
        return f"{duration(passed)} so far" if passed >= INTERVAL else ""

    def _due(self) -> None:
        """Show the bar, or print a line and arrange for the next one."""
        with self.lock:
            if self.ended:
                return
            self.shown = True
            if self.live:
                self.progress.start()
            else:
                self._print()
                self._later(INTERVAL)

    def _print(self) -> None:
        file = self.progress.console.file
        file.write(f"{self.line()}\n")
        file.flush()

    def _later(self, seconds: float) -> None:
        self.timer = threading.Timer(seconds, self._due)
        self.timer.daemon = True
        self.timer.start()

    def __enter__(self: AnyBar) -> AnyBar:
        self.started = self.clock()
        if self.enabled and self.delay:
            self._later(self.delay)
        elif self.enabled:
            self._due()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.lock:
            self.ended = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer.join()
        if self.shown and self.live:
            self.progress.stop()
        elif self.shown:
            self._print()


class TrainingBar(Bar):
    """Progress of a training: phase, steps, loss, validation ARI and the time left."""

    def __init__(self, total: int, done: int, **options: Any) -> None:
        super().__init__("training", total, done=done, **options)
        self.loss: float | None = None

    def update(self, step: int, record: dict[str, Any], last: float | None, best: float) -> None:
        """Show the record of a step, and the last and the best ARI on the validation tasks."""
        # A single task's loss says little: show the running mean.
        self.loss = record["loss"] if self.loss is None else 0.98 * self.loss + 0.02 * record["loss"]
        facts = f"loss {self.loss:.3f}"
        if last is not None:
            facts += f", val. ARI {last:.3f}" + (f" (best {best:.3f})" if best > last else "")
        self.set(step, description=record["phase"], facts=facts)


class RowsBar(Bar):
    """Progress of passes over all rows: the pass, rows per second and the time left of this pass."""

    def __init__(self, rows: int, **options: Any) -> None:
        super().__init__("start", rows, **options)

    def phase(self, name: str) -> None:
        """Begin another pass."""
        self.progress.reset(self.task.id, description=name, facts=self.task.fields["facts"])

    def advance(self, count: int = 1, *, facts: str | None = None) -> None:
        """Count further rows."""
        super().advance(count, facts=facts)
        if self.task.elapsed:
            self.task.fields["facts"] = f"{self.task.completed / self.task.elapsed:,.0f} rows/s"


class Waiting(Bar):
    """Progress that is shown only if the work takes longer than a second, and removed at its end.

    >>> with Waiting("reading images", 20_000, enabled=False) as bar:
    ...     bar.advance()
    """

    def __init__(self, description: str, total: int | None = None, **options: Any) -> None:
        super().__init__(description, total, delay=DELAY, **options)


def duration(seconds: float) -> str:
    """Return a duration in the two largest units that are of interest.

    >>> duration(12.4), duration(720), duration(12_000)
    ('12 s', '12 min', '3 h 20 min')
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
