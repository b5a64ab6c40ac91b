"""Prefetching: the next value is computed in a background thread while the current one is used."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Prefetcher(Generic[Value]):
    """Computes ``make(step)`` for successive steps below ``stop``, one step in advance.

    >>> with Prefetcher(lambda step: step * step, stop=3) as squares:
    ...     squares.take(0), squares.take(1), squares.take(2)
    (0, 1, 4)
    """

    def __init__(self, make: Callable[[int], Value], stop: int) -> None:
        self.make, self.stop = make, stop
        self.next: tuple[int, Future[Value]] | None = None

    def take(self, step: int) -> Value:
        """Return ``make(step)``; an error that it raised is raised here."""
        value = self.next[1].result() if self.next is not None and self.next[0] == step else self.make(step)
        self.next = (step + 1, self.pool.submit(self.make, step + 1)) if step + 1 < self.stop else None
        return value

    def __enter__(self) -> Prefetcher[Value]:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pool.shutdown(cancel_futures=True)
