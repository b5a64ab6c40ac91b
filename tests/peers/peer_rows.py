"""Rows for the tests against reports of neighbouring projects."""

import numpy as np
from numpy.typing import NDArray


def categories(count: int, rows: int, seed: int, width: int = 4) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows of Gaussian categories that are far apart, and their categories."""
    generator = np.random.default_rng(seed)
    means = 5 * generator.normal(size=(count, width))
    x = np.repeat(means, rows, 0) + generator.normal(size=(count * rows, width))
    return x.astype(np.float32), np.repeat(np.arange(count), rows)


def blobs(count: int = 3, rows: int = 60, width: int = 2) -> NDArray[np.float64]:
    """Rows of ``count`` groups, one after the other, nine standard deviations apart in each column."""
    parts = [np.random.default_rng(k).normal(9 * k, 1, (rows, width)) for k in range(count)]
    return np.concatenate(parts)
