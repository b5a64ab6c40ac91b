"""Every component family in the registry, wherever the package uses one.

The mathematics of the families is checked by the other files of this folder, through the fixtures of ``conftest.py``:
batches, gradients, the bound, loops over rows, blocks of rows, scikit-learn.
"""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from torch.distributions import MultivariateNormal

from metaclust import InfiniteGaussianMixture, MetaClusterer, ModelConfig, Prior
from metaclust.data.survey import Survey
from metaclust.mixture import FAMILIES, component_family, expectation_maximization, variational_bayes
from metaclust.mixture.components import Components
from metaclust.mixture.families import Family, family_of_precisions
from metaclust.mixture.state import FitState, load_state, save_state
from metaclust.mixture.sticks import Sticks, expected_log_weights, expected_weights
from metaclust.mixture.streaming import BlockPosterior, Memo


def rows_and_logits(rows=40, width=3, components=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn((rows, width), generator=generator, dtype=torch.float64)
    return z, torch.randn((rows, components), generator=generator, dtype=torch.float64)


def updated(family: Family, z: torch.Tensor, logits: torch.Tensor):
    features = family.features(z)
    start = family.start(features, logits.shape[-1])
    return family.update(family.statistics(features, logits.softmax(-1)), start)


def matrices(family: type[Family], values: np.ndarray, width: int) -> np.ndarray:
    """Precisions or covariances of any family, as (k, s, s)."""
    if family.precision_axes == 2:
        return values
    return np.broadcast_to(values.reshape(len(values), -1), (len(values), width))[:, :, None] * np.eye(width)


def test_parameters_and_precisions_have_the_shapes_that_the_family_declares(family):
    parameters = updated(family, *rows_and_logits(components=4))
    assert isinstance(parameters, family.parameters_type)
    assert family.expected_precisions(parameters).shape == (4, 3, 3)[: 1 + family.precision_axes]
    assert family_of_precisions(family.precision_axes).precision_axes == family.precision_axes


def test_the_prior_is_where_components_without_rows_stay(family):
    """And has no divergence from itself."""
    z, _ = rows_and_logits()
    features = family.features(z)
    start = family.start(features, 2)
    if getattr(family, "mean_covariance", "optimal") == "optimal":
        torch.testing.assert_close(family.kl(start), torch.zeros(2, dtype=torch.float64))
    again = family.update(family.statistics(features, torch.zeros(len(z), 2, dtype=torch.float64)), start)
    for name in ("theta", "a", "b"):
        torch.testing.assert_close(getattr(again, name), getattr(start, name))


def test_standard_features_are_the_mean_features_of_standard_normal_rows(family):
    expected = family.features(torch.randn(400_000, 3, dtype=torch.float64)).mean(0)
    found = family.standard_features(torch.zeros(1, 3, dtype=torch.float64))
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02)


def test_the_likelihood_of_em_is_the_density_of_the_components(covariance):
    z, logits = rows_and_logits()
    family = component_family(covariance)
    features = family.features(z)
    parameters = family.maximize(family.statistics(features, logits.softmax(-1)))
    precisions = matrices(FAMILIES[covariance], family.expected_precisions(parameters).numpy(), 3)
    expected = MultivariateNormal(parameters.theta, precision_matrix=torch.from_numpy(precisions)).log_prob(z[:, None])
    torch.testing.assert_close(family.log_likelihood(features, parameters), expected)


def test_one_row_is_one_row_of_the_components_and_far_rows_differ_only_by_their_place(family):
    """Away from the prior's reach the shape of a component does not depend on where it is."""
    z, logits = rows_and_logits(1, 2, 3)
    posterior = updated(family, z, logits)
    assert all(getattr(posterior, name).isfinite().all() for name in ("theta", "a", "b"))
    z, logits = rows_and_logits(60, 2, 1)
    wide = replace(family, prior=replace(family.prior, mean_precision=1e-14))
    near, far = (wide.maximize(wide.statistics(wide.features(rows), logits.softmax(-1))) for rows in (z, z + 1e5))
    torch.testing.assert_close(far.theta - 1e5, near.theta, rtol=0, atol=1e-9)
    torch.testing.assert_close(wide.expected_precisions(far), wide.expected_precisions(near), rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("components", [2, 3, 5])
def test_components_as_arrays_give_the_assignments_of_the_posterior(fit, components):
    """Also with as many components as columns, where (k, s) and (s, s) cannot be told apart."""
    z, logits = rows_and_logits(40, 3, components)
    posterior = fit(z, logits, steps=4)
    found = Components.of(posterior)
    np.testing.assert_allclose(found.precisions, posterior.precisions, rtol=1e-12)
    np.testing.assert_allclose(found.probabilities(z.numpy()), posterior.r, atol=1e-10)
    if not fit.em:
        again = Components.of_parameters(posterior.family, posterior.parameters, posterior.sticks)
        np.testing.assert_allclose(again.offsets, found.offsets, rtol=1e-13)
        np.testing.assert_allclose(again.weights, found.weights, rtol=1e-13)


def test_the_scale_standardizes_rows(covariance):
    kind, width = FAMILIES[covariance], 3
    x = rows_and_logits(500)[0].numpy() @ np.array([[3.0, 0, 0], [1, 0.2, 0], [0, 1, 40]])
    scale = kind.scale(torch.from_numpy(np.cov(x.T, bias=True))).numpy()
    matrix = scale if scale.ndim == 2 else np.eye(width) * scale
    found = np.cov(matrix @ x.T, bias=True)
    if kind.precision_axes == 0:
        assert np.trace(found) == pytest.approx(width)
    else:
        np.testing.assert_allclose(np.diagonal(found), 1, rtol=1e-4)
    if kind.precision_axes == 2:
        np.testing.assert_allclose(found, np.eye(width), atol=1e-4)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_estimator_in_units_of_the_rows(covariance):
    """Densities, covariances and samples against scipy's normal distribution."""
    kind = FAMILIES[covariance]
    x, y = make_blobs(900, 3, centers=[(0, 0, 0), (40, 0, 0), (0, 40, 9)], random_state=0)
    x = x * (3.0 if kind.precision_axes == 0 else np.array([1.0, 0.3, 5.0])) + [100, -7, 0]
    means, prior = [x[y == k].mean(0) for k in range(3)], Prior(0.01, 1.0, 1e-3)
    mixture = InfiniteGaussianMixture(covariance=covariance, init=np.array(means), prior=prior).fit(x)
    assert adjusted_rand_score(y, mixture.predict(x)) == 1
    precisions, covariances = (matrices(kind, values, 3) for values in (mixture.precisions_, mixture.covariances_))
    np.testing.assert_allclose(precisions @ covariances, np.broadcast_to(np.eye(3), precisions.shape), atol=1e-8)
    for k in range(3):
        members = x[mixture.predict(x) == k]
        np.testing.assert_allclose(mixture.means_[k], members.mean(0), atol=0.5)
        expected = np.diagonal(np.cov(members.T))
        expected = np.full(3, expected.mean()) if kind.precision_axes == 0 else expected
        np.testing.assert_allclose(np.diagonal(covariances[k]), expected, rtol=0.15)
    # With so many rows the expected log density is nearly the log density at the expected parameters.
    density = [
        math.log(mixture.weights_[k]) + stats.multivariate_normal.logpdf(x, mixture.means_[k], covariances[k])
        for k in range(3)
    ]
    np.testing.assert_allclose(mixture.score_samples(x), logsumexp(density, axis=0), atol=0.06)
    drawn, labels = mixture.sample(30_000)
    for k in range(3):
        own = drawn[labels == k]
        scaled = (own - mixture.means_[k]) @ np.linalg.cholesky(precisions[k])
        np.testing.assert_allclose(np.cov(scaled.T), np.eye(3), atol=0.06)
        np.testing.assert_allclose(scaled.mean(0), 0, atol=0.05)


def test_the_state_of_a_fit_is_saved_and_loaded(covariance, tmp_path: Path):
    kind, (z, logits) = FAMILIES[covariance], rows_and_logits()
    family = component_family(covariance, "optimal")
    parameters = updated(family, z, logits)
    sums = logits.softmax(-1).mT @ family.features(z)
    survey = Survey(40, 40.0, z.mean(0), torch.from_numpy(np.cov(z.T)), z, torch.ones(40, dtype=torch.float64))
    memo = Memo(sums[None], torch.zeros(1, dtype=torch.float64), 40, parameters)
    sticks = Sticks(sums[:, 0] + 1, sums[:, 0] + 2)
    state = FitState(survey, 1, memo, (-3.0, -2.0), BlockPosterior(parameters, sticks, (-9.0, -8.5), True))
    save_state(tmp_path / "state.safetensors", state, {"covariance": covariance})
    loaded = load_state(tmp_path / "state.safetensors", {"covariance": covariance}, kind)
    assert loaded is not None
    assert loaded.memo is not None
    assert loaded.best is not None
    assert (loaded.start, loaded.bounds, loaded.best.bounds, loaded.best.converged) == (1, (-3, -2), (-9, -8.5), True)
    for found in (loaded.memo.parameters, loaded.best.parameters):
        assert type(found) is kind.parameters_type
        assert all(torch.equal(getattr(found, name), value) for name, value in vars(parameters).items())
    assert torch.equal(loaded.memo.features, memo.features)
    assert torch.equal(loaded.best.sticks.gamma2, sticks.gamma2)


def test_weights_and_log_weights_belong_together(vb_fit):
    posterior = vb_fit(*rows_and_logits())
    torch.testing.assert_close(posterior.weights, expected_weights(posterior.sticks))
    torch.testing.assert_close(posterior.log_weights, expected_log_weights(posterior.sticks))
    assert (posterior.log_weights < posterior.weights.log()).all()


def test_separated_clusters_of_the_familys_shape_are_found(covariance):
    """By VB and by EM, from assignments that are right for most rows."""
    x, y = make_blobs(150, 2, centers=[(-9, 0), (9, 0), (0, 12)], random_state=1)
    logits = 2 * torch.eye(3, dtype=torch.float64)[y] + 0.5 * torch.randn(150, 3, dtype=torch.float64)
    for end in (
        variational_bayes(torch.from_numpy(x), logits, 30, mean_covariance="optimal", components=covariance),
        expectation_maximization(torch.from_numpy(x), logits, 30, components=covariance),
    ):
        assert np.array_equal(end.r.argmax(-1), y)


def test_a_model_with_the_family_trains_and_clusters(covariance):
    generator = np.random.default_rng(0)
    centres = 5 * generator.normal(size=(16, 5))
    y = np.repeat(np.arange(16), 20)
    x = (centres[y] + generator.normal(size=(320, 5))).astype(np.float32)
    assert ModelConfig((5,), components=covariance).components == covariance
    model = MetaClusterer(
        5, components=covariance, representation=3, pretrain_steps=40, steps=4, choose="bound", seed=1, progress=False
    ).fit(x[y < 12], y[y < 12])
    found = model.cluster(x[y >= 12])
    assert found.precisions.shape == (len(found.weights), 3, 3)[: 1 + FAMILIES[covariance].precision_axes]
    assert adjusted_rand_score(y[y >= 12], found.labels) > 0.6


def test_the_estimator_imports_neither_networks_nor_training():
    code = (
        "import sys; import metaclust.mixture.estimator;"
        "print([name for name in sys.modules if name.startswith(('metaclust.model', 'metaclust.training'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "[]"
