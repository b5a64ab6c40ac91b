"""Answers that were not reproducible, not consistent or not there for users of neighbouring projects."""

import numpy as np
import pytest
import torch
from peer_rows import blobs, categories
from sklearn.metrics import adjusted_rand_score

from metaclust import Clustering, InfiniteGaussianMixture, MetaClusterer
from metaclust.data.rows import DataWarning


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_rows_does_not_change_the_clusters(model: MetaClusterer, seed: int) -> None:
    """hdbscan #265, BERTopic #2276: the same rows in another order had another number of clusters."""
    x = np.random.default_rng(seed).normal(size=(60, 4)).astype(np.float32)
    order = np.random.default_rng(seed + 9).permutation(60)
    found, moved = model.cluster(x), model.cluster(x[order])
    np.testing.assert_array_equal(moved.labels, found.labels[order])
    np.testing.assert_array_equal(moved.probabilities, found.probabilities[order])


def test_a_row_is_represented_alike_alone_and_among_others(model: MetaClusterer) -> None:
    """umap #158, sentence-transformers #2312: the same row had another vector among other rows, or in another batch."""
    x = categories(10, 30, 4)[0]
    among = model.transform(x)
    for rows in ([0], range(7), range(100, 300)):
        np.testing.assert_allclose(model.transform(x[list(rows)]), among[list(rows)], rtol=1e-5, atol=1e-5)


def test_the_global_generators_neither_matter_nor_move(model: MetaClusterer) -> None:
    """umap #183, BERTopic #461: with one random_state, each call gave another result."""
    x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    results = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002 - the global generator is what is tested
        torch.manual_seed(seed)
        before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
        mixture = InfiniteGaussianMixture(6, init="random", n_init=2).fit(x)
        results.append((model.cluster(x).probabilities, mixture.means_, mixture.sample(5)[0]))
        assert (np.random.get_state()[1] == before[0]).all()  # noqa: NPY002
        assert torch.equal(torch.get_rng_state(), before[1])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("_without_type_checks")
def test_the_number_of_threads_does_not_change_the_clusters(model: MetaClusterer) -> None:
    """umap #853, #1080: with the same random_state, one core and several gave different results."""
    x = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            results.append((model.cluster(x).labels, InfiniteGaussianMixture(6).fit(x).means_))
        finally:
            torch.set_num_threads(1)
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-9)


def test_further_rows_get_no_cluster_that_is_not_there(clustering: Clustering) -> None:
    """hdbscan #445, #375, #361: further rows, even those of the fit, were put into clusters that did not exist."""
    np.testing.assert_array_equal(clustering.assign(categories(4, 20, 5)[0]).labels, clustering.labels)
    with pytest.warns(DataWarning, match="standard deviations from the mean of the training rows"):
        far = clustering.assign(1e4 * np.random.default_rng(0).normal(size=(50, 4)))
    assert set(far.labels) <= set(range(clustering.n_clusters))
    assert far.probabilities.shape == (50, clustering.n_clusters)
    assert far.n_clusters == clustering.n_clusters


@pytest.mark.parametrize("most", [1, 2, 10])
def test_further_rows_are_assigned_however_many_clusters_there_are(model: MetaClusterer, most: int) -> None:
    """hdbscan #109: prediction failed on fits with few clusters, for the tree of clusters was empty."""
    x = categories(4, 20, 5)[0]
    with pytest.warns(match=f"all {most} clusters are in use") if most < 4 else np.errstate():
        found = model.cluster(x, max_clusters=most)
    assert found.n_clusters <= most
    np.testing.assert_array_equal(found.assign(x).labels, found.labels)


def test_probabilities_sum_to_one_and_agree_with_the_labels(clustering: Clustering) -> None:
    """hdbscan #568, #462: memberships were NaN, did not sum to one, and their largest was not the label."""
    rows = np.concatenate((categories(4, 20, 5)[0], np.repeat(categories(1, 1, 5)[0], 20, 0), np.full((1, 4), 1e6)))
    with pytest.warns(DataWarning, match="row 100 .* 1e.06 is"):
        further = clustering.assign(rows.astype(np.float32))
    for found in (clustering, further):
        np.testing.assert_allclose(found.probabilities.sum(1), 1)
        np.testing.assert_array_equal(found.probabilities.argmax(1), found.labels)
        np.testing.assert_allclose(found.probabilities.max(1), found.confidence)


@pytest.mark.parametrize("scale", [0.01, 1, 100])
def test_twenty_groups_in_twenty_dimensions_are_found(scale: float) -> None:
    """DeepDPM #18: text embeddings of 20 classes, reduced to 20 dimensions, stayed one or two clusters."""
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 25)
    x = scale * (3 * generator.normal(size=(20, 20))[y] + generator.normal(size=(500, 20)))
    labels = InfiniteGaussianMixture(40, n_init=3).fit_predict(x)
    assert len(np.unique(labels)) == 20
    assert adjusted_rand_score(y, labels) == 1


@pytest.mark.parametrize("seed", [5, 6])
def test_new_categories_do_not_fall_into_one_cluster(model: MetaClusterer, seed: int) -> None:
    """DeepDPM #63: on a data set of the user's own, all rows ended in one cluster, whatever the settings."""
    x, y = categories(4, 20, seed)
    found = model.cluster(x)
    assert found.n_clusters == 4
    assert found.scores(y)["ari"] == 1


@pytest.mark.usefixtures("_without_type_checks")
def test_the_best_start_is_kept_and_predicts_as_it_was_fitted() -> None:
    """scikit-learn #10869, #13070: with n_init > 1, lower_bound_ and fit_predict were those of the last start."""
    more = 0
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=(100, 5))
        one = InfiniteGaussianMixture(5, seed=seed).fit(x)
        best = InfiniteGaussianMixture(5, seed=seed, n_init=4)
        np.testing.assert_array_equal(best.fit_predict(x), best.predict(x))
        assert best.lower_bound_ == best.lower_bounds_[-1]
        assert best.lower_bound_ >= one.lower_bound_
        more += best.lower_bound_ > one.lower_bound_
    assert more > 0


@pytest.mark.parametrize("components", [1, 3])
def test_as_many_rows_are_drawn_as_were_asked_for(components: int, covariance: str) -> None:
    """scikit-learn #23032, #7822: sample failed for one component, or gave fewer rows than asked for."""
    mixture = InfiniteGaussianMixture(components, covariance=covariance).fit(blobs(rows=7))
    drawn, labels = mixture.sample(1000)
    assert drawn.shape == (1000, 2)
    assert labels.shape == (1000,)
    assert np.isfinite(drawn).all()
