"""What a user would pick instead, from scikit-learn, on the same rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score
from sklearn.mixture import BayesianGaussianMixture

Rows = NDArray[np.float32] | NDArray[np.float64]


def bayesian_gaussian_mixture(z: Rows, max_clusters: int = 10, n_init: int = 1, seed: int = 0) -> NDArray[np.int64]:
    """scikit-learn's Dirichlet-process mixture with spherical components, run to convergence."""
    mixture = BayesianGaussianMixture(
        n_components=min(max_clusters, len(z)),
        covariance_type="spherical",
        weight_concentration_prior_type="dirichlet_process",
        max_iter=1000,
        n_init=n_init,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(mixture.fit_predict(z), np.int64)


def kmeans_true(z: Rows, k: int, seed: int = 0) -> NDArray[np.int64]:
    """k-means that is told the number of categories: an upper mark, not a rival."""
    return np.asarray(KMeans(k, n_init=3, random_state=seed).fit_predict(z), np.int64)


def kmeans_silhouette(z: Rows, max_clusters: int = 10, seed: int = 0) -> NDArray[np.int64]:
    """k-means with the number of clusters, from two on, that has the best silhouette."""
    best, chosen = -np.inf, np.zeros(len(z), np.int64)
    for k in range(2, min(max_clusters, len(z) - 1) + 1):
        labels = kmeans_true(z, k, seed)
        score = silhouette_score(z, labels) if len(np.unique(labels)) > 1 else -np.inf
        if score > best:
            best, chosen = score, labels
    return chosen


def hdbscan(z: Rows, min_cluster_size: int = 5) -> NDArray[np.int64]:
    """scikit-learn's HDBSCAN at its defaults; what it calls noise is one cluster more."""
    if len(z) < min_cluster_size:
        return np.zeros(len(z), np.int64)
    return np.asarray(HDBSCAN(min_cluster_size=min_cluster_size, copy=True).fit_predict(z), np.int64) + 1


RIVALS: dict[str, Callable[[Rows, int], NDArray[np.int64]]] = {
    "kmeans-silhouette": lambda z, _: kmeans_silhouette(z),
    "hdbscan": lambda z, _: hdbscan(z),
    "bayesian-gaussian-mixture": lambda z, _: bayesian_gaussian_mixture(z),
    "kmeans-true-k": kmeans_true,
}
"""(representations of a task's rows, its number of categories) -> labels. Only the last looks at the number."""
