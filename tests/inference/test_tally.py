"""Statistics of clusters: against adding up all rows at once, and against a step of inference from assignments."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metaclust.inference.tally import Tally
from metaclust.mixture.step import vb_step
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig

WIDTH = 3


def small_model(components="spherical"):
    return ClusteringModel(ModelConfig((WIDTH,), representation=WIDTH, components=components, learn_prior=True)).eval()


def some_rows(seed, rows=40, clusters=4):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(rows, WIDTH)) + 5, generator.integers(clusters, size=rows)


@pytest.mark.parametrize("components", ["spherical", "diagonal", "full"])
@given(seed=st.integers(0, 99), part=st.integers(0, 40))
def test_rows_that_are_added_and_taken_away_leave_the_rest(components, seed, part):
    model, origin = small_model(components), np.full(WIDTH, 4.0)
    z, labels = some_rows(seed)
    every = Tally.of(model, z, labels, 4, origin, 1.3)
    first = Tally.of(model, z[:part], labels[:part], 4, origin, 1.3)
    np.testing.assert_allclose(first.with_rows(model, z[part:], labels[part:]).sums, every.sums, atol=1e-9)
    np.testing.assert_allclose(every.with_rows(model, z[part:], labels[part:], sign=-1.0).sums, first.sums, atol=1e-9)
    assert every.counts(model).sum() == pytest.approx(40)
    catalogue = every.catalogue(model, np.zeros(4, bool))
    for cluster in np.unique(labels):
        rows = z[labels == cluster]
        np.testing.assert_allclose(catalogue.means[cluster], rows.mean(0))
        np.testing.assert_allclose(catalogue.squares[cluster], rows.var(0).sum(), atol=1e-9)


@pytest.mark.parametrize("components", ["spherical", "diagonal", "full"])
def test_components_are_those_of_a_step_from_these_assignments(components):
    model = small_model(components)
    z, labels = some_rows(1)
    origin = z.mean(0)
    found = Tally.of(model, z, labels, 4, origin, 1.3).components(model)
    order = np.argsort(-np.bincount(labels, minlength=4), kind="stable")
    family = model.family_of(1.3)
    features = family.features(torch.from_numpy(z - origin))
    r = torch.from_numpy(np.eye(4)[labels][:, order])
    sticks, parameters = vb_step(family, family.statistics(features, r), family.start(features, 4), model.alpha)
    with torch.no_grad():
        np.testing.assert_allclose(found.means[order], parameters.theta.numpy() + origin, atol=1e-9)
        np.testing.assert_allclose(found.precisions[order], family.expected_precisions(parameters).numpy(), rtol=1e-9)
        scores = family.scores(features, parameters, family.expected_constant(parameters))
        scores = scores + torch.from_numpy(expected_logs(sticks))
        np.testing.assert_allclose(found.probabilities(z)[:, order], scores.softmax(-1).numpy(), atol=1e-9)


def expected_logs(sticks):
    """E[log pi] of each cluster, one stick after another."""
    gamma1, gamma2 = sticks.gamma1.double(), sticks.gamma2.double()
    left, found = 0.0, []
    for one, two in zip(gamma1, gamma2, strict=True):
        whole = torch.digamma(one + two)
        found.append(float(left + torch.digamma(one) - whole))
        left += float(torch.digamma(two) - whole)
    return np.array(found)


def test_clusters_are_merged_taken_and_added():
    model, origin = small_model(), np.zeros(WIDTH)
    z, labels = some_rows(2)
    tally = Tally.of(model, z, labels, 4, origin, 1.0)
    into = np.array([0, 1, 0, 3])
    np.testing.assert_allclose(tally.merged(into, 4).sums, Tally.of(model, z, into[labels], 4, origin, 1.0).sums)
    np.testing.assert_array_equal(tally.take(np.array([2, 0])).sums, tally.sums[[2, 0]])
    more = tally.with_rows(model, z[:3], np.array([5, 5, 5]), clusters=6)
    assert len(more) == 6
    assert more.counts(model)[5] == pytest.approx(3)
    assert more.counts(model)[4] == 0
    assert np.isfinite(more.components(model).means).all()
