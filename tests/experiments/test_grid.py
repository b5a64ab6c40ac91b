"""The grid of an experiment: what is done is not done again, whatever happens in between."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from metaclust.experiments import grid, tables
from metaclust.experiments import trials as definitions
from metaclust.experiments.budgets import BUDGETS, Budget
from metaclust.experiments.command import run_experiment
from metaclust.experiments.grid import GridError, missing_trials, run_grid
from metaclust.experiments.lab import Lab
from metaclust.experiments.methods import METHODS
from metaclust.experiments.methods.base import SPREADS
from metaclust.experiments.problems import PROTOCOLS, load, problem_of, protocol_of
from metaclust.experiments.records import append_record, read_records
from metaclust.experiments.settings import Variant
from metaclust.experiments.trials import EXPERIMENTS, Trial
from metaclust.training.episodes import split_categories

pytestmark = pytest.mark.usefixtures("_without_type_checks")

TINY = Budget("tiny", 2, 2, 1, 2, 2, 3, 1, 2)


@pytest.fixture
def tiny(monkeypatch):
    """The smallest budget, over few methods."""
    monkeypatch.setitem(BUDGETS, "tiny", TINY)
    monkeypatch.setattr(definitions, "TABLE1", ("ours", "proto", "pca"))
    monkeypatch.setattr(definitions, "WITH_BASELINES", ("ours",))
    monkeypatch.setattr("metaclust.experiments.methods.base.SPREADS", (4.0,))


def one_trial(method: str = "pca", split: int = 0, experiment: str = "table1") -> Trial:
    return Trial(experiment, "digits", method, split)


def test_every_experiment_of_the_paper_has_its_trials():
    lab = Lab("omniglot", TINY, "unused")
    steps = {"vb-steps-train", "vb-steps-test"}
    assert set(EXPERIMENTS) == {"table1", "ablation", "categories", "time", "worth", "tsne", *steps}
    table = {trial.method for trial in EXPERIMENTS["table1"].trials("omniglot", 2, lab)}
    assert {"ours", "proto", "ae", "siamese", "triplet", "nn", "vade", "pca", "flda"} <= table
    assert {f"ours + {baseline}" for baseline in ("kmeans-silhouette", "hdbscan", "kmeans-true-k")} <= table
    ablation = EXPERIMENTS["ablation"].trials("omniglot", 2, lab)
    assert {trial.variant.s for trial in ablation} == {2, 10}
    assert {"without-f_r", "without-pretraining", "with-em", "with-prob"} <= {trial.method for trial in ablation}
    trained = {trial.variant.t for trial in EXPERIMENTS["vb-steps-train"].trials("omniglot", 2, lab)}
    assert trained == {1, 3, 5, 10, 50, 100}
    assert {trial.method for trial in EXPERIMENTS["tsne"].trials("omniglot", 2, lab)} == {
        "ours",
        "proto",
        "ae",
        "triplet",
    }
    for name, experiment in EXPERIMENTS.items():
        if name == "categories":
            continue
        found = experiment.trials("omniglot", 3, lab)
        assert len({grid.identity_of(trial.identity("tiny")) for trial in found}) == len(found)
        assert all(trial.method.partition(" + ")[0] in METHODS for trial in found)


def test_the_number_of_training_categories_grows_to_all_of_them(tmp_path):
    lab = Lab("icons", TINY, tmp_path)
    numbers = [trial.variant.categories for trial in EXPERIMENTS["categories"].trials("icons", 1, lab)]
    assert numbers[:-1] == sorted(numbers[:-1])
    assert numbers[-1] is None
    assert numbers[0] == 13


def test_a_problem_keeps_the_categories_of_its_parts_apart():
    data = load("digits")
    problem = problem_of(data, 3, TINY)
    split = split_categories(data.y, 3)
    assert set(problem.sampler.categories) == set(split.train)
    assert {c for task in problem.validation for c in task.categories} <= set(split.validation)
    assert {c for task in problem.test for c in task.categories} <= set(split.test)
    fewer = problem_of(data, 3, TINY, categories=3)
    assert set(fewer.sampler.categories) < set(split.train)
    assert [task.rows.tolist() for task in fewer.test] == [task.rows.tolist() for task in problem.test]
    with pytest.raises(ValueError, match="categories=99: digits has 6 for training"):
        problem_of(data, 3, TINY, categories=99)


@pytest.mark.parametrize(("given", "name"), [("web_directory", "web-directory"), ("patents", "patents-ipc")])
def test_data_sets_are_found_by_their_other_names(given, name):
    assert protocol_of(given) is PROTOCOLS[name]


def test_a_fitted_method_is_kept_and_read_again(tmp_path, monkeypatch):
    lab = Lab("digits", TINY, tmp_path)
    first = lab.fitted("ours", 0, Variant(s=3))
    assert {path.name for path in tmp_path.rglob("*.safetensors")} == {
        "ours-s3-t10.safetensors",
        "proto-s3-t10.safetensors",
    }
    monkeypatch.setattr(
        "metaclust.experiments.methods.base.Method.fit", lambda *_, **__: pytest.fail("it was fitted again")
    )
    again = lab.fitted("ours", 0, Variant(s=3))
    rows = lab.problem(0).x[:20]
    np.testing.assert_array_equal(first.transform(rows), again.transform(rows))


def test_only_missing_trials_are_run(tmp_path, monkeypatch):
    lab = Lab("digits", TINY, tmp_path / "runs")
    path = tmp_path / "results.jsonl"
    run_grid([one_trial(split=0)], lab, path)
    ran = []
    monkeypatch.setattr(grid, "run_trial", lambda trial, *_: ran.append(trial) or {**trial.identity("tiny")})
    records = run_grid([one_trial(split=0), one_trial(split=1)], lab, path)
    assert ran == [one_trial(split=1)]
    assert [record["split"] for record in records] == [0, 1]
    assert missing_trials([one_trial(split=0)], records, TINY) == []
    assert missing_trials([one_trial(split=0)], records, BUDGETS["quick"]) == [one_trial(split=0)]


OLD = """{"experiment": "table1", "dataset": "omniglot", "method": "ours + kmeans-true-k", "split": 0, "setting":
{"s": 10, "t": 10, "categories": null, "test_steps": null}, "budget": "standard", "test": {"ari": 0.9}}"""


def test_records_of_earlier_versions_are_recognised():
    trials = EXPERIMENTS["table1"].trials("omniglot", 1, Lab("omniglot", TINY, "unused"))
    left = missing_trials(trials, [json.loads(OLD)], BUDGETS["standard"])
    assert [trial for trial in trials if trial not in left] == [Trial("table1", "omniglot", "ours + kmeans-true-k", 0)]


def test_a_line_cut_short_by_a_kill_is_taken_out_and_a_broken_one_is_named(tmp_path):
    path = tmp_path / "results.jsonl"
    append_record(path, {"a": 1})
    with path.open("ab") as file:
        file.write(b'{"a": 2, "b')
    assert read_records(path) == [{"a": 1}]
    append_record(path, {"a": 3})
    assert read_records(path) == [{"a": 1}, {"a": 3}]
    path.write_bytes(b'{"a": 1}\nnonsense\n{"a": 3}\n')
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        read_records(path)
    assert read_records(tmp_path / "absent.jsonl") == []


def test_workers_give_the_records_of_one_process(tmp_path):
    trials = [one_trial(method, split) for method in ("pca", "flda") for split in (0, 1)]
    alone = run_grid(trials, Lab("digits", TINY, tmp_path / "a"), tmp_path / "a.jsonl")
    both = run_grid(trials, Lab("digits", TINY, tmp_path / "b"), tmp_path / "b.jsonl", workers=2)
    found = [{(r["method"], r["split"]): r["test"] for r in records} for records in (alone, both)]
    assert found[0] == found[1]
    assert len(found[0]) == 4


def test_a_trial_that_fails_in_a_worker_is_named(tmp_path):
    lab = Lab("digits", TINY, tmp_path / "runs")
    with pytest.raises(GridError, match="nonsense"):
        run_grid([one_trial("nonsense")], lab, tmp_path / "r.jsonl", workers=2)


KILLED = """
import sys
from pathlib import Path
from metaclust.experiments import command, trials
from metaclust.experiments.budgets import BUDGETS, Budget

if __name__ == "__main__":
    BUDGETS["tiny"] = Budget("tiny", 2, 2, 1, 2, 2, 3, 1, 2)
    trials.TABLE1, trials.WITH_BASELINES = ("ours", "proto", "pca"), ("ours",)
    command.run_experiment(
        "table1", "digits", splits=2, budget="tiny", out=sys.argv[1], runs=sys.argv[2], workers=2, progress=False
    )
"""


def test_a_grid_killed_half_way_does_nothing_twice_and_ends_with_the_same_table(tmp_path, tiny, monkeypatch):
    """The workers of another process are killed; this process goes on alone, and makes the whole table alone, too."""
    # The workers try all frames.
    monkeypatch.setattr("metaclust.experiments.methods.base.SPREADS", SPREADS)
    script = tmp_path / "grid.py"
    script.write_text(KILLED)

    def run_here(name: str) -> None:
        folders = {"out": tmp_path / name, "runs": tmp_path / f"{name}-runs"}
        run_experiment("table1", "digits", splits=2, budget="tiny", progress=False, **folders)

    run_here("whole")
    path = tmp_path / "killed" / "digits" / "table1.jsonl"
    command = [sys.executable, str(script), str(tmp_path / "killed"), str(tmp_path / "killed-runs")]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True)  # noqa: S603
    limit = time.monotonic() + 300
    while (not path.exists() or len(path.read_bytes().splitlines()) < 3) and time.monotonic() < limit:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = path.read_text().splitlines()
    run_here("killed")
    after = path.read_text().splitlines()
    assert after[: len(before) - 1] == before[: len(before) - 1]
    assert len(after) == len({grid.identity_of(json.loads(line)) for line in after})
    whole = tmp_path / "whole" / "digits" / "table1.csv"
    assert (tmp_path / "killed" / "digits" / "table1.csv").read_text() == whole.read_text()


def test_the_time_of_a_step_is_measured_beside_protos(tmp_path, monkeypatch):
    monkeypatch.setattr(definitions, "TIMED_STEPS", 2)
    lab = Lab("digits", TINY, tmp_path)
    record = grid.run_trial(one_trial("ae", experiment="time"), lab)
    assert record["step_ratio"] > 0
    assert record["step_seconds"] > 0
    assert "step_ratio" not in grid.run_trial(one_trial("pca", experiment="time"), lab)


def test_a_record_says_how_it_was_made(tmp_path):
    record = grid.run_trial(one_trial("proto"), Lab("digits", TINY, tmp_path))
    assert record["seed"] == 0
    assert record["budget"] == "tiny"
    assert record["settings"]["training"]["steps"] == 2
    assert record["settings"]["model"]["representation"] == 10
    assert set(record["versions"]) >= {"torch"}
    assert record["training_categories"] == 6
    assert "commit" in record
    json.dumps(record)


@pytest.mark.parametrize("name", ["table1", "vb-steps-test", "tsne"])
def test_an_experiment_writes_its_table_and_figure(name, tmp_path, tiny, monkeypatch):
    monkeypatch.setattr(definitions, "STEPS_IN_TEST", (1, 3))
    monkeypatch.setattr(definitions, "SHOWN", ("proto", "ours"))
    monkeypatch.setattr("metaclust.experiments.figures.SHOWN", ("proto", "ours"))
    facts = run_experiment(
        name, "digits", splits=2, budget="tiny", out=tmp_path / "results", runs=tmp_path / "runs", progress=False
    )
    folder = tmp_path / "results" / "digits"
    text = (folder / f"{name}.md").read_text()
    assert f"metaclust experiment {name} --dataset digits" in text
    assert f"]({name}.png)" in text
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / f"{name}.svg").read_text().lstrip().startswith("<?xml")
    assert facts["results"] == str(folder / f"{name}.jsonl")
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    if name == "table1":
        lines = (folder / "table1.csv").read_text().splitlines()
        assert len(lines) == 1 + 3 + 4
        assert "Ours + KMeans, given K" in text
    before = (folder / f"{name}.jsonl").read_text()
    run_experiment(
        name,
        "digits",
        splits=2,
        budget="tiny",
        out=tmp_path / "results",
        runs=tmp_path / "runs",
        progress=False,
        render_only=True,
    )
    assert (folder / f"{name}.jsonl").read_text() == before
    assert (folder / f"{name}.md").read_text() == text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "table9"}, "'table9' is not an experiment: choose one of table1, ablation"),
        ({"dataset": "mnist"}, "--dataset mnist: choose one of omniglot"),
        ({"budget": "huge"}, "--budget huge: choose one of quick, short, standard, paper"),
        ({"splits": 0}, "--splits 0: it must be 1 or more"),
        ({"workers": 0}, "--workers 0: it must be 1 or more"),
    ],
)
def test_wrong_arguments_are_refused_before_any_work(changes, message, tmp_path):
    arguments = {"name": "table1", "dataset": "digits", "out": tmp_path / "r", "runs": tmp_path / "w", **changes}
    with pytest.raises(ValueError, match=message):
        run_experiment(**arguments)
    assert list(tmp_path.iterdir()) == []


def test_rendering_before_running_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="run the experiment first"):
        run_experiment("table1", "digits", out=tmp_path, runs=tmp_path, render_only=True, progress=False)


def test_bold_is_the_best_and_what_is_not_significantly_worse():
    best = {0: 0.90, 1: 0.80, 2: 0.85, 3: 0.88}
    close = {0: 0.91, 1: 0.78, 2: 0.86, 3: 0.87}
    worse = {0: 0.80, 1: 0.71, 2: 0.74, 3: 0.79}
    assert tables.not_worse({"a": best, "b": close, "c": worse, "d": {}}) == {"a", "b"}
    assert tables.not_worse({}) == set()
    assert tables.probability(best, best) == 1.0
    assert tables.probability(best, {0: 0.1}) == 0.0
    assert tables.probability({0: 1.0, 1: 2.0}, {0: 0.5, 1: 1.5}) == 0.0


def test_budgets_say_what_they_change():
    assert "1,000 steps of Proto" in str(BUDGETS["standard"])
    assert "max pooling" in str(BUDGETS["paper"])
