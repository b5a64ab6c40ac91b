"""The protocol of TEXTOIR: which rows keep their labels, and what is reported."""

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from metaclust.experiments import discovery
from metaclust.experiments.discovery import (
    DATASETS,
    RATIOS,
    Answer,
    division,
    read_textoir,
    run_discovery,
    table,
    whitened,
)
from metaclust.experiments.records import read_records

SIZES = {f"label {n}": 20 + 7 * n for n in range(9)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data set of made-up rows in the place of banking."""
    rows = []
    for label, size in SIZES.items():
        for split, count in (("train", size), ("dev", 3), ("test", 5)):
            rows += [
                {"dataset": "banking", "split": split, "text": f"{label} {split} {n}", "label": label}
                for n in range(count)
            ]
    rows.append({"dataset": "clinc", "split": "train", "text": "other", "label": "other"})
    (tmp_path / "textoir").mkdir()
    with gzip.open(tmp_path / "textoir" / "data.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_tenth_of_the_rows_of_each_known_label_keep_it(root, ratio):
    rows = read_textoir("banking", root)
    found = division(rows, ratio, 3)
    kept = Counter(label for label in found.y if label is not None)
    assert len(kept) == round(ratio * 9)
    assert kept == {label: round(SIZES[label] / 10) for label in kept}
    assert found.texts == rows["train"][0]
    assert all(text.startswith(label) for text, label in zip(found.texts, found.y, strict=True) if label)
    assert (found.test, found.truth, found.number) == (*rows["test"], 9)
    assert division(rows, ratio, 3).y == found.y
    assert division(rows, ratio, 4).y != found.y
    np.testing.assert_array_equal(found.known >= 0, [label is not None for label in found.y])


def test_validation_scores_unlabelled_training_rows_that_are_left_out(root):
    rows = read_textoir("banking", root)
    whole, found = division(rows, 0.75, 0), division(rows, 0.75, 0, validate=True)
    assert not set(found.test) & set(found.texts)
    assert set(found.test) | set(found.texts) == set(rows["train"][0])
    assert Counter(found.y)[None] == sum(label is None for label in whole.y) - len(found.test)
    assert [y for y in found.y if y] == [y for y in whole.y if y]


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_counts_of_the_data_sets_are_those_of_the_protocol(dataset):
    try:
        rows = read_textoir(dataset)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    sizes = {"banking": (9003, 1000, 3080), "clinc": (18000, 2250, 2250), "stackoverflow": (12000, 2000, 6000)}
    assert tuple(len(rows[name][0]) for name in ("train", "dev", "test")) == sizes[dataset]
    of_label = Counter(rows["train"][1])
    assert len(of_label) == DATASETS[dataset]
    kept = Counter(label for label in division(rows, 0.5, 0).y if label)
    assert len(kept) == round(0.5 * DATASETS[dataset])
    assert all(count == round(0.1 * of_label[label]) for label, count in kept.items())


def test_results_are_appended_once_and_summed_up(root, tmp_path, monkeypatch):
    calls = []

    def method(trial: discovery.Trial) -> Answer:
        calls.append(trial.seed)
        return Answer(np.arange(len(trial.division.test)) % (2 + trial.seed), {})

    monkeypatch.setattr(discovery, "METHODS", {"encoder": method})
    settings = {"known": 0.5, "seeds": (0, 1), "out": tmp_path, "root": root, "progress": False}
    facts = run_discovery("banking", **settings)
    run_discovery("banking", **settings)
    records = read_records(Path(facts["results"]))
    assert calls == [0, 1]
    assert [record["clusters"] for record in records] == [2, 3]
    lines = table(records).splitlines()
    assert len(lines) == 4
    assert "| 2 |" in lines[2]
    assert "USNID" in lines[3]
    for wrong, message in (({"known": 0.3}, "--known 0.3"), ({"methods": ["x"]}, "--methods x")):
        with pytest.raises(ValueError, match=message):
            run_discovery("banking", **{**settings, **wrong})
    with pytest.raises(ValueError, match="--dataset x"):
        run_discovery("x", **settings)
    with pytest.raises(FileNotFoundError, match=r"data\.jsonl\.gz"):
        run_discovery("banking", **{**settings, "root": tmp_path / "none"})


def test_what_is_not_installed_is_left_out_and_named(monkeypatch):
    monkeypatch.setattr(discovery.importlib.util, "find_spec", lambda name: None)
    chosen, skipped = discovery.available(None)
    assert set(chosen) == set(discovery.METHODS) - {"fast-hdbscan"}
    assert skipped == ["fast-hdbscan: not installed (pip install fast_hdbscan)"]
    assert discovery.available(["kmeans-told"]) == (["kmeans-told"], [])


def test_whitening_makes_the_variance_within_categories_the_same_in_all_directions(monkeypatch):
    monkeypatch.setattr(discovery, "SHRINKAGE", 0.0)
    generator = np.random.default_rng(0)
    known = np.repeat([0, 1, -1], 200)
    z = generator.normal(size=(600, 3)) * [1, 5, 0.2] + 0.1 * generator.normal(size=(3, 3))[known]
    found = whitened(z.astype(np.float32), known)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    spread = found[known >= 0].var(0)
    assert spread.max() < 1.5 * spread.min()
