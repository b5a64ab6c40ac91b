"""Engines, which run functions on workers, and sums over shards.

Sums are added in a tree that depends on the number of shards alone, so that they are bit for bit the same for any
number of workers. The number of workers only determines how much of the tree one task computes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import add
from types import TracebackType
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch

from metaclust._util.checks import check_count
from metaclust.scale.shards import Shard

FAN = 4
"""Number of sums that are added in one node of the tree."""
MAX_TASK_SHARDS = FAN**2
"""Largest number of shards per task: fewer tasks mean less overhead, but a dead worker's task is repeated."""
MIN_WORKER_TASKS = 4
"""Smallest number of tasks per worker, if there are enough shards, so that all workers are busy to the end."""
ENGINES = ("dask", "local")
AnyEngine = TypeVar("AnyEngine", bound="LocalEngine")


@runtime_checkable
class Engine(Protocol):
    """Runs functions, in this process or on workers. A handle represents the future result of a function."""

    @property
    def workers(self) -> int: ...
    def submit(self, function: Callable[..., Any], *values: Any) -> Any:
        """Return a handle; handles among the values are replaced by their results. Repeat tasks of dead workers."""

    def finished(self, handles: Sequence[Any]) -> Iterator[int]:
        """Yield the index of each handle as soon as its function has returned or failed."""

    def result(self, handle: Any) -> Any:
        """Return the result of the function, or raise its error."""


class LocalEngine:
    """Runs functions in this process with all its threads; the reference for the other engines."""

    workers = 1

    def submit(self, function: Callable[..., Any], *values: Any) -> Any:
        return function(*values)

    def finished(self, handles: Sequence[Any]) -> Iterator[int]:
        yield from range(len(handles))

    def result(self, handle: Any) -> Any:
        return handle

    def __enter__(self: AnyEngine) -> AnyEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def open_engine(name: str, workers: int | None = None, address: str | None = None, security: Any = None) -> Any:
    """Return the engine of a name as a context manager.

    Parameters
    ----------
    name : {"dask", "local"}
        Dask, or this process alone.
    workers : int, optional
        Number of Dask processes on this machine; by default one per core.
    address : str, optional
        Address of a running Dask scheduler, instead of ``workers``.
    security : distributed.Security, optional
        Certificates to connect to ``address`` with; by default those of Dask's configuration.
    """
    if name not in ENGINES:
        raise ValueError(f"engine={name!r}: choose one of {ENGINES}, or give an object with the methods of Engine")
    if workers is not None:
        check_count("workers", workers)
    if name == "local":
        if workers not in (None, 1) or address is not None or security is not None:
            raise ValueError("engine='local' is this process alone: omit workers, address and security, or use 'dask'")
        return LocalEngine()
    if workers is not None and address is not None:
        raise ValueError(f"workers={workers!r}: the cluster at address={address!r} has its own; omit workers")
    from metaclust.scale.dask_engine import DaskEngine

    return DaskEngine(workers or os.cpu_count() or 1, address, security)


def map_add(
    engine: Engine,
    function: Callable[[Any, Shard], Any],
    job: Any,
    shards: Sequence[Shard],
    advance: Callable[[int], object] = lambda rows: None,
) -> Any:
    """Return the sum of ``function(job, shard)`` over the shards; ``job`` is sent to each worker once."""
    size = 1
    while size < MAX_TASK_SHARDS and len(shards) >= FAN * size * MIN_WORKER_TASKS * engine.workers:
        size *= FAN
    groups = [shards[first : first + size] for first in range(0, len(shards), size)]
    shared = engine.submit(identity, job)
    leaves = [engine.submit(subtree, function, shared, group) for group in groups]
    level = leaves
    while len(level) > 1:
        level = [engine.submit(add_all, *level[first : first + FAN]) for first in range(0, len(level), FAN)]
    for place in engine.finished(leaves):
        advance(sum(shard.rows for shard in groups[place]))
    return engine.result(level[0])


def subtree(function: Callable[[Any, Shard], Any], job: Any, shards: Sequence[Shard]) -> Any:
    """Return the sum over some shards, a subtree, with only a few partial sums in memory at a time."""
    if len(shards) == 1:
        return function(job, shards[0])
    size = 1
    while size * FAN < len(shards):
        size *= FAN
    return reduce(add, (subtree(function, job, shards[first : first + size]) for first in range(0, len(shards), size)))


def identity(value: Any) -> Any:
    return value


def add_all(*parts: Any) -> Any:
    return reduce(add, parts)


def in_one_thread(function: Callable[..., Any], *values: Any) -> Any:
    """Call a function in one thread, since the worker processes of a machine share its cores."""
    torch.set_num_threads(1)
    return function(*values)
