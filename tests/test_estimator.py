"""MetaClusterer: the same rows in any container and order, what it trains on, its settings, its file, its errors."""

import json
import warnings

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from metaclust import CheckpointError, DataError, Dataset, DataWarning, MetaClusterer, Rows
from metaclust.data.inputs import canonical_order
from metaclust.training import plan, recipe
from metaclust.training.episodes import TaskSampler

QUICK = {
    "pretrain_steps": 3,
    "steps": 1,
    "restarts": 3,
    "encoder": "network",
    "choose": "bound",
    "progress": False,
}


def gaussians(categories, rows, seed, width=8, spread=1.0):
    generator = np.random.default_rng(seed)
    means = 3 * generator.normal(size=(categories, width))
    x = np.repeat(means, rows, 0) + spread * generator.normal(size=(categories * rows, width))
    return x.astype(np.float32), np.repeat(np.arange(categories), rows)


X, Y = gaussians(10, 12, seed=0, width=4)
NEW, NEW_Y = gaussians(3, 15, seed=1, width=4)
COLUMNS = ["a", "b", "c", "d"]
WORDS = [f"w{k} w{k} v{i % 3} common" for k in range(9) for i in range(5)]
WORDS_Y = [f"c{k}" for k in range(9) for _ in range(5)]
IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 9)).astype(np.uint8)
IMAGES_Y = np.repeat(np.arange(4), 10)


def weights_of(model):
    return {name: value.clone() for name, value in model.model_.state_dict().items()}


def same_weights(one, other):
    return all(torch.equal(value, weights_of(other)[name]) for name, value in weights_of(one).items())


@pytest.fixture(scope="session")
def quick():
    return MetaClusterer(**QUICK).fit(X, Y)


@pytest.fixture(scope="session")
def of_text():
    return MetaClusterer(**QUICK).fit(WORDS, WORDS_Y)


@pytest.fixture(scope="session")
def of_images():
    return MetaClusterer(**QUICK).fit(IMAGES, IMAGES_Y)


# The same rows, whatever holds them


def vector_rows(labels=None):
    return Rows("vectors", NEW, [str(i) for i in range(len(NEW))], labels)


@pytest.mark.parametrize(
    "x",
    [
        NEW.astype(np.float64),
        NEW.tolist(),
        torch.from_numpy(NEW),
        torch.from_numpy(NEW).requires_grad_(),
        np.asfortranarray(NEW),
        vector_rows(),
        vector_rows([str(i) for i in NEW_Y]),
    ],
    ids=["float64", "lists", "tensor", "gradient", "fortran", "rows", "labelled rows"],
)
def test_numbers_give_the_same_clusters_whatever_holds_them(quick, x):
    expected = quick.cluster(NEW)
    found = quick.cluster(x)
    assert np.array_equal(found.labels, expected.labels)
    assert np.array_equal(found.probabilities, expected.probabilities)
    assert np.array_equal(quick.transform(x), expected.representations)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (X.tolist(), torch.from_numpy(Y)),
        (torch.from_numpy(X), pl.Series(Y)),
        (X.astype(np.float64), [f"{i}" for i in Y]),
        (pl.DataFrame(X, schema=COLUMNS), Y.tolist()),
    ],
    ids=["lists, tensor", "tensor, series", "float64, names", "frame, list"],
)
def test_training_gives_the_same_weights_whatever_holds_the_rows(quick, x, y):
    assert same_weights(MetaClusterer(**QUICK).fit(x, y), quick)


def test_rows_train_as_arrays_do(quick):
    rows = Rows("vectors", X, [str(i) for i in range(len(X))], [str(i) for i in Y])
    model = MetaClusterer(**QUICK).fit(rows)
    assert same_weights(model, quick)
    assert model.categories_ == [str(i) for i in range(10)]
    assert model.cluster(vector_rows([f"{i}" for i in NEW_Y])).categories == [f"{i}" for i in NEW_Y]


@pytest.mark.parametrize(
    "x",
    [
        tuple(WORDS),
        np.array(WORDS),
        np.array(WORDS, dtype=object),
        pl.Series(WORDS),
        pl.DataFrame({"text": WORDS}),
        Rows("text", WORDS, [str(i) for i in range(len(WORDS))]),
    ],
    ids=["tuple", "array", "objects", "series", "frame", "rows"],
)
def test_texts_give_the_same_clusters_whatever_holds_them(of_text, x):
    assert np.array_equal(of_text.predict_proba(x), of_text.predict_proba(WORDS))
    assert same_weights(MetaClusterer(**QUICK).fit(x, WORDS_Y), of_text)
    assert not hasattr(of_text, "n_features_in_")


@pytest.mark.parametrize(
    "x",
    [
        list(IMAGES),
        IMAGES[:, None],
        IMAGES[..., None],
        torch.from_numpy(IMAGES),
        [Image.fromarray(image) for image in IMAGES],
        IMAGES / 255,
        Dataset("digits", IMAGES[:, None], IMAGES_Y, list("abcd")),
    ],
    ids=["list", "channel first", "channel last", "tensor", "PIL", "floats", "data set"],
)
def test_images_give_the_same_clusters_whatever_holds_them(of_images, x):
    assert np.array_equal(of_images.predict_proba(x), of_images.predict_proba(IMAGES))


def test_a_data_set_brings_its_categories():
    data = Dataset("digits", IMAGES[:, None], IMAGES_Y, ["p", "q", "r", "s"])
    model = MetaClusterer(**QUICK).fit(data)
    assert model.categories_ == ["p", "q", "r", "s"]
    assert model.cluster(data).categories == [data.categories[i] for i in IMAGES_Y]
    assert model.score(data) == pytest.approx(adjusted_rand_score(IMAGES_Y, model.predict(data)))


def test_pictures_of_different_sizes_are_trained_on_and_clustered():
    generator = np.random.default_rng(0)
    pictures = [
        Image.fromarray(generator.integers(0, 256, (int(h), int(w), 3)).astype(np.uint8))
        for h, w in generator.integers(10, 40, (12, 2))
    ]
    model = MetaClusterer(**{**QUICK, "pretrain_steps": 1}).fit(pictures, np.arange(12) % 3)
    assert model.preparation_.input_shape[0] == 3
    assert len(model.predict(pictures[:5])) == 5


# Order, numbers, determinism


@pytest.mark.parametrize("name", ["quick", "of_text", "of_images"])
def test_rows_in_another_order_have_the_same_clusters_exactly(request, name):
    model = request.getfixturevalue(name)
    x = {"quick": np.concatenate((NEW, NEW[:4])), "of_text": np.array(WORDS), "of_images": IMAGES}[name]
    expected = model.cluster(x)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(x))
        found = model.cluster(x[order])
        assert np.array_equal(found.labels, expected.labels[order])
        assert np.array_equal(found.probabilities, expected.probabilities[order])
        assert np.array_equal(found.representations, expected.representations[order])
        assert found.bound == expected.bound


def test_more_rows_than_a_block_may_be_in_any_order(quick):
    x, _ = gaussians(3, 500, seed=4, width=4)
    order = np.random.default_rng(0).permutation(len(x))
    assert np.array_equal(quick.transform(x[order]), quick.transform(x)[order])


def test_the_canonical_order_sorts_the_same_rows_the_same():
    x = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    x[7] = x[3]
    order = np.random.default_rng(1).permutation(30)
    for make in (np.array, torch.tensor):
        assert np.array_equal(x[canonical_order(make(x))], x[order][canonical_order(make(x[order]))])


def test_labels_are_numbers_from_0_by_size(trained):
    x, _ = gaussians(5, 30, seed=99)
    labels = trained.predict(x[30:])
    sizes = np.bincount(labels)
    assert sorted(set(labels)) == list(range(len(sizes)))
    assert sizes.tolist() == sorted(sizes, reverse=True)


def test_the_clusters_depend_on_all_rows_and_on_nothing_else(trained):
    x, _ = gaussians(4, 30, seed=99)
    first = trained.predict(x)
    torch.manual_seed(123)
    torch.rand(7)
    assert np.array_equal(trained.predict(x), first)
    assert trained.cluster(x[:1]).n_clusters == 1
    assert len(set(trained.predict(x))) > len(set(trained.predict(x[:30])))


def test_predict_proba_transform_and_score_are_those_of_the_clustering(trained):
    x, y = gaussians(4, 30, seed=99)
    found = trained.cluster(x)
    assert np.array_equal(trained.predict_proba(x), found.probabilities)
    assert np.array_equal(trained.transform(x), found.representations)
    assert trained.transform(x).dtype == np.float32
    assert trained.score(x, y) == adjusted_rand_score(y, found.labels) > 0.9
    assert found.ids == [str(i) for i in range(len(x))]
    assert found.about["trained on"] == "40 categories"
    assert found.about["rows"] == 120


@pytest.mark.filterwarnings("ignore:all 10 clusters are in use")
def test_fit_predict_and_fit_transform_are_fit_and_then_the_other(quick):
    found = quick.predict(X)
    assert np.array_equal(MetaClusterer(**QUICK).fit_predict(X, Y), found)
    assert found.flags.writeable
    assert np.array_equal(MetaClusterer(**QUICK).fit_transform(X, Y), quick.transform(X))


def test_training_and_clustering_leave_the_random_numbers_of_others_alone():
    torch.manual_seed(77)
    np.random.seed(77)  # noqa: NPY002
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    MetaClusterer(**QUICK).fit(X, Y).predict(NEW)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


def test_another_seed_trains_another_model(quick):
    assert not same_weights(MetaClusterer(**QUICK, seed=1).fit(X, Y), quick)


# What is trained on


@pytest.fixture
def seen(monkeypatch):
    """What train was given."""
    calls = []
    real = recipe.train

    def spy(model, sampler, tasks, config, **options):
        calls.append((model, sampler, tasks, config, options))
        return real(model, sampler, tasks, config, **options)

    monkeypatch.setattr(recipe, "train", spy)
    return calls


@pytest.mark.parametrize(("categories", "share", "held"), [(10, 0.2, 2), (8, 0.01, 2), (20, 0.5, 10), (10, 0.8, 8)])
def test_validation_categories_are_kept_from_training(seen, categories, share, held):
    x, y = gaussians(categories, 4, seed=0, width=3)
    MetaClusterer(**QUICK, validation=share).fit(x, y)
    (_, sampler, tasks, _, _) = seen[0]
    validating = {int(c) for task in tasks for c in task.categories}
    trained_on = set(sampler.categories.tolist())
    assert len(trained_on) == categories - held
    assert validating <= set(range(categories)) - trained_on
    assert len(tasks) == plan.VALIDATION_TASKS
    # Categories are numbered in the order of their names: "10" comes before "2".
    number = {name: i for i, name in enumerate(sorted(str(c) for c in range(categories)))}
    assert {number[str(y[row])] for task in tasks for row in task.rows} == validating
    drawn = {int(c) for step in range(30) for c in sampler.batch(step).category}
    assert drawn == trained_on


@pytest.mark.parametrize(("categories", "share"), [(7, 0.2), (2, 0.8), (12, 0.0)])
def test_few_categories_or_no_validation_train_on_all(seen, categories, share):
    x, y = gaussians(categories, 4, seed=0, width=3)
    model = MetaClusterer(**QUICK, validation=share).fit(x, y)
    (_, sampler, tasks, _, _) = seen[0]
    assert sampler.categories.tolist() == list(range(categories))
    assert tasks == []
    assert model.run_.validations == []


def test_settings_reach_the_sampler_the_model_and_the_training(seen):
    settings = {"max_clusters": 6, "task_rows": (2, 9), "representation": 5, "components": "full", "seed": 11}
    MetaClusterer(**{**QUICK, "pretrain_steps": 4, "steps": 2}, **settings).fit(X, Y)
    model, sampler, _, config, options = seen[0]
    assert (sampler.n_categories, sampler.rows, sampler.seed) == ((2, 6), (2, 9), 11)
    assert (model.config.max_clusters, model.config.representation, model.config.components) == (6, 5, "full")
    assert (config.pretrain_steps, config.steps, config.seed) == (4, 2, 11)
    wide = options.pop("pretraining")
    assert options == {"folder": None, "resume": False, "progress": False}
    assert sampler.augment is wide.augment is None
    # All categories at once, as many rows of each as a batch holds.
    assert wide.n_categories == (len(sampler.categories), len(sampler.categories))
    assert (wide.seed, wide.tasks, wide.imbalanced) == (11, 1, False)


@pytest.mark.parametrize(("augment", "expected"), [("auto", True), ("turn", True), (True, True), (False, False)])
def test_training_images_are_changed_and_validation_images_are_not(seen, augment, expected):
    x = np.random.default_rng(0).integers(0, 256, (27, 6, 6)).astype(np.uint8)
    MetaClusterer(**{**QUICK, "pretrain_steps": 1}, augment=augment).fit(x, np.arange(27) % 9)
    assert (seen[0][1].augment is not None) is expected
    if expected:
        assert seen[0][1].augment.turn_categories is (augment == "turn")


def test_the_paper_has_its_own_preset(seen):
    MetaClusterer(**QUICK, preset="paper").fit(X, Y)
    model, _, _, config, _ = seen[0]
    assert (model.config.representation, model.config.dropout, config.objective) == (10, 0.1, "last-step")


def test_small_categories_are_left_out_with_a_warning():
    y = Y.copy()
    y[0] = 99
    with pytest.warns(DataWarning, match="left out 1 rows of 1 categories with fewer than 2 rows: '99'"):
        model = MetaClusterer(**QUICK).fit(X, y)
    assert "99" not in model.categories_


def test_a_run_that_was_interrupted_ends_with_the_same_weights(tmp_path, monkeypatch):
    settings = {**QUICK, "pretrain_steps": 6, "steps": 8}
    straight = MetaClusterer(**settings).fit(X, Y, folder=tmp_path / "straight")
    real = TaskSampler.batch

    def killed(self, step):
        if step == 11:
            raise KeyboardInterrupt
        return real(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(TaskSampler, "batch", killed)
        with pytest.raises(KeyboardInterrupt):
            MetaClusterer(**settings).fit(X, Y, folder=tmp_path / "run")
    torch.rand(5)
    resumed = MetaClusterer(**settings).fit(X, Y, folder=tmp_path / "run", resume=True)
    assert same_weights(resumed, straight)
    assert resumed.run_.validations == straight.run_.validations
    with pytest.raises(FileExistsError, match="holds a training run already: pass resume=True"):
        MetaClusterer(**settings).fit(X, Y, folder=tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"other settings \(.*training.seed"):
        MetaClusterer(**settings, seed=3).fit(X, Y, folder=tmp_path / "run", resume=True)


# Settings of the clustering


def with_settings(model, **settings):
    """The same trained model under other settings."""
    other = clone(model).set_params(**settings)
    other.model_, other.preparation_, other.categories_ = model.model_, model.preparation_, model.categories_
    return other


@pytest.mark.parametrize("least", [1, 5, 12, 25, 1000])
def test_clusters_of_fewer_rows_are_dissolved(trained, least):
    x, y = gaussians(4, 30, seed=99)
    keep = np.concatenate([np.flatnonzero(y == c)[:size] for c, size in enumerate([30, 20, 9, 3])])
    found = with_settings(trained, min_cluster_size=least).cluster(x[keep])
    assert found.n_clusters == 1 or found.sizes.min() >= least
    assert found.sizes.sum() == len(keep)


def test_more_restarts_never_end_worse(trained):
    x, _ = gaussians(7, 20, seed=96)
    one = with_settings(trained, restarts=1, effective_rows=None, choose="bound").cluster(x)
    many = with_settings(trained, restarts=10, effective_rows=None, choose="bound").cluster(x)
    assert len(one.starts) < len(many.starts)
    assert many.bound == max(start.bound for start in many.starts) >= one.bound


def test_confidence_marks_rows_unsure_and_never_changes_a_label(quick):
    found = [with_settings(quick, confidence=share).cluster(NEW) for share in (0.0, 0.6, 1.0)]
    for each, share in zip(found, (0.0, 0.6, 1.0), strict=True):
        assert np.array_equal(each.labels, found[0].labels)
        assert np.array_equal(each.unsure, found[0].probabilities.max(1) < share)
    assert not found[0].unsure.any()


def test_large_clusters_hold_together_when_rows_count_less():
    settings = {"pretrain_steps": 150, "steps": 50, "representation": 8, "validation": 0.0, "progress": False}
    model = MetaClusterer(encoder="network", choose="bound", **settings).fit(*gaussians(40, 25, seed=0))
    x, y = gaussians(4, 500, seed=7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        every = with_settings(model, effective_rows=None).cluster(x)
    some = model.cluster(x)
    assert some.n_clusters == 4 < every.n_clusters
    assert adjusted_rand_score(y, some.labels) > 0.95 > adjusted_rand_score(y, every.labels)
    assert some.about["weight of a row"] == pytest.approx(20 * 4 / 2000)
    assert every.about["weight of a row"] == 1.0


@pytest.mark.parametrize("limit", [1, 4])
def test_fewer_clusters_than_there_are_give_a_warning(trained, limit):
    x, _ = gaussians(5, 30, seed=99)
    with pytest.warns(DataWarning, match=f"^all {limit} clusters are in use, so there may be more: pass a larger max_"):
        found = trained.cluster(x, max_clusters=limit)
    assert found.n_clusters == limit
    assert found.about["max_clusters"] == limit


def test_more_clusters_may_be_allowed_than_in_training(trained):
    x, y = gaussians(16, 30, seed=95, spread=0.7)
    with pytest.warns(DataWarning, match="all 6 clusters are in use"):
        assert trained.cluster(x, max_clusters=6).n_clusters == 6
    found = trained.cluster(x, max_clusters=30)
    assert found.n_clusters > 10
    assert adjusted_rand_score(y, found.labels) > 0.8
    x, _ = gaussians(3, 30, seed=99)
    assert trained.cluster(x, max_clusters=40).n_clusters == 3


def test_as_many_clusters_as_rows_give_no_warning(quick):
    assert quick.cluster(NEW[:1], max_clusters=1).n_clusters == 1


# As scikit-learn has it


def test_parameters_are_read_set_and_cloned():
    model = MetaClusterer(7, restarts=3, task_rows=(2, 5))
    assert model.get_params()["max_clusters"] == 7
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(confidence=0.9, seed=4) is model
    assert (model.confidence, model.seed) == (0.9, 4)
    assert not hasattr(clone(MetaClusterer(**QUICK).fit(X, Y)), "model_")
    with pytest.raises(ValueError, match="Invalid parameter 'clusters'"):
        model.set_params(clusters=3)


def test_names_and_numbers_of_columns_are_kept():
    frame = pl.DataFrame(X, schema=COLUMNS)
    model = MetaClusterer(**QUICK, representation=3).fit(frame, Y)
    assert model.n_features_in_ == 4
    assert model.feature_names_in_.tolist() == COLUMNS
    assert model.get_feature_names_out().tolist() == ["metaclusterer0", "metaclusterer1", "metaclusterer2"]
    table = model.set_output(transform="polars").transform(pl.DataFrame(NEW, schema=COLUMNS))
    assert isinstance(table, pl.DataFrame)
    assert table.columns == model.get_feature_names_out().tolist()
    assert table.height == len(NEW)
    model.fit(WORDS, WORDS_Y)
    assert not hasattr(model, "n_features_in_")
    assert not hasattr(model, "feature_names_in_")


def test_it_is_the_end_of_a_pipeline():
    pipeline = make_pipeline(FunctionTransformer(np.tanh), MetaClusterer(**QUICK)).fit(X, Y)
    expected = MetaClusterer(**QUICK).fit(np.tanh(X), Y)
    assert np.array_equal(pipeline.predict(NEW), expected.predict(np.tanh(NEW)))
    assert pipeline.score(NEW, NEW_Y) == expected.score(np.tanh(NEW), NEW_Y)


@pytest.mark.parametrize("name", ["max_clusters", "restarts", "min_cluster_size", "seed"])
@pytest.mark.usefixtures("_without_type_checks")
def test_numbers_of_numpy_are_numbers(name, tmp_path):
    model = MetaClusterer(**{**QUICK, name: np.int64(3)}).fit(X, Y)
    model.save(tmp_path / "model")
    assert getattr(MetaClusterer.load(tmp_path / "model"), name) == 3


# The model file


@pytest.mark.parametrize("name", ["quick", "of_text", "of_images"])
def test_a_loaded_model_clusters_the_same(request, name, tmp_path):
    model = request.getfixturevalue(name)
    x = {"quick": NEW, "of_text": WORDS, "of_images": IMAGES}[name]
    model.save(tmp_path / "model.safetensors")
    loaded = MetaClusterer.load(tmp_path / "model.safetensors", device="cpu")
    assert same_weights(loaded, model)
    assert loaded.preparation_ == model.preparation_
    assert loaded.categories_ == model.categories_
    assert loaded.get_params() == {**model.get_params(), "device": "cpu"}
    found, expected = loaded.cluster(x), model.cluster(x)
    assert np.array_equal(found.probabilities, expected.probabilities)
    assert found.bound == expected.bound
    assert hasattr(loaded, "n_features_in_") is (name == "quick")


def test_a_loaded_model_knows_its_columns(tmp_path):
    frame = pl.DataFrame(X, schema=COLUMNS)
    MetaClusterer(**QUICK).fit(frame, Y).save(tmp_path / "model")
    loaded = MetaClusterer.load(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == COLUMNS
    assert loaded.n_features_in_ == 4
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame.select(COLUMNS[::-1]))


@pytest.mark.parametrize(
    "change",
    [
        {"input": {}},
        {"input": {"preparation": "sorcery"}},
        {"input": []},
        {"input": None},
        {"input": {"preparation": "vectors", "width": 4, "estimator": []}},
        {"input": {"preparation": "vectors", "width": 4, "estimator": {"max_clusters": 0}}},
        {"input": {"preparation": "vectors", "width": 4, "estimator": {"confidence": "high"}}},
        {"input": {"preparation": "vectors", "width": 4, "estimator": {"task_rows": 5}}},
        {"input": {"preparation": "vectors", "width": 99}},
        {"categories": None},
    ],
    ids=str,
)
@pytest.mark.usefixtures("_without_type_checks")
def test_a_damaged_description_is_an_error_of_the_file(quick, tmp_path, change):
    path = tmp_path / "model"
    quick.save(path)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["metaclust"])
    save_file(load_file(path), path, {"metaclust": json.dumps({**header, **change})})
    with pytest.raises(CheckpointError, match=str(path)):
        MetaClusterer.load(path)


def test_files_that_are_no_model_are_refused(quick, tmp_path):
    with pytest.raises(CheckpointError, match="there is no such file"):
        MetaClusterer.load(tmp_path / "nowhere")
    quick.save(tmp_path / "model")
    content = (tmp_path / "model").read_bytes()
    for length in (0, 50, len(content) // 2, len(content) - 1):
        (tmp_path / "cut").write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="not a safetensors file, or it is cut short"):
            MetaClusterer.load(tmp_path / "cut")
    save_file({"w": torch.zeros(2)}, tmp_path / "foreign")
    with pytest.raises(CheckpointError, match="a safetensors file, but not one of metaclust's"):
        MetaClusterer.load(tmp_path / "foreign")
    with pytest.raises(CheckpointError, match=r"the folder .* is not there; create it first"):
        quick.save(tmp_path / "no" / "model")


# Refusals


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.predict(NEW),
        lambda model: model.predict_proba(NEW),
        lambda model: model.transform(NEW),
        lambda model: model.cluster(NEW),
        lambda model: model.represent(NEW),
        lambda model: model.score(NEW, NEW_Y),
        lambda model: model.save("model"),
        lambda model: model.get_feature_names_out(),
    ],
)
def test_what_needs_a_fit_says_so(call):
    with pytest.raises(NotFittedError, match=r"^This MetaClusterer instance is not fitted yet"):
        call(MetaClusterer())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_clusters": 0}, r"^max_clusters=0: it must be a whole number of 1 or more, or 'auto'$"),
        ({"max_clusters": 2.5}, r"^max_clusters=2.5: it must be a whole number of 1 or more, or 'auto'$"),
        ({"max_clusters": True}, r"^max_clusters=True: it must be a whole number of 1 or more, or 'auto'$"),
        ({"restarts": 0}, r"^restarts=0: it must be a whole number of 1 or more$"),
        ({"min_cluster_size": 0}, r"^min_cluster_size=0: it must be a whole number of 1 or more$"),
        ({"confidence": 2}, r"^confidence=2: it must be at least 0 and at most 1.0$"),
        ({"confidence": float("nan")}, r"^confidence=nan: it must be at least 0 and at most 1.0$"),
        ({"validation": 0.95}, r"^validation=0.95: it must be at least 0 and at most 0.8$"),
        ({"effective_rows": 0}, r"^effective_rows=0: it must be positive and finite, or 'auto', or None$"),
        ({"effective_rows": float("nan")}, r"^effective_rows=nan: it must be positive and finite, or 'auto', or None$"),
        ({"seed": -1}, r"^seed=-1: it must be a whole number of 0 or more$"),
        ({"seed": None}, r"^seed=None: it must be a whole number of 0 or more$"),
        ({"pretrain_steps": -1}, r"^pretrain_steps=-1: it must be a whole number of 0 or more$"),
        ({"steps": -1}, r"^steps=-1: it must be a whole number of 0 or more$"),
        ({"representation": 0}, r"^representation=0: it must be a whole number of 1 or more$"),
        ({"components": "cubic"}, r"^components='cubic': choose one of"),
        ({"preset": "fast"}, r"^preset='fast': choose 'default' or 'paper'$"),
        ({"scaling": "robust"}, r"^scaling='robust': choose 'auto', 'standard' or 'none'$"),
        ({"device": "abacus"}, r"^device='abacus' is not a device: choose"),
        ({"task_rows": (30, 5)}, r"rows=\(30, 5\): "),
        ({"task_rows": 5}, r"task_rows=5: "),
        ({"confidence": "high"}, r"confidence='high': "),
        ({"augment": "sometimes"}, r"augment='sometimes': "),
    ],
    ids=str,
)
@pytest.mark.usefixtures("_without_type_checks")
def test_settings_that_cannot_be_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        MetaClusterer(**{**QUICK, **settings}).fit(X, Y)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, None, r"requires y to be passed, but the target y is None"),
        (WORDS, None, r"^MetaClusterer requires y to be passed, but the target y is None: give categories$"),
        (X, np.zeros(len(X)), r"^X has 1 categories, 1 of them with 2 rows or more: learning to cluster needs at lea"),
        (X[:1], Y[:1], r"^Found array with 1 sample\(s\) \(shape=\(1, 4\)\) while a minimum of 2 is required"),
        (X, Y[:-1], r"inconsistent numbers of samples: \[120, 119\]"),
        (np.where(X[3] == X, np.nan, X), Y, r"^Input X contains NaN"),
        (np.where(X[3] == X, np.inf, X), Y, r"^Input X contains infinity"),
        (X.astype(object).astype(str), Y, r"numeric|numbers|could not convert string to float|dtype"),
        (X[:, :0], Y, r"0 feature\(s\)"),
        (X[:, 0], Y, r"^Expected 2D array, got 1D array instead"),
        (WORDS, WORDS_Y[:-1], r"y has 44 labels for 45 rows: give one for each row, None where unknown"),
        (torch.full((6, 2), float("nan")), [0, 0, 0, 1, 1, 1], r"row 0 .*column 0: the cell is empty or NaN"),
        (np.full((6, 2), 1e300), [0, 0, 0, 1, 1, 1], r"1e\+300 is not a finite float32 number"),
    ],
)
def test_rows_that_cannot_be_trained_on_are_refused(x, y, message):
    with pytest.raises(ValueError, match=message):
        MetaClusterer(**QUICK).fit(x, y)


@pytest.mark.parametrize(
    ("name", "x", "message"),
    [
        ("quick", NEW[:, :3], r"^X has 3 features, but MetaClusterer is expecting 4 features as input"),
        ("quick", torch.from_numpy(NEW[:, :3]), r"^X has 3 columns, but the model was trained on 4$"),
        ("quick", np.full((2, 4), np.nan), r"^Input X contains NaN"),
        ("quick", np.full((2, 4), np.inf), r"^Input X contains infinity"),
        ("quick", np.zeros((0, 4)), r"^Found array with 0 sample\(s\)"),
        ("quick", WORDS, r"^X holds text, but the model was trained on vectors$"),
        ("quick", IMAGES, r"^X holds images, but the model was trained on vectors$"),
        ("quick", np.array([["a", "b", "c", "d"]], dtype=object), r"could not convert string to float: 'a'"),
        ("quick", [["a", "b", "c", "d"]], r"convert|numeric|numbers"),
        ("quick", [[1, 2, 3, 4], [1, 2]], r"inhomogeneous|different widths"),
        ("of_text", NEW, r"^X holds vectors, but the model was trained on text$"),
        ("of_text", IMAGES, r"^X holds images, but the model was trained on text$"),
        ("of_text", ["a", None], r"^X: row 1 \(counting from 0\) has an empty text"),
        ("of_images", NEW, r"^X holds vectors, but the model was trained on images$"),
        ("of_images", WORDS, r"^X holds text, but the model was trained on images$"),
        ("of_images", IMAGES[:, :5], r"images of \(channels, height, width\) \(1, 5, 9\), but the model was trained"),
        ("of_images", np.zeros((3, 8, 9, 3), np.uint8), r"\(3, 8, 9\), but the model was trained on \(1, 8, 9\)"),
    ],
)
def test_rows_of_another_kind_than_in_training_are_refused(request, name, x, message):
    with pytest.raises(ValueError, match=message):
        request.getfixturevalue(name).predict(x)


def test_rows_so_far_away_that_they_have_no_finite_representation_are_refused():
    model = MetaClusterer(**QUICK).fit(X * 1e-3, Y)
    far = np.concatenate((NEW * 1e-3, np.full((1, 4), 3e38, np.float32)))
    with pytest.raises(DataError, match=f"row {len(NEW)}"), np.errstate(over="ignore"):
        model.predict(far)


def named_rows(columns):
    return Rows("vectors", NEW, [str(i) for i in range(len(NEW))], None, tuple(columns), "new.csv")


def test_columns_under_other_names_are_refused_however_they_were_named():
    frame = pl.DataFrame(X, schema=COLUMNS)
    rows = Rows("vectors", X, [str(i) for i in range(len(X))], [str(i) for i in Y], tuple(COLUMNS), "old.csv")
    swapped = pl.DataFrame(NEW, schema=COLUMNS).select(COLUMNS[::-1])
    for model in (MetaClusterer(**QUICK).fit(frame, Y), MetaClusterer(**QUICK).fit(rows)):
        with pytest.raises(ValueError, match=r"columns|feature names"):
            model.predict(swapped)
        with pytest.raises(ValueError, match=r"columns|feature names"):
            model.predict(named_rows(COLUMNS[::-1]))
        expected = model.predict(named_rows(COLUMNS))
        assert np.array_equal(model.predict(pl.DataFrame(NEW, schema=COLUMNS)), expected)


@pytest.mark.parametrize("limit", [0, -3, 2.5, True])
@pytest.mark.usefixtures("_without_type_checks")
def test_a_number_of_clusters_that_cannot_be_is_named(quick, limit):
    with pytest.raises(ValueError, match=f"^max_clusters={limit}: it must be a whole number of 1 or more, or 'auto'$"):
        quick.cluster(NEW, max_clusters=limit)


def test_a_score_without_categories_is_refused(quick):
    with pytest.raises(ValueError, match=r"^y=None: pass the known categories, or rows that have labels$"):
        quick.score(NEW)
