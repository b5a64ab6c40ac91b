"""Blocks of rows in several threads, each block in one: no thread ever waits for another within a block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

W = TypeVar("W")
T = TypeVar("T")


def over_blocks(make: Callable[[], W], what: Callable[..., T], blocks: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """``what(worker, *block)`` of each block, in order; each thread of torch has a worker of its own.

    Threads within operations wait for each other at the end of each of them, which on a machine that is busy with
    something else takes many times as long as the operation. And what a block gives, and so the result, is the same
    to the last bit for any number of threads.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        worker = make()
        for block in blocks:
            yield what(worker, *block)
        return
    workers: SimpleQueue[W] = SimpleQueue()
    for _ in range(threads):
        workers.put(make())

    def one(block: tuple[Any, ...]) -> T:
        worker = workers.get()
        try:
            return what(worker, *block)
        finally:
            workers.put(worker)

    pending: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for block in blocks:
                pending.append(pool.submit(one, block))
                # Few blocks at a time: rows may come from a file that is larger than memory.
                if len(pending) > 2 * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
            # What a thread sets holds for itself and for threads that start later: those are to have all again.
            torch.set_num_threads(threads)
