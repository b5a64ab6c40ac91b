"""CPU time of adding rows to a clustering, by how many rows it has already."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.report import Row
from metaclust import MetaClusterer


def rows(short: bool = False) -> list[Row]:
    """Add the same rows to clusters of few and of many rows."""
    categories, columns = (12, 16) if short else (40, 64)
    few, many, further, times = (60, 240, 30, 1) if short else (1_000, 30_000, 200, 5)
    generator = np.random.default_rng(0)
    centres = 2 * generator.normal(size=(categories + 10, columns))

    def drawn(count: int, known: bool = False) -> tuple[Any, Any]:
        y = generator.integers(categories, size=count) if known else categories + generator.integers(10, size=count)
        return (centres[y] + generator.normal(size=(count, columns))).astype(np.float32), y

    quick: dict[str, Any] = {"pretrain_steps": 5, "choice_tasks": 10} if short else {"choice_tasks": 100}
    model = MetaClusterer(progress=False, encoder="residual", **quick).fit(*drawn(40 * categories, known=True))
    more, _ = drawn(further)
    seconds = {}
    for count in (few, many):
        clusters = model.cluster(drawn(count)[0])
        clusters.update(more)
        started = time.process_time()
        for _ in range(times):
            clusters.update(more)
        seconds[count] = (time.process_time() - started) / times
    figures = {
        f"update of {few:,} rows, CPU s": seconds[few],
        f"{many:,} rows / {few:,} rows": seconds[many] / seconds[few],
    }
    return [Row("Update", f"{further:,} further rows, {columns} columns", figures)]
