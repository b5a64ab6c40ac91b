"""The confidence of rows: its parts against loops and scipy, and that it is calibrated."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from metaclust.inference.confidence import (
    ClusterFacts,
    Confidence,
    agreement,
    cluster_facts,
    right_rows,
    row_features,
)
from metaclust.inference.features import Evidence, merge_probabilities
from metaclust.inference.result import label_scores
from metaclust.inference.stages import in_order
from metaclust.inference.train_selector import RowExample, fit_confidence
from metaclust.mixture.components import Components, Placement
from metaclust.model.selector import CLUSTER_FEATURES, CONFIDENCE_FEATURES, FURTHER, SelectorNetwork

SEEDS = st.integers(0, 2**32 - 1)


def components_of(means, precision=1.0):
    clusters = len(means)
    weights = np.full(clusters, 1 / clusters)
    return Components(weights, np.asarray(means, np.float64), np.full(clusters, precision), np.log(weights))


def blobs(seed, clusters=3, rows=20, columns=3, separation=6.0):
    generator = np.random.default_rng(seed)
    means = separation * generator.normal(size=(clusters, columns))
    y = np.repeat(np.arange(clusters), rows)
    z = means[y] + generator.normal(size=(len(y), columns))
    return (z - z.mean(0)), y, means - z.mean(0)


def facts_of(z, components, candidates, expected=3.0, clusters=None):
    evidence = Evidence(z, expected)
    torch.manual_seed(0)
    probabilities = merge_probabilities(evidence, SelectorNetwork())
    placed = components.placed(z)
    weights = np.full(len(candidates), 1 / len(candidates))
    return cluster_facts(evidence, probabilities, placed, clusters or len(components.weights), candidates, weights)


@given(seed=SEEDS, clusters=st.integers(1, 6), categories=st.integers(1, 6))
def test_the_share_of_right_rows_is_the_accuracy(seed, clusters, categories):
    generator = np.random.default_rng(seed)
    labels, y = generator.integers(0, clusters, 30), 10 * generator.integers(0, categories, 30)
    right, matched = right_rows(labels, y, clusters)
    assert right.mean() == pytest.approx(label_scores([str(one) for one in y], labels)["acc"])
    np.testing.assert_array_equal(right, matched[labels] == y)
    used = matched[matched >= 0].tolist()
    assert len(set(used)) == len(used)


def test_junk_and_clusters_without_a_category_are_wrong():
    labels, y = np.array([0, 0, 0, 1, 1, 2]), np.array([5, 5, -1, 5, -1, -1])
    right, matched = right_rows(labels, y, 4)
    assert right.tolist() == [True, True, False, False, False, False]
    assert matched.tolist() == [5, -2, -2, -2]


@given(seed=SEEDS, clusters=st.integers(1, 5), candidates=st.integers(1, 4))
def test_the_agreement_is_the_jaccard_index_of_the_most_similar_cluster(seed, clusters, candidates):
    generator = np.random.default_rng(seed)
    labels, *others = (in_order(generator.integers(0, clusters, 15)) for _ in range(1 + candidates))
    weights = generator.dirichlet(np.ones(candidates))
    expected = np.zeros(labels.max() + 1)
    for other, weight in zip(others, weights, strict=True):
        for cluster in range(labels.max() + 1):
            own = set(np.flatnonzero(labels == cluster).tolist())
            rest = [set(np.flatnonzero(other == each).tolist()) for each in range(other.max() + 1)]
            expected[cluster] += weight * max(len(own & each) / len(own | each) for each in rest)
    np.testing.assert_allclose(agreement(labels, others, weights), expected)
    np.testing.assert_allclose(agreement(labels, [labels, labels], np.array([0.4, 0.6])), 1)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@given(seed=SEEDS, clusters=st.integers(1, 6), rows=st.integers(1, 40))
def test_distances_are_those_of_scipy(offset, seed, clusters, rows):
    generator = np.random.default_rng(seed)
    means, z = (offset + 3 * generator.normal(size=(count, 4)) for count in (clusters, rows))
    components = components_of(means)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metaclust.mixture.components.BLOCK", 1)
        placed = components.placed(z)
    labels, probability = components.assigned(z)
    apart = cdist(z, means, "sqeuclidean")
    np.testing.assert_array_equal(placed.labels, labels)
    np.testing.assert_array_equal(placed.probability, probability)
    np.testing.assert_allclose(placed.own, apart[np.arange(rows), labels], rtol=1e-6, atol=1e-6)
    apart[np.arange(rows), labels] = np.inf
    np.testing.assert_allclose(placed.other, apart.min(1), rtol=1e-6, atol=1e-6)


def test_what_is_known_of_a_cluster_is_of_its_rows():
    z, y, means = blobs(0, separation=12.0)
    components = components_of(means)
    np.testing.assert_array_equal(components.assigned(z)[0], y)
    facts = facts_of(z, components, [y, np.minimum(y, 1)], expected=3.0)
    found = dict(zip(CLUSTER_FEATURES, facts.features.T, strict=True))
    np.testing.assert_allclose(np.exp(found["log rows"]), 20)
    np.testing.assert_allclose(np.exp(found["log share"]), 1 / 3)
    np.testing.assert_allclose(np.exp(found["log clusters"]), 3)
    # The first cluster is in both candidates, the others are one in the second.
    np.testing.assert_allclose(found["agreement"], [1, 0.75, 0.75])
    within = sum(np.square(z[y == k] - z[y == k].mean(0)).sum() for k in range(3)) / (60 - 3)
    wide = [(np.square(z[y == k] - z[y == k].mean(0)).sum() + within) / 20 / 3.0 for k in range(3)]
    np.testing.assert_allclose(found["variance over expected"], np.log(wide), atol=1e-4)
    own = np.square(z - means[y]).sum(1)
    # With five rows like the average of all.
    mean = [(own[y == k].sum() + 5 * own.mean()) / 25 for k in range(3)]
    np.testing.assert_allclose(facts.mean_square, mean)


def test_clusters_come_in_any_order_and_may_have_no_row_of_the_sample():
    z, y, means = blobs(1, separation=12.0)
    order = np.array([2, 0, 1])
    one = facts_of(z, components_of(means), [y])
    two = facts_of(z, components_of(means[order]), [y])
    np.testing.assert_allclose(two.features, one.take(order).features, atol=1e-9)
    np.testing.assert_allclose(two.deviation, one.deviation[order])
    far = np.concatenate([means, [[1e3, 1e3, 1e3]]])
    three = facts_of(z, components_of(far), [y, np.minimum(y, 1)])
    assert three.features.shape == (4, len(CLUSTER_FEATURES))
    least = three.features[:3, CLUSTER_FEATURES.index("agreement")].argmin()
    np.testing.assert_array_equal(three.features[3], three.features[least])


STRANGE = {
    "one row": np.zeros((1, 2)),
    "all equal": np.zeros((8, 2)),
    "one column": np.arange(9.0)[:, None] - 4,
    "two rows": np.array([[-3.0, 0.0], [3.0, 0.0]]),
}


@pytest.mark.parametrize("clusters", [1, 2])
@pytest.mark.parametrize("z", STRANGE.values(), ids=STRANGE)
def test_strange_rows_have_a_confidence(z, clusters):
    components = components_of(np.resize([[-3.0] * z.shape[1], [3.0] * z.shape[1]], (clusters, z.shape[1])))
    labels = in_order(components.assigned(z)[0])
    facts = facts_of(z, components, [labels], expected=1.0)
    for value in (facts.features, facts.mean_square, facts.deviation):
        assert np.isfinite(value).all()
    judge = Confidence(components, facts, SelectorNetwork(), 1.0)
    for further in (False, True):
        assert np.isfinite(row_features(components.placed(z), facts, 1.0, further)).all()
        _, confidence = judge.assigned(z.astype(np.float32), further)
        assert ((confidence >= 0) & (confidence <= 1)).all()


def test_features_of_rows_say_what_they_are_called():
    facts = ClusterFacts(np.arange(20.0).reshape(2, 10), np.array([4.0, 1.0]), np.array([2.0, 0.5]))
    placed = Placement(
        np.array([0, 1, 0]), np.array([0.9, 0.5, 1.0]), np.array([4.0, 9.0, 0.0]), np.array([16.0, 4.0, np.inf])
    )
    found = row_features(placed, facts, 2.0, True)
    named = dict(zip(CONFIDENCE_FEATURES, found.T, strict=True))
    np.testing.assert_allclose(named["probability"], [np.log(9), 0, 12], atol=1e-9)
    np.testing.assert_allclose(found[:, CONFIDENCE_FEATURES.index("silhouette")], [0.5, -1 / 3, 1])
    np.testing.assert_allclose(named["distance over expected"], [np.log(2), np.log(4.5), -10], atol=1e-6)
    np.testing.assert_allclose(named["distance over its cluster"], [0, np.log(9), -10], atol=1e-6)
    np.testing.assert_allclose(named["distance in deviations"], [0, 16, -2], atol=1e-6)
    np.testing.assert_array_equal(found[:, 5:FURTHER], facts.features[placed.labels])
    assert (found[:, FURTHER] == 1).all()
    assert (row_features(placed, facts, 2.0, False)[:, FURTHER] == 0).all()


def test_features_of_rows_have_no_unit():
    z, y, means = blobs(2, separation=2.0)
    found = []
    for scale in (1.0, 1e-8, 1e8):
        components = components_of(scale * means, scale**-2)
        facts = facts_of(scale * z, components, [y], expected=3.0 * scale**2)
        found.append(row_features(components.placed(scale * z), facts, 3.0 * scale**2, False))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-5)


def drawn_task(seed):
    """Overlapping clusters around known means: right rows are those nearest to the mean they were drawn around."""
    generator = np.random.default_rng(seed)
    separation = np.exp(generator.uniform(np.log(0.5), np.log(6)))
    z, y, means = blobs(seed, int(generator.integers(2, 6)), 25, separation=separation)
    components = components_of(means)
    placed = components.placed(z)
    facts = facts_of(z, components, [in_order(placed.labels)])
    right, _ = right_rows(placed.labels, y, len(means))
    return components, facts, z, right, RowExample(row_features(placed, facts, 3.0, False), right.astype(np.float64))


def test_a_fitted_confidence_is_calibrated():
    torch.manual_seed(0)
    network = SelectorNetwork()
    fit_confidence(network.confidence, [drawn_task(seed)[-1] for seed in range(60)], steps=300)
    confidences, rights = [], []
    for seed in range(100, 140):
        components, facts, z, right, _ = drawn_task(seed)
        labels, confidence = Confidence(components, facts, network, 3.0).assigned(z.astype(np.float32))
        np.testing.assert_array_equal(labels, components.assigned(z)[0])
        confidences.append(confidence)
        rights.append(right)
    confidence, right = np.concatenate(confidences), np.concatenate(rights)
    assert confidence.mean() == pytest.approx(right.mean(), abs=0.04)
    order = np.argsort(confidence)
    for part in np.array_split(order, 5):
        assert confidence[part].mean() == pytest.approx(right[part].mean(), abs=0.1)
    assert right[order[-300:]].mean() > right[order[:300]].mean() + 0.3
