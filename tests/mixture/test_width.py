"""Memory grows with the width of rows, not with its square; what cannot fit is refused before it is allocated."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from metaclust import DataError, InfiniteGaussianMixture
from metaclust.data import memory
from metaclust.mixture.blocks import FEATURES, block_size
from metaclust.mixture.families import FAMILIES, component_family
from metaclust.mixture.state import FitState, load_state, save_state
from metaclust.model.encoders.residual import ResidualEncoder

LIMITED = """
import resource, sys, warnings
import numpy as np
import sklearn.cluster, sklearn.decomposition, torch
from metaclust import InfiniteGaussianMixture, MetaClusterer
torch.set_num_threads(1)
warnings.simplefilter("ignore")
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2_000_000_000,) * 2)
x = np.random.default_rng(0).normal(size=(50, 100_000)).astype(np.float32)
"""
FITS = {
    "spherical": "InfiniteGaussianMixture(5, max_iter=2).fit(x).predict(x)",
    "diagonal": "InfiniteGaussianMixture(5, max_iter=2, covariance='diagonal').fit(x).predict(x)",
    "default": "MetaClusterer(pretrain_steps=1, steps=1, choice_tasks=1, progress=False)"
    ".fit(x, np.repeat(np.arange(10), 5)).cluster(x)",
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the memory of a process as Linux does")
@pytest.mark.parametrize("name", FITS)
def test_rows_of_many_columns_are_fitted_in_two_gigabytes(name):
    # A matrix of the columns would take 40 GB in float32.
    command = [sys.executable, "-c", LIMITED + FITS[name]]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    assert done.returncode == 0, done.stderr[-2000:]


def test_matrices_that_cannot_fit_are_refused(monkeypatch):
    x = np.random.default_rng(0).normal(size=(20, 40))
    monkeypatch.setattr(memory, "memory_size", lambda: 4 * 8 * 40**2 - 1)
    with pytest.raises(DataError, match=r"X has 40 columns, of which covariance matrices need .* GB of memory"):
        InfiniteGaussianMixture(3, covariance="full").fit(x)
    monkeypatch.setattr(memory, "memory_size", lambda: 4 * 8 * 40**2)
    with pytest.raises(DataError, match="X has 40 columns, of which 3 full components need"):
        InfiniteGaussianMixture(3, covariance="full").fit(x)
    monkeypatch.setattr(memory, "memory_size", lambda: None)
    InfiniteGaussianMixture(3, covariance="full", tol=1).fit(x)


@pytest.mark.parametrize("features", [3, 1000, 10**5, 10**9])
def test_the_features_of_a_block_are_bounded(features):
    rows = block_size(50, features)
    assert rows >= 1
    assert rows == 1 or 8 * features * rows <= FEATURES
    assert block_size(50, 12) == 10_240


def test_the_expected_features_of_standard_rows_are_their_mean(covariance):
    family = component_family(covariance)
    points = 2 * torch.eye(4, dtype=torch.float64)
    expected = family.features(torch.cat((points, -points))).mean(0)
    torch.testing.assert_close(family.standard_features(points), expected)


def test_the_scale_needs_no_more_than_the_variances():
    matrix = torch.tensor([[4.0, 1.0], [1.0, 9.0]])
    for name in ("spherical", "diagonal"):
        assert torch.equal(FAMILIES[name].scale(matrix), FAMILIES[name].scale(matrix.diagonal()))


def test_a_residual_encoder_starts_as_the_first_columns():
    projection = ResidualEncoder(7, 3).projection
    assert projection.tolist() == np.eye(7)[:, :3].tolist()


def test_a_state_with_a_covariance_matrix_is_resumed(tmp_path):
    """Version 0.1.0 saved one for every family."""
    x = np.random.default_rng(0).normal(size=(60, 3)) + 9 * (np.arange(60) % 2)[:, None]
    mixture = InfiniteGaussianMixture(4, max_iter=50)
    expected = InfiniteGaussianMixture(4, max_iter=50).fit(x, state=tmp_path / "new.safetensors")
    settings = {name: value for name, value in mixture.get_params().items() if name != "progress"}
    new = load_state(tmp_path / "new.safetensors", settings, FAMILIES["spherical"])
    assert new is not None
    assert new.survey.covariance.shape == (3,)
    seen = new.survey
    matrix = torch.from_numpy(np.cov(x.T, ddof=0))
    old = type(seen)(seen.rows, seen.weight, seen.mean, matrix, seen.sample, seen.sample_weights)
    save_state(tmp_path / "old.safetensors", FitState(old), settings)
    found = mixture.fit(x, state=tmp_path / "old.safetensors", resume=True)
    assert found.lower_bound_ == pytest.approx(expected.lower_bound_, rel=1e-12)
