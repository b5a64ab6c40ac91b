"""Self-training: its parts against plain computations, and what is the same after an interruption."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch import nn

from metaclust import MetaClusterer
from metaclust._util.tensors import CheckpointError
from metaclust.training.discovery import (
    LEAST_FOUND,
    VectorRows,
    components_of,
    mean_share,
    number_of_categories,
    peak,
    residual_model,
)
from metaclust.training.self_training import (
    SelfTrainer,
    SelfTraining,
    contrastive,
    first_centroids,
    means_of,
    nearest_rows,
    positives,
    rate_share,
    seeded_kmeans,
    spread_votes,
)

SHORT = SelfTraining(warm_steps=6, steps=5, rounds=2, pairs=16, labelled=(8, 8), rows=24, learning_rate=1e-3)
CPU = torch.device("cpu")


def unit_rows(categories: int, each: int, spread: float = 0.25, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    y = np.repeat(np.arange(categories), each)
    x = generator.normal(size=(categories, 12))[y] + spread * generator.normal(size=(len(y), 12))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y


def partly(y: np.ndarray, known: int, each: int) -> np.ndarray:
    codes = np.full(len(y), -1)
    for category in range(known):
        codes[np.flatnonzero(y == category)[:each]] = category
    return codes


def test_the_nearest_rows_are_those_of_all_similarities_sorted():
    z, _ = unit_rows(5, 9)
    similar = z @ z.T
    np.fill_diagonal(similar, -9)
    expected = [set(row[:4]) for row in np.argsort(-similar, 1).tolist()]
    assert [set(row) for row in nearest_rows(z, 4).tolist()] == expected
    assert nearest_rows(z[:3], 10).shape == (3, 2)


def test_rows_are_alike_by_labels_where_both_have_one_and_else_by_being_neighbours():
    generator = np.random.default_rng(0)
    near = np.array([generator.choice(np.delete(np.arange(30), row), 5, replace=False) for row in range(30)])
    known = generator.integers(-1, 3, 30)
    rows = generator.integers(0, 30, 20)
    found = positives(rows, near, known)
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            if known[a] >= 0 and known[b] >= 0:
                expected = known[a] == known[b]
            else:
                expected = a == b or b in near[a] or a in near[b]
            assert found[i, j] == (expected and i != j)


def test_the_contrastive_loss_is_the_mean_of_each_row_by_itself():
    z, _ = unit_rows(3, 4)
    alike = (np.random.default_rng(1).random((12, 12)) < 0.4).astype(np.float32)
    np.fill_diagonal(alike, 0)
    alike[5] = 0
    expected = []
    for row in range(12):
        others = [other for other in range(12) if other != row]
        similar = {other: float(z[row] @ z[other]) / 0.1 for other in others}
        total = np.log(np.sum(np.exp(list(similar.values()))))
        own = [similar[other] - total for other in others if alike[row, other]]
        expected.append(-np.mean(own) if own else 0.0)
    found = contrastive(torch.from_numpy(z), torch.from_numpy(alike), 0.1)
    assert float(found) == pytest.approx(np.mean(expected), rel=1e-4)


def test_votes_are_probabilities_and_labelled_rows_cannot_be_outvoted():
    generator = np.random.default_rng(0)
    near = np.array([generator.choice(np.delete(np.arange(20), row), 4, replace=False) for row in range(20)])
    labels, known = generator.integers(0, 3, 20), np.full(20, -1)
    known[:4] = [0, 1, 2, 0]
    votes = spread_votes(labels, known, near, 3, replace(SHORT, votes=2, weight_of_votes=0.6))
    np.testing.assert_allclose(votes.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(votes[:4], np.eye(3)[known[:4]])
    own = np.eye(3)[labels]
    expected = own
    for _ in range(2):
        expected = np.array([0.4 * own[row] + 0.6 * np.mean([expected[i] for i in near[row]], 0) for row in range(20)])
        expected[:4] = np.eye(3)[known[:4]]
    np.testing.assert_allclose(votes, expected, rtol=1e-5)


def test_clusters_of_known_categories_come_first_and_keep_their_labelled_rows():
    z, y = unit_rows(6, 20)
    known = partly(y, 3, 4)
    start = first_centroids(z, known, 6, np.random.default_rng(0))
    labelled = known >= 0
    np.testing.assert_allclose(start[:3], means_of(z[labelled], known[labelled], 3), rtol=1e-6)
    labels, centroids = seeded_kmeans(z, known, start)
    np.testing.assert_array_equal(labels[labelled], known[labelled])
    # Each category is one cluster, by any matching.
    assert len({(a, b) for a, b in zip(labels.tolist(), y.tolist(), strict=True)}) == 6
    for cluster in range(6):
        mean = z[labels == cluster].mean(0)
        np.testing.assert_allclose(centroids[cluster], mean / np.linalg.norm(mean), rtol=1e-4, atol=1e-6)


def test_a_cluster_without_rows_keeps_its_centroid():
    z, _ = unit_rows(2, 5)
    empty = np.eye(12, dtype=np.float32)[:3]
    found = means_of(z, np.zeros(10, np.int64), 3, empty)
    np.testing.assert_array_equal(found[1:], empty[1:])


def test_the_number_of_categories_is_found_from_few_that_are_known():
    z, y = unit_rows(12, 40)
    assert abs(number_of_categories(z, partly(y, 8, 8), 0) - 12) <= 1


def test_the_peak_of_a_noisy_curve_is_near_that_of_the_curve():
    numbers = np.arange(5, 60)
    noise = 0.004 * np.random.default_rng(0).normal(size=len(numbers))
    assert abs(peak(numbers, 0.8 - np.square(np.log(numbers / 20)) + noise) - 20) <= 1
    assert peak(np.array([4, 8]), np.array([0.2, 0.9])) == 8


def test_the_learning_rate_rises_and_falls():
    shares = [rate_share(step, 100, 0.1) for step in range(100)]
    assert shares[0] == pytest.approx(0.05)
    assert max(shares) <= 1
    assert shares[-1] == pytest.approx(0.1, abs=0.01)


class StoppedError(Exception):
    pass


def trainer(z: np.ndarray, known: np.ndarray, **changes: object) -> SelfTrainer:
    model = residual_model(torch.from_numpy(z), 0, CPU)
    return SelfTrainer(VectorRows(model.encoder, torch.from_numpy(z)), known, lambda _: 6, 0, SHORT, **changes)  # type: ignore[arg-type]


def test_an_interrupted_training_ends_bit_for_bit_where_it_would_have(tmp_path, monkeypatch):
    z, y = unit_rows(6, 20)
    known = partly(y, 4, 4)
    whole = trainer(z, known).run()
    learn = SelfTrainer._learn_clusters

    def interrupted(self: SelfTrainer, stage: int, *rest: object) -> np.ndarray:
        if stage == 2:
            raise StoppedError
        return learn(self, stage, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(SelfTrainer, "_learn_clusters", interrupted)
    with pytest.raises(StoppedError):
        trainer(z, known, folder=tmp_path).run()
    monkeypatch.undo()
    torch.manual_seed(5)
    with pytest.raises(FileExistsError, match="resume=True"):
        trainer(z, known, folder=tmp_path).run()
    found = trainer(z, known, folder=tmp_path, resume=True).run()
    np.testing.assert_array_equal(found.z, whole.z)
    np.testing.assert_array_equal(found.labels, whole.labels)
    np.testing.assert_array_equal(found.centroids, whole.centroids)
    with pytest.raises(CheckpointError, match="other settings or rows"):
        trainer(z[:-1], known[:-1], folder=tmp_path, resume=True).run()


def test_a_loss_that_is_not_finite_is_an_error():
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(12))

        def forward(self, index: torch.Tensor) -> torch.Tensor:
            return self.weight * float("nan") * torch.ones(len(index), 1)

    z, y = unit_rows(6, 20)
    with pytest.raises(FloatingPointError, match="self-training the loss became nan"):
        SelfTrainer(Broken(), partly(y, 4, 4), lambda _: 6, 0, SHORT, start=z).run()


def test_rows_are_assigned_to_the_cluster_of_the_most_similar_direction():
    z, y = unit_rows(4, 10)
    components = components_of(3 * z, y, 4)
    means = means_of(z, y, 4)
    np.testing.assert_array_equal(components.assigned(3 * z)[0], (z @ means.T).argmax(1))


def test_the_estimator_finds_known_and_new_categories_of_partly_labelled_embeddings():
    x, y = unit_rows(8, 40)
    codes = partly(y, 5, 5)
    names = np.array(list("abcde"))
    labels = [None if code < 0 else str(names[code]) for code in codes]
    model = MetaClusterer(progress=False, device="cpu")
    rows = np.arange(len(x)) % 4 > 0
    model.fit(x[rows], [label for label, kept in zip(labels, rows, strict=True) if kept])
    found = model.discovered_
    assert found.n_clusters == 8
    assert found.scores([str(value) for value in y[rows]])["ari"] > 0.95
    assert sorted(name for name in model.discovered_categories_ if name) == list("abcde")
    assert found.assign(x[~rows]).scores([str(value) for value in y[~rows]])["ari"] > 0.95
    for cluster, name in enumerate(model.discovered_categories_):
        own = {label for label, at in zip(np.array(labels, object)[rows], found.labels, strict=True) if at == cluster}
        assert own - {None} == ({name} if name else set())
    assert "8 categories" in model.decisions_[0]
    told = MetaClusterer(progress=False, device="cpu").fit(x, labels, n_clusters=9)
    assert told.discovered_.n_clusters == 9
    with pytest.raises(ValueError, match="n_clusters=3"):
        MetaClusterer(progress=False, device="cpu").fit(x, labels, n_clusters=3)


def test_unlabelled_rows_are_left_out_where_no_categories_can_be_found():
    x, y = unit_rows(8, 40)
    labels = np.where(np.arange(len(y)) % 5 == 0, -1, y)
    model = MetaClusterer(progress=False, device="cpu", pretrain_steps=5, steps=0, choice_tasks=10, encoder="residual")
    model.fit(x, labels)
    assert model.decisions_[0] == "64 of 320 rows have no label and were left out of the training"
    assert not hasattr(model, "discovered_")
    with pytest.raises(ValueError, match="n_clusters=8"):
        model.fit(x, labels, n_clusters=8)


@given(st.integers(0, 999))
def test_the_share_of_a_category_is_that_of_its_cluster_corrected_by_labelled_rows(seed):
    generator = np.random.default_rng(seed)
    found = np.unique(generator.integers(0, 6, 80), return_inverse=True)[1]
    known = np.where(generator.random(80) < 0.6, np.unique(generator.integers(0, 4, 80), return_inverse=True)[1], -1)
    known[:4] = np.arange(4)
    best = max(
        itertools.permutations(range(found.max() + 1), 4),
        key=lambda clusters: sum(((known == k) & (found == c)).sum() for k, c in enumerate(clusters)),
    )
    right = sum(((known == k) & (found == c)).sum() for k, c in enumerate(best))
    shares = []
    for k, c in enumerate(best):
        here = ((known == k) & (found == c)).sum()
        if here:
            inside = here / ((known >= 0) & (found == c)).sum()
            shares.append((found == c).sum() * inside / max(here / (known == k).sum(), LEAST_FOUND))
    # Several matchings may be as good; of those there are, one is taken.
    table = np.array([[((known == k) & (found == c)).sum() for c in range(found.max() + 1)] for k in range(4)])
    assert table[linear_sum_assignment(-table)].sum() == right
    if sum(sum(table[range(4), m]) == right for m in itertools.permutations(range(found.max() + 1), 4)) == 1:
        assert mean_share(found, known) == pytest.approx(np.mean(shares) / 80)


def test_sizes_of_known_categories_say_how_many_there_are():
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 60)
    centres = generator.normal(size=(10, 24))
    z = centres[y] + 0.35 * generator.normal(size=(600, 24))
    z = (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)
    known = np.where((y < 8) & (generator.random(600) < 0.15), y, -1)
    assert 9 <= number_of_categories(z, known, 0) <= 12


def test_few_labelled_rows_that_no_sample_has_say_nothing_of_sizes(monkeypatch):
    monkeypatch.setattr("metaclust.training.discovery.COUNTED_ROWS", 4)
    z, _ = unit_rows(5, 60)
    known = np.full(len(z), -1)
    known[:2] = 0, 1
    # Some of these samples have one of the two labelled rows, most have none.
    for seed in range(40):
        assert number_of_categories(z, known, seed) >= 2
