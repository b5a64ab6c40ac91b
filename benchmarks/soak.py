"""Memory over thousands of calls in one process: assigning small batches, fitting mixtures and clustering."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Row, machine, markdown
from metaclust import InfiniteGaussianMixture, MetaClusterer

WIDTH = 8
PARTS = (10, 50, 100)
"""The percentages of the calls after which memory is measured; what comes before the first is warm-up."""
CALLS = {"assign": 10_000, "fit": 1_000, "cluster": 1_000}
SHORT = {"assign": 200, "fit": 40, "cluster": 20}
CODE = "import json; from benchmarks.soak import WORK, soak; print(json.dumps(soak(WORK[{name!r}](), {calls})))"


def soak(call: Callable[[int], object], calls: int) -> dict[str, float]:
    """Return the resident memory and that of Python's objects after 10, 50 and 100 percent of the calls.

    The argument of a call is its number. Resident memory includes everything, and also what the allocator keeps. Traced
    memory is that of Python and NumPy, but not of torch; it starts at zero, so it grows until what was there before the
    first call, such as caches, has been replaced. Objects are those that Python's garbage collector knows.
    """
    marks = {max(1, calls * part // 100): part for part in PARTS}
    figures: dict[str, float] = {"calls": calls}
    tracemalloc.start()
    started = time.perf_counter()
    try:
        for i in range(calls):
            call(i)
            if i + 1 in marks:
                gc.collect()
                figures[f"resident at {marks[i + 1]}%, MB"] = resident()
                figures[f"traced at {marks[i + 1]}%, kB"] = tracemalloc.get_traced_memory()[0] / 1e3
                figures[f"objects at {marks[i + 1]}%"] = len(gc.get_objects())
    finally:
        tracemalloc.stop()
    figures["resident, 100% / 10%"] = figures["resident at 100%, MB"] / figures["resident at 10%, MB"]
    traced = figures["traced at 100%, kB"] - figures["traced at 10%, kB"]
    figures["traced beyond 10%, bytes a call"] = 1e3 * traced / (calls - min(marks))
    figures["objects beyond 10%"] = figures["objects at 100%"] - figures["objects at 10%"]
    figures["ms a call, traced"] = 1e3 * (time.perf_counter() - started) / calls
    return figures


def resident() -> float:
    """Return the resident memory of this process in MB; on Linux."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1e3


def batch(i: int, most: int) -> NDArray[np.float32]:
    """At most ``most`` rows of four groups; another number of them in each call, since caches may depend on it."""
    generator = np.random.default_rng(i)
    rows = int(generator.integers(most // 4, most + 1))
    groups = 6 * np.random.default_rng(0).normal(size=(4, WIDTH))[generator.integers(0, 4, rows)]
    return (groups + generator.normal(size=(rows, WIDTH))).astype(np.float32)


def trained() -> MetaClusterer:
    """Return a model that was hardly trained: memory does not depend on how well it clusters."""
    y = np.repeat(np.arange(8), 10)
    x = 6 * np.random.default_rng(1).normal(size=(8, WIDTH))[y] + np.random.default_rng(2).normal(size=(80, WIDTH))
    settings: dict[str, Any] = {"encoder": "network", "choose": "bound", "validation": 0.0, "device": "cpu"}
    return MetaClusterer(**settings, pretrain_steps=5, steps=2, progress=False).fit(x, y)


def assigning() -> Callable[[int], object]:
    clustering = trained().cluster(batch(0, 200))
    return lambda i: clustering.assign(batch(i, 16))


def fitting() -> Callable[[int], object]:
    warnings.simplefilter("ignore")
    return lambda i: InfiniteGaussianMixture(10, seed=i).fit(batch(i, 200))


def clustering() -> Callable[[int], object]:
    warnings.simplefilter("ignore")
    model = trained()
    return lambda i: model.cluster(batch(i, 60))


WORK = {"assign": assigning, "fit": fitting, "cluster": clustering}
NAMES = {
    "assign": "Clustering.assign, 4 to 16 rows",
    "fit": "InfiniteGaussianMixture.fit, 50 to 200 rows",
    "cluster": "MetaClusterer.cluster, 15 to 60 rows",
}


def rows(short: bool = False) -> list[Row]:
    """Return the memory of each kind of call, in a process of its own."""
    return [Row("Memory over many calls", NAMES[name], run(name, (SHORT if short else CALLS)[name])) for name in WORK]


def run(name: str, calls: int) -> dict[str, float]:
    code = CODE.format(name=name, calls=calls)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)  # noqa: S603
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    print(markdown(rows(), machine()))
