"""The baselines: scikit-learn's methods, called alike."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

from metaclust.inference.baselines import BASELINES, kmeans_silhouette


def blobs(clusters: int, rows: int, width: int = 2, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(clusters), rows)
    centres = 20 * generator.normal(size=(clusters, width))
    return centres[labels] + spread * generator.normal(size=(len(labels), width)), labels


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_finds_well_separated_clusters_and_their_number(name):
    z, labels = blobs(4, 25, width=12, spread=0.5)
    found = BASELINES[name](z, 4)
    assert found.dtype == np.int64
    assert adjusted_rand_score(labels, found) == 1.0


@pytest.mark.parametrize("name", BASELINES)
def test_only_those_that_are_given_k_use_it(name):
    z, _ = blobs(4, 25)
    baseline = BASELINES[name]
    if baseline.given_k:
        assert len(np.unique(baseline(z, 3))) == 3
        with pytest.raises(ValueError, match="true_k=None: KMeans, given K needs the true number"):
            baseline(z)
    else:
        np.testing.assert_array_equal(baseline(z, 3), baseline(z))


@pytest.mark.parametrize("name", ["kmeans-silhouette", "bayesian-gaussian-mixture", "bayesian-gaussian-mixture-pca"])
def test_no_more_clusters_are_found_than_are_allowed(name):
    z, _ = blobs(6, 20)
    assert len(np.unique(BASELINES[name](z, max_clusters=3))) <= 3
    assert len(np.unique(BASELINES[name](z, max_clusters=20))) > 3


def test_up_to_ten_clusters_every_k_is_scored_on_all_rows():
    z, _ = blobs(7, 12, spread=6.0)
    tried = [KMeans(k, n_init=3, random_state=0).fit_predict(z) for k in range(2, 11)]
    best = max(tried, key=lambda labels: silhouette_score(z, labels))
    np.testing.assert_array_equal(kmeans_silhouette(z, 10), best)


def test_above_ten_clusters_every_second_k_is_scored_on_a_sample(monkeypatch):
    monkeypatch.setattr("metaclust.inference.baselines.SILHOUETTE_ROWS", 80)
    z, _ = blobs(13, 12, spread=3.0)
    tried = [KMeans(k, n_init=1, random_state=0).fit_predict(z) for k in range(2, 21, 2)]
    best = max(tried, key=lambda labels: silhouette_score(z, labels, sample_size=80, random_state=0))
    np.testing.assert_array_equal(kmeans_silhouette(z, 20), best)


@pytest.mark.parametrize("max_clusters", [10, 100])
def test_very_few_rows_are_one_cluster(max_clusters):
    z = np.zeros((1, 3))
    assert kmeans_silhouette(z, max_clusters).tolist() == [0]
    assert BASELINES["hdbscan"](np.zeros((4, 3))).tolist() == [0, 0, 0, 0]
