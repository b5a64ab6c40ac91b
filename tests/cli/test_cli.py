"""The command line: what it prints, where, and its exit codes."""

import json
import shlex
import subprocess
import sys

import pytest
from commands import run

import metaclust
from metaclust import __version__
from metaclust.data.datasets.cards import CARDS


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.delenv("METACLUST_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_data_path", lambda name: tmp_path / name)
    return run


def test_help_and_version(call):
    code, out, _ = call("--help")
    assert code == 0
    assert "data" in out
    assert call("--version") == (0, f"metaclust {__version__}\n", "")


def test_help_does_not_import_what_it_does_not_need():
    code = "import sys, metaclust.cli; print([m for m in ('torch', 'sklearn', 'polars', 'PIL') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)  # noqa: S603
    assert done.stdout == "[]\n"


def test_list_names_every_data_set_and_says_which_are_here(call, tmp_path):
    (tmp_path / "banking77").mkdir()
    code, out, _ = call("data", "list", "--json", "--root", str(tmp_path))
    listed = {card["name"]: card for card in json.loads(out)}
    assert code == 0
    assert list(listed) == list(CARDS)
    assert listed["banking77"]["here"] == str(tmp_path / "banking77")
    assert listed["clinc150"]["here"] is None
    assert listed["icons"]["here"]
    code, out, _ = call("data", "list")
    assert code == 0
    assert all(name in out for name in CARDS)


def test_get_says_what_is_here(call):
    assert call("data", "get", "icons") == (0, "icons: 11,499 rows, 419 categories; part of the package\n", "")


@pytest.mark.parametrize("name", ["dmoz", "mini-imagenet", "caltech101"])
def test_get_says_where_to_get_what_cannot_be_fetched(call, name, tmp_path):
    code, out, err = call("data", "get", name)
    assert (code, out) == (2, "")
    assert CARDS[name].source in err
    assert str(tmp_path / "metaclust" / CARDS[name].folder) in err


def test_an_unknown_name_is_one_line_and_exit_code_2(call):
    code, out, err = call("data", "get", "mnist")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "name='mnist' is not a data set: choose one of icons" in err


def test_show_tells_the_card_of_a_data_set(call):
    code, out, _ = call("data", "show", "clinc150", "--json")
    assert code == 0
    card = json.loads(out)
    assert card["licence"] == "CC BY 3.0"
    assert card["rows"] == 22500
    assert "EMNLP" in call("data", "show", "clinc150")[1]


def test_show_tells_what_a_file_would_be_read_as(call, tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("stars,review,kind\n5,a very good book,novel\n1,not my cup of tea,poem\n")
    code, out, _ = call("data", "show", str(path), "--label", "kind", "--json")
    assert code == 0
    facts = json.loads(out)
    assert (facts["kind"], facts["rows"], facts["categories"]) == ("table", 2, 2)
    assert facts["notes"] == ["numbers from column 'stars'", "text from column 'review'", "labels from column 'kind'"]
    code, out, _ = call("data", "show", str(path), "--label", "kind", "--text-column", "review", "--json")
    assert json.loads(out)["notes"] == ["text from column 'review'", "labels from column 'kind'", "not used: 'stars'"]
    code, _, err = call("data", "show", str(path), "--label", "genre")
    assert code == 2
    assert "reviews.csv has no column 'genre': its columns are 'stars', 'review', 'kind'" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("burn",), "No such command 'burn'"),
        (("data", "burn"), "No such command 'burn'"),
        (("train", "a.csv", "--out", "m", "--speed", "9"), "No such option: --speed"),
        (("train", "a.csv"), "Missing option '--out'"),
        (("train", "a.csv", "--out", "m", "--steps", "many"), "Invalid value for '--steps'"),
        (("cluster",), "Missing argument"),
    ],
)
def test_what_is_not_a_command_says_where_to_find_help_and_is_exit_code_2(call, arguments, message):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "-h' for help" in err


@pytest.mark.parametrize(
    ("command", "first"), [("cluster", "`metaclust train`"), ("evaluate", "`metaclust train`"), ("assign", "--save`")]
)
def test_a_command_with_the_data_alone_says_what_comes_before_them(call, command, first):
    code, out, err = call(command, "new data.csv")
    assert (code, out) == (2, "")
    assert err.startswith(
        f"metaclust: Missing argument: `metaclust {command}` needs two paths, and new data.csv is the"
    )
    assert first in err
    assert err.endswith(" 'new data.csv'\n")


COMMANDS = [
    "train",
    "cluster",
    "assign",
    "evaluate",
    "demo",
    "experiment",
    "data",
    "data list",
    "data get",
    "data show",
]


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(call, command, option):
    code, out, err = call(*command.split(), option)
    assert (code, err) == (0, "")
    assert f"metaclust {command} " in out.splitlines()[0]


def no_such_file(*_, **__):
    raise FileNotFoundError("there is no such file")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example_that_parses(call, command, monkeypatch, tmp_path):
    """What the commands do is tested elsewhere: here they only get as far as a missing file."""
    examples = call(*command.split(), "--help").out.partition("Example")[2].splitlines()[1:]
    examples = [line.strip() for line in examples if line.strip()]
    assert any(f"metaclust {command}" in line for line in examples)
    for place in ("metaclust.cli.demo.main", "metaclust.experiments.command.run_experiment"):
        monkeypatch.setattr(place, lambda *_, **__: {"done": "yes"})
    monkeypatch.setattr("metaclust.data.datasets.named.load_dataset", no_such_file)
    monkeypatch.chdir(tmp_path)
    for line in examples:
        _, _, arguments = line.partition("metaclust ")
        code, _, err = call(*shlex.split(arguments))
        assert code == 0 or "there is no such file" in err


def test_python_m_metaclust_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "metaclust", "--version"], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"metaclust {__version__}\n", "")


def test_public_names_are_listed_and_unknown_ones_refused():
    assert {"MetaClusterer", "read_data", "__version__"} <= set(dir(metaclust))
    assert all(getattr(metaclust, name).__name__ == name for name in ("MetaClusterer", "read_data"))
    with pytest.raises(AttributeError, match="module 'metaclust' has no attribute 'cluster_all'"):
        metaclust.cluster_all  # noqa: B018
