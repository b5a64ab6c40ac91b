"""The map: which rows are on it, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

SEED = 0
FEWEST = 20
"""Rows that a cluster keeps when the map is thinned, if it has as many and there is room."""
FEWEST_FOR_TSNE = 10
TSNE_NAME = "t-SNE"
PCA_NAME = "principal components"


@dataclass(frozen=True)
class Projection:
    """The rows on the map, in their order, and the place of each."""

    rows: NDArray[np.int64]
    points: NDArray[np.float64]
    """(rows, 2), from 0 to 1; one unit is as long in both directions."""
    method: str


def project(representations: NDArray[Any], labels: NDArray[np.int64], most: int) -> Projection:
    """The map of at most ``most`` rows (or one row of each cluster, where those are more)."""
    rows = thinned(labels, most)
    points, method = places(representations[rows])
    return Projection(rows, into_unit_square(points), method)


def thinned(labels: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most ``most`` rows, drawn from each cluster by its size; small clusters keep some, and all at least one."""
    if len(labels) <= most:
        return np.arange(len(labels))
    sizes = np.bincount(labels)
    kept = np.minimum(sizes, max(1, min(FEWEST, most // int(np.count_nonzero(sizes)))))
    share = max(0, most - int(kept.sum())) * (sizes - kept) / max(1, int((sizes - kept).sum()))
    quota = kept + np.floor(share).astype(np.int64)
    # What rounding left over goes to the largest remainders.
    over = max(0, most - int(quota.sum()))
    quota[np.argsort(np.floor(share) - share, kind="stable")[:over]] += 1
    drawn = [
        np.random.default_rng([SEED, cluster]).choice(np.flatnonzero(labels == cluster), count, replace=False)
        for cluster, count in enumerate(np.minimum(quota, sizes).tolist())
        if count
    ]
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def places(z: NDArray[Any]) -> tuple[NDArray[np.float64], str]:
    """(rows, S) to (rows, 2), and by which method: t-SNE that starts at the principal components, or those alone."""
    flat = principal_components(z)
    spread = flat.std(0)
    if len(np.unique(z, axis=0)) < FEWEST_FOR_TSNE or spread[1] <= 1e-9 * spread[0]:
        return flat, PCA_NAME
    tsne = TSNE(
        perplexity=min(30.0, (len(z) - 1) / 3),
        init=(flat / spread[0] * 1e-4).astype(np.float32),
        max_iter=600,
        angle=0.65,
        random_state=SEED,
    )
    # Several threads add up in an order that changes from run to run, and t-SNE magnifies the last bit.
    with threadpool_limits(1):
        return tsne.fit_transform(z / spread[0]).astype(np.float64), TSNE_NAME


def principal_components(z: NDArray[Any]) -> NDArray[np.float64]:
    """The first two, of any number of rows and columns; zeros where there is no second."""
    centred = z.astype(np.float64) - z.mean(0, dtype=np.float64)
    with threadpool_limits(1):
        left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    flat = np.zeros((len(z), 2))
    flat[:, : len(singular)] = left[:, :2] * singular[:2]
    # The sign of a component means nothing: the row farthest out is on the positive side.
    farthest = np.abs(flat).argmax(0)
    return flat * np.where(flat[farthest, [0, 1]] < 0, -1.0, 1.0)


def into_unit_square(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Moved and scaled alike in both directions; a single place is the middle."""
    low, high = points.min(0), points.max(0)
    extent = float((high - low).max())
    if extent <= 0:
        return np.full_like(points, 0.5)
    placed: NDArray[np.float64] = (points - (low + high) / 2) / extent + 0.5
    return placed
