"""Where block-wise inference starts: seeds among a sample of the rows, and how wide clusters around them are."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.metrics import pairwise_distances_argmin_min

Init = Literal["kmeans++", "kmeans", "random"]
ROUNDS = 10
"""Of k-means, for "kmeans"."""
LEAST_VARIANCE = 1e-3
"""Of the rows around their seeds, where that of all rows is one."""


def seeds(
    z: NDArray[np.float64], weights: NDArray[np.float64], number: int, init: Init, seed: int
) -> NDArray[np.float64]:
    """(number, S) means among different rows, or all of these. A row of weight two is drawn like two rows."""
    number = min(number, len(z))
    if init == "random":
        # The largest of u^(1 / weight): without replacement, in proportion to the weights.
        keys = np.log(np.random.default_rng(seed).random(len(z))) / weights
        means = z[np.argsort(-keys)[:number]]
    else:
        means, _ = kmeans_plusplus(z, number, sample_weight=weights, random_state=seed)
    if init == "kmeans":
        rounds = KMeans(number, init=means, n_init=1, max_iter=ROUNDS, tol=0)
        means = rounds.fit(z, sample_weight=weights).cluster_centers_
    return np.asarray(means, np.float64)


def precision_around(z: NDArray[np.float64], weights: NDArray[np.float64], means: NDArray[np.float64]) -> float:
    """The precision of rows of unit variance around the nearest of the means."""
    _, distance = pairwise_distances_argmin_min(z, means)
    within: float = float(np.average(np.square(distance), weights=weights)) / z.shape[1]
    # As many means as rows leave nothing within; a precision that high would tell nothing from another.
    return 1.0 / max(within, LEAST_VARIANCE)
