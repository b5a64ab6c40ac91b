"""The learned selector: its features against direct computation and scikit-learn, and what it learns."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import NearestNeighbors

from metaclust.inference.features import (
    Evidence,
    adjusted_rand_indices,
    describe,
    merge_probabilities,
)
from metaclust.inference.groups import Groups, nearest_gaps, principal_axes
from metaclust.inference.partitions import Partitions
from metaclust.inference.select import (
    FARTHEST_BELOW,
    LIKELY,
    SINGLE,
    SINGLE_ROWS,
    highest_expected,
    probability_of_one,
    with_single_cluster,
)
from metaclust.inference.shapes import Shapes, gaps_between, silhouettes
from metaclust.inference.stages import in_order
from metaclust.inference.train_selector import (
    Example,
    MergeExample,
    RowExample,
    fit_confidence,
    fit_merges,
    fit_scores,
)
from metaclust.model.selector import (
    CONFIDENCE_FEATURES,
    CONTEXT,
    FEATURES,
    MERGE_FEATURES,
    SHAPE_FEATURES,
    FeatureNetwork,
    SelectorNetwork,
    sigmoid,
)

SEEDS = st.integers(0, 2**32 - 1)


def blobs(seed, clusters=4, rows=30, columns=5, spread=1.0):
    rng = np.random.default_rng(seed)
    centres = 6 * rng.normal(size=(clusters, columns))
    y = np.repeat(np.arange(clusters), rows)
    z = centres[y] + spread * rng.normal(size=(len(y), columns))
    return z - z.mean(0), y


def described(z, candidates, expected=5.0, network=None):
    evidence = Evidence(z, expected)
    if network is None:
        torch.manual_seed(0)
        network = SelectorNetwork()
    return describe(evidence, merge_probabilities(evidence, network), candidates)


def named(features):
    return dict(zip(FEATURES, features.T, strict=True))


def shape_of(z, labels, expected=5.0):
    return dict(zip(SHAPE_FEATURES, Evidence(z, expected).shapes(Partitions.of([labels]))[0], strict=True))


def direct_silhouettes(z, labels):
    """By the distance to the mean of the other rows of a row's cluster, and to the nearest mean of another."""
    found = []
    for row, label in enumerate(labels):
        others = [z[labels == other].mean(0) for other in np.unique(labels) if other != label]
        own = (labels == label) & (np.arange(len(z)) != row)
        if not others or not own.any():
            found.append(0.0)
            continue
        a = np.linalg.norm(z[row] - z[own].mean(0))
        b = min(np.linalg.norm(z[row] - centre) for centre in others)
        found.append((b - a) / max(a, b))
    return np.array(found)


@given(seed=SEEDS, clusters=st.integers(1, 6))
def test_silhouettes_are_by_distances_to_means(seed, clusters):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(30, 3))
    labels = np.append(np.arange(clusters), rng.integers(0, clusters, 30 - clusters))
    partitions, rows = Partitions.of([labels]), z.astype(np.float32)
    expected = direct_silhouettes(z, labels)
    shapes = Shapes.of(rows, np.empty((30, 0), np.int64), partitions)
    np.testing.assert_allclose(silhouettes(rows, shapes, partitions)[0], expected[partitions.order[0]], atol=1e-5)
    found = shape_of(z - z.mean(0), labels)
    # Features are computed in single precision.
    assert found["silhouette"] == pytest.approx(expected.mean(), abs=1e-5)
    if clusters > 1:
        of_clusters = [expected[labels == cluster].mean() for cluster in range(clusters)]
        assert found["low silhouette"] == pytest.approx(np.quantile(expected, 0.1), abs=1e-5)
        assert found["share without silhouette"] == pytest.approx((expected < 0.02).mean())
        assert found["silhouette of the worst"] == pytest.approx(min(of_clusters), abs=1e-5)


@pytest.mark.parametrize("width", [1e-2, 1e-3, 1e-4])
def test_silhouettes_of_narrow_clusters_beside_far_ones_are_exact_enough(width):
    rng = np.random.default_rng(0)
    category = np.repeat(np.arange(10), 20)
    z = 3 * rng.normal(size=(10, 8))[category] + width * rng.normal(size=(200, 8))
    labels = 2 * category + np.tile([0, 1], 100)
    expected = direct_silhouettes(z, labels)
    found = shape_of(z - z.mean(0), labels)
    assert found["silhouette"] == pytest.approx(expected.mean(), abs=1e-2)
    assert found["low silhouette"] == pytest.approx(np.quantile(expected, 0.1), abs=1e-2)


def test_rows_that_differ_by_rounding_alone_have_no_long_axis():
    z = np.full((200, 16), 0.1)
    assert shape_of(z - z.mean(0), np.zeros(200, np.int64))["largest first axis"] < 0.1


@pytest.mark.parametrize("seed", range(5))
def test_agreements_are_the_adjusted_rand_indices_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    candidates = [np.unique(rng.integers(0, k, 50), return_inverse=True)[1] for k in (1, 2, 3, 7, 30)]
    expected = [[adjusted_rand_score(one, other) for other in candidates] for one in candidates]
    np.testing.assert_allclose(adjusted_rand_indices(candidates), expected, atol=1e-12)


@pytest.mark.parametrize("count", [1, 5, 10])
def test_neighbours_in_the_cluster_are_those_of_scikit_learn(count):
    z, _ = blobs(3, spread=4.0)
    labels = np.append(np.arange(4), np.random.default_rng(0).integers(0, 4, len(z) - 4))
    near = NearestNeighbors(n_neighbors=count).fit(z).kneighbors(return_distance=False)
    name = {1: "nearest in cluster", 5: "five nearest in cluster", 10: "ten nearest in cluster"}[count]
    assert np.bincount(labels).min() > 10
    assert shape_of(z, labels)[name] == pytest.approx((labels[near] == labels[:, None]).mean())


def test_features_say_what_they_are_called():
    z, y = blobs(0)
    merged, parted = np.minimum(y, 2), y.copy()
    parted[y == 0] = np.where(z[y == 0][:, 0] > z[y == 0][:, 0].mean(), 0, 4)
    expected = np.mean([z[y == k].var(0, ddof=1).sum() for k in range(4)])
    found = [shape_of(z, labels, expected) for labels in (y, merged, parted, np.zeros_like(y))]
    true, wide, halves, one = found
    assert true["within over expected"] == pytest.approx(0, abs=1e-5)
    assert one["within over all"] == pytest.approx(0, abs=1e-5)
    # Two clusters taken for one are wide, long and flat; one cluster cut in two has a small gap.
    for name in ("wide over expected", "largest first axis"):
        assert wide[name] > true[name] + 0.5
    assert wide["least kurtosis"] < true["least kurtosis"] - 0.5
    assert wide["most flatness"] > true["most flatness"] + 0.05
    assert wide["least crossing"] < true["least crossing"] - 0.2
    assert halves["nearest gap"] < true["nearest gap"] - 0.5
    assert halves["nearest in cluster"] < true["nearest in cluster"]
    assert true["evenness"] == pytest.approx(0)
    assert wide["evenness"] < -0.01
    assert [round(np.exp(each["log clusters"])) for each in found] == [4, 3, 5, 1]
    assert np.exp(halves["log rows of the smallest"]) == pytest.approx(np.bincount(parted).min())
    alone = y.copy()
    alone[[0, 40]], alone[[1, 2]] = [4, 5], 6
    assert shape_of(z, alone)["rows alone"] == pytest.approx(2 / len(z))
    assert shape_of(z, alone)["rows in small clusters"] == pytest.approx(4 / len(z))


def test_pairs_are_compared_by_the_probabilities_of_both_trees():
    z, y = blobs(1)
    evidence = Evidence(z, 5.0)
    known = [tree.pairs_within(y) / tree.pairs for tree in evidence.trees]
    candidates = [y, np.minimum(y, 2), np.minimum(y, 1)]
    found = named(describe(evidence, known, candidates))
    expected = [adjusted_rand_score(y, labels) for labels in candidates]
    for tree in ("ward", "average"):
        np.testing.assert_allclose(found[f"expected ARI, {tree}"], expected, atol=1e-9)
    np.testing.assert_allclose(found["expected ARI below the best"], np.array(expected) - 1, atol=1e-9)


def test_the_change_of_a_feature_is_that_towards_another_cut_of_the_tree():
    z, _ = blobs(2, clusters=6)
    evidence = Evidence(z, 5.0)
    # A number whose half and double are among the cuts that are known: 1, 2, 3, 4, 6, ...
    labels = evidence.trees[0].cut(2)
    found = named(described(z, [labels]))
    for name in CONTEXT:
        for ratio, number in (("0.50", 1), ("2.00", 4)):
            change = shape_of(z, evidence.trees[0].cut(number))[name] - shape_of(z, labels)[name]
            assert found[f"{name}, {ratio}"][0] == pytest.approx(change, abs=1e-9)


def test_features_do_not_depend_on_the_other_candidates():
    z, y = blobs(1)
    candidates = [y, np.minimum(y, 2), np.zeros_like(y)]
    together = named(described(z, candidates))
    for place, labels in enumerate(candidates):
        alone = named(described(z, [labels]))
        for name in FEATURES:
            if name != "expected ARI below the best":
                assert alone[name][0] == pytest.approx(together[name][place], abs=1e-12)


@pytest.mark.parametrize("scale", [1e-10, 100, 1e10])
def test_features_have_no_unit(scale):
    z, y = blobs(1)
    candidates = [y, np.minimum(y, 2), np.zeros_like(y)]
    np.testing.assert_allclose(
        described(scale * z, candidates, 5.0 * scale**2), described(z, candidates), rtol=1e-3, atol=1e-3
    )


def test_the_order_of_rows_and_the_numbers_of_clusters_change_no_features():
    z, y = blobs(1, spread=3.0)
    order = np.random.default_rng(0).permutation(len(z))
    candidates = [y, np.minimum(y, 2), np.zeros_like(y)]
    features = described(z, candidates)
    again = described(z[order], [(3 - y)[order], (2 - np.minimum(y, 2))[order], candidates[2]])
    np.testing.assert_allclose(again, features, rtol=1e-5, atol=1e-5)


STRANGE = {
    "all equal": (np.zeros((6, 2)), [0, 0, 1, 1, 2, 2]),
    "one row": (np.zeros((1, 3)), [0]),
    "two rows": (np.array([[-1.0], [1.0]]), [0, 1]),
    "each its own": (np.arange(4.0)[:, None] - 1.5, [0, 1, 2, 3]),
    "one column": (np.arange(9.0)[:, None] - 4, [0, 0, 0, 1, 1, 1, 2, 2, 2]),
    "one apart": (np.array([[0.0, 0.0]] * 9 + [[1e6, 0.0]]) - [1e5, 0.0], [0] * 9 + [1]),
    "twice each": (np.repeat(np.arange(4.0)[:, None] - 1.5, 2, 0), [0, 0, 1, 1, 2, 2, 3, 3]),
}


@pytest.mark.parametrize(("z", "labels"), STRANGE.values(), ids=STRANGE)
def test_features_of_strange_rows_are_finite(z, labels):
    features = described(z, [np.array(labels), np.zeros(len(z), np.int64)], 1.0)
    assert features.shape == (2, len(FEATURES))
    assert np.isfinite(features).all()


def test_the_principal_axis_is_the_first_eigenvector():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 4)) * [5, 1, 1, 1] @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
    groups = Groups.of(z, np.zeros(200, np.int64))
    rest = z - z.mean(0)
    along = principal_axes(groups, rest)
    _, vectors = np.linalg.eigh(np.cov(rest.T))
    np.testing.assert_allclose(np.abs(along), np.abs(rest @ vectors[:, -1]), atol=1e-2)


@given(seed=SEEDS)
def test_gaps_are_in_deviations_along_the_way_to_the_nearest_centre(seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(40, 3)).astype(np.float32)
    labels = np.append(np.arange(4), rng.integers(0, 4, 36))
    groups = Groups.of(z, labels)
    expected = nearest_gaps(groups, groups.rows - groups.centre[groups.labels], 1.5)
    partitions = Partitions.of([labels])
    shapes = Shapes.of(z, np.empty((40, 0), np.int64), partitions)
    apart = np.linalg.norm(groups.centre[:, None] - groups.centre, axis=-1)
    np.fill_diagonal(apart, np.inf)
    one, other = partitions.cluster, partitions.cluster[apart.argmin(1)]
    gap, spread = gaps_between(shapes, partitions, one, other)
    found = np.log(gap / np.sqrt((spread + 5 * 1.5 / 3) / (groups.size - 1 + 5)) + 1e-6)
    np.testing.assert_allclose(found, expected, atol=1e-4)


TELLS = FEATURES.index("low silhouette")


def examples(seed, count):
    """Candidates from one feature that tells and others that do not."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        features = rng.normal(size=(rng.integers(3, 9), len(FEATURES)))
        made.append(Example(features, 1 / (1 + np.exp(-3 * features[:, TELLS]))))
    return made


def fitted(seed=0, steps=20, count=5):
    torch.manual_seed(0)
    return fit_scores(SelectorNetwork().scores, examples(0, count), steps=steps, seed=seed)


def test_it_learns_which_feature_tells():
    network = fitted(steps=400, count=500)
    chosen = [example.worth[network.outputs(example.features).argmax()] for example in examples(1, 60)]
    best = [example.worth.max() for example in examples(1, 60)]
    # At random it would be much lower.
    assert np.mean([example.worth.mean() for example in examples(1, 60)]) < np.mean(best) - 0.2
    assert np.mean(chosen) > np.mean(best) - 0.04


def test_merges_learn_the_share_of_pairs():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(3000, len(MERGE_FEATURES)))
    odds = 2 * features[:, MERGE_FEATURES.index("gap")] - 1
    torch.manual_seed(0)
    parts = [slice(start, start + 300) for start in range(0, 3000, 300)]
    made = [MergeExample(features[part], sigmoid(odds[part]), rng.uniform(1, 50, 300)) for part in parts]
    network = fit_merges(SelectorNetwork().merges, made, steps=400)
    new = rng.normal(size=(500, len(MERGE_FEATURES)))
    truth = sigmoid(2 * new[:, MERGE_FEATURES.index("gap")] - 1)
    assert np.abs(sigmoid(network.outputs(new)) - truth).mean() < 0.06


def test_the_confidence_is_learned_from_right_and_wrong_rows():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(6000, len(CONFIDENCE_FEATURES)))
    truth = sigmoid(1.5 * features[:, CONFIDENCE_FEATURES.index("silhouette")] + 0.5)
    right = (rng.random(6000) < truth).astype(np.float64)
    torch.manual_seed(0)
    network = fit_confidence(SelectorNetwork().confidence, [RowExample(features[:4000], right[:4000])], steps=300)
    found = sigmoid(network.outputs(features[4000:]))
    # Of rows with a confidence of about p, a share of about p is right.
    for low in np.arange(0.1, 0.9, 0.2):
        place = (found >= low) & (found < low + 0.2)
        assert right[4000:][place].mean() == pytest.approx(found[place].mean(), abs=0.1)


FITS = {
    "scores": (fit_scores, lambda: examples(0, 5), len(FEATURES)),
    "merges": (
        fit_merges,
        lambda: [MergeExample(np.eye(9, len(MERGE_FEATURES)), np.linspace(0, 1, 9), np.arange(1.0, 10))],
        len(MERGE_FEATURES),
    ),
    "confidence": (
        fit_confidence,
        lambda: [RowExample(np.eye(9, len(CONFIDENCE_FEATURES)), np.arange(9) % 2.0)],
        len(CONFIDENCE_FEATURES),
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_learning_is_the_same_again_and_leaves_the_random_numbers_of_others_alone(name):
    fit, make, columns = FITS[name]

    def outputs(seed):
        torch.manual_seed(3)
        network = getattr(SelectorNetwork(), name)
        state = torch.get_rng_state()
        fit(network, make(), steps=20, seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        assert not network.training
        return network.outputs(np.random.default_rng(0).normal(size=(7, columns)))

    np.testing.assert_array_equal(outputs(0), outputs(0))
    assert not np.array_equal(outputs(1), outputs(0))


def test_only_a_fresh_network_is_standardized():
    features = np.concatenate([example.features for example in examples(0, 5)])
    network = fitted()
    np.testing.assert_allclose(network.mean.numpy(), features.mean(0), atol=1e-6)
    mean, spread = network.mean.clone(), network.spread.clone()
    fit_scores(network, examples(7, 5), steps=5, fresh=False)
    assert torch.equal(network.mean, mean)
    assert torch.equal(network.spread, spread)


def test_no_examples_are_an_error():
    with pytest.raises(ValueError, match="examples is empty"):
        fit_scores(FeatureNetwork(len(FEATURES), (8,)), [], steps=5)


def test_weights_go_to_a_file_and_back():
    one, two = fitted(steps=5), SelectorNetwork().scores
    two.load_state_dict(one.state_dict())
    features = examples(2, 1)[0].features
    np.testing.assert_array_equal(one.outputs(features), two.outputs(features))


@given(seed=st.integers(0, 999), count=st.integers(1, 8))
def test_the_highest_expected_index_is_that_of_brute_force(seed, count):
    generator = np.random.default_rng(seed)
    partitions = [in_order(generator.integers(0, generator.integers(1, 5), 20)) for _ in range(count)]
    scores = 3 * generator.normal(size=count)
    probability = softmax(scores)
    likely = [place for place in range(count) if probability[place] >= min(LIKELY, probability.max())]
    expected = [
        sum(probability[other] * adjusted_rand_score(partitions[other], partitions[place]) for other in likely)
        for place in likely
    ]
    found = highest_expected(scores, partitions)
    assert expected[likely.index(found)] == pytest.approx(max(expected), abs=1e-9)


@pytest.mark.parametrize(
    ("probability", "rows", "score", "highest"),
    [
        (SINGLE + 0.01, 50, -3.0, 1),
        (SINGLE - 0.01, 50, -3.0, 2),
        (SINGLE + 0.01, SINGLE_ROWS, -3.0, 1),
        (SINGLE + 0.01, SINGLE_ROWS + 1, -3.0, 2),
        (SINGLE + 0.01, SINGLE_ROWS + 1, 3.0, 1),
        (SINGLE - 0.01, SINGLE_ROWS + 1, 3.0, 2),
        (SINGLE - 0.01, SINGLE_ROWS, 3.0, 1),
        (SINGLE + 0.01, 50, 0.71 - FARTHEST_BELOW, 1),
        (SINGLE + 0.01, 50, 0.69 - FARTHEST_BELOW, 2),
    ],
)
def test_a_single_cluster_is_best_where_the_last_merges_say_so(probability, rows, score, highest):
    scores, single = np.array([0.1, score, 0.7]), np.array([False, True, False])
    changed = with_single_cluster(scores, single, probability, rows)
    assert changed.argmax() == highest
    np.testing.assert_array_equal(changed[~single], scores[~single])
    assert with_single_cluster(scores, np.zeros(3, bool), 1.0, rows) is scores
    assert with_single_cluster(scores[:1], np.ones(1, bool), 0.0, rows) == scores[:1]


def test_the_probability_of_one_is_that_of_the_last_merges():
    assert probability_of_one([np.array([0.9, 0.2]), np.array([0.8, 0.4])]) == pytest.approx(0.3)
    assert probability_of_one([np.empty(0), np.empty(0)]) == 1.0
