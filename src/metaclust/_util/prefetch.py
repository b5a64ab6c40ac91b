"""Things that are needed one after another, the next one made in the background while the present one is used."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Ahead(Generic[Made]):
    """``make(step)`` for one step after another, up to ``last``; at most one is made beyond what was taken.

    >>> with Ahead(lambda step: step * step, last=3) as squares:
    ...     squares.take(0), squares.take(1), squares.take(2)
    (0, 1, 4)
    """

    def __init__(self, make: Callable[[int], Made], last: int) -> None:
        self.make, self.last = make, last
        self.next: tuple[int, Future[Made]] | None = None

    def take(self, step: int) -> Made:
        """What ``make`` gives for the step; what it raised is raised here."""
        made = self.next[1].result() if self.next is not None and self.next[0] == step else self.make(step)
        self.next = (step + 1, self.pool.submit(self.make, step + 1)) if step + 1 < self.last else None
        return made

    def __enter__(self) -> Ahead[Made]:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pool.shutdown(cancel_futures=True)
