"""Training of the sentence encoder: what changes, what is kept, and that it is the same after an interruption."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

pytest.importorskip("sentence_transformers", reason="no sentence-transformers: pip install 'metaclust[text]'")

from metaclust import MetaClusterer
from metaclust._util.tensors import CheckpointError
from metaclust.data.preparation.model_folder import load_sentence_transformer
from metaclust.data.preparation.tuned import TunedWeights
from metaclust.data.rows import DataError
from metaclust.inference.calibrate import Unseen
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.training import discovery, loop, recipe, tuning
from metaclust.training.tuning import CannotTuneError, SentenceEncoder, Tuner, token_rows
from metaclust.training.upper_layers import UpperLayers

CPU = torch.device("cpu")
TOPICS = {
    "fruit": "apple pear plum fig kiwi grape",
    "tools": "saw drill file plane chisel rasp",
    "birds": "wren finch heron stork gull swift",
    "metals": "iron zinc lead tin gold nickel",
    "boats": "ferry canoe yacht kayak dinghy barge",
    "cloth": "linen silk wool denim felt tweed",
    "grain": "wheat oats rye maize rice barley",
    "trees": "oak elm ash birch maple cedar",
}
COMMON = ["we", "saw", "a", "very", "old", "and", "new", "one", "of", "the", "good", "here", "again"]


def texts_of(topic: str, count: int, seed: int) -> list[str]:
    generator = np.random.default_rng([seed, *topic.encode()])
    own = TOPICS[topic].split()
    return [
        " ".join([*generator.choice(COMMON, generator.integers(1, 9)), *generator.choice(own, 2)]) for _ in range(count)
    ]


@pytest.fixture(scope="module")
def corpus() -> tuple[list[str], list[str]]:
    labels = [topic for topic in TOPICS for _ in range(12)]
    return [text for topic in TOPICS for text in texts_of(topic, 12, 0)], labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence-transformers model of a few thousand weights that knows these words."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    place = tmp_path_factory.mktemp("tiny")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*COMMON, *" ".join(TOPICS.values()).split()})]
    (place / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    tokenizer = BertTokenizerFast(vocab_file=str(place / "vocab.txt"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    model = place / "model"
    BertModel(config).save_pretrained(model)
    tokenizer.save_pretrained(model)
    (model / "sentence_bert_config.json").write_text('{"max_seq_length": 32}', encoding="utf-8")
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(kinds.items())
    ]
    (model / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    for path in ("1_Pooling", "2_Normalize"):
        (model / path).mkdir()
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
    (model / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    return model


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("METACLUST_CACHE", str(tmp_path / "cache"))


def tuner(folder: Path, corpus: tuple[list[str], list[str]], steps: int = 30) -> Tuner:
    y = np.unique(corpus[1], return_inverse=True)[1]
    return Tuner(str(folder), corpus[0], y, steps, 0, CPU, progress=False)


def clusterer(folder: Path, **settings: object) -> MetaClusterer:
    common = {"pretrain_steps": 10, "steps": 5, "choice_tasks": 12, "progress": False, "device": "cpu"}
    return MetaClusterer(text="embeddings", embedding_model=str(folder), **{**common, **settings})


def test_the_encoder_gives_the_vectors_of_sentence_transformers_in_any_order_and_with_any_padding(folder, corpus):
    transformer = load_sentence_transformer(folder, CPU)
    encoder = SentenceEncoder(transformer).eval()
    tokens = token_rows(transformer, corpus[0])
    expected = encoder.scale * torch.from_numpy(transformer.encode(corpus[0], show_progress_bar=False))
    with torch.no_grad():
        torch.testing.assert_close(encoder(tokens), expected, atol=1e-5, rtol=1e-5)
        order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(encoder(tokens[order]), expected[order], atol=1e-5, rtol=1e-5)
        padded = torch.nn.functional.pad(tokens, (0, 7), value=-1)
        torch.testing.assert_close(encoder(padded), expected, atol=1e-5, rtol=1e-5)


def test_squared_distances_are_cosine_distances_over_the_temperature(folder, corpus):
    transformer = load_sentence_transformer(folder, CPU)
    encoder = SentenceEncoder(transformer).eval()
    with torch.no_grad():
        z = encoder(token_rows(transformer, corpus[0][:10]))
    cosine = torch.nn.functional.cosine_similarity(z[:, None], z[None], dim=-1)
    torch.testing.assert_close(torch.cdist(z, z) ** 2, (1 - cosine) / tuning.TEMPERATURE, atol=1e-3, rtol=1e-3)


def test_layers_that_are_computed_again_have_the_same_gradient(folder, corpus, monkeypatch):
    gradients = []
    for most in (10**9, 0):
        monkeypatch.setattr(tuning, "MANY_TOKENS", most)
        transformer = load_sentence_transformer(folder, CPU)
        for module in transformer.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        encoder = SentenceEncoder(transformer).train()
        encoder(token_rows(transformer, corpus[0][:20])).square().cumsum(0).sum().backward()
        gradients.append({n: w.grad for n, w in encoder.named_parameters() if w.grad is not None})
        assert transformer[0].auto_model.is_gradient_checkpointing == (most == 0)
    assert gradients[0].keys() == gradients[1].keys()
    for name, value in gradients[0].items():
        torch.testing.assert_close(value, gradients[1][name])


def test_training_separates_the_categories_and_changes_no_embedding_of_a_token(folder, corpus, monkeypatch):
    # A network as small as this learns at a higher rate.
    monkeypatch.setattr(tuning, "RATE", 3e-2)
    one = tuner(folder, corpus, 200)
    known = np.arange(6)
    weights = one.tune(known, np.ones(len(one.y), bool), {"progress": False})
    before = load_sentence_transformer(folder, CPU).state_dict()
    assert weights.tensors
    assert not any("embeddings" in name for name in weights.tensors)
    assert any(not torch.equal(value, before[name]) for name, value in weights.tensors.items())

    def between_over_within(x: np.ndarray) -> float:
        x, y = x[np.isin(one.y, known)], one.y[np.isin(one.y, known)]
        centres = np.stack([x[y == k].mean(0) for k in known])
        return float(centres.var(0).sum() / np.mean([x[y == k].var(0).sum() for k in known]))

    after, frozen = one.embed(weights).numpy(), one.embedder.embed(one.texts, False)
    np.testing.assert_allclose(np.linalg.norm(after, axis=1), 1, atol=1e-5)
    assert between_over_within(after) > 1.3 * between_over_within(frozen)


def test_rows_and_categories_that_are_kept_apart_do_not_matter(folder, corpus):
    texts, labels = corpus
    one = tuner(folder, corpus, 5)
    rows = np.arange(len(texts)) % 3 > 0
    expected = one.tune(np.arange(5), rows, {"progress": False}).digest
    changed = ["we saw one here" if not keep or y >= 5 else t for t, y, keep in zip(texts, one.y, rows, strict=True)]
    other = tuner(folder, (changed, labels), 5)
    # The longest text decides how many columns tokens have, and nothing else.
    assert other.tune(np.arange(5), rows, {"progress": False}).digest == expected


def test_an_interrupted_training_ends_with_the_same_bits(folder, corpus, tmp_path, monkeypatch):
    one, rows, known = tuner(folder, corpus, 12), np.ones(96, bool), np.arange(8)
    monkeypatch.setattr(tuning, "SAVE_EVERY", 5)
    expected = one.tune(known, rows, {"progress": False}).digest
    step = loop.Training.step
    monkeypatch.setattr(loop.Training, "step", lambda self, batch: stopped(self) or step(self, batch))

    def stopped(training):
        if training.state.step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one.tune(known, rows, {"folder": tmp_path / "run", "progress": False})
    monkeypatch.setattr(loop.Training, "step", step)
    again = one.tune(known, rows, {"folder": tmp_path / "run", "resume": True, "progress": False})
    assert again.digest == expected


def test_a_tuned_model_is_saved_whole_and_gives_the_same_labels_in_another_process(folder, corpus, tmp_path):
    texts, labels = corpus
    model = clusterer(folder, encoder="tuned").fit(texts, labels)
    assert any("trained for 80 steps" in words for words in model.decisions_)
    new = [text for topic in ("fruit", "boats", "trees") for text in texts_of(topic, 15, 1)]
    expected = model.cluster(new)
    model.save(tmp_path / "model")
    loaded = MetaClusterer.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(new), expected.representations)
    program = (
        "import json, sys; from metaclust import MetaClusterer; "
        "print(json.dumps(MetaClusterer.load(sys.argv[1]).cluster(json.loads(sys.argv[2])).labels.tolist()))"
    )
    environment = {**os.environ, "METACLUST_CACHE": str(tmp_path / "other")}
    found = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, str(tmp_path / "model"), json.dumps(new)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert json.loads(found.stdout.splitlines()[-1]) == expected.labels.tolist()
    expected.save(tmp_path / "clustering")
    further = type(expected).load(tmp_path / "clustering", device="cpu").assign(new[:5])
    assert further.labels.tolist() == expected.labels[:5].tolist()


@pytest.fixture(scope="module")
def saved(folder: Path, corpus: tuple[list[str], list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model"
    clusterer(folder, encoder="tuned", effort="balanced").fit(*corpus).save(path)
    return path


def rewritten(path: Path, target: Path, change: object) -> Path:
    with safe_open(path, "pt") as file:
        notes = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, target, notes)
    return target


def held_name(tensors: dict[str, torch.Tensor]) -> str:
    return next(name for name in sorted(tensors) if name.startswith("embedder."))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({held_name(t): t[held_name(t)] + 1}), "not those that it says"),
        (lambda t: t.pop(held_name(t)), "not those that it says"),
        (lambda t: [t.pop(name) for name in list(t) if name.startswith("embedder.")], "not those that it says"),
        (lambda t: t.update({"embedder.more": torch.zeros(1)}), "not those that it says"),
    ],
    ids=["changed", "one is missing", "all are missing", "one more"],
)
def test_weights_that_are_not_those_of_the_file_are_refused(saved, tmp_path, change, message):
    with pytest.raises(CheckpointError, match=message):
        MetaClusterer.load(rewritten(saved, tmp_path / "other", change))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e9])
def test_weights_that_no_network_can_hold_are_refused(value):
    with pytest.raises(ValueError, match="not finite, or larger"):
        TunedWeights({"layer": torch.tensor([0.0, value])}).checked()
    with pytest.raises(ValueError, match=r"must hold torch\.float32"):
        TunedWeights({"layer": torch.zeros(2, dtype=torch.float64)}).checked()


@pytest.mark.parametrize("tensors", [{"unknown": torch.zeros(2)}, {"0.auto_model.pooler.dense.bias": torch.zeros(3)}])
def test_weights_that_do_not_fit_the_embedding_model_are_refused(folder, tensors):
    model = load_sentence_transformer(folder, CPU)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(DataError, match="do not fit the embedding model"):
        TunedWeights(tensors).load_into(model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_tuned_and_frozen_vectors_have_caches_of_their_own(folder, corpus):
    one = tuner(folder, corpus, 5)
    weights = one.tune(np.arange(8), np.ones(96, bool), {"progress": False})
    frozen = one.embedder.embed(corpus[0], False)
    first = one.embed(weights, cached=True).numpy()
    assert np.abs(first - frozen).max() > 1e-4
    np.testing.assert_array_equal(one.embed(weights, cached=True).numpy(), first)
    np.testing.assert_array_equal(one.embedder.embed(corpus[0], False), frozen)


def unseen_blobs(spread: float) -> Unseen:
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 30)
    model = ClusteringModel(ModelConfig((6,), representation=6))
    return Unseen(5 * np.eye(6)[y] + spread * generator.normal(size=(180, 6)), y, model)


def test_training_is_kept_where_unseen_categories_gain(folder, corpus, monkeypatch):
    near, far = unseen_blobs(2.5), unseen_blobs(0.5)
    said: list[str] = []
    assert recipe.gains(near, far, said.append)
    assert not recipe.gains(far, near, said.append)
    assert not recipe.gains(near, near, said.append)
    assert recipe.worth_tuning(near, said.append)
    assert not recipe.worth_tuning(far, said.append)
    assert ["is trained" in words for words in said] == [True, False, False, False]
    for answer in (True, False):
        monkeypatch.setattr(recipe, "worth_tuning", lambda *_: True)
        monkeypatch.setattr(recipe, "gains", lambda *_, answer=answer: answer)
        model = clusterer(folder, effort="balanced").fit(*corpus)
        assert (model.preparation_.weights is not None) == answer
        assert (model.model_.embedder is not None) == answer


def test_fast_training_leaves_the_sentence_encoder_as_it_is(folder, corpus, monkeypatch):
    monkeypatch.setattr(Tuner, "tune", lambda *_: pytest.fail("the sentence encoder is trained"))
    model = clusterer(folder).fit(*corpus)
    assert model.preparation_.tuned == ""
    clusterer(folder, encoder="residual", effort="best").fit(*corpus)


def test_what_cannot_be_trained_is_left_as_it_is_or_said(folder, corpus, monkeypatch):
    def refuse(_):
        raise CannotTuneError("it begins with a table")

    monkeypatch.setattr(tuning, "check_tunable", refuse)
    monkeypatch.setattr(recipe, "worth_tuning", lambda *_: True)
    model = clusterer(folder, effort="best").fit(*corpus)
    assert any("stays as it is: it begins with a table" in words for words in model.decisions_)
    with pytest.raises(CannotTuneError, match="begins with a table"):
        clusterer(folder, encoder="tuned").fit(*corpus)


def test_a_model_that_does_not_begin_with_a_transformer_cannot_be_trained():
    with pytest.raises(CannotTuneError, match="begins with Linear"):
        tuning.check_tunable(torch.nn.Sequential(torch.nn.Linear(2, 2)))


def test_settings_that_do_not_go_together_are_errors(corpus):
    with pytest.raises(ValueError, match=r"encoder='tuned'.*text='embeddings'"):
        MetaClusterer(encoder="tuned", progress=False).fit(*corpus)
    with pytest.raises(ValueError, match="effort='huge'"):
        MetaClusterer().set_params(effort="huge").fit(*corpus)


def test_the_upper_layers_give_the_vectors_of_the_whole_model(folder, corpus):
    transformer = load_sentence_transformer(folder, CPU)
    upper = UpperLayers(transformer, corpus[0], CPU).eval()
    expected = torch.from_numpy(transformer.encode(corpus[0], show_progress_bar=False))
    index = torch.randperm(len(corpus[0]), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(upper(index), expected[index], atol=0.02, rtol=0.02)
    assert len(upper.layers) == 1
    names = set(upper.changed())
    assert names
    assert all("encoder.layer.1." in name for name in names)
    assert names <= set(transformer.state_dict())


def test_texts_of_which_few_are_labelled_train_the_upper_layers(folder, corpus, tmp_path, monkeypatch):
    texts = [text for topic in TOPICS for text in texts_of(topic, 30, 1)]
    truth = [topic for topic in TOPICS for _ in range(30)]
    known = list(TOPICS)[:5]
    labels = [topic if topic in known and row % 5 == 0 else None for row, topic in enumerate(truth)]
    # Of so small a model, what is rounded in bfloat16 would be far from what is not.
    for module in ("metaclust._util.devices", "metaclust.training.upper_layers"):
        monkeypatch.setattr(f"{module}.fast_bfloat16", lambda _: False)
    monkeypatch.setattr(discovery, "SENTENCES", replace(discovery.SENTENCES, warm_steps=4))
    model = clusterer(folder, effort="balanced").fit(texts, labels, folder=tmp_path / "run")
    assert model.model_.embedder is not None
    assert model.decisions_[0].startswith("1 layer of the sentence encoder and a residual encoder learned from 30 ")
    assert len(model.discovered_) == len(texts)
    again = clusterer(folder, effort="balanced").fit(texts, labels, folder=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(again.discovered_.representations, model.discovered_.representations)
    model.save(tmp_path / "model.safetensors")
    loaded = MetaClusterer.load(tmp_path / "model.safetensors", device="cpu")
    np.testing.assert_allclose(loaded.transform(texts), model.discovered_.representations, atol=1e-3)
