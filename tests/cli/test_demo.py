"""The demo, with next to no training: what it compares, prints and writes."""

import re

import numpy as np
import pytest
from commands import run

from metaclust.cli import demo

BASELINES = ("KMeans, K by silhouette", "HDBSCAN", "BayesianGaussianMixture")
METHODS = [
    "metaclust",
    *(f"{name}, on pixels" for name in BASELINES),
    *(f"{name}, on metaclust's representations" for name in BASELINES),
]
pytestmark = pytest.mark.filterwarnings("default::metaclust.DataWarning")


@pytest.fixture(autouse=True)
def _one_core(monkeypatch):
    """The demo takes every core there is; the tests have one."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)


def test_the_demo_compares_the_methods_on_the_same_piles_and_writes_a_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    # On a slow machine the map takes longer than a second, and progress would be shown.
    monkeypatch.setattr("metaclust._util.progress.DELAY", 1000.0)
    report = tmp_path / "demo.html"
    results = demo.main(pretrain_steps=2, steps=1, test_tasks=2, choice_tasks=3, report=report, progress=False)
    assert list(results) == METHODS
    for result in results.values():
        assert result.ari.shape == (2,)
        assert result.true.tolist() == results["metaclust"].true.tolist()
        assert ((result.true >= 2) & (result.true <= 10)).all()
        assert np.isfinite(result.ari).all()

    printed, errors = capsys.readouterr()
    assert "Icons: 11,499 drawings of 419 concepts." in printed
    for method, result in results.items():
        shown = re.search(rf"{re.escape(method)} +│ +(\S+) +│ +(\S+) ", printed)
        assert shown is not None
        assert shown.groups() == (f"{result.ari.mean():.3f}", f"{result.k_error:.2f}")
    assert f"Report: {report.resolve()}\n" in printed
    assert errors == ""
    assert report.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")


def test_the_command_runs_the_demo_as_it_is_told(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(demo, "main", lambda **settings: told.append(settings))
    assert run("demo", "--out", tmp_path / "d.html", "--force", "--quiet") == (0, "", "")
    assert run("demo", "--out", tmp_path / "e.html") == (0, "", "")
    assert told == [
        {"report": tmp_path / "d.html", "force": True, "progress": False},
        {"report": tmp_path / "e.html", "force": False, "progress": True},
    ]


def test_the_demo_refuses_to_overwrite_its_report_before_it_trains(tmp_path, monkeypatch):
    monkeypatch.setattr(demo.MetaClusterer, "fit", lambda *_, **__: pytest.fail("it was trained"))
    report = tmp_path / "demo.html"
    report.write_text("mine")
    code, _, err = run("demo", "--out", report)
    assert code == 2
    assert err.startswith(f"metaclust: {report}")
    assert "force" in err
    assert report.read_text() == "mine"
