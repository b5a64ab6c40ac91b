"""A bar for work that takes a while: it shows itself after a second, on the standard error."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

PATIENCE = 1.0
"""Seconds before the bar is shown."""


class Waiting:
    """``with Waiting("reading images", 20_000) as bar: ... bar.advance()``; without a total it moves to and fro."""

    def __init__(
        self, what: str, total: int | None = None, *, enabled: bool = True, unit: Literal["rows", "bytes"] = "rows"
    ) -> None:
        count = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
        console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            *([] if total is None else [count, TimeRemainingColumn()]),
            console=console,
            transient=True,
            disable=not (enabled and console.is_terminal),
        )
        self.task = self.progress.add_task(what, total=total)
        self.timer = threading.Timer(PATIENCE, self.progress.start)
        self.timer.daemon = True

    def advance(self, count: int = 1) -> None:
        self.progress.advance(self.task, count)

    def set(self, done: int) -> None:
        self.progress.update(self.task, completed=done)

    def __enter__(self) -> Waiting:
        self.timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.timer.cancel()
        self.timer.join()
        self.progress.stop()
