"""What a person can put right is one line on the standard error; files that are there are not overwritten."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from commands import run

from metaclust import MetaClusterer, read_data
from metaclust._util import tensors as checkpoint

KNOWN = "a,b,kind\n" + "".join(f"{i},{j},k{i}\n" for i in range(4) for j in (0, 0.1, 0.2, 0.3))
SHORT = ("--label", "kind", "--pretrain-steps", "1", "--steps", "1", "--encoder", "network", "--choose", "bound")
TRAIN = ("train", "known.csv", "--out", "o.safetensors", *SHORT)
CLUSTER = ("cluster", "model.safetensors", "known.csv", "--restarts", "1")
EVALUATE = ("evaluate", "model.safetensors", "known.csv", "--label", "kind")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a model and files that are wrong in many ways."""
    folder = tmp_path_factory.mktemp("made")
    files = {
        "known.csv": KNOWN,
        "other.csv": "u,v\n1,2\n3,4\n",
        "unlabelled.csv": "a,b\n1,2\n3,4\n",
        "one.csv": "a,b,kind\n1,2,x\n2,3,x\n",
        "cell.csv": KNOWN.replace("2,0.1", "2,oops"),
        "wide.csv": KNOWN.replace("2,0.1", "2,0,1"),
        "gap.csv": KNOWN.replace("2,0.1", "2,"),
        "empty.csv": "",
        "essay.csv": "text,kind\nit was a dark and stormy night,x\n",
        "table.xlsx": "not read",
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    (folder / "pictures").mkdir()
    model = folder / "model.safetensors"
    assert run("train", folder / "known.csv", "--out", model, *SHORT).code == 0
    (folder / "cut.safetensors").write_bytes(model.read_bytes()[:5000])
    loaded = MetaClusterer.load(model).set_params(progress=False)
    loaded.cluster(read_data(folder / "known.csv", progress=False)).save(folder / "clustering.safetensors")
    texts = [f"{word} and {other} again" for word in ("river", "cloud") for other in ("stone", "apple", "copper")]
    short = MetaClusterer(pretrain_steps=1, steps=0, encoder="network", choose="bound", progress=False)
    short.fit(texts, [text.split()[0] for text in texts]).save(folder / "words.safetensors")
    return folder


def contents(folder):
    """What a failed command must leave as it was."""
    return {path.name: None if path.is_dir() else path.read_bytes() for path in folder.iterdir()}


WRONG = {
    "data not there": (("train", "nowhere.csv", "--out", "o", *SHORT), "'nowhere.csv': there is no such file"),
    "ending not read": (("train", "table.xlsx", "--out", "o"), "table.xlsx has an ending that is not read (.xlsx)"),
    "empty table": (("train", "empty.csv", "--out", "o"), "empty.csv cannot be read: it is empty"),
    "unknown label": (
        ("train", "known.csv", "--out", "o", "--label", "genre"),
        "known.csv has no column 'genre': its columns are 'a', 'b', 'kind'",
    ),
    "unknown column": ((*TRAIN, "--columns", "a,c"), "known.csv has no column 'c': its columns are 'a', 'b', 'kind'"),
    "broken cell": (
        ("train", "cell.csv", "--out", "o", *SHORT),
        "cell.csv: row 9 (counting from 0), column 'b': 'oops' is not a number",
    ),
    "wide line": (("train", "wide.csv", "--out", "o", *SHORT), "line 11 has 4 cells, the header 3"),
    "empty cell": (("train", "gap.csv", "--out", "o", *SHORT), "gap.csv: row 9 (counting from 0)"),
    "one category": (("train", "one.csv", "--out", "o", *SHORT), "one.csv has 1 categories"),
    "folder of the model": (("train", "known.csv", "--out", "no/o"), "the folder no does not exist; create it first"),
    "model is a folder": (("train", "known.csv", "--out", "pictures"), "pictures is a folder: give the path of a file"),
    "no clusters": ((*TRAIN, "--max-clusters", "0"), "max_clusters=0: it must be a whole number of 1 or more"),
    "fewer steps than none": ((*TRAIN, "--steps", "-1"), "steps=-1: it must be a whole number of 0 or more"),
    "negative seed": ((*TRAIN, "--seed", "-1"), "seed=-1: it must be a whole number of 0 or more"),
    "unknown device": ((*TRAIN, "--device", "abacus"), "device='abacus' is not a device: choose 'auto', 'cpu'"),
    "unknown kind": (
        (*TRAIN, "--kind", "smells"),
        "kind='smells': choose 'auto', 'vectors', 'images', 'sounds', 'text' or 'table'",
    ),
    "a table of images": ((*TRAIN, "--kind", "images"), "known.csv is a table, which cannot hold images"),
    "unknown missing": ((*TRAIN, "--missing", "guess"), "missing='guess': choose 'auto', 'error', 'drop' or 'mean'"),
    "size of numbers": ((*TRAIN, "--size", "8"), "'size': known.csv is a file, for which this has no meaning"),
    "no images": (("train", "pictures", "--out", "o"), "pictures"),
    "model not there": (("cluster", "m", "known.csv"), "cannot read m: there is no such file"),
    "model cut short": (("cluster", "cut.safetensors", "known.csv"), "not a safetensors file, or it is cut short"),
    "model is a table": (("cluster", "known.csv", "known.csv"), "known.csv is not a safetensors file"),
    "model is a clustering": (
        ("cluster", "clustering.safetensors", "known.csv"),
        "clustering.safetensors is a clustering file, not a model file",
    ),
    "new data not there": (("cluster", "model.safetensors", "x.csv"), "'x.csv': there is no such file or folder"),
    "other columns": (
        ("cluster", "model.safetensors", "other.csv"),
        "other.csv has no column 'a', 'b': its columns are 'u', 'v'",
    ),
    "text for numbers": (("cluster", "model.safetensors", "essay.csv"), "essay.csv has no column 'a', 'b'"),
    "images for numbers": (
        ("cluster", "model.safetensors", "pictures"),
        "pictures is a folder, which is read as images or sounds, not as vectors: give a file of vectors",
    ),
    "numbers for text": (("cluster", "words.safetensors", "other.csv"), "other.csv"),
    "ending of the table": (
        (*CLUSTER, "--out", "c.xlsx"),
        "--out c.xlsx: use one of the extensions .csv, .jsonl, .parquet",
    ),
    "folder of the table": ((*CLUSTER, "--out", "no/c.csv"), "cannot write no/c.csv: the folder no does not exist"),
    "folder of the report": (
        (*CLUSTER, "--report", "no/r.html"),
        "cannot write no/r.html: the folder no does not exist",
    ),
    "folder of the clustering": ((*CLUSTER, "--save", "no/s"), "cannot write no/s: the folder no does not exist"),
    "no clusters of the new": ((*CLUSTER, "--max-clusters", "0"), "max_clusters=0: it must be a whole number"),
    "no rows in a cluster": ((*CLUSTER, "--min-cluster-size", "0"), "min_cluster_size=0: it must be a whole number"),
    "no starts": ((*CLUSTER, "--restarts", "0"), "restarts=0: it must be a whole number of 1 or more"),
    "more than sure": ((*CLUSTER, "--confidence", "2"), "confidence=2.0: it must be at least 0 and at most 1.0"),
    "nothing to compare with": (
        ("evaluate", "model.safetensors", "unlabelled.csv"),
        "unlabelled.csv has no labels to compare with: name their column with --label",
    ),
    "fewer tasks than none": ((*EVALUATE, "--tasks", "-1"), "--tasks -1: it must be 0 or more"),
    "tasks of one category": (
        ("evaluate", "model.safetensors", "one.csv", "--label", "kind", "--tasks", "2"),
        "a task needs two or more categories: one.csv has 1",
    ),
    "folder of the report of the demo": (
        ("demo", "--out", "no/d.html"),
        "cannot write no/d.html: the folder no does not",
    ),
    "data without labels": (("train", "unlabelled.csv", "--out", "o"), "--label"),
    "one cluster for tasks": ((*EVALUATE, "--tasks", "2", "--max-clusters", "1"), "max-clusters is 1"),
    "one file for two": ((*CLUSTER, "--out", "c.csv", "--save", "c.csv"), "c.csv"),
    "images to skip in a table": ((*CLUSTER, "--skip-broken"), "--skip-broken"),
    "features of text for numbers": ((*TRAIN, "--text-as", "counts"), "--text-as applies to text only, but known.csv"),
    "embedding model without embeddings": ((*TRAIN, "--embedding-model", "m"), "add --text-as embeddings or omit it"),
    "threads of several processes": (
        ("experiment", "table1", "--workers", "2", "--threads", "2"),
        "--threads applies to a single process: omit it, or --workers",
    ),
    "methods to render": (("experiment", "table1", "--methods", "x", "--render-only"), "--methods does not apply to"),
}


@pytest.mark.usefixtures("_without_type_checks", "_no_demo")
@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_use_is_one_line_that_helps_and_exit_code_2(arguments, message, folder):
    before = contents(folder)
    code, out, err = run(*arguments, "--quiet")
    assert (code, out) == (2, "")
    assert err.startswith("metaclust: ")
    assert err.count("\n") == 1
    assert message in err
    assert contents(folder) == before


@pytest.fixture
def _no_demo(monkeypatch):
    """What is wrong is said before the minutes of training."""
    monkeypatch.setattr("metaclust.cli.demo.load_dataset", lambda name: pytest.fail("the demo was started"))


@pytest.mark.usefixtures("_without_type_checks")
def test_a_device_unknown_to_torch_is_not_blamed_on_the_model_file(folder):
    code, _, err = run(*CLUSTER, "--device", "abacus", "--quiet")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("metaclust: device='abacus' is not a device")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("command", [TRAIN, CLUSTER], ids=["train", "cluster"])
def test_a_device_that_is_not_there_is_named(command, folder):
    code, _, err = run(*command, "--device", "cuda", "--quiet")
    assert (code, err.count("\n")) == (2, 1)
    assert "cuda" in err


OUTPUTS = {
    "model": (*TRAIN[:2], "--out", "there.safetensors", *SHORT),
    "table": (*CLUSTER, "--out", "there.csv"),
    "report": (*CLUSTER, "--report", "there.html"),
    "clustering": (*CLUSTER, "--save", "there.safetensors"),
}


def target(command):
    return Path(next(word for word in command if word.startswith("there.")))


@pytest.mark.parametrize("command", OUTPUTS.values(), ids=OUTPUTS)
def test_a_file_that_is_there_is_refused_before_any_work(command, folder, monkeypatch):
    monkeypatch.setattr("metaclust.cli.commands.read_data", lambda *_, **__: pytest.fail("data were read"))
    monkeypatch.setattr(MetaClusterer, "load", lambda *_: pytest.fail("the model was read"))
    target(command).write_bytes(b"mine")
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert err == f"metaclust: {target(command)} already exists: choose another path, or pass force=True (--force)\n"
    assert target(command).read_bytes() == b"mine"


@pytest.mark.parametrize("name", OUTPUTS)
def test_with_force_a_file_that_is_there_is_replaced(name, folder):
    target(OUTPUTS[name]).write_bytes(b"mine")
    before = set(contents(folder))
    code, out, _ = run(*OUTPUTS[name], "--force", "--json")
    assert code == 0
    assert json.loads(out)[name] == str(target(OUTPUTS[name]))
    assert target(OUTPUTS[name]).read_bytes() != b"mine"
    assert set(contents(folder)) == before


def fill_disk(monkeypatch, name):
    """Files written beside ``name`` end half way; those of the run do not."""

    def failing(write):
        def half(content, path, *rest):
            if f".{name}." not in str(path):
                return write(content, path, *rest)
            Path(path).write_bytes(b"half")
            raise OSError(28, "No space left on device")

        return half

    monkeypatch.setattr(checkpoint, "save_file", failing(checkpoint.save_file))
    monkeypatch.setattr(pl.DataFrame, "write_csv", failing(pl.DataFrame.write_csv))


@pytest.mark.parametrize("name", ["model", "table", "clustering"])
def test_a_write_that_fails_leaves_the_old_file_and_no_half_of_a_new_one(name, folder, monkeypatch):
    old = target(OUTPUTS[name])
    old.write_bytes(b"mine")
    before = contents(folder)
    fill_disk(monkeypatch, old.name)
    said = "metaclust: [Errno 28] No space left on device\n"
    if name == "table":
        said = (
            f"metaclust: {old} could not be written (No space left on device): make room, or choose another folder; "
            "the file that was there is unchanged\n"
        )
    assert run(*OUTPUTS[name], "--force", "--quiet") == (2, "", said)
    kept = {"there.safetensors.run": None} if name == "model" else {}
    assert contents(folder) == {**before, **kept}


def test_a_model_that_could_not_be_written_is_not_trained_again(folder, monkeypatch):
    with monkeypatch.context() as patch:
        fill_disk(patch, "o.safetensors")
        assert run(*TRAIN, "--quiet").code == 2
    monkeypatch.setattr("metaclust.training.loop.proto_loss", lambda *_: pytest.fail("it was trained again"))
    monkeypatch.setattr("metaclust.training.loop.ari_loss", lambda *_: pytest.fail("it was trained again"))
    assert run(*TRAIN, "--resume", "--quiet").code == 0
    assert MetaClusterer.load("o.safetensors").categories_ == ["k0", "k1", "k2", "k3"]
    assert not (folder / "o.safetensors.run").exists()


def test_empty_cells_are_filled_if_asked_for(folder):
    code, out, _ = run("train", "gap.csv", "--out", "o.safetensors", *SHORT, "--missing", "mean", "--json")
    assert (code, json.loads(out)["rows"]) == (0, 16)
    code, out, _ = run("cluster", "o.safetensors", "gap.csv", "--out", "c.csv", "--json")
    assert (code, json.loads(out)["rows"]) == (0, 16)
    assert np.isfinite(pl.read_csv("c.csv")["confidence"].to_numpy()).all()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--steps", "-1"), "steps=-1: it must be a whole number of 0 or more"),
        (("--seed", "-1"), "seed=-1"),
        (("--max-clusters", "0"), "max_clusters=0"),
    ],
)
def test_settings_are_refused_before_the_data_are_read(option, message, folder, monkeypatch):
    monkeypatch.setattr("metaclust.cli.commands.read", lambda *_: pytest.fail("the data were read"))
    code, _, err = run(*TRAIN, *option)
    assert code == 2
    assert message in err


def test_resuming_without_a_run_starts_a_new_one_and_says_so(folder):
    code, _, err = run(*TRAIN, "--resume")
    assert code == 0
    assert "There is no run to resume in o.safetensors.run: starting a new one." in err
