"""What an engine has to do: run functions on workers, and say when they are done. Sums are added in a tree.

The tree follows from the number of shards alone, so any number of workers gives the same sums to the last bit; only
how much of it one task does depends on them.
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
"""How many sums are added in one place."""
MOST = FAN**2
"""Shards of a task: few tasks cost little, but what a dead worker did is done again."""
TASKS = 4
"""For each worker, at least so many, if there are as many shards: so that all are busy to the end."""
ENGINES = ("dask", "local")
AnyEngine = TypeVar("AnyEngine", bound="LocalEngine")


@runtime_checkable
class Engine(Protocol):
    """Runs functions, here or on other machines. A handle stands for what a function will have given."""

    @property
    def workers(self) -> int: ...
    def submit(self, function: Callable[..., Any], *values: Any) -> Any:
        """A handle; handles among the values stand for what they will be. What a dead worker did is done again."""

    def finished(self, handles: Sequence[Any]) -> Iterator[int]:
        """The places of the handles, each as soon as its function has ended, well or not."""

    def result(self, handle: Any) -> Any:
        """What the function gave; what it raised is raised here."""


class LocalEngine:
    """This process, with all its threads: what the others must agree with."""

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


def open_engine(name: str, workers: int | None = None, address: str | None = None) -> Any:
    """The engine of that name, to be entered and left."""
    if name not in ENGINES:
        raise ValueError(f"engine={name!r}: choose one of {ENGINES}, or give an object with the methods of Engine")
    if workers is not None:
        check_count("workers", workers)
    if name == "local":
        if workers not in (None, 1) or address is not None:
            raise ValueError("engine='local' is this process alone: leave workers and address out, or use 'dask'")
        return LocalEngine()
    if workers is not None and address is not None:
        raise ValueError(f"workers={workers!r}: the cluster at address={address!r} has its own; leave workers out")
    from metaclust.scale.dask_engine import DaskEngine

    return DaskEngine(workers or os.cpu_count() or 1, address)


def map_add(
    engine: Engine,
    function: Callable[[Any, Shard], Any],
    job: Any,
    shards: Sequence[Shard],
    advance: Callable[[int], object] = lambda rows: None,
) -> Any:
    """The sum of ``function(job, shard)`` over the shards; ``job`` goes to each worker once."""
    size = 1
    while size < MOST and len(shards) >= FAN * size * TASKS * engine.workers:
        size *= FAN
    groups = [shards[first : first + size] for first in range(0, len(shards), size)]
    shared = engine.submit(same, job)
    leaves = [engine.submit(subtree, function, shared, group) for group in groups]
    level = leaves
    while len(level) > 1:
        level = [engine.submit(added, *level[first : first + FAN]) for first in range(0, len(level), FAN)]
    for place in engine.finished(leaves):
        advance(sum(shard.rows for shard in groups[place]))
    return engine.result(level[0])


def subtree(function: Callable[[Any, Shard], Any], job: Any, shards: Sequence[Shard]) -> Any:
    """The part of the tree that is above some shards; few parts are there at a time."""
    if len(shards) == 1:
        return function(job, shards[0])
    size = 1
    while size * FAN < len(shards):
        size *= FAN
    return reduce(add, (subtree(function, job, shards[first : first + size]) for first in range(0, len(shards), size)))


def same(value: Any) -> Any:
    return value


def added(*parts: Any) -> Any:
    return reduce(add, parts)


def in_one_thread(function: Callable[..., Any], *values: Any) -> Any:
    """A worker's processes share its cores: each computes in one thread."""
    torch.set_num_threads(1)
    return function(*values)
