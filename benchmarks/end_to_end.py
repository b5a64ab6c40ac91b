"""Clustering all rows of a memory-mapped file: time and peak memory, from ten thousand rows to ten million."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.report import Row, machine, markdown

WIDTH, CLUSTERS, COMPONENTS, PASSES = 10, 20, 50, 10
CODE = """
import json, sys, time, warnings
import numpy as np
from metaclust import InfiniteGaussianMixture
warnings.simplefilter("ignore")

def memory(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1]) / 1e3

path, components, passes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
# Everything is imported and has run once.
InfiniteGaussianMixture(3).fit_predict(np.random.default_rng(0).normal(size=(100, 2)))
before, started = memory("VmRSS"), time.perf_counter()
# As many passes for any number of rows; a smaller tol would ask for products in float64.
mixture = InfiniteGaussianMixture(components, max_iter=passes, tol=1e-6)
labels = mixture.fit_predict(path)
seconds = time.perf_counter() - started
print(json.dumps({"seconds": seconds, "memory": memory("VmHWM") - before, "passes": mixture.n_iter_}))
"""


def rows(short: bool = False) -> list[Row]:
    """At most ten passes from k-means++ seeds and the labels of all rows; each size in a process of its own."""
    sizes = [1000, 3000] if short else [10**4, 10**5, 10**6, 10**7]
    rounds = 1 if short else 3
    with tempfile.TemporaryDirectory() as folder:
        paths = {n: write_rows(Path(folder) / f"{n}.npy", n) for n in sizes}
        found: dict[int, list[dict[str, float]]] = {n: [] for n in sizes}
        for _ in range(rounds):
            for n, path in paths.items():
                found[n].append(run(path))
    seconds = {n: statistics.median(end["seconds"] for end in found[n]) for n in sizes}
    result = []
    for i, n in enumerate(sizes):
        figures = {
            "seconds": seconds[n],
            "passes": statistics.median(end["passes"] for end in found[n]),
            "rows a second": n / seconds[n],
            "peak memory beyond the start, MB": max(end["memory"] for end in found[n]),
            "file, MB": n * WIDTH * 4 / 1e6,
        }
        if i:
            figures["exponent from the size before"] = exponent(seconds, sizes[i - 1], n)
        if n == 10**7:
            figures["exponent from 1e5"] = exponent(seconds, 10**5, n)
        result.append(Row("Clustering a memory-mapped file", f"N = {n:,}, S = {WIDTH}, K' = {COMPONENTS}", figures))
    return result


def exponent(seconds: dict[int, float], small: int, large: int) -> float:
    return math.log(seconds[large] / seconds[small]) / math.log(large / small)


def write_rows(path: Path, n: int) -> Path:
    """Rows around centres, in float32, written in parts."""
    generator = np.random.default_rng(0)
    centres = 2 * generator.normal(size=(CLUSTERS, WIDTH)).astype(np.float32)
    out = np.lib.format.open_memmap(path, "w+", np.float32, (n, WIDTH))
    for first in range(0, n, 1 << 18):
        count = min(1 << 18, n - first)
        noise = generator.standard_normal((count, WIDTH), np.float32)
        out[first : first + count] = centres[generator.integers(0, CLUSTERS, count)] + noise
    out.flush()
    return path


def run(path: Path) -> dict[str, float]:
    command = [sys.executable, "-c", CODE, str(path), str(COMPONENTS), str(PASSES)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    result: dict[str, float] = json.loads(done.stdout)
    return result


if __name__ == "__main__":
    print(markdown(rows(), machine()))
