"""The map: the choice of rows and their positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

SEED = 0
MIN_CLUSTER_ROWS = 20
"""Rows of a cluster that are kept on the map, if there is room."""
MIN_ROWS_FOR_TSNE = 10
TSNE_NAME = "t-SNE"
PCA_NAME = "principal components"


@dataclass(frozen=True)
class Projection:
    """The rows on the map in order, and their positions."""

    rows: NDArray[np.int64]
    points: NDArray[np.float64]
    """(rows, 2), from 0 to 1, with the same scale in both directions."""
    method: str


def project(representations: NDArray[Any], labels: NDArray[np.int64], most: int) -> Projection:
    """Return the map of at most ``most`` rows (or of one row per cluster, if there are more clusters)."""
    rows = sampled(labels, most)
    points, method = positions(representations[rows])
    return Projection(rows, into_unit_square(points), method)


def sampled(labels: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return at most ``most`` rows, sampled from each cluster by its size, with more of small clusters."""
    if len(labels) <= most:
        return np.arange(len(labels))
    sizes = np.bincount(labels)
    kept = np.minimum(sizes, max(1, min(MIN_CLUSTER_ROWS, most // int(np.count_nonzero(sizes)))))
    share = max(0, most - int(kept.sum())) * (sizes - kept) / max(1, int((sizes - kept).sum()))
    quota = kept + np.floor(share).astype(np.int64)
    # The rows lost by rounding go to the largest remainders.
    over = max(0, most - int(quota.sum()))
    quota[np.argsort(np.floor(share) - share, kind="stable")[:over]] += 1
    drawn = [
        np.random.default_rng([SEED, cluster]).choice(np.flatnonzero(labels == cluster), count, replace=False)
        for cluster, count in enumerate(np.minimum(quota, sizes).tolist())
        if count
    ]
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def positions(z: NDArray[Any]) -> tuple[NDArray[np.float64], str]:
    """Return (rows, 2) and the method: t-SNE initialised with the principal components, or those alone."""
    flat = principal_components(z)
    spread = flat.std(0)
    if len(np.unique(z, axis=0)) < MIN_ROWS_FOR_TSNE or spread[1] <= 1e-9 * spread[0]:
        return flat, PCA_NAME
    tsne = TSNE(
        perplexity=min(30.0, (len(z) - 1) / 3),
        init=(flat / spread[0] * 1e-4).astype(np.float32),
        max_iter=600,
        angle=0.65,
        random_state=SEED,
    )
    # Several threads sum in a varying order, and t-SNE amplifies the rounding errors.
    with threadpool_limits(1):
        return tsne.fit_transform(z / spread[0]).astype(np.float64), TSNE_NAME


def principal_components(z: NDArray[Any]) -> NDArray[np.float64]:
    """Return the first two principal components; zeros if there is no second."""
    centred = z.astype(np.float64) - z.mean(0, dtype=np.float64)
    with threadpool_limits(1):
        left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    flat = np.zeros((len(z), 2))
    flat[:, : len(singular)] = left[:, :2] * singular[:2]
    # The sign of a component is arbitrary: the row farthest out gets a positive value.
    farthest = np.abs(flat).argmax(0)
    return flat * np.where(flat[farthest, [0, 1]] < 0, -1.0, 1.0)


def into_unit_square(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift and scale the points into the unit square; a single position goes to the centre."""
    low, high = points.min(0), points.max(0)
    extent = float((high - low).max())
    if extent <= 0:
        return np.full_like(points, 0.5)
    placed: NDArray[np.float64] = (points - (low + high) / 2) / extent + 0.5
    return placed
