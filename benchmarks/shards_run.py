"""Cluster a folder of shards and print the times of passes, peak memory and a hash of the labels as JSON.

    python -m benchmarks.shards_run SHARDS ENGINE WORKERS PASSES [--kill "pass 2"] [--kill-driver "pass 5"] [--out OUT]

ENGINE is single (``InfiniteGaussianMixture`` in one process, with two threads), local, dask or ray.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import tempfile
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from metaclust import InfiniteGaussianMixture
from metaclust.data.streams import NpyStream, RowStream
from metaclust.mixture.rows import Progress, StreamRows
from metaclust.scale import cluster_shards, open_engine

COMPONENTS = 50


class Clock:
    """Records when each phase began; kills a worker, or this process, after the first shard of given phases."""

    def __init__(self, kill: list[str], kill_driver: str | None) -> None:
        self.kill, self.kill_driver = set(kill), kill_driver
        self.phases: list[tuple[str, float]] = []

    def phase(self, name: str) -> None:
        self.phases.append((name, time.perf_counter()))

    def advance(self, rows: int) -> None:
        now = self.phases[-1][0]
        if now == self.kill_driver:
            os.kill(os.getpid(), signal.SIGKILL)
        if now in self.kill:
            self.kill.remove(now)
            os.kill(worker_pids()[0], signal.SIGKILL)

    def seconds(self) -> dict[str, float]:
        ends = [*self.phases[1:], ("end", time.perf_counter())]
        return {name: end - begun for (name, begun), (_, end) in zip(self.phases, ends, strict=True)}


class Shards(StreamRows):
    """All shards in this process, one after another, timed by a clock."""

    clock: Clock

    def progress(self, rows: int, wanted: bool) -> AbstractContextManager[Progress | None]:
        return nullcontext(self.clock)


class Chain:
    """The rows of several files, one after another."""

    name = "the shards"

    def __init__(self, paths: list[Path]) -> None:
        self.streams: list[RowStream] = [NpyStream(path) for path in paths]

    def count(self) -> int | None:
        return sum(stream.count() or 0 for stream in self.streams)

    def arrays(self) -> Any:
        for stream in self.streams:
            yield from stream.arrays()


def worker_pids() -> list[int]:
    """Processes that this one has started and that have imported torch."""
    return [child.pid for child in psutil.Process().children(recursive=True) if "libtorch_cpu" in maps_of(child.pid)]


def maps_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    except OSError:
        return ""


def peak(pid: int | str = "self") -> float:
    """Return the peak resident memory of a process, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1e3


def mixture_of(passes: int) -> InfiniteGaussianMixture:
    # As many passes for any rows; a smaller tol would ask for products in float64.
    return InfiniteGaussianMixture(COMPONENTS, max_iter=passes, tol=1e-6)


def single(folder: Path, passes: int, clock: Clock) -> dict[str, Any]:
    stream = Chain(sorted(folder.glob("*.npy")))
    rows = Shards(stream)
    object.__setattr__(rows, "clock", clock)
    clock.phase("survey")
    mixture = mixture_of(passes).fit(rows)
    clock.phase("labels")
    memory = peak()
    labels = mixture.predict(stream)
    clock.phase("after")
    return {"bound": mixture.lower_bound_, "labels": digest([labels]), "driver, MB": memory, "workers, MB": []}


def on_engine(options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    mixture, started = mixture_of(options.passes), time.perf_counter()
    if options.engine == "ray":
        from benchmarks.ray_engine import RayEngine

        opened: Any = RayEngine(options.workers)
    else:
        opened = open_engine(options.engine, None if options.engine == "local" else options.workers)
    with opened as engine, tempfile.TemporaryDirectory() as place:
        ready = time.perf_counter()
        # Every worker imports the package now, so that passes are timed without it.
        for handle in [engine.submit(imported) for _ in range(2 * options.workers)]:
            engine.result(handle)
        warm = time.perf_counter()
        out = options.out or Path(place) / "labels"
        result = cluster_shards(
            mixture, options.shards, out, engine=engine, report=clock, resume=options.out is not None
        )
        clock.phase("after")
        parts = (part.to_numpy() for part in each_part(result.folder))
        return {
            "bound": result.bound,
            "labels": digest(parts),
            "start, s": ready - started,
            "imports, s": warm - ready,
            "driver, MB": peak(),
            "workers, MB": [peak(pid) for pid in worker_pids()],
            "processes": len(psutil.Process().children(recursive=True)),
        }


def imported() -> None:
    import metaclust.scale.tasks

    time.sleep(0.5)
    assert metaclust.scale.tasks is not None


def each_part(folder: Path) -> Any:
    import polars as pl

    for path in sorted(folder.glob("*.parquet")):
        yield pl.read_parquet(path, columns=["cluster"]).to_series()


def digest(parts: Any) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(np.ascontiguousarray(part, np.int64).tobytes())
    return found.hexdigest()[:16]


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", type=Path)
    parser.add_argument("engine", choices=["single", "local", "dask", "ray"])
    parser.add_argument("workers", type=int)
    parser.add_argument("passes", type=int)
    parser.add_argument("--kill", nargs="*", default=[])
    parser.add_argument("--kill-driver")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    # Import everything and run it once.
    mixture_of(2).fit(np.random.default_rng(0).normal(size=(100, 2)))
    clock, started = Clock(options.kill, options.kill_driver), time.perf_counter()
    found = single(options.shards, options.passes, clock) if options.engine == "single" else on_engine(options, clock)
    print(json.dumps({**found, "seconds": time.perf_counter() - started, "phases": clock.seconds()}))


if __name__ == "__main__":
    main()
