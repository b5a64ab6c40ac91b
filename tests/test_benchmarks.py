"""The benchmarks run, and their ratios are those of what was measured; no test depends on the clock."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.__main__ import main
from benchmarks.plain import plain_loss
from benchmarks.report import Row, markdown
from benchmarks.soft_ari import by_pairs, problem
from benchmarks.training_step import Steps

from metaclust import soft_ari
from metaclust.training.losses import ari_loss


@pytest.mark.usefixtures("_without_type_checks")
def test_the_short_run_gives_ratios_of_what_was_measured_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--short", "--out", str(tmp_path / "bench"), "vb_step", "end_to_end", "soft_ari", "training_step"])
    found = json.loads((tmp_path / "bench" / "benchmarks.json").read_text())
    steps = [row for row in found["rows"] if row["benchmark"].startswith("VB step")]
    assert [row["benchmark"] for row in steps] == ["VB step, spherical", "VB step, full"]
    for row in steps:
        figures = row["figures"]
        assert figures["scikit-learn / ours"] == figures["scikit-learn, s"] / figures["ours, s"]
        assert figures["ours / least"] == figures["ours, alone, s"] / figures["least, alone, s"]
    sizes = [row["setting"].partition(", S")[0] for row in found["rows"] if "file" in row["benchmark"]]
    assert sizes == ["N = 1,000", "N = 3,000"]
    trained = [row["figures"] for row in found["rows"] if row["benchmark"] == "Training step against Proto"]
    assert len(trained) == 6
    for figures in trained:
        assert figures["ours / Proto"] == pytest.approx(figures["ours, ms"] / figures["Proto, ms"])
    plain = [row["figures"] for row in found["rows"] if row["benchmark"] == "Training step against a plain one"]
    assert len(plain) == 2
    for figures in plain:
        for way in ("plain, broadcast", "plain, torch.cdist"):
            assert figures[f"{way} / ours, time"] == figures[f"{way}, s"] / figures["ours, s"]
    pairs, _ = (row["figures"] for row in found["rows"] if row["benchmark"].startswith("Continuous ARI"))
    assert pairs["all pairs / ours"] == pairs["all pairs, s"] / pairs["ours, s"]
    assert found["machine"]["torch"] == torch.__version__
    table = (tmp_path / "bench" / "benchmarks.md").read_text()
    assert table in capsys.readouterr().out
    assert "### VB step, full" in table
    assert sorted(path.name for path in (tmp_path / "bench").iterdir()) == ["benchmarks.json", "benchmarks.md"]


def test_an_unknown_name_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["vb_steps"])
    assert "there is no benchmark vb_steps: choose from vb_step, end_to_end" in capsys.readouterr().err


def test_a_table_has_a_column_for_each_value() -> None:
    rows = [Row("speed", "a", {"s": 0.12345, "x / y": 3.0}), Row("speed", "b", {"s": 1200.0})]
    assert "| | s | x / y |\n|---|---|---|\n| a | 0.123 | 3 |\n| b | 1.2e+03 |  |" in markdown(rows, {"cores": "2"})


def test_what_ours_is_compared_with_is_the_same_score() -> None:
    r, y = problem(60)
    torch.testing.assert_close(by_pairs(r, y), soft_ari(r, y))


@pytest.mark.usefixtures("_without_type_checks")
def test_the_plain_step_is_the_same_step() -> None:
    """Loss and gradients, in double precision, of tasks of different sizes."""
    steps = Steps((384,), "paper", 3, 20, 1)
    model, batch = steps.model.double().eval(), steps.batches[0]
    batch = replace(batch, x=batch.x.double())
    found = []
    for loss in (plain_loss(model, batch), ari_loss(model, batch, steps.config)[0]):
        model.zero_grad()
        loss.backward()
        found.append([loss.detach(), *(weight.grad for weight in model.parameters())])
    torch.testing.assert_close(*found)


def test_the_fit_beside_busy_processes_gives_ratios(tmp_path: Path) -> None:
    main(["--short", "--out", str(tmp_path), "busy"])
    (row,) = json.loads((tmp_path / "benchmarks.json").read_text())["rows"]
    figures = row["figures"]
    (many,) = (value for name, value in figures.items() if name.endswith(" threads, CPU s"))
    assert figures["CPU, default / one"] == many / figures["one thread, CPU s"]
    assert torch.get_num_threads() == 1
