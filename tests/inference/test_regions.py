"""Regions of rows that are clustered one by one, and how their clusters are put together."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from metaclust.inference import cluster as module
from metaclust.inference.continued import Mixture
from metaclust.inference.refine import own_variance_factors
from metaclust.inference.regions import at_most, divided, sum_of_numbers, top_nodes
from metaclust.inference.select import LearnedSelector
from metaclust.inference.stages import Initial, Sample
from metaclust.inference.trees import merge_trees
from metaclust.model.selector import SelectorNetwork
from metaclust.report.headline import certainty


def many_blobs(categories=60, rows=30, seed=0):
    generator = np.random.default_rng(seed)
    means = 5 * generator.normal(size=(categories, 8))
    x = np.repeat(means, rows, 0) + generator.normal(size=(categories * rows, 8))
    return x.astype(np.float32), np.repeat(np.arange(categories), rows)


def network_that_says(probability):
    """A selector network by which pairs of any merge are of one category with this probability."""
    network = SelectorNetwork().eval()
    with torch.no_grad():
        network.merges.network[-1].weight.zero_()
        network.merges.network[-1].bias.fill_(float(np.log(probability / (1 - probability))))
    return network


@given(rows=st.integers(2, 40), most=st.floats(0.5, 50), share=st.floats(0, 0.3), seed=st.integers(0, 99))
def test_the_top_nodes_have_each_row_once_and_end_where_they_may(rows, most, share, seed):
    generator = np.random.default_rng(seed)
    (tree,) = merge_trees(generator.normal(size=(rows, 3)), ("ward",))
    alike = generator.random(rows - 1) < share
    nodes = top_nodes(tree, most, alike)
    members = [tree.order[tree.start[node] : tree.start[node] + tree.size[node]] for node in nodes]
    np.testing.assert_array_equal(np.sort(np.concatenate(members)), np.arange(rows))

    def ends(node):
        return tree.size[node] <= max(1, most) or (node >= rows and alike[node - rows])

    for node in nodes:
        assert ends(node)
        above = node
        while above != 2 * rows - 2:
            above = tree.parent[above]
            assert not ends(above)


def test_regions_keep_rows_of_a_group_together_and_have_few_enough_rows(trained):
    x, y = many_blobs()
    sample = Sample.of(trained.transform(x))
    some = np.sort(np.random.default_rng(0).permutation(len(x))[:600])
    regions = divided(trained.model_, LearnedSelector(network_that_says(0.1)), sample, some, 300)
    sizes = np.bincount(regions.labels)
    assert len(sizes) == len(regions.whole) >= len(x) / 300
    assert 0 < sizes.min() <= sizes.max() < 2 * 300
    assert not regions.whole.any()
    of_each = [np.bincount(regions.labels[y == category]).max() for category in range(60)]
    assert np.mean(of_each) > 0.95 * 30


def test_where_all_merges_are_of_one_category_all_rows_are_one_region(trained):
    x, _ = many_blobs(10, 30)
    sample = Sample.of(trained.transform(x))
    regions = divided(trained.model_, LearnedSelector(network_that_says(0.9)), sample, np.arange(len(x)), 50)
    assert regions.whole.tolist() == [True]
    assert not regions.labels.any()


@pytest.mark.parametrize("limit", [1, 2, 7, 20, 50, None])
def test_clusters_are_merged_until_there_are_as_many_as_allowed(limit):
    x, y = many_blobs(20, 10)
    found = at_most(x.astype(np.float64), y, limit)
    assert len(np.unique(found)) == min(20, limit or 20)
    assert all(len(np.unique(found[y == category])) == 1 for category in range(20))


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
    factor = torch.tensor(own_variance_factors(sample.z, [labels[order]], model.expected_variance))
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
    for limit in (free.n_clusters - 1, free.n_clusters - 10):
        assert trained.cluster(x, max_clusters=limit).n_clusters == limit


@pytest.mark.usefixtures("_small_samples")
def test_a_category_larger_than_a_region_is_not_divided(trained):
    """One of 61 categories has a third of the rows, and more than a region may have."""
    x, y = many_blobs()
    generator = np.random.default_rng(5)
    x = np.concatenate([x, (12 + generator.normal(size=(900, 8))).astype(np.float32)])
    y = np.concatenate([y, np.full(900, 60)])
    found = trained.cluster(x)
    assert np.bincount(found.labels[y == 60]).max() > 0.95 * 900
    assert adjusted_rand_score(y, found.labels) > 0.95


@pytest.mark.usefixtures("_small_samples")
def test_the_report_says_that_clusters_were_found_region_by_region(trained):
    found = trained.cluster(many_blobs()[0])
    assert certainty(found) == ["There are so many clusters that they were found region by region."]
