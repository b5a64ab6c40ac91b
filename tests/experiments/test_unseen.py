"""MetaClusterer beside scikit-learn on categories that it has not seen."""

import argparse
import json
import sys

import jaxtyping
import numpy as np
import pytest
from scipy import stats

from metaclust.data.datasets.named import Dataset
from metaclust.data.preparation import embeddings
from metaclust.experiments import alphabets, unseen
from metaclust.experiments.records import append_record, read_records

SETTINGS = ["pretrain_steps=10", "steps=0", "choice_tasks=3"]


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(unseen, "TASKS", 3)
    monkeypatch.setattr(unseen, "MOST_AT_ONCE", 12)
    monkeypatch.setattr(alphabets, "MOST_AT_ONCE", 20)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def words(categories, rows, seed=0):
    """Texts of a category share most of their words."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(categories), rows)
    own = [[f"w{k}x{i}" for i in range(6)] for k in range(categories)]
    texts = [" ".join([*rng.choice(own[k], 4), f"n{rng.integers(300)}"]) for k in y]
    return Dataset("words", np.array(texts, dtype=object), y, [f"c{k}" for k in range(categories)])


def signs(categories, rows, groups, seed=0):
    rng = np.random.default_rng(seed)
    shapes = rng.integers(0, 2, (categories, 1, 8, 8)) * 200
    y = np.repeat(np.arange(categories), rows)
    x = np.clip(shapes[y] + rng.normal(0, 20, (len(y), 1, 8, 8)), 0, 255).astype(np.uint8)
    names = [f"g{k % groups}/c{k}" for k in range(categories)]
    return Dataset("signs", x, y, names, groups=[name.split("/")[0] for name in names])


def run(monkeypatch, module, *arguments):
    monkeypatch.setattr(sys, "argv", ["python", *map(str, arguments)])
    module.main()


def test_every_method_is_measured_once_on_both_tests(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(unseen, "load_dataset", lambda name: words(30, 12))
    monkeypatch.setattr(unseen, "LSA_WIDTH", 20)
    out = tmp_path / "unseen.jsonl"
    call = ["run", "--dataset", "words", "--vectors", "tfidf", "--split", 0, 1, "--set", *SETTINGS, "--out", out]
    run(monkeypatch, unseen, *call, "--method", "metaclust", "KMeans, given K")
    records = read_records(out)
    assert {(r["split"], r["test"], r["method"]) for r in records} == {
        (split, test, method)
        for split in (0, 1)
        for test in ("tasks", "all")
        for method in ("metaclust", "KMeans told K")
    }
    for record in records:
        assert record["true"] == ([6] if record["test"] == "all" else record["true"])
        assert len(record["found"]) == len(record["ari_of_tasks"]) == (1 if record["test"] == "all" else 3)
        assert np.mean(record["ari_of_tasks"]) == pytest.approx(record["ari"], abs=1e-4)
        error = np.abs(np.subtract(record["found"], record["true"])).mean()
        assert record["k_error"] == pytest.approx(error, abs=1e-4)
    # What is there is not done again; the rest is added.
    run(monkeypatch, unseen, *call, "--method", "metaclust", "KMeans told K", "HDBSCAN")
    assert len(read_records(out)) == 12
    assert read_records(out)[:8] == records
    capsys.readouterr()
    run(monkeypatch, unseen, "table", out)
    table = capsys.readouterr().out.splitlines()
    assert table[0].split(" | ")[1:] == ["metaclust", "KMeans, given K", "HDBSCAN", "p |"]
    mean = np.mean([r["ari"] for r in records if (r["test"], r["method"]) == ("all", "metaclust")])
    assert any(line.startswith("| words, tfidf, all (2 splits)") and f"| {mean:.3f} ±" in line for line in table)


def test_records_of_earlier_versions_are_recognised(monkeypatch, tmp_path):
    monkeypatch.setattr(unseen, "load_dataset", lambda name: words(30, 12))
    monkeypatch.setattr(unseen, "LSA_WIDTH", 20)
    out = tmp_path / "unseen.jsonl"
    old = {"dataset": "words", "vectors": "tfidf", "split": 0, "validate": False, "test": "all"}
    append_record(out, {**old, "method": "KMeans told K", "ari": 0.5})
    call = ["run", "--dataset", "words", "--vectors", "tfidf", "--split", 0, "--test", "all", "--out", out]
    run(monkeypatch, unseen, *call, "--method", "KMeans told K", "KMeans, K by silhouette")
    assert [record["method"] for record in read_records(out)] == ["KMeans told K", "KMeans, K by silhouette"]


class Words:
    """Stands in for a sentence-transformers model: texts of a category have nearly the same direction."""

    def __init__(self):
        self.seen = []

    def encode(self, texts, **_):
        self.seen += texts
        kinds = [int(text.split("x")[0][1:]) if "x" in text else 0 for text in texts]
        noise = np.stack([np.random.default_rng(list(text.encode())).normal(size=8) for text in texts])
        return np.random.default_rng(0).normal(size=(100, 8))[kinds] + 0.1 * noise


def test_metaclust_is_given_the_texts_and_baselines_their_embeddings(monkeypatch, tmp_path):
    """Each text is embedded once: after that its vector is read from the cache."""
    folder = tmp_path / "models" / "small"
    folder.mkdir(parents=True)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    model = Words()
    monkeypatch.setattr(embeddings, "load_sentence_transformer", lambda *_: model)
    monkeypatch.setenv("METACLUST_CACHE", str(tmp_path / "cache"))
    data = words(30, 12)
    prepared = unseen.read(data, "embeddings", str(folder))
    np.testing.assert_allclose(np.linalg.norm(prepared.vectors, axis=1), 1, atol=1e-5)
    assert set(model.seen) - {"width"} == set(data.X)
    model.seen.clear()
    given = []

    class Spy(unseen.MetaClusterer):
        def fit(self, x, y):
            given.append((x, self.get_params()))
            return super().fit(x, y)

        def cluster(self, x, **options):
            given.append((x, self.get_params()))
            return super().cluster(x, **options)

    monkeypatch.setattr(unseen, "MetaClusterer", Spy)
    wanted = [("tasks", "metaclust"), ("all", "metaclust"), ("tasks", "KMeans told K")]
    ours, _, baseline = unseen.run(prepared, 0, wanted, False, dict(map(unseen.setting, SETTINGS)))
    assert len(given) == 1 + 3 + 1
    for texts, settings in given:
        assert isinstance(texts, list)
        assert set(texts) <= set(data.X)
        assert (settings["text"], settings["embedding_model"]) == ("embeddings", str(folder))
    assert model.seen == []
    assert ours[2]["settings"] == {
        "text": "embeddings",
        "embedding_model": "small",
        "pretrain_steps": 10,
        "steps": 0,
        "choice_tasks": 3,
    }
    assert baseline[2]["ari"] > 0.9


@pytest.mark.parametrize("validate", [True, False])
def test_only_known_categories_are_learned_from(monkeypatch, validate):
    data = words(30, 12)
    known = {}

    class Spy(unseen.MetaClusterer):
        def fit(self, x, y):
            known.update(rows=set(x), names=set(y))
            return super().fit(x, y)

    monkeypatch.setattr(unseen, "MetaClusterer", Spy)
    monkeypatch.setattr(unseen, "LSA_WIDTH", 20)
    prepared = unseen.read(data, "tfidf", None)
    settings = dict(map(unseen.setting, SETTINGS))
    ((_, _, result),) = unseen.run(prepared, 0, [("all", "metaclust")], validate, settings)
    parts = unseen.split_categories(data.y, 0)
    tested = parts.validation if validate else parts.test
    assert result["true"] == [len(tested)]
    assert len(known["names"]) == (18 if validate else 24)
    assert not known["names"] & {data.categories[k] for k in (*tested, *(parts.test if validate else ()))}


def test_each_alphabet_is_clustered_by_what_was_learned_from_the_others(monkeypatch, tmp_path, capsys):
    data = {None: signs(42, 8, 7), "evaluation": signs(8, 8, 2, seed=1)}
    monkeypatch.setattr(alphabets, "load_dataset", lambda name, part=None: data[part])
    out = tmp_path / "alphabets.jsonl"
    call = ["run", "--folder", tmp_path / "runs", "--set", *SETTINGS, "--out", out]
    run(monkeypatch, alphabets, *call)
    records = read_records(out)
    assert {r["alphabet"] for r in records} == {"g0", "g1"}
    assert {r["true"] for r in records} == {4}
    assert {r["method"].split(",")[0] for r in records} >= {"metaclust", "HDBSCAN", "KMeans told K"}
    # The model is there, and so are the figures: nothing is done again.
    run(monkeypatch, alphabets, *call)
    assert read_records(out) == records
    run(monkeypatch, alphabets, *call, "--validate")
    kept_out = {r["alphabet"] for r in read_records(out)} - {"g0", "g1"}
    assert len(list((tmp_path / "runs").glob("*.safetensors"))) == 2
    assert len(kept_out) >= 3
    capsys.readouterr()
    run(monkeypatch, alphabets, "table", out)
    assert "| metaclust | " in capsys.readouterr().out


def test_alphabets_are_compared_in_pairs():
    """With the published figures, and with the other ways, by a t-test that scipy also gives."""
    rng = np.random.default_rng(0)
    figures = {"ari": 0.5, "found": 3, "true": 4}
    ours = {name: value + 0.02 + 0.01 * rng.normal() for name, value in alphabets.MCL.items()}
    records = [{"alphabet": name, "method": "metaclust", "acc": value, **figures} for name, value in ours.items()]
    records += [{"alphabet": name, "method": "other", "acc": 0.8, **figures} for name in list(ours)[:5]]
    shown = alphabets.table(records)
    lines = {line.split(" | ")[0]: line for line in shown.splitlines()}
    expected = stats.ttest_rel(list(ours.values()), list(alphabets.MCL.values())).pvalue
    assert lines["| MCL, 100 outputs, as published"].endswith(f"| 20 | {expected:.2g} |")
    assert "| 0.825 ± " in lines["| MCL, 100 outputs, as published"]
    few = stats.ttest_rel(list(ours.values())[:5], [0.8] * 5).pvalue
    assert lines["| other"].endswith(f"| 1.00 | 5 | {few:.2g} |")
    assert "MCL" not in alphabets.table(records[:-5][:7])


@pytest.mark.parametrize("words", ["depth=3", "steps=many", "steps"])
def test_a_wrong_setting_is_named(words):
    with pytest.raises(argparse.ArgumentTypeError, match=words):
        unseen.setting(words)


def test_an_unknown_method_is_named(monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(
            monkeypatch, unseen, "run", "--dataset", "digits", "--vectors", "pixels", "--method", "DBSCAN", "--out", "x"
        )
    assert "--method 'DBSCAN': choose from 'metaclust'" in capsys.readouterr().err
