"""The learned selector: its features against scikit-learn and loops, and what it learns."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score, silhouette_samples, silhouette_score

from metaclust.inference.features import adjusted_rand_indices, describe, first_axes, silhouette
from metaclust.inference.train_selector import Example, fit_selector
from metaclust.model.selector import FEATURES, SelectorNetwork


def blobs(seed, clusters=4, rows=30, width=5, spread=1.0):
    rng = np.random.default_rng(seed)
    centres = 6 * rng.normal(size=(clusters, width))
    y = np.repeat(np.arange(clusters), rows)
    return centres[y] + spread * rng.normal(size=(len(y), width)), y


def feature(features, name):
    return features[:, FEATURES.index(name)]


@pytest.mark.parametrize("seed", range(5))
def test_the_silhouette_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    z, labels = rng.normal(size=(40, 3)), rng.integers(0, 5, 40)
    labels[:6] = [0, 1, 2, 3, 4, 5]
    distances = np.linalg.norm(z[:, None] - z, axis=-1)
    ours = silhouette(distances, np.eye(6)[labels])
    np.testing.assert_allclose(ours, silhouette_samples(z, labels), atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_agreements_are_the_adjusted_rand_indices_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    candidates = [np.unique(rng.integers(0, k, 50), return_inverse=True)[1] for k in (1, 2, 3, 7, 30)]
    expected = [[adjusted_rand_score(one, other) for other in candidates] for one in candidates]
    np.testing.assert_allclose(adjusted_rand_indices(candidates), expected, atol=1e-12)


def test_features_say_what_they_are_called():
    z, y = blobs(0)
    merged, parted = np.minimum(y, 2), y.copy()
    parted[y == 0] = np.where(z[y == 0][:, 0] > z[y == 0][:, 0].mean(), 0, 4)
    expected = np.mean([z[y == k].var(0, ddof=1).sum() for k in range(4)])
    bounds = [-1.0, -2.0, -1.5, -4.0]
    features = describe(z, [y, merged, parted, np.zeros_like(y)], expected, bounds)
    assert features.shape == (4, 2 * len(FEATURES))
    assert np.isfinite(features).all()
    np.testing.assert_allclose(
        feature(features, "silhouette")[:3], [silhouette_score(z, k) for k in (y, merged, parted)]
    )
    np.testing.assert_allclose(feature(features, "within over expected")[0], 0, atol=1e-5)
    # Two clusters taken for one are wide, long and flat; one cluster cut in two has a small gap.
    for name in ("widest over expected", "largest first axis"):
        assert feature(features, name)[1] > feature(features, name)[0] + 0.5
    assert feature(features, "flattest")[1] < feature(features, "flattest")[0] - 0.5
    assert feature(features, "nearest gap")[2] < feature(features, "nearest gap")[0] - 0.5
    assert feature(features, "evenness")[0] == pytest.approx(0)
    assert feature(features, "evenness")[1] < -0.01
    np.testing.assert_allclose(np.exp(feature(features, "log clusters")), [4, 3, 5, 1])
    np.testing.assert_allclose(feature(features, "bound"), [0, -1, -0.5, -3])
    # The second half: how far each is below the highest.
    np.testing.assert_allclose(features[:, len(FEATURES) :].max(0), 0)


def test_features_have_no_unit():
    z, y = blobs(1)
    candidates = [y, np.minimum(y, 2), np.zeros_like(y)]
    np.testing.assert_allclose(
        describe(z, candidates, 5.0, [1, 2, 3]), describe(100 * z - 7, candidates, 5e4, [1, 2, 3]), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(
    ("z", "labels"),
    [
        (np.zeros((6, 2)), [0, 0, 1, 1, 2, 2]),
        (np.ones((1, 3)), [0]),
        (np.arange(4.0)[:, None], [0, 1, 2, 3]),
        (np.arange(4.0)[:, None], [5, 5, 9, 9]),
    ],
    ids=["all equal", "one row", "each its own", "numbers left out"],
)
def test_features_of_strange_rows_are_finite(z, labels):
    assert np.isfinite(describe(z, [np.array(labels), np.zeros(len(z), np.int64)], 1.0, [0.0, 0.0])).all()


def test_more_rows_than_the_silhouette_looks_at():
    z, y = blobs(2, rows=400)
    assert len(z) > 1000
    (found,) = feature(describe(z, [y], 5.0, [0.0]), "silhouette")
    assert found == pytest.approx(silhouette_score(z, y), abs=0.03)


def test_the_first_axis_is_the_first_eigenvector():
    rng = np.random.default_rng(0)
    rest = rng.normal(size=(200, 4)) * [5, 1, 1, 1]
    rest -= rest.mean(0)
    width = np.array([np.square(rest).sum() / 199])
    share, kurtosis = first_axes(rest, np.zeros(200, int), np.array([200.0]), width)
    values, vectors = np.linalg.eigh(np.cov(rest.T, ddof=0))
    along = rest @ vectors[:, -1]
    np.testing.assert_allclose(np.exp(share), values[-1] / width, rtol=1e-3)
    np.testing.assert_allclose(kurtosis, np.mean(along**4) / np.mean(along**2) ** 2, rtol=1e-3)


def examples(seed, count):
    """Candidates from one feature that tells and others that do not."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        features = rng.normal(size=(rng.integers(3, 9), 2 * len(FEATURES)))
        made.append(Example(features, 1 / (1 + np.exp(-3 * features[:, 7]))))
    return made


def test_it_learns_which_feature_tells():
    choice = fit_selector(examples(0, 120))
    chosen = [example.ari[choice.scores(example.features).argmax()] for example in examples(1, 60)]
    best = [example.ari.max() for example in examples(1, 60)]
    assert np.mean(chosen) > np.mean(best) - 0.02


def test_learning_is_the_same_again_and_leaves_the_random_numbers_of_others_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    one, two = fit_selector(examples(0, 5), steps=20), fit_selector(examples(0, 5), steps=20)
    assert torch.equal(torch.rand(1), expected)
    features = examples(2, 1)[0].features
    np.testing.assert_array_equal(one.scores(features), two.scores(features))
    assert not np.array_equal(fit_selector(examples(0, 5), steps=20, seed=1).scores(features), one.scores(features))


def test_no_examples_are_an_error():
    with pytest.raises(ValueError, match="examples is empty"):
        fit_selector([])


def test_weights_go_to_a_file_and_back():
    one = fit_selector(examples(0, 5), steps=5)
    two = SelectorNetwork()
    two.load_state_dict(one.state_dict())
    features = examples(2, 1)[0].features
    np.testing.assert_array_equal(one.scores(features), two.scores(features))
