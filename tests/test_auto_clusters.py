"""Clusters without a limit on their number: the right ones, how sure their number is, and the confidence of rows."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, roc_auc_score

from metaclust import CheckpointError, Clustering, DataWarning, MetaClusterer
from metaclust._util.tensors import read_tensors, write_tensors
from metaclust.inference.confidence import right_rows


def blobs(categories, rows, seed, separation=3.0):
    """Rows of categories with far-apart means, like those that ``trained`` was trained on."""
    generator = np.random.default_rng(seed)
    means = separation * generator.normal(size=(categories, 8))
    x = np.repeat(means, rows, 0) + generator.normal(size=(categories * rows, 8))
    return x.astype(np.float32), np.repeat(np.arange(categories), rows)


@pytest.fixture(scope="module")
def found(trained):
    return trained.cluster(blobs(5, 40, seed=99)[0])


@pytest.mark.parametrize("categories", [2, 4, 7, 12])
def test_a_sufficient_limit_gives_the_clusters_of_none(trained, categories):
    x, y = blobs(categories, 30, seed=categories, separation=5.0)
    auto = trained.cluster(x, max_clusters="auto")
    assert auto.n_clusters == categories
    assert adjusted_rand_score(y, auto.labels) > 0.98
    assert auto.about["max_clusters"] == "auto"
    for limit in (20, 60):
        limited = trained.cluster(x, max_clusters=limit)
        np.testing.assert_array_equal(limited.labels, auto.labels)
        np.testing.assert_array_equal(limited.confidence, auto.confidence)
        assert limited.k_probabilities == auto.k_probabilities


@pytest.mark.parametrize("limit", [2, 5, 11])
def test_as_many_clusters_as_allowed_are_found_where_there_are_more(trained, limit):
    x, y = blobs(12, 30, seed=12, separation=5.0)
    with pytest.warns(DataWarning, match=f"all {limit} clusters are in use"):
        found = trained.cluster(x, max_clusters=limit)
    assert found.n_clusters == limit
    # Whole categories are put together: none is divided.
    assert found.scores(y)["nmi"] > 0.4
    assert all(len(np.unique(found.labels[y == k])) == 1 for k in range(12))
    # How many there may really be is still known.
    assert found.k_probabilities == trained.cluster(x).k_probabilities


def test_no_limit_is_the_default(trained):
    assert MetaClusterer().max_clusters == "auto"
    x, _ = blobs(3, 20, seed=0, separation=5.0)
    np.testing.assert_array_equal(trained.cluster(x).labels, trained.cluster(x, max_clusters="auto").labels)


def test_more_clusters_are_found_than_tasks_of_the_training_had(trained):
    x, y = blobs(25, 25, seed=1, separation=5.0)
    found = trained.cluster(x)
    assert adjusted_rand_score(y, found.labels) > 0.9
    low, high = found.k_interval(0.95)
    assert low <= 25 <= high


@pytest.mark.parametrize("seed", range(3))
def test_one_category_is_one_cluster(trained, seed):
    found = trained.cluster(blobs(1, 80, seed)[0], known="ignore")
    assert found.n_clusters == 1
    # However short, an interval holds the number found.
    assert [found.k_interval(level)[0] for level in (0.05, 0.5, 0.9)] == [1, 1, 1]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_very_few_rows_have_clusters(trained, rows):
    found = trained.cluster(blobs(1, rows, seed=0)[0])
    assert 1 <= found.n_clusters <= rows
    assert ((found.confidence >= 0) & (found.confidence <= 1)).all()


def test_the_selector_of_the_package_does_not_take_a_pile_for_one_cluster(shipped):
    # Nearer to each other than known categories are wide.
    assert shipped.cluster(blobs(6, 40, seed=3, separation=0.3)[0]).n_clusters > 1
    assert shipped.cluster(np.repeat(blobs(1, 1, seed=3)[0], 9, 0)).n_clusters == 1


@pytest.mark.parametrize("categories", [4, 5, 8])
def test_without_categories_to_learn_from_the_selector_of_the_package_finds_clusters(shipped, categories):
    x, y = blobs(categories, 40, seed=99)
    found = shipped.cluster(x)
    assert found.n_clusters == categories
    assert adjusted_rand_score(y, found.labels) > 0.95


@pytest.fixture(scope="module")
def shipped():
    """A model without categories from which to learn to select."""
    x, y = blobs(40, 25, seed=0)
    settings = {"pretrain_steps": 150, "steps": 50, "representation": 8, "validation": 0.0, "progress": False}
    model = MetaClusterer(**settings).fit(x, y)
    assert model.model_.choice is None
    return model


def test_the_number_of_clusters_has_probabilities(found):
    assert found.n_clusters == 5
    assert sum(found.k_probabilities.values()) == pytest.approx(1)
    assert max(found.k_probabilities, key=found.k_probabilities.get) == 5
    low, high = found.k_interval()
    assert low <= 5 <= high
    reached = sum(value for number, value in found.k_probabilities.items() if low <= number <= high)
    wider = found.k_interval(0.999)
    assert 0.8 < reached <= sum(v for number, v in found.k_probabilities.items() if wider[0] <= number <= wider[1])


@given(levels=st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)))
def test_a_higher_level_has_a_wider_interval(found, levels):
    (low, high), (wide_low, wide_high) = (found.k_interval(level) for level in sorted(levels))
    assert wide_low <= low <= high <= wide_high


@pytest.mark.parametrize("level", [0, 1, -0.5, 90, float("nan")])
def test_a_level_that_cannot_be_is_named(found, level):
    with pytest.raises(ValueError, match=rf"^level={level}: it must be above 0 and below 1$"):
        found.k_interval(level)


def test_the_bound_gives_no_probabilities(trained):
    by_bound = MetaClusterer(choose="bound", progress=False)
    for name in ("model_", "preparation_", "categories_", "decisions_", "n_features_in_"):
        setattr(by_bound, name, getattr(trained, name))
    found = by_bound.cluster(blobs(3, 20, seed=0)[0])
    assert found.k_probabilities == {}
    assert found.facts is None
    assert found.about["max_clusters"] == trained.model_.config.max_clusters
    np.testing.assert_array_equal(found.confidence, found.probabilities.max(1))
    with pytest.raises(ValueError, match="selected by the bound, which gives no probabilities"):
        found.k_interval()


def test_a_file_keeps_all_of_it(found, tmp_path):
    found.save(tmp_path / "found.safetensors")
    loaded = Clustering.load(tmp_path / "found.safetensors", device="cpu")
    assert loaded.k_probabilities == found.k_probabilities
    assert list(loaded.k_probabilities) == sorted(found.k_probabilities)
    for name, value in vars(found.facts).items():
        np.testing.assert_array_equal(getattr(loaded.facts, name), value)
    np.testing.assert_array_equal(loaded.confidence, found.confidence)
    x, _ = blobs(5, 13, seed=99)
    one, two = found.assign(x), loaded.assign(x)
    np.testing.assert_array_equal(one.labels, two.labels)
    np.testing.assert_array_equal(one.confidence, two.confidence)


def test_rows_far_from_all_clusters_are_less_sure(trained, found):
    x, _ = blobs(5, 40, seed=99)
    generator = np.random.default_rng(0)
    inside = x + 0.1 * generator.normal(size=x.shape).astype(np.float32)
    other = (30 * generator.normal(size=(50, 8))).astype(np.float32)
    near, far = found.assign(inside), found.assign(other)
    assert far.confidence.mean() < near.confidence.mean() - 0.1
    assert np.median(far.confidence) < np.quantile(near.confidence, 0.1)
    # By the mixture alone, such rows are as sure as any.
    assert far.probabilities.max(1).mean() > 0.99


def test_the_confidence_does_not_depend_on_the_order_of_rows(trained, found):
    x, _ = blobs(5, 40, seed=99)
    order = np.random.default_rng(0).permutation(len(x))
    again = trained.cluster(x[order])
    np.testing.assert_array_equal(again.labels, found.labels[order])
    np.testing.assert_allclose(again.confidence, found.confidence[order], atol=1e-6)


def test_confidence_is_a_probability_that_the_cluster_is_right(trained):
    """Over tasks from hard to easy, as many rows are right as the confidence says, and the sure ones more often.

    The hardest are about as near to each other as those of the training are at most: 0.4 times 3.
    """
    confidence, right = [], []
    for seed in range(30):
        x, y = blobs(6, 25, seed=200 + seed, separation=1.25 + 0.03 * seed)
        found = trained.cluster(x)
        confidence.append(found.confidence)
        right.append(right_rows(found.labels, y, found.n_clusters)[0])
    confidence, right = np.concatenate(confidence), np.concatenate(right)
    assert confidence.mean() == pytest.approx(right.mean(), abs=0.1)
    assert roc_auc_score(right, confidence) > 0.65


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize("value", ["many", "", 0, -1, 2.5, True])
def test_a_limit_that_cannot_be_is_named(trained, value):
    message = rf"^max_clusters={value!r}: it must be a whole number of 1 or more, or 'auto'$"
    with pytest.raises(ValueError, match=message):
        trained.cluster(blobs(2, 5, seed=0)[0], max_clusters=value)
    with pytest.raises(ValueError, match=message):
        MetaClusterer(value, progress=False).fit(*blobs(4, 5, seed=0))


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_a_limit_below_what_there_is_holds(trained, limit):
    x, _ = blobs(6, 20, seed=3, separation=5.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = trained.cluster(x, max_clusters=limit)
    assert found.n_clusters <= limit
    words = [str(one.message) for one in caught]
    assert len(words) == (found.n_clusters == limit)
    assert all("pass a larger max_clusters, or 'auto'" in each for each in words)


FILES = {
    "no number": (lambda tensors, header: header["k_probabilities"].update(few=0.1), "k_probabilities"),
    "a share above one": (lambda tensors, header: header["k_probabilities"].update({"5": 1.5}), "k_probabilities"),
    "a share as text": (lambda tensors, header: header["k_probabilities"].update({"5": "0.5"}), "k_probabilities"),
    "NaN facts": (
        lambda tensors, header: tensors.update({"facts.features": tensors["facts.features"] * float("nan")}),
        "facts.features",
    ),
    "facts of fewer clusters": (
        lambda tensors, header: tensors.update({"facts.mean_square": tensors["facts.mean_square"][1:].clone()}),
        "facts.mean_square",
    ),
    "missing facts": (lambda tensors, header: tensors.pop("facts.deviation"), "facts.deviation"),
}


@pytest.mark.parametrize(("change", "name"), FILES.values(), ids=FILES)
def test_a_file_that_cannot_be_is_refused(found, tmp_path, change, name):
    found.save(tmp_path / "found.safetensors")
    tensors, header = read_tensors(tmp_path / "found.safetensors", "clustering")
    change(tensors, header)
    write_tensors(tmp_path / "changed.safetensors", tensors, {**header, "kind": "clustering"})
    with pytest.raises(CheckpointError, match=rf"(?s)changed.safetensors.*{name}"):
        Clustering.load(tmp_path / "changed.safetensors", device="cpu")


def test_a_file_without_facts_assigns_by_the_mixture(found, tmp_path):
    bare = replace(found, facts=None, k_probabilities={})
    bare.save(tmp_path / "bare.safetensors")
    loaded = Clustering.load(tmp_path / "bare.safetensors", device="cpu")
    assert loaded.facts is None
    assert loaded.k_probabilities == {}
    further = loaded.assign(blobs(5, 7, seed=99)[0])
    np.testing.assert_array_equal(further.confidence, further.probabilities.max(1))


def test_clustering_leaves_the_random_numbers_of_others_alone(trained):
    state = torch.get_rng_state()
    trained.cluster(blobs(3, 20, seed=0)[0])
    assert torch.equal(torch.get_rng_state(), state)
