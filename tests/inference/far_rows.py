"""Rows of categories that lie far apart, for models that are trained in seconds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH = 6
QUICK: dict[str, Any] = {"pretrain_steps": 30, "encoder": "residual", "progress": False}


def made(categories: int, rows: int, seed: int, start: int = 0) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Rows of far-apart categories; the same category has the same mean for every seed."""
    means = 6 * np.random.default_rng(7).normal(size=(200, WIDTH))
    index = np.repeat(np.arange(start, start + categories), rows)
    noise = np.random.default_rng(seed).normal(size=(len(index), WIDTH))
    return (means[index] + noise).astype(np.float32), np.array([f"c{i}" for i in index])
