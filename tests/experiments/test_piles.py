"""Piles as people have them, and the selector that comes with the package."""

import json
import sys

import jaxtyping
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from metaclust._util.tensors import read_tensors
from metaclust.data.datasets.named import Dataset
from metaclust.experiments import piles, shipped_selector
from metaclust.experiments.records import read_records
from metaclust.experiments.unseen import Data
from metaclust.model.selector import SelectorNetwork

GIVEN = {"pretrain_steps": 10, "steps": 0, "choice_tasks": 6, "encoder": "residual"}
SETTINGS = [f"{name}={json.dumps(value)}" for name, value in GIVEN.items()]


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(piles, "NUMBERS", {"few": 2, "one": 2, "junk": 1, "eight": 1, "later": 1})
    monkeypatch.setattr(piles, "SEEDS", range(2))
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def table(categories, rows, seed=0):
    """A named data set of images whose pixels are those of a category, with noise."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(categories), rows)
    shapes = rng.integers(0, 2, (categories, 1, 14, 14)) * 200
    x = np.clip(shapes[y] + rng.normal(0, 20, (len(y), 1, 14, 14)), 0, 255).astype(np.uint8)
    return Dataset("made", x, y, [f"c{k}" for k in range(categories)])


def drawing(**changes):
    y = np.repeat(np.arange(60), 60)
    given = {"unseen": np.arange(45, 60), "known": np.arange(45), "held": np.flatnonzero(np.arange(len(y)) % 2 == 0)}
    return piles.Drawing(y, **{**given, "split": 3, **changes})


@pytest.mark.parametrize("kind", piles.PILES)
def test_piles_are_as_they_are_described(kind):
    made = drawing()
    for number in range(5):
        for pile in made.pile(kind, number):
            real = pile.y >= 0
            if kind == "every":
                np.testing.assert_array_equal(pile.rows, np.arange(len(made.y)))
                continue
            np.testing.assert_array_equal(made.y[pile.rows[real]], pile.y[real])
            # No row twice, and none that was trained on.
            assert len(np.unique(pile.rows)) == len(pile.rows)
            assert np.isin(pile.rows, made.held).all()
            # Junk is of no category of the pile.
            assert not np.isin(made.y[pile.rows[~real]], pile.y[real]).any()
            categories = np.unique(pile.y[real])
            if kind == "mixed":
                assert np.isin(categories, made.known).sum() == 30
            else:
                assert np.isin(categories, made.unseen).all()
            most = {"few": 10, "one": 1, "junk": 8, "eight": 8, "later": 8, "mixed": 45}
            assert len(categories) <= most.get(kind, 15)
            share = float(pile.note.split("%")[0]) / 100 if pile.note else (0.02 if kind == "mixed" else 0)
            assert (~real).sum() == round(share * real.sum())


def test_piles_are_the_same_in_each_run():
    one, two = (next(drawing().pile("few", 4)) for _ in range(2))
    np.testing.assert_array_equal(one.rows, two.rows)


def test_confidence_is_counted_in_ten_ranges():
    rng = np.random.default_rng(0)
    confidence = rng.random(1000)
    right = rng.random(1000) < confidence
    bins = np.array(piles.bins_of(confidence, right))
    assert bins[:, 0].sum() == 1000
    np.testing.assert_allclose(bins[:, 1].sum(), confidence.sum(), atol=0.01)
    assert bins[:, 2].sum() == right.sum()
    assert piles.bins_of(np.ones(3), np.ones(3, bool))[-1] == [3, 3.0, 3]


def run(monkeypatch, module, *arguments):
    monkeypatch.setattr(sys, "argv", ["python", *map(str, arguments)])
    module.main()


def test_every_pile_is_measured_and_summed_up(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(piles, "load_dataset", lambda name: table(40, 16))
    out = tmp_path / "piles.jsonl"
    call = ["run", "--dataset", "made", "--vectors", "numbers", "--split", 1, "--set", *SETTINGS, "--out", out]
    kinds = ["few", "one", "junk", "mixed", "limits", "later"]
    run(monkeypatch, piles, *call, "--pile", *kinds, "--rows", 8)
    records = read_records(out)
    assert [record["pile"] for record in records] == [
        *["few"] * 2,
        *["one"] * 2,
        *["junk"] * 3,
        *["mixed"] * 6,
        *["limits"] * 4,
        "later",
    ]
    (name,) = {record["dataset"] for record in records}
    assert name == "made, numbers, pretrain_steps=10, steps=0, choice_tasks=6, encoder=residual"
    for record in records:
        assert record["interval"][0] <= record["found"] <= record["interval"][1]
        assert record["ari"] <= 1
        if record["pile"] == "few":
            assert record["rows"] == 8 * record["true"]
            # The clusters that were returned are among the candidates.
            assert record["best"] >= record["ari"] - 1e-9
        if record["pile"] == "one":
            assert record["true"] == 1
            assert "kmeans silhouette" not in record
        if record["pile"] == "limits" and record["max_clusters"] != "auto":
            assert record["found"] <= record["max_clusters"]
    later = records[-1]
    assert 0 <= later["auc of new"] <= 1
    # What is there is not done again.
    run(monkeypatch, piles, *call, "--pile", *kinds, "--rows", 8)
    assert read_records(out) == records
    capsys.readouterr()
    run(monkeypatch, piles, "table", out)
    lines = capsys.readouterr().out.splitlines()
    mean = np.mean([record["ari"] for record in records if record["pile"] == "few"])
    assert any(line.startswith(f"| {name}, few | 2 | {mean:.3f} |") for line in lines)


def test_only_some_known_categories_may_be_trained_on(monkeypatch):
    data = piles.table_of_images(table(40, 16))
    names = []

    class Spy(piles.MetaClusterer):
        def fit(self, x, y):
            names.extend(y)
            return super().fit(x, y)

    monkeypatch.setattr(piles, "MetaClusterer", Spy)
    (record,) = piles.run(data, 0, True, ["eight"], GIVEN, 8, 9)
    assert len(set(names)) == 9
    assert record["true"] == 8


def test_images_become_a_table_of_numbers_in_different_units():
    data = table(5, 4)
    made = piles.table_of_images(data)
    assert isinstance(made, Data)
    assert made.rows.shape == (20, 49 + 7 + 7)
    # The first field is four pixels.
    first = data.X[:, 0, :2, :2].reshape(20, 4).mean(1)
    assert np.corrcoef(first, made.rows[:, 0])[0, 1] == pytest.approx(1)
    np.testing.assert_allclose(made.vectors.std(0), 1, rtol=1e-3)


@pytest.mark.parametrize("source", ["table"])
def test_the_selector_of_the_package_is_made_by_its_script(monkeypatch, tmp_path, source):
    monkeypatch.setitem(shipped_selector.SETTINGS, source, {"pretrain_steps": 5, "steps": 0, "encoder": "residual"})
    rows, y = shipped_selector.made_table(*shipped_selector.TABLES[source])
    # Categories can be told apart, but are not trivial.
    centres = np.stack([rows[y == k].mean(0) for k in range(2)])
    two = rows[y < 2]
    along = (two - centres.mean(0)) @ (centres[1] - centres[0])
    assert roc_auc_score(y[y < 2], along) > 0.8
    out = tmp_path / "selector.safetensors"
    run(monkeypatch, shipped_selector, "--out", out, "--source", source, "--tasks", 6)
    tensors, header = read_tensors(out, "selector")
    assert header["sources"] == [source]
    SelectorNetwork().load_state_dict(tensors)
