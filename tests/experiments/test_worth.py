"""Ours against Proto in the same time: how long Proto is trained, what is compared, and the table over data sets."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from metaclust.data import load_dataset
from metaclust.experiments import worth
from metaclust.experiments.records import append_record
from metaclust.experiments.tables import table_of


def logged(pretrain, steps, proto_seconds, ari_seconds):
    """What a training writes, with a line each ten steps and one without seconds between the phases."""
    records = [
        {"step": step, "phase": "proto", "seconds": step * proto_seconds} for step in range(10, pretrain + 1, 10)
    ]
    records.append({"step": pretrain, "phase": "proto-start"})
    done = pretrain * proto_seconds
    return records + [
        {"step": pretrain + step, "phase": "ari", "seconds": done + step * ari_seconds}
        for step in range(10, steps + 1, 10)
    ]


def test_proto_is_trained_as_long_as_ours():
    assert worth.as_long(logged(200, 100, 0.01, 0.03), 200, 0.0) == 200 + 300
    assert worth.as_long(logged(200, 100, 0.02, 0.02), 200, 0.0) == 200 + 100
    # A network is trained further for a share of its pretraining, which counts, too.
    assert worth.as_long(logged(300, 50, 0.01, 0.07), 300, 0.4) == 300 + 250


def record(split, ours, proto):
    def of(aris, seconds):
        tests = {test: {"ari_of_tasks": values} for test, values in zip(("piles", "all"), aris, strict=True)}
        return {"fit_cpu_seconds": seconds, **tests}

    return {"dataset": "icons", "split": split, "ours": of(ours, 10.0), "proto": of(proto, 12.0)}


RECORDS = [
    record(1, ([0.9, 0.5], [0.6]), ([0.8, 0.5], [0.6])),
    record(0, ([0.7, 0.7], [0.5]), ([0.6, 0.4], [0.4])),
]


def test_tasks_are_compared_in_pairs():
    facts = worth.facts(RECORDS, "piles")
    assert facts["ours"] == pytest.approx(0.7)
    assert facts["proto"] == pytest.approx(0.575)
    assert facts["time"] == pytest.approx(1.2)
    ours, proto = [0.7, 0.7, 0.9, 0.5], [0.6, 0.4, 0.8, 0.5]
    # Differences of 0.1, 0.3, 0.1 and 0: t = 1.987 with three degrees of freedom.
    assert facts["p"] == pytest.approx(stats.ttest_rel(ours, proto).pvalue)
    assert facts["p"] == pytest.approx(2 * stats.t.sf(1.987, 3), abs=1e-3)
    # Differences of the splits are 0.05 and 0.2.
    assert facts["difference"] == "0.125 ± 0.075"
    assert worth.facts(RECORDS[:1], "all")["p"] is None


def test_the_tables_of_one_and_of_several_data_sets(tmp_path, capsys):
    table = table_of("worth", RECORDS, "icons")
    assert table.rows[0] == ["piles of 2 to 10", "0.700", "0.575", "0.125 ± 0.075", "0.14", "1.20", "2"]
    for name in ("icons", "digits"):
        for one in RECORDS:
            append_record(tmp_path / f"{name}.jsonl", {**one, "dataset": name})
    worth.main([str(tmp_path / "icons.jsonl"), str(tmp_path / "digits.jsonl")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * 2
    assert lines[2] == "| icons (2) | piles of 2 to 10 | 0.700 | 0.575 | 0.125 ± 0.075 | 0.14 | 1.20 |"


@pytest.mark.filterwarnings("default::metaclust.DataWarning")
def test_both_are_trained_and_tested_on_the_same_unseen_categories(tmp_path):
    icons = load_dataset("icons")
    kept = icons.y < 30
    some = replace(icons, X=icons.X[kept], y=icons.y[kept], categories=icons.categories[:30])
    found = worth.compared(some, 0, piles=2, quick=True)
    assert found["ours"]["steps"] == [10, 5]
    pretrain, steps = found["proto"]["steps"]
    assert pretrain > 10
    assert steps == 0
    for test in worth.TESTS:
        ours, proto = (found[method][test] for method in worth.METHODS)
        assert ours["true"] == proto["true"]
        assert np.all(np.abs(ours["ari_of_tasks"] + proto["ari_of_tasks"]) <= 1)
    assert found["ours"]["all"]["true"] == [6]
