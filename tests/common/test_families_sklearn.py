"""Against scikit-learn's mixtures."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture


def overlapping(seed, rows=150, components=3, width=2):
    z, y = make_blobs(rows, width, centers=components, cluster_std=1.5, center_box=(-4, 4), random_state=seed)
    logits = np.random.default_rng(seed).normal(size=(rows, components))
    logits[np.arange(rows), y] += 2
    return z, logits


@pytest.mark.parametrize("seed", range(5))
def test_em_takes_the_steps_of_scikit_learn(em_fit, seed, monkeypatch):
    monkeypatch.setattr("metaclust.mixture.families.base.PSEUDO_ROWS", 1e-12)
    z, logits = overlapping(seed)
    start = em_fit(torch.tensor(z), torch.tensor(logits), steps=1)
    theirs = GaussianMixture(
        n_components=3,
        covariance_type=em_fit.covariance_type,
        tol=0,
        reg_covar=0,
        max_iter=9,
        weights_init=(start.weights / start.weights.sum()).numpy(),
        means_init=start.theta.numpy(),
        precisions_init=start.precisions.numpy(),
    )
    with pytest.warns(ConvergenceWarning):
        theirs.fit(z)
    ours = em_fit(torch.tensor(z), torch.tensor(logits), steps=10)
    assert theirs.n_iter_ == 9
    np.testing.assert_allclose(ours.weights, theirs.weights_, rtol=1e-8)
    np.testing.assert_allclose(ours.theta, theirs.means_, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.precisions, theirs.precisions_, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(ours.r, theirs.predict_proba(z), atol=1e-8)
    np.testing.assert_allclose(ours.bound, theirs.score(z) * len(z), rtol=1e-9)


@pytest.mark.parametrize("clusters", [1, 2, 4, 6])
def test_vb_finds_the_separated_blobs_that_scikit_learn_finds(vb_fit, clusters):
    """Of 20 starts from ten random rows each, the one with the highest bound; scikit-learn has five starts."""
    centres = 8.0 * np.array([(0, 0), (1, 0), (0, 1), (1, 1), (-1, 0), (0, -1)])[:clusters]
    z, y = make_blobs(60 * clusters, 2, centers=centres, cluster_std=0.7, random_state=0)
    reference = BayesianGaussianMixture(
        n_components=10,
        covariance_type=vb_fit.covariance_type,
        weight_concentration_prior=1.0,
        max_iter=1000,
        n_init=5,
        random_state=0,
    )
    theirs = reference.fit_predict(z)
    rng = np.random.default_rng(0)
    seeds = np.stack([rng.choice(z, 10, replace=False) for _ in range(20)])
    logits = -((z[:, None] - seeds[:, None]) ** 2).sum(-1)
    posterior = vb_fit(torch.tensor(z).expand(20, -1, -1), torch.tensor(logits), steps=300, tol=1e-9)
    ours = posterior.r[posterior.bound.argmax()].argmax(-1).numpy()
    assert len(np.unique(ours)) == len(np.unique(theirs)) == clusters
    assert adjusted_rand_score(y, ours) == adjusted_rand_score(y, theirs) == 1
