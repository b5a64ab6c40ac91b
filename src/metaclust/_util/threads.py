"""One thread for work that is too small to be divided: threads that wait for each other spin on a busy machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch, and the BLAS and OpenMP of NumPy, SciPy and scikit-learn, without helper threads."""
    with one_torch_thread(), threadpool_limits(1):
        yield
