"""CPU time of a default fit of embeddings, and what of it learning to select takes.

With another version in ``PYTHONPATH``, ``python -m benchmarks default_fit`` measures that one.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.report import Row
from metaclust import MetaClusterer


def rows(short: bool = False) -> list[Row]:
    """Fit unit-length vectors of 50 categories, as embeddings are."""
    categories, each, columns = (12, 12, 16) if short else (50, 180, 384)
    generator = np.random.default_rng(0)
    centres, y = generator.normal(size=(categories, columns)), np.repeat(np.arange(categories), each)
    noise = generator.normal(size=(len(y), columns)) * np.exp(0.3 * generator.normal(size=columns))
    x = 0.55 * centres[y] + noise
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    quick: dict[str, Any] = {"pretrain_steps": 5, "choice_tasks": 10} if short else {}
    seconds = {}
    for name, choose in (("default", "auto"), ("without a selector", "bound")):
        started = time.process_time()
        MetaClusterer(progress=False, **quick).set_params(choose=choose).fit(x, y)
        seconds[name] = time.process_time() - started
    started = time.process_time()
    KMeans(categories, n_init=10, random_state=0).fit(x)
    seconds["KMeans"] = time.process_time() - started
    figures = {
        "default fit, CPU s": seconds["default"],
        "without a selector / default": seconds["without a selector"] / seconds["default"],
        "default / KMeans, ten starts": seconds["default"] / seconds["KMeans"],
    }
    return [Row("Default fit", f"{len(y):,} x {columns}, {categories} categories", figures)]
