"""scikit-learn's own checks of the mixture, and its BayesianGaussianMixture beside it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from metaclust import InfiniteGaussianMixture
from metaclust.mixture import FAMILIES
from metaclust.mixture.settings import INITS


@pytest.mark.usefixtures("_without_type_checks")
@parametrize_with_checks(
    [InfiniteGaussianMixture(10, covariance=name, init=init) for name, init in zip(FAMILIES, INITS, strict=False)]
)
def test_scikit_learn_finds_nothing_wrong(estimator: InfiniteGaussianMixture, check: Callable[..., Any]) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("steps", [1, 4])
def test_full_covariances_take_the_steps_of_scikit_learn(steps: int) -> None:
    """It goes on from where ours is after two passes, with the same prior, and comes to where ours comes."""
    x, _ = make_blobs(200, 3, centers=4, cluster_std=2.0, random_state=1)
    x = x @ np.array([[1.0, 0.4, 0], [0, 2.0, 0.3], [0, 0, 0.1]]) + 50
    common: dict[str, Any] = {"covariance": "full", "alpha": 0.7, "tol": 0}
    start = InfiniteGaussianMixture(6, max_iter=2, **common).fit(x)
    deviation = x.std(0)
    theirs = BayesianGaussianMixture(
        n_components=6,
        weight_concentration_prior=0.7,
        mean_prior=x.mean(0),
        mean_precision_prior=1.0,
        degrees_of_freedom_prior=3,
        covariance_prior=np.cov(x.T, bias=True) + 1e-6 * np.diag(deviation**2),
        reg_covar=0,
        tol=0,
        max_iter=steps,
        warm_start=True,
        random_state=0,
    ).fit(x)
    count = start.weight_concentration_[0] - 1
    theirs.weight_concentration_ = start.weight_concentration_
    theirs.means_, theirs.mean_precision_, theirs.degrees_of_freedom_ = start.means_, 1 + count, 3 + count
    theirs.precisions_cholesky_ = np.linalg.inv(np.linalg.cholesky(start.covariances_)).transpose(0, 2, 1)
    theirs.fit(x)
    ours = InfiniteGaussianMixture(6, max_iter=2 + steps, **common).fit(x)
    np.testing.assert_allclose(ours.weights_, theirs.weights_, rtol=1e-7)
    np.testing.assert_allclose(ours.means_, theirs.means_, rtol=1e-7)
    np.testing.assert_allclose(ours.precisions_, theirs.precisions_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-7)
    np.testing.assert_allclose(ours.score_samples(x), theirs.score_samples(x), rtol=1e-7)
    assert np.array_equal(ours.predict(x), theirs.predict(x))


def iris() -> tuple[np.ndarray, np.ndarray]:
    return load_iris(return_X_y=True)


def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    return PCA(8, random_state=0).fit_transform(x), y


def blobs() -> tuple[np.ndarray, np.ndarray]:
    x, y = make_blobs(3000, 5, centers=12, center_box=(-10, 10), random_state=0)
    return x, y


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("data", [iris, digits, blobs])
def test_it_clusters_as_well_as_scikit_learn(data: Callable[[], Any], covariance: str) -> None:
    """Three starts each, the best by bound; a tenth of ARI is left to chance."""
    x, y = data()
    ours = InfiniteGaussianMixture(20, covariance=covariance, init="kmeans", n_init=3).fit_predict(x)
    theirs = BayesianGaussianMixture(
        n_components=20,
        covariance_type=("spherical", "diag", "full")[FAMILIES[covariance].precision_axes],
        weight_concentration_prior=1.0,
        n_init=3,
        random_state=0,
    ).fit_predict(x)
    assert adjusted_rand_score(y, ours) >= adjusted_rand_score(y, theirs) - 0.1


def test_where_rows_lie_and_their_unit_change_nothing(covariance: str) -> None:
    """scikit-learn's mixture fails on the second ones."""
    x, _ = make_blobs(1000, 4, centers=5, center_box=(-10, 10), random_state=3)
    one = InfiniteGaussianMixture(20, covariance=covariance).fit(x)
    other = InfiniteGaussianMixture(20, covariance=covariance).fit(1e5 + 1e-3 * x)
    assert np.array_equal(one.predict(x), other.predict(1e5 + 1e-3 * x))
    np.testing.assert_allclose(1e5 + 1e-3 * one.means_, other.means_, atol=1e-8)
    np.testing.assert_allclose(one.precisions_, 1e-6 * other.precisions_, rtol=1e-4, atol=1e-4)
    assert other.lower_bound_ == pytest.approx(one.lower_bound_ + 4000 * np.log(1e3), rel=1e-6)


def test_a_fit_that_did_not_end_says_so() -> None:
    x, _ = blobs()
    with pytest.warns(ConvergenceWarning, match=r"tol=0.0001 after max_iter=2 passes: give a larger max_iter"):
        mixture = InfiniteGaussianMixture(max_iter=2).fit(x)
    assert not mixture.converged_
    assert mixture.n_iter_ == len(mixture.lower_bounds_) == 2


def test_rows_drawn_from_the_mixture_are_distributed_like_it(covariance: str) -> None:
    x, _ = make_blobs(2000, 2, centers=[(0, 0), (20, 0)], cluster_std=[1.0, 2.0], random_state=0)
    mixture = InfiniteGaussianMixture(5, covariance=covariance).fit(x)
    drawn, labels = mixture.sample(20_000)
    assert drawn.shape == (20_000, 2)
    np.testing.assert_allclose(np.bincount(labels, minlength=5) / 20_000, mixture.weights_, atol=0.02)
    biggest = int(mixture.weights_.argmax())
    found = np.cov(drawn[labels == biggest].T)
    expected = mixture.covariances_[biggest] * (1 if FAMILIES[covariance].precision_axes == 2 else np.eye(2))
    np.testing.assert_allclose(found, expected, atol=0.1 * np.trace(expected))


def test_warm_start_goes_on_where_the_last_fit_ended() -> None:
    x, _ = make_blobs(800, 2, centers=6, cluster_std=2.0, random_state=4)
    mixture = InfiniteGaussianMixture(10, max_iter=5, tol=0, warm_start=True)
    with pytest.warns(ConvergenceWarning):
        first = mixture.fit(x).lower_bound_
    with pytest.warns(ConvergenceWarning):
        second = mixture.fit(x).lower_bound_
    with pytest.warns(ConvergenceWarning):
        straight = InfiniteGaussianMixture(10, max_iter=11, tol=0).fit(x).lower_bounds_
    assert second > first
    assert mixture.lower_bounds_[0] >= first
    assert second == pytest.approx(straight[-1], rel=1e-3)


def test_warm_start_with_another_covariance_starts_anew() -> None:
    x, _ = make_blobs(300, 2, centers=3, random_state=4)
    mixture = InfiniteGaussianMixture(5, warm_start=True).fit(x)
    again = mixture.set_params(covariance="full").fit(x)
    assert again.lower_bounds_ == InfiniteGaussianMixture(5, covariance="full").fit(x).lower_bounds_
