"""Several partitions at once: against each of them by itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclust.inference import shapes as shapes_module
from metaclust.inference.features import Evidence, pairs_of_all
from metaclust.inference.partitions import Partitions
from metaclust.inference.trees import merge_trees, pair_evidence

SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed, rows=25, count=6):
    """Partitions of which some share clusters."""
    rng = np.random.default_rng(seed)
    found = [np.zeros(rows, np.int64)]
    for _ in range(count - 1):
        labels = found[rng.integers(len(found))].copy()
        labels[rng.random(rows) < 0.3] = labels.max() + 1 + rng.integers(2)
        found.append(np.unique(labels, return_inverse=True)[1])
    return found


@given(seed=SEEDS, rows=st.integers(1, 30))
def test_different_clusters_are_those_with_different_rows(seed, rows):
    every = drawn(seed, rows)
    partitions = Partitions.of(every)
    clusters = [frozenset(np.flatnonzero(labels == k).tolist()) for labels in every for k in range(labels.max() + 1)]
    assert len(partitions.first) == len(set(clusters))
    assert [len(cluster) for cluster in clusters] == partitions.size.tolist()
    for place, cluster in enumerate(clusters):
        number = partitions.cluster[place]
        start = partitions.cluster_start[number]
        own = partitions.members[start : start + partitions.cluster_size[number]]
        assert own.tolist() == sorted(cluster)
        assert clusters[partitions.first[number]] == cluster
    members = partitions.members[partitions.position]
    np.testing.assert_array_equal(members, partitions.order)


@given(seed=SEEDS, rows=st.integers(1, 30))
def test_summaries_are_those_of_each_partition(seed, rows):
    every = drawn(seed, rows)
    partitions = Partitions.of(every)
    rng = np.random.default_rng(seed)
    values, share = rng.normal(size=len(partitions.size)).round(1), float(rng.choice([0.1, 0.25, 0.5, rng.random()]))
    of_each = np.split(values, partitions.offset[1:])
    pairs = list(zip(of_each, every, strict=True))
    np.testing.assert_allclose(partitions.mean(values), [own[labels].mean() for own, labels in pairs], atol=1e-12)
    expected = [np.quantile(own[labels], share, method="inverted_cdf") for own, labels in pairs]
    np.testing.assert_array_equal(partitions.quantiles(values, share)[0], expected)
    expected = [np.quantile(own, share) for own in of_each]
    np.testing.assert_allclose(partitions.quantiles_of_clusters(values, share)[0], expected, atol=1e-12)
    np.testing.assert_array_equal(partitions.least(values), [own.min() for own in of_each])
    np.testing.assert_array_equal(partitions.largest(values), [own.max() for own in of_each])


@given(seed=SEEDS, rows=st.integers(1, 30), method=st.sampled_from(["ward", "average"]))
def test_pairs_of_clusters_are_as_probable_as_the_merges_that_join_them(seed, rows, method):
    every = drawn(seed, rows)
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 3))
    evidence = Evidence(z - z.mean(0), 2.0)
    probabilities = [rng.random(rows - 1) if rows > 1 else np.empty(0) for _ in evidence.trees]
    partitions = Partitions.of(every)
    found = pairs_of_all(evidence, probabilities, partitions)
    for own, labels in zip(found, every, strict=True):
        if rows > 1:
            expected = [pair_evidence(*each, labels) for each in zip(evidence.trees, probabilities, strict=True)]
            for one, other in zip(own, expected, strict=True):
                assert vars(one) == pytest.approx(vars(other), abs=1e-9)
    tree, probability = merge_trees(z, (method,))[0], probabilities[0]
    alone = partitions.probable_pairs(tree, probability)
    for number, place in enumerate(partitions.first.tolist()):
        own = partitions.places[partitions.partition[place]] == place
        # All other rows are alone.
        labels = np.where(own, 0, 1 + np.arange(rows))
        assert alone[number] == pytest.approx(float(probability @ tree.pairs_within(labels)), abs=1e-9)


@pytest.mark.parametrize("block", [1, 20, 10_000])
@given(seed=SEEDS)
def test_features_of_several_partitions_are_those_of_each(block, seed):
    every = drawn(seed, 30)
    z = np.random.default_rng(seed).normal(size=(30, 4))
    evidence = Evidence(z - z.mean(0), 2.0)
    together = evidence.shapes(Partitions.of(every))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes_module, "BLOCK", block)
        alone = [evidence.shapes(Partitions.of([labels]))[0] for labels in every]
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-5)
