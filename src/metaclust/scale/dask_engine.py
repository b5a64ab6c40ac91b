"""The Dask engine: processes on this machine, or a running cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

from metaclust.data.rows import DataError
from metaclust.data.streams import encode_to_file
from metaclust.scale.engines import Engine, in_one_thread

try:
    import dask
    from distributed import Client, LocalCluster, as_completed
except ImportError as missing:
    raise ImportError("engine='dask' needs Dask: pip install 'metaclust[scale]'") from missing

WORKERS = {
    # By default memory is returned to the system at once and allocated again for every block (docs/scaling.md).
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
    "distributed.worker.profile.enabled": False,
}
"""Settings of the worker processes."""


class DaskEngine:
    """Runs functions on Dask workers.

    Parameters
    ----------
    workers : int
        Number of processes on this machine, which run while the context is open.
    address : str, optional
        Address of a running scheduler, whose workers are used instead.
    """

    def __init__(self, workers: int, address: str | None = None) -> None:
        self.wanted, self.address = workers, address
        self.cluster: Any = None
        self.client: Any = None

    @property
    def workers(self) -> int:
        return max(1, sum(self.client.nthreads().values())) if self.address else self.wanted

    def submit(self, function: Callable[..., Any], *values: Any) -> Any:
        # Dask estimates the duration of tasks by their names, to balance the load.
        return self.client.submit(in_one_thread, function, *values, key=f"{function.__name__}-{uuid4().hex}")

    def finished(self, handles: Sequence[Any]) -> Iterator[int]:
        places = {handle.key: place for place, handle in enumerate(handles)}
        for handle in as_completed(list(handles), loop=self.client.loop):
            yield places[handle.key]

    def result(self, handle: Any) -> Any:
        return handle.result()

    def __enter__(self) -> DaskEngine:
        if self.address is None:
            # Starting workers changes the environment of this process.
            self.environment = dict(os.environ)
            with dask.config.set(WORKERS):
                # Reachable from this machine only, on any free port; the size of a shard limits memory.
                self.cluster = LocalCluster(
                    n_workers=self.wanted,
                    threads_per_worker=1,
                    memory_limit=None,
                    dashboard_address="127.0.0.1:0",
                    worker_dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                )
        self.client = Client(self.cluster if self.address is None else self.address, set_as_default=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        if self.cluster is not None:
            self.cluster.close()
            for name in os.environ.keys() - self.environment.keys():
                del os.environ[name]
            os.environ.update(self.environment)


def write_partitions(engine: Engine, collection: Any, folder: Path) -> list[Path]:
    """Let the workers write each partition of a Dask collection to a .npy shard; keep existing files."""
    if not isinstance(engine, DaskEngine):
        raise ValueError("shards is a Dask collection: use engine='dask', or write it to .npy or .parquet files")
    if getattr(collection, "ndim", 2) != 2:
        raise DataError(f"shards has {collection.ndim} dimensions: give rows and columns")
    if hasattr(collection, "rechunk"):
        collection = collection.rechunk({1: -1})
    parts = collection.to_delayed()
    parts = list(parts[:, 0]) if hasattr(parts, "shape") else parts
    paths = [folder / f"part-{place:05d}.npy" for place in range(len(parts))]
    missing = [(part, path) for part, path in zip(parts, paths, strict=True) if not path.is_file()]
    folder.mkdir(parents=True, exist_ok=True)
    futures = engine.client.compute([part for part, _ in missing])
    written = [engine.submit(write_part, future, path) for future, (_, path) in zip(futures, missing, strict=True)]
    for handle in written:
        engine.result(handle)
    return paths


def write_part(values: Any, path: Path) -> None:
    rows = values.to_numpy() if hasattr(values, "to_numpy") else values
    encode_to_file(lambda: [rows], lambda block: block, path)
