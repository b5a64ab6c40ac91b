"""Numbers that went wrong for users of neighbouring projects: precision, scale, degenerate rows, bounds."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from peer_rows import blobs
from scipy.stats import norm
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import minmax_scale

from metaclust import DataError, InfiniteGaussianMixture, prototypical_loss, soft_ari, variational_bayes
from metaclust.mixture.fit import BlockRefinement
from metaclust.objectives.metric import contrastive_loss, triplet_loss


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float32_rows_far_from_zero_have_positive_variances(covariance: str, dtype: type) -> None:
    """scikit-learn #30382: float32 rows such as 9999 and 0 gave variances as negative as -1 + reg_covar."""
    two = InfiniteGaussianMixture(2, covariance=covariance).fit(np.array([[9999.0], [0.0]], dtype))
    assert (two.covariances_ > 0).all()
    far = (blobs(2, 60, 3) + 1e5).astype(dtype)
    mixture = InfiniteGaussianMixture(4, covariance=covariance).fit(far)
    assert adjusted_rand_score(np.repeat([0, 1], 60), mixture.predict(far)) == 1
    near = InfiniteGaussianMixture(4, covariance=covariance).fit(far.astype(np.float64) - 1e5)
    np.testing.assert_allclose(larger_two(mixture), larger_two(near), rtol=0.01, atol=0.01)


def larger_two(mixture: InfiniteGaussianMixture) -> NDArray[np.float64]:
    """The covariances of the two components of large weight, in the order of their means."""
    largest = np.argsort(-mixture.weights_)[:2]
    return mixture.covariances_[largest[np.argsort(mixture.means_[largest, 0])]]


def test_means_of_rows_in_the_thousands_are_in_the_thousands() -> None:
    """scikit-learn #2454: of rows from N(1000, 500^2) and N(2000, 600^2), DPGMM put all means near 0.1."""
    generator = np.random.default_rng(1)
    x = np.concatenate((generator.normal(1000, 500, 1000), generator.normal(2000, 600, 1000)))[:, None]
    mixture = InfiniteGaussianMixture(10).fit(x)
    assert mixture.weights_ @ mixture.means_[:, 0] == pytest.approx(x.mean(), rel=0.02)
    assert ((x.min() < mixture.means_) & (mixture.means_ < x.max())).all()


def test_the_scale_of_the_rows_does_not_change_the_clusters(covariance: str) -> None:
    """scikit-learn #6694: rows scaled by MinMaxScaler always became one cluster, whatever alpha was."""
    x = blobs(rows=20)
    labels = InfiniteGaussianMixture(6, covariance=covariance).fit_predict(x)
    assert len(np.unique(labels)) == 3
    for scaled in (1e-100 * x, 1e100 * x, minmax_scale(x)):
        found = InfiniteGaussianMixture(6, covariance=covariance).fit_predict(scaled)
        assert adjusted_rand_score(labels, found) == 1


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (1e-200, r"rows of X differ by up to 2\.\d+e.*rescale the columns"),
        (1e200, r"row 0 .*, column 0: .* is too large for its square .* divide the column"),
    ],
)
def test_rows_whose_variance_is_no_number_are_not_called_equal(scale: float, words: str) -> None:
    """scikit-learn #6694, in the extreme: the squares of the rows overflow or vanish, so the error says to rescale."""
    with pytest.raises(DataError, match=words):
        InfiniteGaussianMixture(10).fit(scale * blobs())


@pytest.mark.parametrize("rows", [200, 2000, 3000])
def test_the_density_does_not_depend_on_the_number_of_rows(rows: int) -> None:
    """scikit-learn #7371: the density that DPGMM gave to N(0, 1) grew with the number of rows."""
    x = np.random.default_rng(1234).normal(size=(rows, 1))
    grid = np.linspace(-6, 6, 601)[:, None]
    density = np.exp(InfiniteGaussianMixture(1, covariance="full").fit(x).score_samples(grid))
    assert np.trapezoid(density, grid[:, 0]) == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(density, norm.pdf(grid[:, 0], x.mean(), x.std()), atol=0.01)


def test_the_bound_never_decreases_and_stays_below_the_largest_likelihood(covariance: str) -> None:
    """scikit-learn #2555: the variational bound of DPGMM jumped from -1.9 million to +3003 within one pass."""
    x = blobs(rows=20)
    kind = {"diagonal": "diag"}.get(covariance, covariance)
    largest = len(x) * GaussianMixture(3, covariance_type=kind, random_state=0).fit(x).score(x)
    bounds = InfiniteGaussianMixture(6, covariance=covariance, tol=1e-8, max_iter=500).fit(x).lower_bounds_
    assert np.diff(bounds).min() >= -1e-9 * abs(bounds[-1])
    assert bounds[-1] < largest


def test_a_bound_that_fell_is_not_convergence() -> None:
    """pomegranate #1145: any improvement below the tolerance, even a large negative one, ended the fit."""
    refine = BlockRefinement(max_iter=10, tol=1e-4)
    assert not refine.has_converged((0.0, -1e6), rows=100)
    assert not refine.has_converged((-1e6, 0.0), rows=100)
    assert refine.has_converged((-100.0, -100.01), rows=100)


def test_equal_rows_have_finite_gradients(covariance: str) -> None:
    """pytorch #37154: cdist had NaN gradients where two rows are equal, which broke metric learning."""
    z = torch.zeros((6, 3), requires_grad=True)
    y = torch.tensor([0, 0, 1, 1, 2, 2])
    losses = {
        "index": soft_ari(variational_bayes(z, torch.randn(6, 4), 3, components=covariance).r, y),
        "prototypical": prototypical_loss(z, y),
        "contrastive": contrastive_loss(z, y),
        "triplet": triplet_loss(z, y),
    }
    for name, loss in losses.items():
        (gradient,) = torch.autograd.grad(loss, z)
        assert gradient.isfinite().all(), name


@pytest.mark.parametrize("loss", [prototypical_loss, contrastive_loss])
@pytest.mark.parametrize("offset", [1e3, 512_695.0])
def test_distances_between_rows_far_from_zero_are_precise(loss, offset: float) -> None:  # type: ignore[no-untyped-def]
    """pytorch #42479: by products of matrices, the distance of 512695 and 512804 was 0, not 109."""
    y = torch.arange(40) % 4
    z = (torch.randn(40, 4) + 3 * torch.randn(4, 4)[y] + offset).requires_grad_()
    exact = z.detach().double().requires_grad_()
    found, expected = loss(z, y), loss(exact - offset, y)
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)
    (gradient,), (right,) = torch.autograd.grad(found, z), torch.autograd.grad(expected, exact)
    torch.testing.assert_close(gradient.double(), right, rtol=1e-3, atol=1e-5)


def test_collinear_constant_and_too_many_columns_have_a_covariance(covariance: str) -> None:
    """DeepDPM #4, and #44: "Expected parameter covariance_matrix ... PositiveDefinite" in the middle of a run."""
    generator = np.random.default_rng(0)
    z = generator.normal(size=(20, 3))
    for x in (np.column_stack((z, z[:, 0] + z[:, 1], np.ones(20))), generator.normal(size=(10, 40))):
        mixture = InfiniteGaussianMixture(5, covariance=covariance).fit(x)
        np.testing.assert_allclose(mixture.predict_proba(x).sum(1), 1)
        precisions = mixture.precisions_
        assert (np.linalg.eigvalsh(precisions) > 0).all() if precisions.ndim == 3 else (precisions > 0).all()


def test_a_row_between_two_repeated_points_belongs_half_to_each(covariance: str) -> None:
    """scikit-learn #7953: two points, each 500 times, and a row in the middle had probabilities 0 and 1."""
    x = np.repeat([[0.0, 0.0], [1.0, 1.0]], 500, 0)
    mixture = InfiniteGaussianMixture(5, covariance=covariance).fit(x)
    probabilities = np.sort(mixture.predict_proba([[0.5, 0.5]])[0])[::-1]
    np.testing.assert_allclose(probabilities[:2], 0.5, atol=0.01)
    assert len(np.unique(mixture.predict(x))) == 2
