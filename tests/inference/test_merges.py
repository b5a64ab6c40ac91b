"""The features of merges: nodes and neighbours against direct computation, and what must not change features."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from metaclust.inference import merges as merges_module
from metaclust.inference.merges import Nodes, merge_features, neighbours
from metaclust.inference.trees import merge_trees
from metaclust.model.selector import MERGE_FEATURES

SEEDS = st.integers(0, 2**32 - 1)
METHODS = ("ward", "average")


def blobs(seed, rows=40, columns=4, clusters=4, separation=4.0):
    generator = np.random.default_rng(seed)
    centres = separation * generator.normal(size=(clusters, columns))
    z = centres[generator.integers(0, clusters, rows)] + generator.normal(size=(rows, columns))
    return z - z.mean(0)


def features_of(z, expected, method="ward"):
    return merge_features(z, merge_trees(z, (method,))[0], *neighbours(z), expected)


@given(seed=SEEDS, rows=st.integers(2, 60), columns=st.integers(1, 6), block=st.integers(1, 70))
def test_neighbours_are_those_of_scikit_learn(seed, rows, columns, block):
    z = blobs(seed, rows, columns)
    count = min(10, rows - 1)
    index, distance = neighbours(z, block=block)
    expected, _ = NearestNeighbors(n_neighbors=count).fit(z).kneighbors()
    assert index.shape == distance.shape == (rows, count)
    # Of rows at nearly one distance either may come first.
    scale = np.square(z).sum(1).max()
    np.testing.assert_allclose(distance, np.square(expected), atol=2e-6 * scale)
    np.testing.assert_allclose(np.square(z[index] - z[:, None]).sum(-1), np.square(expected), atol=4e-6 * scale)
    assert (index != np.arange(rows)[:, None]).all()
    assert all(len(set(each)) == count for each in index.tolist())


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_neighbours_do_not_depend_on_the_unit(scale):
    z = blobs(0)
    index, distance = neighbours(z)
    scaled_index, scaled_distance = neighbours(scale * z)
    np.testing.assert_array_equal(scaled_index, index)
    np.testing.assert_allclose(scaled_distance, scale**2 * distance, rtol=1e-3)


def test_one_row_has_no_neighbours():
    index, distance = neighbours(np.zeros((1, 3)))
    assert index.shape == distance.shape == (1, 0)


@pytest.mark.parametrize("method", METHODS)
@given(seed=SEEDS, rows=st.integers(1, 25), columns=st.integers(1, 4))
def test_nodes_have_the_mean_of_their_rows_and_the_squares_around_it(method, seed, rows, columns):
    z = blobs(seed, rows, columns)
    tree = merge_trees(z, (method,))[0]
    nodes = Nodes.of(z, tree)
    for node in range(2 * rows - 1):
        own = z[tree.order[tree.start[node] : tree.start[node] + tree.size[node]]]
        np.testing.assert_allclose(nodes.centre[node], own.mean(0), atol=1e-9)
        np.testing.assert_allclose(nodes.squares[node], np.square(own - own.mean(0)).sum(), atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_features_say_what_they_are_called(method):
    z = blobs(3, rows=50)
    expected = 2.5
    tree = merge_trees(z, (method,))[0]
    features = dict(zip(MERGE_FEATURES[:-1], features_of(z, expected, method).T, strict=True))
    rows = len(z)
    for merge in range(rows - 1):
        sides = [
            tree.order[tree.start[n] : tree.start[n] + tree.size[n]] for n in (tree.first[merge], tree.second[merge])
        ]
        small, large = sorted((z[side] for side in sides), key=len)
        distance = np.square(small.mean(0) - large.mean(0)).sum()
        own = [np.square(side - side.mean(0)).sum() for side in (small, large)]
        assert features["log rows of the smaller"][merge] == pytest.approx(np.log(len(small)))
        assert features["log rows of the larger"][merge] == pytest.approx(np.log(len(large)))
        assert features["log share of the rows"][merge] == pytest.approx(np.log((len(small) + len(large)) / rows))
        assert features["distance over expected"][merge] == pytest.approx(np.log(distance / expected + 1e-4))
        pooled = (sum(own) + 0.5 * expected) / (len(small) + len(large) - 1.5)
        assert features["distance over variance"][merge] == pytest.approx(np.log(distance / pooled + 1e-4))
        if len(small) != len(large):
            wide = [
                (square + 0.5 * expected) / (len(side) - 0.5) for square, side in zip(own, (small, large), strict=True)
            ]
            assert features["variance of the smaller"][merge] == pytest.approx(np.log(wide[0] / expected))
            assert features["variance of the larger"][merge] == pytest.approx(np.log(wide[1] / expected))
    np.testing.assert_allclose(features["variance of all"], np.log(z.var(0, ddof=1).sum() / expected))
    near = np.linalg.norm(z[:, None] - z, axis=-1)
    np.fill_diagonal(near, np.inf)
    nearest = np.median(np.square(near.min(1)))
    np.testing.assert_allclose(features["nearest over expected"], np.log(nearest / expected), rtol=1e-3, atol=1e-3)
    assert sorted(np.round(np.exp(features["log rank"])).tolist()) == list(range(1, rows))


def lies_between(z, tree, near, merge, variance):
    """The five features of what lies between the two sides of a merge, row by row."""
    sides = [tree.order[tree.start[n] : tree.start[n] + tree.size[n]] for n in (tree.first[merge], tree.second[merge])]
    one, two = sorted(sides, key=len)
    apart = z[two].mean(0) - z[one].mean(0)
    distance = np.sqrt(apart @ apart)
    axis = apart / distance
    along = [(z[side] - z[side].mean(0)) @ axis for side in (one, two)]
    deviation = np.sqrt((sum(a @ a for a in along) + 6 * variance) / (len(one) + len(two) - 2 + 6))
    beyond = ((along[0] > distance / 2).sum() + (along[1] < -distance / 2).sum()) / (len(one) + len(two))
    both = np.concatenate([z[one], z[two]])
    both = (both - both.mean(0)) @ axis
    flatness = np.abs(both).mean() / np.sqrt(np.square(both).mean()) if len(one) > 2 else 0.9
    crossing = []
    for own, other in ((one, two), (two, one)):
        to_own, to_other = np.isin(near[own], own).sum(), np.isin(near[own], other).sum()
        chance = len(other) / (len(one) + len(two) - 1)
        crossing.append(np.log((to_other + 0.5) / (to_own + to_other + 0.5) / chance))
    return np.log(distance / deviation + 1e-2), beyond, flatness, *crossing


@pytest.mark.parametrize("few", [0, 6, 1000])
@given(seed=SEEDS, rows=st.integers(2, 50), method=st.sampled_from(METHODS))
def test_what_lies_between_two_sides_is_that_of_their_rows(few, seed, rows, method):
    z, expected = blobs(seed, rows), 2.5
    tree, near = merge_trees(z, (method,))[0], neighbours(z)
    with pytest.MonkeyPatch.context() as patch:
        # Merges of few rows are described together, those of many one by one.
        patch.setattr(merges_module, "FEW_ROWS", few)
        patch.setattr(merges_module, "BLOCK", 100)
        features = merge_features(z, tree, *near, expected)
    names = ("gap", "beyond the middle", "flatness", "neighbours of the smaller", "neighbours of the larger")
    nodes = Nodes.of(z, tree)
    own = nodes.squares[tree.first] + nodes.squares[tree.second]
    pooled = (own + 0.5 * expected) / (tree.size[tree.first] + tree.size[tree.second] - 1.5)
    for merge in range(rows - 1):
        if tree.size[tree.first[merge]] == tree.size[tree.second[merge]]:
            continue
        found = [features[merge, MERGE_FEATURES.index(name)] for name in names]
        right = lies_between(z, tree, near[0], merge, pooled[merge] / z.shape[1])
        np.testing.assert_allclose(found, right, rtol=1e-6, atol=1e-6)


def test_two_clusters_apart_have_a_gap_and_one_cut_in_two_has_none():
    generator = np.random.default_rng(0)
    one = generator.normal(size=(200, 3))
    two = one + np.repeat([[8, 0, 0], [-8, 0, 0]], 100, 0)
    last = [features_of(z - z.mean(0), 3.0)[-1] for z in (two, one)]
    apart, cut = (dict(zip(MERGE_FEATURES[:-1], each, strict=True)) for each in last)
    assert apart["gap"] > cut["gap"] + 1
    assert apart["beyond the middle"] == 0
    assert apart["neighbours of the smaller"] < cut["neighbours of the smaller"] - 1
    # The mean absolute value over the standard deviation: 1 for two points, 0.8 for a Gaussian.
    assert apart["flatness"] > 0.95
    assert cut["flatness"] < 0.9


STRANGE = {
    "all equal": np.zeros((6, 2)),
    "all equal but one": np.array([[1.0, 0.0]] * 5 + [[-5.0, 0.0]]),
    "one column": np.arange(9.0)[:, None] - 4,
    "two rows": np.array([[1.0, 2.0], [-1.0, -2.0]]),
    "two equal rows": np.zeros((2, 3)),
    "twice each": np.repeat(np.arange(4.0)[:, None] - 1.5, 2, 0),
    "very far apart": np.array([[1e9, 0.0]] * 3 + [[-1e9, 0.0]] * 3),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("z", STRANGE.values(), ids=STRANGE)
def test_features_of_strange_rows_are_finite(z, method):
    features = features_of(z, 1.0, method)
    assert features.shape == (len(z) - 1, len(MERGE_FEATURES) - 1)
    assert np.isfinite(features).all()


def test_one_row_has_no_merges():
    assert features_of(np.zeros((1, 2)), 1.0).shape == (0, len(MERGE_FEATURES) - 1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-15, 1e-3, 0.37, 1e4, 1e15])
def test_features_have_no_unit(method, scale):
    z = blobs(1, rows=60)
    np.testing.assert_allclose(
        features_of(scale * z, scale**2 * 3.0, method), features_of(z, 3.0, method), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("method", METHODS)
@given(seed=SEEDS, rows=st.integers(2, 40))
def test_the_order_of_rows_changes_no_features(method, seed, rows):
    z = blobs(seed, rows)
    order = np.random.default_rng(seed).permutation(rows)
    one, two = features_of(z, 3.0, method), features_of(z[order], 3.0, method)
    # Of a merge of two nodes of one size, either may be called the smaller.
    ties = np.isclose(one[:, 0], one[:, 1])
    np.testing.assert_allclose(two[~ties], one[~ties], rtol=1e-5, atol=1e-5)
    same = [place for place, name in enumerate(MERGE_FEATURES[:-1]) if "of the " not in name]
    np.testing.assert_allclose(two[:, same], one[:, same], rtol=1e-5, atol=1e-5)
    for name in ("variance of the {}", "neighbours of the {}"):
        both = [MERGE_FEATURES.index(name.format(side)) for side in ("smaller", "larger")]
        np.testing.assert_allclose(np.sort(two[:, both][ties]), np.sort(one[:, both][ties]), rtol=1e-5, atol=1e-5)
