"""Blocks of rows in several threads, each block in one thread, so that none waits for another within a block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

W = TypeVar("W")
T = TypeVar("T")


def over_blocks(make: Callable[[], W], function: Callable[..., T], blocks: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """Yield ``function(worker, *block)`` of each block, in order; each of torch's threads has its own worker.

    Threads within an operation wait for each other at its end, which on a busy machine takes many times as long as the
    operation itself. With whole blocks in threads, the result is also the same to the last bit for any number of them.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        worker = make()
        for block in blocks:
            yield function(worker, *block)
        return
    workers: SimpleQueue[W] = SimpleQueue()
    for _ in range(threads):
        workers.put(make())

    def one(block: tuple[Any, ...]) -> T:
        worker = workers.get()
        try:
            return function(worker, *block)
        finally:
            workers.put(worker)

    pending: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for block in blocks:
                pending.append(pool.submit(one, block))
                # Only a few blocks at a time: rows may come from a file that is larger than memory.
                if len(pending) > 2 * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
            # The number that a thread sets applies to itself and to threads started later: reset it for those.
            torch.set_num_threads(threads)
