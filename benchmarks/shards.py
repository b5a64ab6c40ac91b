"""Clustering shards on 1, 2 and 4 workers, also with workers and drivers killed: labels, bound, time, memory."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Row, machine, markdown

WIDTH, CLUSTERS, PASSES = 10, 20, 6


def rows(short: bool = False) -> list[Row]:
    """Compare with one process over the same shards; each run has its own processes."""
    sizes, shard = ([4000, 8000], 1000) if short else ([10**6, 10**7], 250_000)
    result = []
    with tempfile.TemporaryDirectory() as place:
        for n in sizes:
            folder = write_shards(Path(place) / str(n), n, shard)
            expected = run(folder, "single", 1)
            result.append(row(f"N = {n:,}, one process", expected, expected))
            for workers in (2,) if short else (1, 2, 4):
                found = run(folder, "dask", workers)
                result.append(row(f"N = {n:,}, {workers} workers", found, expected))
        kills = ["pass 2"] if short else ["pass 2", "pass 4", "pass 6"]
        found = run(folder, "dask", 2, "--kill", *kills)
        result.append(row(f"N = {n:,}, 2 workers, one killed in {len(kills)} passes", found, expected))
        out = ["--out", str(Path(place) / "labels")]
        run(folder, "dask", 2, "--kill-driver", "pass 4", *out)
        found = run(folder, "dask", 2, *out)
        result.append(row(f"N = {n:,}, driver killed in pass 4, then resumed", found, expected))
    return result


def write_shards(folder: Path, n: int, rows: int) -> Path:
    """Write rows around centres, in float32."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    centres = 2 * generator.normal(size=(CLUSTERS, WIDTH)).astype(np.float32)
    for place in range(n // rows):
        noise = generator.standard_normal((rows, WIDTH), np.float32)
        np.save(folder / f"{place:05d}.npy", centres[generator.integers(0, CLUSTERS, rows)] + noise)
    return folder


def run(folder: Path, engine: str, workers: int, *options: str) -> dict[str, Any]:
    """Return what :mod:`benchmarks.shards_run` prints; nothing where the driver is killed."""
    command = [sys.executable, "-m", "benchmarks.shards_run", str(folder), engine, str(workers), str(PASSES), *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    if "--kill-driver" in options:
        assert done.returncode == -signal.SIGKILL, done.stderr
        return {}
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(" ".join(command[2:]), json.dumps(result), file=sys.stderr, flush=True)
    return result


def row(setting: str, found: dict[str, Any], expected: dict[str, Any]) -> Row:
    passes = [seconds for name, seconds in found["phases"].items() if name.startswith("pass ")]
    values = {
        "labels are equal": float(found["labels"] == expected["labels"]),
        "bound, relative difference": abs(found["bound"] / expected["bound"] - 1),
        "passes": float(len(passes)),
        "seconds a pass": float(np.median(passes)),
        "driver, MB": found["driver, MB"],
    }
    if found["workers, MB"]:
        values["largest worker, MB"] = max(found["workers, MB"])
    return Row("Shards on Dask", setting, values)


if __name__ == "__main__":
    print(markdown(rows(), machine()))
