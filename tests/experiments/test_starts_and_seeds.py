"""What ways to start are worth, and whether fits collapse: tiny runs from the command line."""

import sys

import jaxtyping
import numpy as np
import pytest

from metaclust.experiments import seeds, starts
from metaclust.experiments.records import read_records

SETTINGS = ["pretrain_steps=10", "steps=0", "choice_tasks=6", 'encoder="residual"']


@pytest.fixture(autouse=True)
def _short(monkeypatch, tmp_path):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    monkeypatch.setattr(seeds, "PILES", 2)
    monkeypatch.setattr(starts, "TASKS", 2)


def ran(module, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
    module.main()


@pytest.mark.filterwarnings("default::metaclust.DataWarning")
def test_seeds_are_fitted_once_each(monkeypatch, tmp_path, capsys):
    out = tmp_path / "seeds.jsonl"
    common = ["run", "--dataset", "digits", "--vectors", "pixels", "--out", str(out), "--set", *SETTINGS]
    monkeypatch.setattr(
        seeds,
        "split_categories",
        lambda y, split: type("S", (), {"train": np.arange(6), "validation": np.arange(6, 10)}),
    )
    ran(seeds, monkeypatch, *common, "--seeds", "1")
    ran(seeds, monkeypatch, *common, "--seeds", "2")
    records = read_records(out)
    assert [record["seed"] for record in records] == [0, 1]
    # The same piles for each seed, so that the baseline is the same.
    assert records[0]["baseline"] == records[1]["baseline"]
    capsys.readouterr()
    ran(seeds, monkeypatch, "table", str(out))
    row = capsys.readouterr().out.splitlines()[2].split(" | ")
    assert row[:2] == ["| digits", "2"]
    assert float(row[3]) == pytest.approx(np.mean([record["ari"] for record in records]), abs=1e-3)


def test_what_counts_as_collapsed():
    assert seeds.collapsed({"found": [1, 1, 3, 4], "ari": 0.5}, 0.4)
    assert seeds.collapsed({"found": [2, 3, 3, 4], "ari": 0.19}, 0.4)
    assert not seeds.collapsed({"found": [1, 3, 3, 4], "ari": 0.21}, 0.4)


@pytest.mark.filterwarnings("default::metaclust.DataWarning")
def test_each_way_to_start_is_measured_on_the_same_piles(monkeypatch, tmp_path, capsys):
    out = tmp_path / "starts.jsonl"
    common = ["run", "--dataset", "digits", "--vectors", "pixels", "--validate", "--split", "0", "--out", str(out)]
    ran(starts, monkeypatch, *common, "--set", *SETTINGS)
    records = read_records(out)
    ways = [record["start"] for record in records]
    # No task network was trained, so that there is no start of one.
    assert ways == [
        "all starts, one selected (ships)",
        "one learned start, 5 steps",
        "without the learned start, one selected",
    ]
    assert len({tuple(record["true"]) for record in records}) == 1
    assert all(len(record["ari_of_tasks"]) == 2 and record["cpu_seconds"] > 0 for record in records)
    ran(starts, monkeypatch, *common)
    assert read_records(out) == records
    capsys.readouterr()
    ran(starts, monkeypatch, "table", str(out))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(ways)
