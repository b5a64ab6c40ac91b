"""The Dask engine: processes on this machine, or a running cluster.

Whoever can talk to a Dask scheduler or worker can run code in it. So the processes that are started here listen on this
machine only, talk through TLS with certificates that exist for one run, and serve no web pages.
"""

from __future__ import annotations

import copy
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from metaclust.data.rows import DataError
from metaclust.data.streams import encode_to_file
from metaclust.scale.engines import Engine, in_one_thread

try:
    import dask
    from distributed import Client, LocalCluster, Security, as_completed
except ImportError as missing:
    raise ImportError("engine='dask' needs Dask: pip install 'metaclust[scale]'") from missing

SETTINGS: dict[str, Any] = {
    # By default memory is returned to the system at once and allocated again for every block (docs/scaling.md).
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
    "distributed.worker.profile.enabled": False,
    # Each process starts a web server, dashboard or not: without routes it has no pages.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Settings of the processes that are started here."""
LOOPBACK = "127.0.0.1"


class DaskEngine:
    """Runs functions on Dask workers.

    Parameters
    ----------
    workers : int
        Number of processes on this machine, which run while the context is open.
    address : str, optional
        Address of a running scheduler, whose workers are used instead.
    security : distributed.Security, optional
        Certificates to connect to ``address`` with; by default those of Dask's configuration.
    """

    def __init__(self, workers: int = 1, address: str | None = None, security: Any = None) -> None:
        if security is not None and address is None:
            raise ValueError("security applies to a cluster of your own: give its address, or omit security")
        if security is not None and not isinstance(security, Security):
            raise TypeError(f"security is {type(security).__name__}: give a distributed.Security")
        self.wanted, self.address, self.security = workers, address, security
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
        if self.address is not None:
            warn_if_open(self.address)
            self.client = Client(self.address, security=self.security, set_as_default=False)
            return self
        security = temporary_certificates()
        # Starting workers changes the environment of this process.
        self.environment = dict(os.environ)
        # Dask's own folder in /tmp has the same name for everybody: another user may have made it, with links in it.
        self.scratch = tempfile.TemporaryDirectory(prefix="metaclust-workers-", ignore_cleanup_errors=True)
        with dask.config.set(SETTINGS):
            # Reachable from this machine only, on any free port; the size of a shard limits memory.
            self.cluster = LocalCluster(
                n_workers=self.wanted,
                threads_per_worker=1,
                memory_limit=None,
                host=LOOPBACK,
                security=security,
                # Without an address, the scheduler's web server takes port 8787.
                scheduler_kwargs={"dashboard": False, "dashboard_address": f"{LOOPBACK}:0"},
                dashboard_address=None,
                worker_dashboard_address=None,
                local_directory=self.scratch.name,
                # A copy, which workers that replace dead ones get, too.
                config=copy.deepcopy(dask.config.config),
                silence_logs=logging.CRITICAL,
            )
        self.client = Client(self.cluster, set_as_default=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        if self.cluster is not None:
            self.cluster.close()
            self.scratch.cleanup()
            for name in os.environ.keys() - self.environment.keys():
                del os.environ[name]
            os.environ.update(self.environment)


def temporary_certificates() -> Any:
    """Return certificates for one run, which are kept in memory."""
    try:
        return Security.temporary()
    except ImportError as missing:
        raise ImportError(
            "engine='dask' encrypts what its processes exchange, which needs cryptography: pip install "
            "'metaclust[scale]', or use engine='local'"
        ) from missing


def warn_if_open(address: str) -> None:
    """Warn that what is sent to a scheduler on another machine is not encrypted."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    if parts.scheme in ("tcp", "ws") and parts.hostname not in (LOOPBACK, "localhost", "::1"):
        warnings.warn(
            f"address={address!r} is without TLS: everybody who can reach that cluster can run code on it, and it can "
            "run code here. Start it with certificates and give tls://...; see docs/security.md",
            stacklevel=3,
        )


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
