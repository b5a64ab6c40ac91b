"""Merging of clusters by the bound."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from metaclust.inference.refine import AdaptiveRefinement
from metaclust.inference.select import merged, neighbours
from metaclust.inference.stages import Initial, Sample, in_order
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig


def blobs(seed, clusters, rows=30, width=3):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(clusters), rows)
    z = 15 * rng.normal(size=(clusters, width))[y] + rng.normal(size=(len(y), width))
    return z - z.mean(0), y


def mixture():
    model = ClusteringModel(ModelConfig((3,), representation=3, learn_prior=True))
    model.set_prior(mean_precision=1 / 225, shape=50.0, rate=50.0)
    return model


def candidate_and_merged(model, z, labels):
    refine, sample = AdaptiveRefinement(), Sample.of(z)
    (candidate,) = refine(model, sample, [Initial(in_order(labels))])
    (bound,) = refine.bounds(model, sample, [candidate.labels], 1.0)
    candidate = replace(candidate, bound=bound)
    return candidate, merged(model, sample, candidate, refine)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("clusters", [1, 3, 6])
def test_halves_of_a_cluster_become_one(seed, clusters):
    z, y = blobs(seed, clusters)
    halves = 2 * y + (np.arange(len(y)) % 2)
    model = mixture()
    parted, whole = candidate_and_merged(model, z, halves)
    assert whole.bound >= parted.bound
    assert adjusted_rand_score(y, whole.labels) > 0.98
    assert whole.labels.max() + 1 == clusters


def test_what_is_apart_stays_apart():
    z, y = blobs(1, 4)
    model = mixture()
    found, same = candidate_and_merged(model, z, y)
    assert same is found


def test_neighbours_are_found_by_comparing_all_pairs():
    z, labels = blobs(2, 7)
    centres = [z[labels == k].mean(0) for k in range(7)]
    expected = set()
    for one in range(7):
        others = [other for other in range(7) if other != one]
        nearest = min(others, key=lambda other: np.linalg.norm(centres[one] - centres[other]))
        expected.add((min(one, nearest), max(one, nearest)))
    assert neighbours(z, labels) == sorted(expected)
