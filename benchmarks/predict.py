"""CPU time of ``MetaClusterer.cluster``: candidates from trees, against every number of clusters by the bound."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.report import Row
from metaclust import MetaClusterer
from metaclust.data.rows import DataWarning


def rows(short: bool = False) -> list[Row]:
    """Cluster unit-length vectors of 40 groups, as embeddings are, with at most 100 clusters and without a limit."""
    count, columns, known = (400, 16, 12) if short else (5000, 384, 40)
    generator = np.random.default_rng(0)

    def vectors(groups: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        y = generator.integers(groups, size=number)
        x = generator.normal(size=(groups, columns))[y] + 1.5 * generator.normal(size=(number, columns))
        return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y

    model = MetaClusterer(encoder="residual", pretrain_steps=20, steps=0, choice_tasks=30, progress=False)
    model.fit(*vectors(known, known * 30))
    pile, _ = vectors(40, count)
    seconds = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        for name, choose, limit in (("auto", "auto", "auto"), ("bound", "bound", 20 if short else 100)):
            started = time.process_time()
            model.set_params(choose=choose).cluster(pile, max_clusters=limit)
            seconds[name] = time.process_time() - started
    started = time.process_time()
    KMeans(40, n_init=10, random_state=0).fit(model.transform(pile))
    seconds["KMeans"] = time.process_time() - started
    figures = {
        "auto, CPU s": seconds["auto"],
        "every number up to 100, by the bound, CPU s": seconds["bound"],
        "auto / by the bound": seconds["auto"] / seconds["bound"],
        "auto / KMeans, ten starts": seconds["auto"] / seconds["KMeans"],
    }
    return [Row("Clustering", f"N = {count:,}, {columns} columns", figures)]
