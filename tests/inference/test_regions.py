"""Regions of rows that are clustered one by one, and how their clusters are put together."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from metaclust.inference import cluster as module
from metaclust.inference.cluster import Mixture
from metaclust.inference.regions import largest_nodes, region_of_rows, sum_of_numbers
from metaclust.inference.stages import Initial, Sample
from metaclust.inference.trees import merge_trees


def many_blobs(categories=60, rows=30, seed=0):
    generator = np.random.default_rng(seed)
    means = 5 * generator.normal(size=(categories, 8))
    x = np.repeat(means, rows, 0) + generator.normal(size=(categories * rows, 8))
    return x.astype(np.float32), np.repeat(np.arange(categories), rows)


@given(rows=st.integers(2, 40), most=st.floats(0.5, 50), seed=st.integers(0, 99))
def test_the_largest_nodes_have_each_row_once_and_no_larger_ones_are_small_enough(rows, most, seed):
    z = np.random.default_rng(seed).normal(size=(rows, 3))
    (tree,) = merge_trees(z, ("ward",))
    nodes = largest_nodes(tree, most)
    members = [tree.order[tree.start[node] : tree.start[node] + tree.size[node]] for node in nodes]
    np.testing.assert_array_equal(np.sort(np.concatenate(members)), np.arange(rows))
    for node in nodes:
        assert tree.size[node] <= max(1, most)
        if node != 2 * rows - 2:
            assert tree.size[tree.parent[node]] > most


def test_regions_keep_rows_of_a_group_together_and_have_few_enough_rows():
    x, y = many_blobs()
    z = x.astype(np.float64) - x.mean(0)
    some = np.random.default_rng(0).permutation(len(z))[:600]
    regions = region_of_rows(z, some, most=300)
    sizes = np.bincount(regions)
    assert len(sizes) >= len(z) / 300
    assert sizes.max() < 2 * 300
    assert sizes.min() > 0
    of_each = [np.bincount(regions[y == category]).max() for category in range(60)]
    assert np.mean(of_each) > 0.95 * 30


@given(
    st.lists(
        st.dictionaries(st.integers(1, 6), st.floats(0.01, 1), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_the_numbers_of_regions_add_up(weights):
    parts = [{k: value / sum(each.values()) for k, value in each.items()} for each in weights]
    expected: dict[int, float] = {}
    for numbers in product(*(each.items() for each in parts)):
        total = sum(number for number, _ in numbers)
        expected[total] = expected.get(total, 0.0) + float(np.prod([value for _, value in numbers]))
    found = sum_of_numbers(parts, least=0.0)
    assert {k for k, value in found.items() if value > 0} == set(expected)
    for number, value in expected.items():
        assert found[number] == pytest.approx(value)


def test_a_mixture_of_labels_is_a_step_of_inference_from_them(trained):
    model = trained.model_
    x, _ = many_blobs(5, 20)
    sample = Sample.of(trained.transform(x))
    labels = np.repeat(np.arange(5), [30, 25, 20, 15, 10])
    order = np.random.default_rng(0).permutation(len(labels))
    mixture = Mixture.of_labels(model, sample, labels[order])
    logits = Initial(labels[order]).as_logits(5)[None].to(model.device)
    rows = torch.from_numpy(sample.z)[None]
    factor = torch.tensor([module.own_variance_factor(sample.z, labels[order], model.expected_variance)])
    posterior = model.from_starts(rows, logits, 1, variance_factor=factor.double())
    np.testing.assert_allclose(mixture.parameters.theta, posterior.parameters.theta[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(mixture.sticks.gamma1, posterior.sticks.gamma1[0])
    np.testing.assert_allclose(mixture.sticks.gamma2, posterior.sticks.gamma2[0])


@pytest.fixture
def _small_samples(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE_ROWS", 400)
    monkeypatch.setattr(module, "REGION_ROWS", 500)


@pytest.mark.usefixtures("_small_samples")
def test_many_clusters_are_found_in_regions(trained, monkeypatch):
    x, y = many_blobs()
    divided = []
    clustered = module.clustered_regions

    def spied(*arguments):
        parts, labels = clustered(*arguments)
        divided.append(len(parts))
        return parts, labels

    monkeypatch.setattr(module, "clustered_regions", spied)
    found = trained.cluster(x)
    assert divided
    assert divided[0] >= 4
    assert adjusted_rand_score(y, found.labels) > 0.9
    assert found.n_clusters == pytest.approx(60, rel=0.15)
    low, high = found.k_interval()
    assert low <= found.n_clusters <= high
    assert sum(found.k_probabilities.values()) == pytest.approx(1)
    assert len(found.cluster_confidence) == found.n_clusters
    order = np.random.default_rng(1).permutation(len(x))
    again = trained.cluster(x[order])
    np.testing.assert_array_equal(again.labels, found.labels[order])


@pytest.mark.usefixtures("_small_samples")
@pytest.mark.filterwarnings("ignore:all .* clusters are in use")
def test_a_limit_holds_where_rows_are_divided_into_regions(trained):
    x, _ = many_blobs()
    free = trained.cluster(x)
    limited = trained.cluster(x, max_clusters=10)
    assert limited.n_clusters == 10
    sufficient = trained.cluster(x, max_clusters=200)
    np.testing.assert_array_equal(sufficient.labels, free.labels)
    between = trained.cluster(x, max_clusters=free.n_clusters - 1)
    assert between.n_clusters <= free.n_clusters - 1
