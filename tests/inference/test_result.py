"""What clustering gives back: probabilities, places for further rows, scores, the file."""

import itertools
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import metaclust
from metaclust import CheckpointError, MetaClusterer, Rows
from metaclust._util import tensors as checkpoint
from metaclust._util.tensors import read_tensors, write_tensors
from metaclust.inference.result import Clustering, Start
from metaclust.mixture import component_family, expectation_maximization, vb_steps
from metaclust.mixture.components import Components
from metaclust.mixture.inference import run

ARRAYS = ("labels", "confidence", "probabilities", "representations")
PARTS = ("weights", "means", "precisions", "offsets")
QUICK = {"pretrain_steps": 3, "steps": 1, "restarts": 3, "encoder": "network", "choose": "bound", "progress": False}


def gaussians(categories, rows, seed, width=8, spread=1.0):
    """Rows of categories with far-apart means."""
    generator = np.random.default_rng(seed)
    means = 3 * generator.normal(size=(categories, width))
    x = np.repeat(means, rows, 0) + spread * generator.normal(size=(categories * rows, width))
    return x.astype(np.float32), np.repeat(np.arange(categories), rows)


@pytest.fixture(scope="session")
def full():
    x, y = gaussians(10, 15, seed=0)
    return MetaClusterer(**{**QUICK, "pretrain_steps": 60}, components="full", representation=4).fit(x, y)


@pytest.fixture(scope="session")
def clustering(trained):
    x, y = gaussians(5, 40, seed=99)
    return replace(trained.cluster(x), categories=[f"c{i}" for i in y])


def test_labels_cannot_be_changed_behind_the_results_back(clustering):
    labels = clustering.labels.copy()
    own = replace(clustering, labels=labels)
    for array in (own.labels, own.confidence):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert labels.flags.writeable


def probabilities_by_hand(components, z):
    """A softmax of offset - (z - mean)^T precision (z - mean) / 2, entry by entry."""
    result = np.empty((len(z), len(components.weights)))
    for n, row in enumerate(z.astype(np.float64)):
        for k, (mean, precision) in enumerate(zip(components.means, components.precisions, strict=True)):
            matrix = precision * np.eye(len(mean)) if np.ndim(precision) == 0 else precision
            result[n, k] = components.offsets[k] - (row - mean) @ matrix @ (row - mean) / 2
    result = np.exp(result - result.max(1)[:, None])
    return result / result.sum(1)[:, None]


@pytest.mark.parametrize("name", ["trained", "full"])
def test_probabilities_are_the_softmax_of_the_scores(request, name):
    model = request.getfixturevalue(name)
    x, _ = gaussians(4, 30, seed=5)
    found = model.cluster(x)
    assert found.precisions.ndim == (3 if name == "full" else 1)
    np.testing.assert_allclose(found.probabilities.sum(1), 1, atol=1e-12)
    expected = probabilities_by_hand(found.components, found.representations)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-9)
    assert np.array_equal(found.labels, expected.argmax(1))
    if name == "full":  # The bound selected.
        np.testing.assert_allclose(found.confidence, found.probabilities.max(1), rtol=1e-12)


@pytest.mark.parametrize("components", ["spherical", "full"])
@pytest.mark.parametrize("far", [0.0, 1e4])
def test_components_of_a_posterior_give_its_own_assignments(components, far):
    z = torch.randn(50, 3) + far + 4 * (torch.arange(50) % 2)[:, None]
    family = component_family(components, "optimal")
    for weight in (1.0, 0.1):
        steps = vb_steps(z, torch.randn(50, 4), family, torch.tensor(1.0), None, weight)
        posterior = run(steps, 10, None)
        given = Components.of(posterior).probabilities(z.numpy())
        np.testing.assert_allclose(given, posterior.assignments.numpy(), atol=1e-6)
    em = expectation_maximization(z, torch.randn(50, 2), components=components)
    np.testing.assert_allclose(Components.of(em).probabilities(z.numpy()), em.assignments.numpy(), atol=1e-6)


def test_probabilities_do_not_depend_on_the_block(monkeypatch):
    generator = np.random.default_rng(0)
    mixture = Components(
        np.ones(3) / 3, generator.normal(size=(3, 2)), np.array([1.0, 2.0, 0.5]), generator.normal(size=3)
    )
    z = generator.normal(size=(50, 2)).astype(np.float32)
    whole = mixture.probabilities(z)
    labels, confidence = mixture.assigned(z)
    assert np.array_equal(labels, whole.argmax(1))
    assert np.array_equal(confidence, whole.max(1))
    monkeypatch.setattr("metaclust.mixture.components.BLOCK", 1)
    np.testing.assert_allclose(mixture.probabilities(z), whole, rtol=1e-14)
    assert np.array_equal(mixture.assigned(z)[0], labels)
    np.testing.assert_allclose(mixture.take(np.array([2, 0])).probabilities(z), pairwise(whole, [2, 0]), rtol=1e-12)
    assert mixture.probabilities(z[:0]).shape == (0, 3)


def pairwise(probabilities, clusters):
    chosen = probabilities[:, clusters]
    return chosen / chosen.sum(1, keepdims=True)


def test_a_row_far_from_every_cluster_still_has_probabilities():
    mixture = Components(np.ones(2) / 2, np.zeros((2, 2)), np.array([1.0, 2.0]), np.zeros(2))
    given = mixture.probabilities(np.full((1, 2), 1e18, np.float32))
    assert given.tolist() == [[1.0, 0.0]]


def test_the_clusters_of_a_trained_model_are_the_categories(clustering):
    scores = clustering.scores()
    assert scores["ari"] > 0.95
    assert scores["k_error"] == 0
    assert clustering.n_clusters == 5
    assert len(clustering) == 200
    assert repr(clustering).startswith("Clustering of 200 rows in 5 clusters (")


def test_clusters_are_numbered_by_size(trained):
    x, y = gaussians(4, 40, seed=99, spread=0.7)
    keep = np.concatenate([np.flatnonzero(y == c)[:size] for c, size in enumerate([10, 40, 20, 30])])
    found = trained.cluster(x[keep])
    assert found.sizes.tolist() == [40, 30, 20, 10]
    assert sorted(set(found.labels)) == [0, 1, 2, 3]
    assert [int(y[keep][found.labels == k][0]) for k in range(4)] == [1, 3, 2, 0]


@pytest.mark.parametrize("cluster", range(5))
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_typical_and_least_sure_rows_are_those_of_a_plain_search(clustering, cluster, count):
    members = [i for i in range(len(clustering)) if clustering.labels[i] == cluster]
    distance = {i: float(np.linalg.norm(clustering.representations[i] - clustering.means[cluster])) for i in members}
    sure = {i: float(clustering.confidence[i]) for i in members}
    assert clustering.typical(cluster, count).tolist() == sorted(members, key=distance.__getitem__)[:count]
    assert clustering.least_sure(cluster, count).tolist() == sorted(members, key=sure.__getitem__)[:count]


def test_further_rows_are_assigned_where_clustering_them_together_puts_them(trained):
    x, _ = gaussians(5, 80, seed=98)
    held = np.arange(len(x)) % 4 == 0
    found = trained.cluster(x[~held])
    assigned = found.assign(x[held])
    together = trained.cluster(x)
    matches = max(
        np.mean(np.array(names)[assigned.labels] == together.labels[held])
        for names in itertools.permutations(range(max(found.n_clusters, together.n_clusters)))
    )
    assert matches >= 0.95
    assert np.array_equal(assigned.labels, assigned.probabilities.argmax(1))
    np.testing.assert_allclose(
        assigned.probabilities, probabilities_by_hand(found.components, trained.transform(x[held])), atol=1e-9
    )


def test_rows_assigned_again_keep_their_clusters(clustering):
    x, _ = gaussians(5, 40, seed=99)
    again = clustering.assign(x)
    assert np.array_equal(again.labels, clustering.labels)
    np.testing.assert_allclose(again.probabilities, clustering.probabilities, rtol=1e-10)
    assert again.components is clustering.components


def test_assigned_rows_bring_their_own_ids_categories_and_count(clustering):
    x, y = gaussians(2, 3, seed=1)
    rows = Rows("vectors", x, list("abcdef"), [f"k{i}" for i in y], source="new.csv")
    assigned = clustering.assign(rows)
    assert assigned.ids == list("abcdef")
    assert assigned.categories == ["k0"] * 3 + ["k1"] * 3
    assert assigned.rows is rows
    assert assigned.about["data"] == "new.csv"
    assert assigned.about["assigned"] is True
    assert assigned.about["rows"] == 6
    assert len(assigned) == len(assigned.representations) == 6
    assert assigned.n_clusters == clustering.n_clusters == len(assigned.sizes)


def accuracy_by_hand(labels, known):
    """The best over all one-to-one matchings of clusters and categories."""
    names = sorted(set(known))
    clusters = sorted(set(labels))
    longest = max(len(names), len(clusters))
    padded = [*names, *[None] * (longest - len(names))]
    best = 0.0
    for order in itertools.permutations(padded):
        match = dict(zip(clusters, order, strict=False))
        best = max(best, float(np.mean([match[label] == name for label, name in zip(labels, known, strict=True)])))
    return best


def some_clustering(labels, clusters, **changes):
    count = len(labels)
    sure = np.random.default_rng(0).uniform(0.4, 1, count)
    mixture = Components(np.ones(clusters), np.zeros((clusters, 2)), np.ones(clusters), np.zeros(clusters))
    settings = {
        "labels": np.asarray(labels, np.int64),
        "confidence": sure,
        "representations": np.random.default_rng(1).normal(size=(count, 2)).astype(np.float32),
        "components": mixture,
        "bound": -1.5,
        "starts": (Start(clusters, -1.5), Start(1, -3.0)),
        "ids": [f"row {i}" for i in range(count)],
    }
    return Clustering(**{**settings, **changes})


@pytest.mark.parametrize(("clusters", "categories"), [(3, 3), (5, 2), (2, 5), (1, 4), (4, 1)])
def test_scores_are_those_of_scikit_learn_and_of_every_matching(clusters, categories):
    for seed in range(3):
        generator = np.random.default_rng(seed)
        labels = np.concatenate((np.arange(clusters), generator.integers(clusters, size=25)))
        known = [f"k{i}" for i in np.concatenate((np.arange(categories), generator.integers(categories, size=40)))]
        known = known[: len(labels)]
        scores = some_clustering(labels, clusters).scores(known)
        assert scores["ari"] == pytest.approx(adjusted_rand_score(known, labels))
        assert scores["nmi"] == pytest.approx(normalized_mutual_info_score(known, labels))
        assert scores["acc"] == pytest.approx(accuracy_by_hand(labels.tolist(), known))
        assert scores["k_error"] == clusters - categories


def test_scores_read_numbers_names_and_the_known_categories():
    found = some_clustering([0, 0, 1, 1], 2, categories=["a", "a", "b", "a"])
    assert found.scores() == found.scores(["a", "a", "b", "a"]) == found.scores(np.array([7, 7, 2, 7]))
    assert found.scores()["acc"] == 0.75
    assert found.scores([1, 1, 2, 2])["ari"] == 1.0


def test_the_frame_has_a_row_each():
    found = some_clustering([0, 1, 0, 0], 2, threshold=0.7)
    frame = found.to_frame()
    assert frame.columns == ["id", "cluster", "name", "new", "confidence", "unsure", "novelty", "outlier"]
    assert frame["id"].to_list() == found.ids
    assert frame["cluster"].to_list() == [0, 1, 0, 0]
    assert frame["confidence"].to_numpy() == pytest.approx(found.confidence)
    assert frame["unsure"].to_list() == [bool(p < 0.7) for p in found.confidence]
    assert frame["unsure"].dtype == pl.Boolean
    known = replace(found, categories=list("abca")).to_frame()
    assert known.columns[-1] == "category"
    assert known["category"].to_list() == list("abca")


def test_a_clustering_comes_back_bit_for_bit(clustering, tmp_path):
    clustering.save(tmp_path / "found.safetensors")
    loaded = Clustering.load(tmp_path / "found.safetensors", device="cpu")
    for name in ARRAYS:
        assert np.array_equal(getattr(loaded, name), getattr(clustering, name))
        assert getattr(loaded, name).dtype == getattr(clustering, name).dtype
    for name in PARTS:
        assert np.array_equal(getattr(loaded.components, name), getattr(clustering.components, name))
    for name in ("bound", "starts", "ids", "threshold", "categories", "about"):
        assert getattr(loaded, name) == getattr(clustering, name)
    assert loaded.rows is None
    x, _ = gaussians(5, 10, seed=97)
    assert np.array_equal(loaded.assign(x).probabilities, clustering.assign(x).probabilities)
    assert np.array_equal(loaded.model.transform(x), clustering.model.transform(x))
    assert loaded.scores() == clustering.scores()


def test_full_components_come_back_bit_for_bit(full, tmp_path):
    x, _ = gaussians(4, 30, seed=5)
    found = full.cluster(x)
    found.save(tmp_path / "found")
    loaded = Clustering.load(tmp_path / "found")
    assert np.array_equal(loaded.precisions, found.precisions)
    assert np.array_equal(loaded.assign(x[:9]).probabilities, found.assign(x[:9]).probabilities)


def test_a_new_process_assigns_the_same(clustering, tmp_path):
    x, _ = gaussians(5, 10, seed=97)
    np.save(tmp_path / "x.npy", x)
    clustering.save(tmp_path / "found")
    script = (
        "import sys, numpy as np, torch; torch.set_num_threads(1)\n"
        "from metaclust.inference.result import Clustering\n"
        "found = Clustering.load(sys.argv[1] + '/found')\n"
        "np.save(sys.argv[1] + '/p.npy', found.assign(np.load(sys.argv[1] + '/x.npy')).probabilities)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, env={**os.environ})  # noqa: S603
    assert np.array_equal(np.load(tmp_path / "p.npy"), clustering.assign(x).probabilities)


def test_a_clustering_without_a_model_is_saved_and_loaded(tmp_path):
    found = some_clustering([0, 1, 0, 0], 2, about={"data": "x", "seconds": 1.5})
    found.save(tmp_path / "found")
    loaded = Clustering.load(tmp_path / "found")
    assert loaded.model is None
    assert np.array_equal(loaded.probabilities, found.probabilities)
    assert loaded.about == found.about


def test_a_clustering_without_a_model_refuses_to_assign_and_says_what_helps(clustering):
    without = replace(clustering, model=None)
    with pytest.raises(ValueError, match="assign needs the model that encodes the rows"):
        without.assign(np.zeros((2, 8)))
    x, _ = gaussians(5, 4, seed=96)
    assert np.array_equal(
        replace(without, model=clustering.model).assign(x).probabilities, clustering.assign(x).probabilities
    )


def damaged(tmp_path, change):
    """A saved clustering whose header was changed."""
    path = tmp_path / "found"
    some_clustering([0, 1, 0, 0], 2).save(path)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["metaclust"])
    tensors = load_file(path)
    change(header, tensors)
    save_file(tensors, path, {"metaclust": json.dumps(header)})
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda header, tensors: header.pop("bound"),
        lambda header, tensors: header.update(bound="high"),
        lambda header, tensors: header.pop("starts"),
        lambda header, tensors: header.update(starts=[{"clusters": 1, "bound": 0.0, "extra": 1}]),
        lambda header, tensors: header.update(starts=7),
        lambda header, tensors: header.pop("ids"),
        lambda header, tensors: header.update(model={"config": {}}),
        lambda header, tensors: tensors.pop("labels"),
        lambda header, tensors: tensors.pop("confidence"),
        lambda header, tensors: tensors.pop("offsets"),
    ],
)
@pytest.mark.usefixtures("_without_type_checks")
def test_a_file_with_something_missing_is_an_error_of_that_file(tmp_path, change):
    path = damaged(tmp_path, change)
    with pytest.raises(CheckpointError, match=f"{path} does not hold a clustering this version can read"):
        Clustering.load(path)


def test_what_is_no_clustering_is_refused(clustering, tmp_path):
    path = tmp_path / "found"
    clustering.save(path)
    content = path.read_bytes()
    with pytest.raises(CheckpointError, match="there is no such file"):
        Clustering.load(tmp_path / "nowhere")
    for length in (0, 7, 100, len(content) // 2, len(content) - 1):
        (tmp_path / "cut").write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="cut is not a safetensors file, or it is cut short"):
            Clustering.load(tmp_path / "cut")
    save_file({"labels": torch.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(CheckpointError, match="not one of metaclust's"):
        Clustering.load(tmp_path / "foreign")
    clustering.model.save(tmp_path / "model")
    with pytest.raises(CheckpointError, match="model is a model file, not a clustering file"):
        Clustering.load(tmp_path / "model")
    with pytest.raises(CheckpointError, match="found is a clustering file, not a model file"):
        MetaClusterer.load(path)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(clustering, tmp_path, monkeypatch):
    path = tmp_path / "found"
    some_clustering([0, 1], 2).save(path)
    before = path.read_bytes()

    def half(content, name, header):
        Path(name).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint, "save_file", half)
    with pytest.raises(OSError, match="disk full"):
        clustering.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_clustering_whose_notes_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "found"
    some_clustering([0, 1], 2).save(path)
    before = path.read_bytes()
    with pytest.raises((TypeError, ValueError)):
        some_clustering([0, 1], 2, about={"data": object()}).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("load", [Clustering.load, MetaClusterer.load])
def test_a_strangers_file_runs_no_code(tmp_path, load):
    sprung = tmp_path / "sprung"
    (tmp_path / "pickle").write_bytes(pickle.dumps(Trap(sprung)))
    torch.save({"labels": Trap(sprung)}, tmp_path / "torch")
    for name in ("pickle", "torch"):
        with pytest.raises(CheckpointError):
            load(tmp_path / name)
    assert not sprung.exists()
    # The trap does work, where it is let.
    pickle.loads((tmp_path / "pickle").read_bytes())  # noqa: S301
    assert sprung.exists()


@pytest.mark.parametrize("cluster", [-1, 5, 99])
def test_a_cluster_that_is_not_there_is_named(clustering, cluster):
    for method in (clustering.typical, clustering.least_sure):
        with pytest.raises(ValueError, match=f"^cluster={cluster}: clusters are numbered 0 to 4$"):
            method(cluster)


def test_scores_without_categories_are_refused():
    found = some_clustering([0, 1, 0, 0], 2)
    with pytest.raises(
        ValueError, match=r"^y=None: the rows have no known categories to compare with; pass them as y$"
    ):
        found.scores()
    with pytest.raises(ValueError, match=r"y have shape \(2,\) for 4 rows"):
        found.scores([1, 2])


def test_the_package_offers_the_clustering():
    assert metaclust.Clustering is Clustering


def test_a_file_with_all_probabilities_instead_of_the_best_ones_is_still_read(clustering, tmp_path):
    clustering.save(tmp_path / "new.safetensors")
    tensors, header = read_tensors(tmp_path / "new.safetensors", "clustering")
    del tensors["confidence"]
    tensors["probabilities"] = torch.from_numpy(clustering.probabilities)
    write_tensors(tmp_path / "old.safetensors", tensors, header)
    loaded = Clustering.load(tmp_path / "old.safetensors", device="cpu")
    np.testing.assert_allclose(loaded.confidence, clustering.probabilities.max(1), rtol=1e-12)
