"""A fit of the mixture while other processes have the cores: with the default number of threads, and with one.

Threads that wait for each other by spinning cost CPU time where other processes run, many times that of the work. The
two fits alternate beside the same processes, and CPU seconds are compared, which other load changes least.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from benchmarks.report import Row, machine, markdown
from metaclust import InfiniteGaussianMixture

GOAL = 1.5
"""CPU seconds with the default number of threads over those with one."""
COMPONENTS, PASSES = 50, 5
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    pass"
"""A process that computes until the one that started it has ended."""


def rows(short: bool = False) -> list[Row]:
    """N = 1e6, S = 10, K' = 50, with two busy processes beside it."""
    n, rounds = (3000, 1) if short else (10**6, 5)
    generator = np.random.default_rng(0)
    centres = 6 * generator.normal(size=(COMPONENTS, 10))
    x = (centres[generator.integers(0, COMPONENTS, n)] + generator.normal(size=(n, 10))).astype(np.float32)
    threads = max(2, os.cpu_count() or 1)
    found: dict[str, list[tuple[float, float]]] = {"one": [], "default": []}
    with busy_processes(2), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for _ in range(rounds):
            for name, number in (("one", 1), ("default", threads)):
                found[name].append(fit_seconds(x, number))
    medians = {name: [statistics.median(side) for side in zip(*pairs, strict=True)] for name, pairs in found.items()}
    values = {
        "one thread, CPU s": medians["one"][0],
        f"{threads} threads, CPU s": medians["default"][0],
        "CPU, default / one": medians["default"][0] / medians["one"][0],
        "wall, default / one": medians["default"][1] / medians["one"][1],
        "goal of CPU, default / one": GOAL,
    }
    return [Row("Fit beside two busy processes", f"N = {n:,}, S = 10, K' = {COMPONENTS}, {PASSES} passes", values)]


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep the cores busy with processes that compute without end."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]  # noqa: S603
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def fit_seconds(x: NDArray[np.float32], threads: int) -> tuple[float, float]:
    """Return the CPU and the wall-clock seconds of a fit."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        cpu, wall = time.process_time(), time.perf_counter()
        InfiniteGaussianMixture(COMPONENTS, max_iter=PASSES, tol=0).fit(x)
        return time.process_time() - cpu, time.perf_counter() - wall
    finally:
        torch.set_num_threads(before)


if __name__ == "__main__":
    print(markdown(rows(), machine()))
