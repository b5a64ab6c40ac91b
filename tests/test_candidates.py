"""Candidates for many numbers of clusters."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score

from metaclust import candidates as module
from metaclust.candidates import (
    STEPS,
    candidate_numbers,
    different,
    find_candidates,
    groups,
    seeded_starts,
    ward_starts,
)
from metaclust.mixture import vb_steps
from metaclust.mixture.inference import run
from metaclust.model import ClusteringModel, ModelConfig


def model(width=4):
    return ClusteringModel(ModelConfig((width,), representation=width, learn_prior=True))


def blobs(seed, clusters=5, rows=20, width=4):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(clusters), rows)
    return 5 * rng.normal(size=(clusters, width))[y] + rng.normal(size=(len(y), width)), y


@pytest.mark.parametrize("limit", [1, 2, 5, 12, 13, 100, 1000])
def test_numbers_rise_to_the_limit_by_an_eighth(limit):
    numbers = candidate_numbers(limit)
    assert numbers[0] == 1
    assert numbers[-1] == limit
    steps = np.diff(numbers)
    assert (steps > 0).all()
    assert all(step <= max(1, 0.125 * number + 1) for number, step in zip(numbers, steps, strict=False))


def test_ward_is_that_of_scikit_learn():
    z, _ = blobs(0)
    numbers = [1, 2, 3, 5, 9]
    for number, labels in zip(numbers, ward_starts(z, numbers, np.random.default_rng(0)), strict=True):
        expected = AgglomerativeClustering(number, linkage="ward").fit_predict(z)
        assert adjusted_rand_score(expected, labels) == 1


def test_of_many_rows_ward_sees_a_sample(monkeypatch):
    monkeypatch.setattr(module, "WARD_ROWS", 40)
    z, y = blobs(1, rows=40)
    (labels,) = ward_starts(z, [5], np.random.default_rng(0))
    assert len(labels) == 200
    assert adjusted_rand_score(y, labels) > 0.9


def test_seeds_are_as_many_as_asked_for():
    z, _ = blobs(2)
    for number, labels in zip((1, 4, 100), seeded_starts(z, (1, 4, 100), np.random.default_rng(0)), strict=True):
        assert len(np.unique(labels)) == number


def test_rows_go_to_the_nearest_of_the_first_seeds(monkeypatch):
    z, _ = blobs(3)
    seeds = np.random.default_rng(1).permutation(z)[:7]
    monkeypatch.setattr(module, "kmeans_plusplus", lambda *_, **__: (seeds, None))
    numbers = (1, 2, 3, 7)
    for number, labels in zip(numbers, seeded_starts(z, numbers, np.random.default_rng(0)), strict=True):
        np.testing.assert_array_equal(labels, cdist(z, seeds[:number]).argmin(1))


def test_each_partition_comes_once():
    found = different([np.array([3, 3, 1]), np.array([0, 0, 2]), np.array([0, 1, 1])])
    assert [labels.tolist() for labels in found] == [[0, 0, 1], [0, 1, 1]]


def test_groups_hold_every_start_and_not_too_many(monkeypatch):
    monkeypatch.setattr(module, "BATCH", 1000)
    starts = [np.arange(20) % k for k in range(1, 15)]
    made = groups(starts, 20)
    assert sum(len(group) for group in made) == len(starts)
    assert all(len(group) * 20 * (group[-1].max() + 1) <= 1000 for group in made)


def test_a_candidate_is_what_the_inference_makes_of_its_start():
    """The same as each start by itself, in its own number of columns."""
    z, _ = blobs(3)
    mixture = model()
    mixture.set_prior(shape=20.0, rate=30.0, mean_precision=0.1)
    together = find_candidates(mixture, z, [1, 3, 5, 6], effective_rows=7, seed=1, weight=0.4)
    for candidate in together:
        assert candidate.labels.tolist() == candidate.posterior.assignments.argmax(-1).tolist()
        assert candidate.bound == pytest.approx(float(candidate.posterior.exact_bound))
        assert candidate.weight == 0.4
    for number in (3, 5):
        (start,) = ward_starts(z, [number], np.random.default_rng(0))
        posterior = run(
            vb_steps(
                torch.from_numpy(z),
                torch.from_numpy(1e9 * (np.eye(number)[start] - 1)),
                mixture.family,
                mixture.alpha.detach(),
                weight=0.4,
            ),
            STEPS,
            None,
        )
        labels = posterior.assignments.argmax(-1).numpy()
        assert any(adjusted_rand_score(labels, other.labels) == 1 for other in together)


@pytest.mark.parametrize("effective", [3.0, 8.0, 1000.0, None])
def test_clusters_count_as_so_many_rows(effective):
    z, _ = blobs(5, clusters=4, rows=50)
    found = find_candidates(model(), z, candidate_numbers(10), effective_rows=effective)
    (weight,) = {candidate.weight for candidate in found}
    best = max(found, key=lambda candidate: candidate.bound)
    if effective in (1000.0, None):
        assert weight == 1
    else:
        assert weight == pytest.approx(effective * len(np.unique(best.labels)) / len(z), rel=0.3)


def test_true_clusters_are_among_the_candidates():
    z, y = blobs(4)
    found = find_candidates(model(), z, candidate_numbers(10), effective_rows=20)
    assert max(adjusted_rand_score(y, candidate.labels) for candidate in found) > 0.95
    assert {1, 4, 5} <= {len(np.unique(candidate.labels)) for candidate in found}


@pytest.mark.parametrize("z", [np.zeros((1, 4)), np.zeros((7, 4)), np.eye(4)[:2]], ids=["one", "equal", "two"])
def test_few_or_equal_rows(z):
    found = find_candidates(model(), z, candidate_numbers(5), effective_rows=20)
    assert found
    for candidate in found:
        assert len(candidate.labels) == len(z)
        assert torch.isfinite(candidate.posterior.exact_bound)
