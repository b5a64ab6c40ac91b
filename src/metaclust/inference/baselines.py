"""Baselines from scikit-learn: what a user would otherwise run on the same vectors.

>>> [name for name, baseline in BASELINES.items() if baseline.given_k]
['kmeans-true-k']
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score
from sklearn.mixture import BayesianGaussianMixture

Vectors = NDArray[np.float32] | NDArray[np.float64]
Labels = NDArray[np.int64]

EXHAUSTIVE = 10
"""Up to this many clusters, :func:`kmeans_silhouette` tries every K and scores all rows."""
SILHOUETTE_ROWS = 2000
"""The sample that is scored when more clusters are allowed."""
PCA_COLUMNS = 10


@dataclass(frozen=True)
class Baseline:
    """A clustering method that is called like every other."""

    title: str
    method: Callable[[Vectors, int], Labels]
    """From vectors and the largest number of clusters to labels."""
    given_k: bool = False
    """Whether the method is given the true number instead: an upper mark, not to be ranked with the others."""

    def __call__(self, z: Vectors, true_k: int | None = None, max_clusters: int = 10) -> Labels:
        """Return the cluster of each row; ``true_k`` reaches only a method that is given it."""
        if not self.given_k:
            return self.method(z, max_clusters)
        if true_k is None:
            raise ValueError(f"true_k=None: {self.title} needs the true number of clusters")
        return self.method(z, true_k)


def kmeans(z: Vectors, k: int, n_init: int = 3, seed: int = 0) -> Labels:
    """Return the labels of k-means with ``k`` clusters."""
    return np.asarray(KMeans(k, n_init=n_init, random_state=seed).fit_predict(z), np.int64)


def kmeans_silhouette(z: Vectors, max_clusters: int = 10, seed: int = 0) -> Labels:
    """Return the labels of k-means with the number of clusters, from two on, that has the best silhouette.

    With ``max_clusters`` above 10, every second K is tried from one start, and a sample of the rows is scored.
    """
    few = max_clusters <= EXHAUSTIVE
    step, n_init, sample = (1, 3, None) if few else (2, 1, min(SILHOUETTE_ROWS, len(z)))
    best, chosen = -np.inf, np.zeros(len(z), np.int64)
    for k in range(2, min(max_clusters, len(z) - 1) + 1, step):
        labels = kmeans(z, k, n_init, seed)
        if len(np.unique(labels)) < 2:
            continue
        score = silhouette_score(z, labels, sample_size=sample, random_state=seed)
        if score > best:
            best, chosen = score, labels
    return chosen


def hdbscan(z: Vectors, min_cluster_size: int = 5) -> Labels:
    """Return the labels of scikit-learn's HDBSCAN at its defaults; its noise is one more cluster."""
    if len(z) < min_cluster_size:
        return np.zeros(len(z), np.int64)
    return np.asarray(HDBSCAN(min_cluster_size=min_cluster_size, copy=True).fit_predict(z), np.int64) + 1


def bayesian_gaussian_mixture(z: Vectors, max_clusters: int = 10, n_init: int = 1, seed: int = 0) -> Labels:
    """Return the labels of scikit-learn's Dirichlet-process mixture with spherical components, run to convergence."""
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


def principal_components(z: Vectors, seed: int = 0) -> Vectors:
    """Return the first ten principal components, for a method that cannot take wide vectors."""
    reduced: Vectors = PCA(min(PCA_COLUMNS, *z.shape), random_state=seed).fit_transform(z)
    return reduced


BASELINES = {
    "kmeans-silhouette": Baseline("KMeans, K by silhouette", kmeans_silhouette),
    "hdbscan": Baseline("HDBSCAN", lambda z, _: hdbscan(z)),
    "bayesian-gaussian-mixture": Baseline("BayesianGaussianMixture", bayesian_gaussian_mixture),
    "bayesian-gaussian-mixture-10-starts": Baseline(
        "BayesianGaussianMixture, 10 starts", partial(bayesian_gaussian_mixture, n_init=10)
    ),
    "bayesian-gaussian-mixture-pca": Baseline(
        "BayesianGaussianMixture, PCA-10", lambda z, k: bayesian_gaussian_mixture(principal_components(z), k)
    ),
    "kmeans-true-k": Baseline("KMeans, given K", kmeans, given_k=True),
}
"""By name, as in results files of ``metaclust experiment``."""
