"""One thread for work that is too small to be divided: threads that wait for each other spin on a busy machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run torch's operations of this thread without helper threads.

    The threads of an operation wait for each other at its end, and OpenMP's wait by spinning: where other processes
    have the cores, that takes many times as long as the operation. Sums are also the same for any number of threads.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Limits:
    """One thread for BLAS and OpenMP, which is a setting of the process: the last of several users resets it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limits: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._users == 0:
                self._limits = threadpool_limits(1)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._limits.restore_original_limits()


_limits = _Limits()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch, and the BLAS and OpenMP of NumPy, SciPy and scikit-learn, without helper threads."""
    with one_torch_thread(), _limits():
        yield
