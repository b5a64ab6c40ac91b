"""Rows for the tests of shards."""

import numpy as np


def blobs(rows: int, width: int = 4, centres: int = 5, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    means = 2.5 * np.random.default_rng(9).normal(size=(centres, width))
    x = means[generator.integers(0, centres, rows)] + generator.normal(size=(rows, width))
    return x.astype(np.float32)
