"""The first two stages: starts for many numbers of clusters, and the candidates that inference makes of them."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score

from metaclust.inference import initialise, refine
from metaclust.inference.initialise import candidate_numbers, seeded_labels, untried_near, ward_labels
from metaclust.inference.pipeline import Search, pipeline_for
from metaclust.inference.refine import STEPS, batches, own_variance_factors
from metaclust.inference.stages import Initial, Sample, in_order
from metaclust.mixture import Prior, component_family, vb_steps
from metaclust.mixture.components import Components
from metaclust.mixture.inference import run
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig


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
    for number, labels in zip(numbers, ward_labels(z, numbers, np.random.default_rng(0)), strict=True):
        expected = AgglomerativeClustering(number, linkage="ward").fit_predict(z)
        assert adjusted_rand_score(expected, labels) == 1


def test_of_many_rows_ward_sees_a_sample(monkeypatch):
    monkeypatch.setattr(initialise, "WARD_ROWS", 40)
    z, y = blobs(1, rows=40)
    (labels,) = ward_labels(z, [5], np.random.default_rng(0))
    assert len(labels) == 200
    assert adjusted_rand_score(y, labels) > 0.9


def test_seeds_are_as_many_as_asked_for():
    z, _ = blobs(2)
    for number, labels in zip((1, 4, 100), seeded_labels(z, (1, 4, 100), np.random.default_rng(0)), strict=True):
        assert len(np.unique(labels)) == number


def test_rows_go_to_the_nearest_of_the_first_seeds(monkeypatch):
    z, _ = blobs(3)
    seeds = np.random.default_rng(1).permutation(z)[:7]
    monkeypatch.setattr(initialise, "kmeans_plusplus", lambda *_, **__: (seeds, None))
    numbers = (1, 2, 3, 7)
    for number, labels in zip(numbers, seeded_labels(z, numbers, np.random.default_rng(0)), strict=True):
        np.testing.assert_array_equal(labels, cdist(z, seeds[:number]).argmin(1))


def find_candidates(mixture, z, numbers, *, effective_rows, seed=0, weight=None, restarts=1):
    pipeline = pipeline_for(
        mixture, Search(max(numbers), restarts=restarts, effective_rows=effective_rows, choose="bound")
    )
    return pipeline.candidates(mixture, Sample(z, np.zeros(z.shape[1])), numbers, seed, weight)


def test_each_partition_comes_once():
    def propose(labels):
        return lambda *_: [Initial(in_order(np.array(each))) for each in labels]

    ways = [propose([[3, 3, 1], [0, 0, 2]]), propose([[0, 1, 1]])]
    found = initialise.initial_assignments(ways, model(), Sample.of(np.eye(3)), [2], 0)
    assert [initial.labels.tolist() for initial in found] == [[0, 0, 1], [0, 1, 1]]


def test_batches_hold_every_start_and_not_too_many(monkeypatch):
    monkeypatch.setattr(refine, "BATCH", 1000)
    clusters = (np.random.default_rng(0).permutation(14) + 1).tolist()
    made = batches(clusters, 20)
    assert sorted(place for batch in made for place in batch) == list(range(len(clusters)))
    for batch in made:
        assert len(batch) * 20 * max(clusters[place] for place in batch) <= 1000


def test_numbers_near_the_best_that_were_not_tried():
    assert untried_near(14, [1, 12, 14, 16]) == [13, 15]
    assert untried_near(3, [1, 2, 3, 4]) == []
    assert untried_near(20, [18, 20]) == [19]


def alone(mixture, z, start, steps, weight, width, columns):
    """What the inference makes of one start by itself."""
    prior = mixture.prior
    posteriors = vb_steps(
        torch.from_numpy(z),
        torch.from_numpy(1e9 * (np.eye(columns)[start] - 1)),
        component_family("spherical", "optimal", Prior(prior.mean_precision, prior.shape, prior.rate * width)),
        mixture.alpha.detach(),
        weight=weight,
    )
    with torch.no_grad():
        return run(posteriors, steps, None)


def test_a_candidate_is_what_the_inference_makes_of_its_start():
    z, _ = blobs(3)
    mixture = model()
    mixture.set_prior(shape=20.0, rate=30.0, mean_precision=0.1)
    together = find_candidates(mixture, z, [1, 3, 5, 6], effective_rows=7, seed=1, weight=0.4)
    columns = max(candidate.labels.max() for candidate in together) + 1
    for candidate in together:
        placed = Components.of(candidate.posterior).placed(z)
        assert candidate.labels.tolist() == in_order(placed.labels).tolist()
        # In its bound, and there alone, a row counts as less than one.
        (width,) = own_variance_factors(z, [candidate.labels], mixture.expected_variance)
        with torch.no_grad():
            expected = alone(mixture, z, candidate.labels, 1, 0.4, width, columns).exact_bound
        assert candidate.bound == pytest.approx(expected.item())
        assert candidate.weight == 0.4
    for number in (3, 5):
        (start,) = ward_labels(z, [number], np.random.default_rng(0))
        (width,) = own_variance_factors(z, [start], mixture.expected_variance)
        end = alone(mixture, z, start, STEPS, 1.0, width, number)
        (same,) = (c for c in together if adjusted_rand_score(end.assignments.argmax(-1), c.labels) == 1)
        assert same.variance_factor == pytest.approx(width)


@pytest.mark.parametrize("seed", range(3))
def test_the_width_of_a_start_is_between_its_own_and_the_expected_one(seed):
    rng = np.random.default_rng(seed)
    z, labels = rng.normal(size=(30, 4)), rng.integers(0, 4, 30)
    labels[:4] = range(4)
    square = sum(((z[labels == k] - z[labels == k].mean(0)) ** 2).sum() for k in range(4))
    for expected in (0.1, 1.0, 50.0):
        own, rows = square / (len(z) - 4) / expected, refine.PRIOR_ROWS
        (width, other) = own_variance_factors(z, [labels, np.zeros(30, np.int64)], expected)
        assert other == pytest.approx((rows + np.square(z - z.mean(0)).sum() / expected) / (rows + len(z) - 1))
        assert min(1, own) < width < max(1, own)
        assert width == pytest.approx((rows * 1 + (len(z) - 4) * own) / (rows + len(z) - 4))


def test_where_rows_lie_does_not_matter():
    z, y = blobs(6)
    moved = [labels_of(model(), z + shift, y) for shift in (0, 3, -100)]
    assert moved[0] == moved[1] == moved[2]


def labels_of(mixture, z, y):
    found = find_candidates(mixture, z - z.mean(0), [2, 5, 8], effective_rows=8)
    return [round(adjusted_rand_score(y, candidate.labels), 6) for candidate in found]


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
        assert np.isfinite(candidate.bound)
