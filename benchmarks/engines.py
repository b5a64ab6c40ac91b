"""Dask, with TLS and without, and Ray side by side: installed size, start-up, a pass over shards, a killed worker."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import metadata, util
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cloudpickle
import torch
from distributed import Security

from benchmarks.measure import interleaved
from benchmarks.report import Row, machine, markdown
from benchmarks.shards import WIDTH, write_shards
from benchmarks.shards_run import COMPONENTS, Chain, imported, worker_pids
from metaclust.mixture.blocks import BlockSums, Map
from metaclust.mixture.families import FAMILIES, component_family
from metaclust.mixture.rows import StreamRows
from metaclust.mixture.streaming import BlockMixture, Passes
from metaclust.scale import DaskEngine, open_engine
from metaclust.scale.rows import ShardRows
from metaclust.scale.shards import Numbers
from metaclust.scale.tasks import ShardSums, SumsJob

WORKERS = 2
PLAIN = "dask without TLS"
PACKAGES = {"dask": ("distributed", "cryptography"), PLAIN: ("distributed",), "ray": ("ray",)}


def rows(short: bool = False) -> list[Row]:
    """Compare passes with those of one process with two threads over the same shards."""
    n, shard, rounds = (20_000, 1000, 1) if short else (10**7, 250_000, 15)
    names = ["dask", PLAIN, *(["ray"] if util.find_spec("ray") else [])]
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = write_shards(Path(place) / "shards", n, shard)
        values: dict[str, dict[str, float]] = {}
        calls: dict[str, Callable[[int], object]] = {"one process": one_pass(stream_passes(folder))}
        small: dict[str, Callable[[int], object]] = {}
        engines = {}
        for name in names:
            started = time.perf_counter()
            engine = engines[name] = stack.enter_context(opened(name))
            ready = time.perf_counter()
            for handle in [engine.submit(imported) for _ in range(2 * WORKERS)]:
                engine.result(handle)
            values[name] = {
                "installed, MB": sum(installed(package) for package in PACKAGES[name]),
                "start, s": ready - started,
                "first tasks, s": time.perf_counter() - ready,
            }
            calls[name] = one_pass(shard_passes(engine, folder))
            small[name] = one_pass(shard_passes(engine, write_shards(Path(place) / name, 40, 1)))
        threads = torch.get_num_threads()
        seconds = interleaved(calls, rounds)
        overhead = interleaved(small, rounds)
        for name in names:
            values[name] |= {
                "seconds a pass": seconds[name],
                "pass / one process": seconds[name] / seconds["one process"],
                "of 40 shards of a row": overhead[name],
                "seconds a pass, a worker killed": killed_pass(shard_passes(engines[name], folder)),
            }
        passes: Any = shard_passes(engines[names[0]], folder)
        weights = torch.zeros((COMPONENTS, WIDTH + 2), dtype=torch.float64)
        moved = {
            "weights to a worker, bytes": pickled(
                SumsJob(
                    passes.rows.reader, WIDTH, passes.mixture.family, passes.mixture.transform, weights, torch.float32
                )
            ),
            "sums of a task, bytes": pickled(ShardSums(BlockSums(weights, weights.sum()), 1)),
        }
        alone = Row("Engines", f"one process, {threads} threads", {"seconds a pass": seconds["one process"]})
    engine_rows = [Row("Engines", f"{name}, {WORKERS} workers", values[name]) for name in names]
    return [alone, *engine_rows, Row("Bytes of a pass", f"S = {WIDTH}, K' = {COMPONENTS}", moved)]


def pickled(value: Any) -> float:
    return float(len(cloudpickle.dumps(value)))


def opened(name: str) -> Any:
    if name == "ray":
        from benchmarks.ray_engine import RayEngine

        return RayEngine(WORKERS)
    return PlainDaskEngine(WORKERS) if name == PLAIN else open_engine(name, WORKERS)


class PlainDaskEngine(DaskEngine):
    """The Dask engine without TLS, to measure what TLS costs."""

    def __enter__(self) -> DaskEngine:
        plain = Security(require_encryption=False)
        with patch("metaclust.scale.dask_engine.temporary_certificates", lambda: plain):
            return super().__enter__()


def mixture() -> BlockMixture:
    family = component_family("spherical", "optimal", FAMILIES["spherical"].default_prior(WIDTH))
    centring = Map(torch.zeros(WIDTH), torch.full((), 0.4, dtype=torch.float64))
    return BlockMixture(family, centring, torch.ones((), dtype=torch.float64))


def stream_passes(folder: Path) -> Passes:
    return StreamRows(Chain(sorted(folder.glob("*.npy")))).passes(mixture(), WIDTH, None)


def shard_passes(engine: Any, folder: Path) -> Passes:
    found = ShardRows(engine, Numbers(), "the shards")
    found.open(sorted(folder.glob("*.npy")))
    return found.passes(mixture(), WIDTH, None)


def one_pass(passes: Passes) -> Callable[[int], object]:
    """Return a call that computes the sums over all rows, with products in float32."""
    weights = 0.1 * torch.randn((COMPONENTS, WIDTH + 2), dtype=torch.float64, generator=torch.manual_seed(0))

    def call(place: int) -> object:
        return next(passes.batches(COMPONENTS))(weights, torch.ones_like(weights))

    return call


def killed_pass(passes: Any) -> float:
    """Return the seconds of a pass in which a worker is killed after its first task; its sums must be the same."""
    expected: Any = one_pass(passes)(0)

    class Killer:
        done = False

        def phase(self, name: str) -> None:
            pass

        def advance(self, rows: int) -> None:
            if not self.done:
                self.done = True
                os.kill(workers[0], signal.SIGKILL)

    workers = of_engine(passes.rows.engine)
    passes.rows.report = Killer()
    started = time.perf_counter()
    found: Any = one_pass(passes)(0)
    seconds = time.perf_counter() - started
    assert torch.equal(found[0].features, expected[0].features)
    return seconds


def of_engine(engine: Any) -> list[int]:
    """Return the worker processes of an engine."""
    pids: set[int] = {engine.result(engine.submit(process)) for _ in range(20)}
    return [pid for pid in worker_pids() if pid in pids]


def process() -> int:
    return os.getpid()


def installed(name: str) -> float:
    """Return the size, in MB, of a package and of those of its requirements that metaclust does not have."""
    found = needs(name) - needs("metaclust")
    files = [file.locate() for each in found for file in metadata.distribution(each).files or ()]
    return sum(Path(str(file)).stat().st_size for file in files if Path(str(file)).is_file()) / 1e6


def needs(name: str) -> set[str]:
    """Return a package and its requirements, without extras."""
    found: set[str] = set()
    left = [name]
    while left:
        one = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if one in found or not is_installed(one):
            continue
        found.add(one)
        wanted = [need for need in metadata.requires(one) or () if "extra ==" not in need]
        left += [re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in wanted]
    return found


def is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    print(markdown(rows(), machine()))
