"""What is trained is what ships: settings are honoured, starts are shared, and rows that are alike give one model."""

import json

import jaxtyping
import numpy as np
import pytest
import torch

from metaclust import MetaClusterer
from metaclust.data.preparation import embeddings
from metaclust.experiments import unseen
from metaclust.inference import pipeline as pipelines
from metaclust.inference.initialise import LearnedStart
from metaclust.inference.pipeline import Search, pipeline_for
from metaclust.training import evaluation, loop, plan, prior, recipe

WIDTH = 12
SMALL = {"progress": False, "pretrain_steps": 12, "steps": 4, "choice_tasks": 4, "seed": 1}


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(prior, "PRIOR_TASKS", 2)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def unit_rows(categories=18, rows=10, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(categories), rows)
    x = rng.normal(size=(categories, WIDTH))[y] + 0.3 * rng.normal(size=(len(y), WIDTH))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y


@pytest.fixture(scope="module")
def fitted():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        return MetaClusterer(**SMALL).fit(*unit_rows())


class Embedder:
    """Stands in for a sentence encoder: each text names the row of unit length that it becomes."""

    table = unit_rows()[0]
    fingerprint = "one and the same"
    width = WIDTH

    def __init__(self, *_, **__):
        pass

    def embed(self, texts):
        return np.stack([self.table[int(text.split()[-1])] for text in texts])


def steps_taken(monkeypatch):
    """The steps of each training of a fit, as (pretraining, continuous ARI)."""
    taken = []
    real = loop.Training.run

    def spied(self, *arguments):
        state = real(self, *arguments)
        taken.append((min(state.step, self.config.pretrain_steps), max(0, state.step - self.config.pretrain_steps)))
        return state

    monkeypatch.setattr(loop.Training, "run", spied)
    return taken


@pytest.mark.parametrize("encoder", ["network", "residual"])
@pytest.mark.parametrize(("pretrain_steps", "steps"), [(3, 2), (0, 5), (7, 0)])
def test_the_steps_that_are_given_are_taken(encoder, pretrain_steps, steps, monkeypatch):
    taken = steps_taken(monkeypatch)
    settings = {**SMALL, "pretrain_steps": pretrain_steps, "steps": steps, "encoder": encoder}
    model = MetaClusterer(**settings).fit(*unit_rows())
    further = [(round(recipe.FURTHER * pretrain_steps), 0)] if encoder == "network" and pretrain_steps else []
    assert taken == [(pretrain_steps, steps)] * (1 if encoder == "network" else 1 + recipe.FOLDS) + further
    if encoder == "residual":
        # Its steps are on candidates, which teach the task network nothing.
        assert not model.model_.config.learned_start


@pytest.mark.parametrize("encoder", ["network", "residual"])
def test_the_steps_that_are_not_given_suit_the_encoder(encoder, monkeypatch):
    monkeypatch.setitem(recipe.STEPS, encoder, (4, 3))
    taken = steps_taken(monkeypatch)
    MetaClusterer(**{**SMALL, "pretrain_steps": None, "steps": None}, encoder=encoder).fit(*unit_rows())
    assert set(taken) == {(4, 3), *([(2, 0)] if encoder == "network" else [])}


def test_a_network_is_trained_on_all_categories_once_the_held_out_ones_have_been_learned_from():
    rows, y = unit_rows()
    settings = MetaClusterer(**{**SMALL, "pretrain_steps": 10}, encoder="network").get_params()
    made = plan.recipe_for(settings, torch.from_numpy(rows), y, rows.shape[1:], folder=None, resume=False)
    learned = recipe.learn_representation(made)
    (part,) = learned.unseen
    held = recipe.held_out(made)
    assert len(held)
    np.testing.assert_array_equal(np.unique(part.y), held)
    place = torch.from_numpy(np.flatnonzero(np.isin(y, held)))
    before = part.model.transform(torch.from_numpy(rows)[place])
    np.testing.assert_allclose(before, part.z, atol=1e-5)
    assert (learned.model.transform(torch.from_numpy(rows)[place]) - before).abs().max() > 1e-3
    # The prior is that of unseen categories, and the task network is the one that was trained on the ARI.
    assert learned.model.expected_variance == part.model.expected_variance
    assert learned.model.config == part.model.config
    for name, weight in learned.model.task_network.named_parameters():
        torch.testing.assert_close(weight, dict(part.model.task_network.named_parameters())[name])


def test_the_trained_task_network_proposes_a_start_of_a_prediction(monkeypatch):
    x, y = unit_rows()
    model = MetaClusterer(**SMALL, encoder="network", validation=0).fit(x, y)
    asked = []
    real = LearnedStart.__call__

    def spied(self, network, sample, *arguments):
        asked.append(network)
        (initial,) = proposed = real(self, network, sample, *arguments)
        rows = torch.from_numpy((sample.z + sample.mean).astype(np.float32))
        torch.testing.assert_close(initial.logits, network.eval().initial_logits(rows).detach(), atol=1e-4, rtol=1e-3)
        return proposed

    monkeypatch.setattr(LearnedStart, "__call__", spied)
    model.cluster(x[:40])
    assert asked
    assert all(network is model.model_ for network in asked)


def test_an_untrained_task_network_proposes_nothing():
    model = MetaClusterer(**{**SMALL, "steps": 0}, encoder="network", validation=0).fit(*unit_rows())
    starts = pipeline_for(model.model_, Search(5)).initialise
    assert not any(isinstance(start, LearnedStart) for start in starts)


def test_weights_are_validated_by_what_users_get(monkeypatch):
    """Each validation clusters every task by the function that ``cluster`` calls."""
    seen = []
    real = evaluation.cluster_in_order

    def spied(model, z, search, *arguments):
        found = real(model, z, search, *arguments)
        seen.append((len(z), model.config.learned_start, found.selected_by))
        return found

    monkeypatch.setattr(evaluation, "cluster_in_order", spied)
    model = MetaClusterer(**SMALL, encoder="network").fit(*unit_rows())
    validations = len(model.run_.validations)
    assert validations == 5
    assert len(seen) == validations * plan.VALIDATION_TASKS
    # The selector is learned when the training has ended.
    assert {selected_by for *_, selected_by in seen} == {"bound"}
    # Before the first step on the continuous ARI the task network is not trained.
    learned = [learned for _, learned, _ in seen]
    assert learned == [False] * plan.VALIDATION_TASKS + [True] * 4 * plan.VALIDATION_TASKS


def test_texts_arrays_and_the_experiment_give_one_model(monkeypatch):
    monkeypatch.setattr(embeddings, "SentenceEmbedder", Embedder)
    x, y = unit_rows()
    names = [f"c{i:02}" for i in range(18)]
    labels = [names[i] for i in y]
    texts = [f"text number {i}" for i in range(len(y))]
    by_array = MetaClusterer(**SMALL).fit(x, labels)
    words = {"text": "embeddings", "embedding_model": "any"}
    by_text = MetaClusterer(**SMALL, **words).fit(texts, labels)
    assert by_array.model_.config == by_text.model_.config
    assert by_text.model_.config.unit
    assert_same_weights(by_array, by_text)
    np.testing.assert_array_equal(by_array.cluster(x[:60]).labels, by_text.cluster(texts[:60]).labels)
    fitted = []
    real = MetaClusterer.fit
    monkeypatch.setattr(MetaClusterer, "fit", lambda self, *a, **k: fitted.append(real(self, *a, **k)) or fitted[-1])
    data = unseen.Data(np.array(texts, dtype=object), x, y, names, words)
    given = {name: value for name, value in SMALL.items() if name not in ("seed", "progress")}
    known = np.isin(y, np.concatenate([unseen.split_categories(y, 1).train, unseen.split_categories(y, 1).validation]))
    ours = next(name for name in unseen.VARIANTS if unseen.VARIANTS[name] == {})
    list(unseen.run(data, 1, [("tasks", ours)], False, given))
    expected = real(MetaClusterer(**SMALL), x[known], [labels[i] for i in np.flatnonzero(known)])
    assert_same_weights(fitted[0], expected)


def assert_same_weights(one, other):
    first, second = one.model_.state_dict(), other.model_.state_dict()
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_a_fit_that_was_stopped_repeats_no_training_that_was_finished(fitted, tmp_path, monkeypatch):
    x, y = unit_rows()
    real, trainings = loop.Training.run, []

    def stopped(self, *arguments):
        if len(trainings) == 4:
            raise KeyboardInterrupt
        trainings.append(self)
        return real(self, *arguments)

    monkeypatch.setattr(loop.Training, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        MetaClusterer(**SMALL).fit(x, y, folder=tmp_path / "run")
    monkeypatch.setattr(loop.Training, "run", real)
    again = []
    step = loop.Training.step
    monkeypatch.setattr(loop.Training, "step", lambda self, batch: again.append(self.store.folder) or step(self, batch))
    resumed = MetaClusterer(**SMALL).fit(x, y, folder=tmp_path / "run", resume=True)
    assert_same_weights(fitted, resumed)
    assert not {training.store.folder for training in trainings} & set(again)
    assert len(set(again)) == 2  # the last fold, and the training on all categories


def test_decisions_are_kept_in_the_file(fitted, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    loaded = MetaClusterer.load(tmp_path / "model.safetensors")
    assert loaded.decisions_ == fitted.decisions_
    assert len(loaded.decisions_) >= 3
    assert loaded.model_.config == fitted.model_.config
    assert json.dumps(loaded.decisions_)


def test_the_pipeline_of_the_paper_is_made_of_the_same_stages():
    model = MetaClusterer(**SMALL, preset="paper").fit(*unit_rows())
    pipeline = pipeline_for(model.model_)
    assert isinstance(pipeline, pipelines.Pipeline)
    assert isinstance(pipeline.initialise[0], LearnedStart)
    assert pipeline.select.name == "bound"


@pytest.mark.parametrize("dropout", [None, 0.0, 0.25])
def test_a_dropout_that_is_given_is_used_by_either_encoder(dropout):
    for encoder, default in (("network", 0.1), ("residual", recipe.RESIDUAL_DROPOUT)):
        settings = {**SMALL, "pretrain_steps": 1, "steps": 0, "choose": "bound"}
        model = MetaClusterer(**settings, encoder=encoder, dropout=dropout).fit(*unit_rows())
        assert model.model_.config.dropout == (default if dropout is None else dropout)


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ("vectors", {"augment": "turn"}, "augment='turn' is for images, but X holds vectors"),
        ("vectors", {"text": "counts"}, "text='counts' is for texts, but X holds vectors"),
        ("texts", {"scaling": "standard"}, "scaling='standard' is for vectors, but X holds texts"),
        ("texts", {"embedding_model": "m"}, "embedding_model='m' is for text='embeddings', but text='tfidf'"),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(rows, settings, message):
    x, y = unit_rows(4, 5)
    given = x if rows == "vectors" else [f"words of row {i} here" for i in range(len(y))]
    with pytest.raises(ValueError, match=message):
        MetaClusterer(**SMALL, **settings).fit(given, y)
