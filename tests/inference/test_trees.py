"""Trees of merges: cuts against scipy and against all cuts, pairs against loops over pairs."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from sklearn.metrics import adjusted_rand_score

from metaclust.inference.stages import in_order
from metaclust.inference.trees import MergeTree, condensed_distances, merge_trees, pair_evidence

METHODS = ("ward", "average")
SEEDS = st.integers(0, 2**32 - 1)


def merge_tree(z, method):
    return merge_trees(z, [method])[0]


@pytest.mark.parametrize(("rows", "block"), [(2, 1000), (23, 7), (40, 40)])
def test_distances_are_those_of_scipy(rows, block):
    z = np.random.default_rng(rows).normal(size=(rows, 3))
    np.testing.assert_allclose(condensed_distances(z, block), pdist(z), rtol=1e-9)


def rows_of(seed, rows, columns=3):
    return np.random.default_rng(seed).normal(size=(rows, columns))


def members(tree, node):
    """The rows of a node, by following the merges down."""
    if node < len(tree):
        return {node}
    merge = node - len(tree)
    return members(tree, int(tree.first[merge])) | members(tree, int(tree.second[merge]))


def all_cuts(tree, node):
    """Every way to cut the part of a tree below a node, as lists of nodes."""
    if node < len(tree):
        return [[node]]
    merge = node - len(tree)
    sides = [all_cuts(tree, int(side[merge])) for side in (tree.first, tree.second)]
    return [[node], *(one + two for one, two in itertools.product(*sides))]


def pairs_by_merge(tree):
    """The pairs of rows that each merge brings together."""
    sides = zip(tree.first.tolist(), tree.second.tolist(), strict=True)
    return [list(itertools.product(members(tree, one), members(tree, two))) for one, two in sides]


def partition(labels):
    return in_order(np.asarray(labels)).tolist()


@pytest.mark.parametrize("method", METHODS)
@given(seed=SEEDS, rows=st.integers(2, 30))
def test_cuts_are_those_of_scipy(method, seed, rows):
    z = rows_of(seed, rows)
    tree, linked = merge_tree(z, method), linkage(z, method)
    for number in range(1, rows + 1):
        assert partition(tree.cut(number)) == partition(fcluster(linked, number, "maxclust"))
        assert np.unique(tree.cut(number)).tolist() == list(range(number))


@pytest.mark.parametrize("method", METHODS)
@given(seed=SEEDS, rows=st.integers(1, 20))
def test_the_rows_of_a_node_stand_side_by_side(method, seed, rows):
    tree = merge_tree(rows_of(seed, rows), method)
    assert sorted(tree.order.tolist()) == list(range(rows))
    for node in range(2 * rows - 1):
        start, size = tree.start[node], tree.size[node]
        assert set(tree.order[start : start + size].tolist()) == members(tree, node)
        assert size == len(members(tree, node))
    for node in range(2 * rows - 2):
        assert members(tree, node) < members(tree, int(tree.parent[node]))
    assert tree.parent[2 * rows - 2] == 2 * rows - 2
    assert tree.pairs.sum() == rows * (rows - 1) / 2


@pytest.mark.parametrize("number", [1, 2, 5])
def test_one_row_is_one_cluster_however_many_are_asked_for(number):
    assert merge_tree(np.zeros((1, 2)), "ward").cut(number).tolist() == [0]


@pytest.mark.parametrize("number", [4, 5, 100])
def test_more_clusters_than_rows_are_as_many_as_rows(number):
    assert sorted(merge_tree(rows_of(0, 4), "ward").cut(number).tolist()) == [0, 1, 2, 3]


def test_rows_that_look_like_distances_are_rows():
    z = np.abs(np.arange(4.0)[:, None] - np.arange(4.0))
    tree = merge_tree(z, "ward")
    apart = np.linalg.norm(z[:, None] - z, axis=-1)
    np.fill_diagonal(apart, np.inf)
    assert apart[tree.first[0], tree.second[0]] == apart.min()


@given(
    seed=SEEDS,
    rows=st.integers(1, 8),
    method=st.sampled_from(METHODS),
    thresholds=st.lists(st.floats(0, 1), min_size=1, max_size=4),
)
def test_the_best_cuts_are_the_best_of_all_cuts(seed, rows, method, thresholds):
    tree = merge_tree(rows_of(seed, rows), method)
    probability = np.random.default_rng(seed).random(rows - 1)
    pairs = pairs_by_merge(tree)

    def worth(labels, threshold):
        within = [sum(labels[one] == labels[two] for one, two in each) for each in pairs]
        return float(((probability - threshold) * within).sum())

    every = [tree.labelled(np.array(tops)) for tops in all_cuts(tree, 2 * rows - 2)]
    found = tree.best_cuts(probability, thresholds)
    assert len(found) == len(thresholds)
    for labels, threshold in zip(found, thresholds, strict=True):
        assert any(partition(labels) == partition(other) for other in every)
        assert worth(labels, threshold) == pytest.approx(max(worth(other, threshold) for other in every), abs=1e-9)


@pytest.mark.parametrize("columns", [2, 256])
@given(seed=SEEDS, rows=st.integers(2, 14), clusters=st.integers(1, 6))
def test_pairs_of_one_label_are_counted_by_merge(columns, seed, rows, clusters):
    labels = in_order(np.random.default_rng(seed).integers(0, clusters, rows))
    tree = merge_tree(rows_of(seed, rows), "ward")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metaclust.inference.trees.COLUMNS", columns)
        counted = tree.pairs_within(labels)
    expected = [sum(labels[one] == labels[two] for one, two in each) for each in pairs_by_merge(tree)]
    assert counted.tolist() == expected


@pytest.mark.parametrize("columns", [2, 256])
@given(seed=SEEDS, rows=st.integers(1, 14), clusters=st.integers(1, 6))
def test_the_mean_probability_within_a_cluster_is_that_of_its_pairs(columns, seed, rows, clusters):
    generator = np.random.default_rng(seed)
    labels, probability = in_order(generator.integers(0, clusters, rows)), generator.random(rows - 1)
    tree = merge_tree(rows_of(seed, rows), "average")
    values = [[] for _ in range(labels.max() + 1)]
    for merge, pairs in enumerate(pairs_by_merge(tree)):
        for one, two in pairs:
            if labels[one] == labels[two]:
                values[labels[one]].append(probability[merge])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metaclust.inference.trees.COLUMNS", columns)
        found = tree.mean_within(labels, probability)
    np.testing.assert_allclose(found, [np.mean(each) if each else 1 for each in values], rtol=1e-6)


@given(seed=SEEDS, number=st.integers(2, 12), clusters=st.integers(2, 6), method=st.sampled_from(METHODS))
def test_known_pairs_give_the_adjusted_rand_index(seed, number, clusters, method):
    """Where each merge brings together either pairs of one category or none, nothing is left to expect."""
    tree = merge_tree(rows_of(seed, 12), method)
    true = tree.cut(number)
    probability = tree.pairs_within(true) / tree.pairs
    assert set(probability.tolist()) <= {0.0, 1.0}
    labels = in_order(np.append(np.random.default_rng(seed).integers(0, clusters, 11), clusters))
    evidence = pair_evidence(tree, probability, labels)
    assert evidence.expected_ari == pytest.approx(adjusted_rand_score(true, labels), abs=1e-9)
    assert pair_evidence(tree, probability, true).expected_ari == pytest.approx(1)


@given(seed=SEEDS, clusters=st.integers(1, 5))
def test_precision_and_recall_are_shares_of_pairs(seed, clusters):
    generator = np.random.default_rng(seed)
    tree = merge_tree(rows_of(seed, 12), "ward")
    probability, labels = generator.random(11), in_order(generator.integers(0, clusters, 12))
    alike = together = found = 0.0
    for merge, pairs in enumerate(pairs_by_merge(tree)):
        for one, two in pairs:
            alike += probability[merge]
            together += labels[one] == labels[two]
            found += probability[merge] * (labels[one] == labels[two])
    evidence = pair_evidence(tree, probability, labels)
    # With one pair more in each, which is of one category and together.
    assert evidence.precision == pytest.approx((found + 1) / (together + 1))
    assert evidence.recall == pytest.approx((found + 1) / (alike + 1))
    assert evidence.relative_pairs == pytest.approx(np.log((together + 1) / (alike + 1)))


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_a_single_cluster_is_as_good_as_its_last_merge_is_probable(probability):
    tree = merge_tree(rows_of(0, 6), "ward")
    given_ = np.append(np.ones(4), probability)
    assert pair_evidence(tree, given_, np.zeros(6, np.int64)).expected_ari == probability


def test_a_tree_of_one_row_has_no_pairs():
    tree = MergeTree.of(np.empty((0, 4)))
    assert tree.pairs_within(np.zeros(1, np.int64)).shape == (0,)
    assert pair_evidence(tree, np.empty(0), np.zeros(1, np.int64)).expected_ari == 1


@given(seed=SEEDS, rows=st.integers(2, 40), method=st.sampled_from(METHODS))
def test_two_rows_are_joined_by_the_first_merge_that_has_both(seed, rows, method):
    tree = merge_tree(rows_of(seed, rows), method)
    low, high = np.triu_indices(rows, 1)
    found = tree.joins(low, high)
    for one, two, merge in zip(tree.order[low].tolist(), tree.order[high].tolist(), found.tolist(), strict=True):
        both = [node for node in range(rows, 2 * rows - 1) if {one, two} <= members(tree, node)]
        assert merge == both[0] - rows


@given(seed=SEEDS, rows=st.integers(1, 40), method=st.sampled_from(METHODS))
def test_levels_hold_every_merge_once_after_what_it_joins(seed, rows, method):
    tree = merge_tree(rows_of(seed, rows), method)
    made = set(range(rows))
    for merges in tree.levels:
        assert {*tree.first[merges].tolist(), *tree.second[merges].tolist()} <= made
        made |= {rows + merge for merge in merges.tolist()}
    assert sorted(made) == list(range(2 * rows - 1))
    assert sum(len(merges) for merges in tree.levels) == rows - 1
