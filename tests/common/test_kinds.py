"""Every kind of data, by its entry in the registry, goes through the same checks."""

import hashlib
import json
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from metaclust import DataError, Rows, describe_preparation, fit_preparation, preparation_from, rows_from_array
from metaclust.data.inputs import as_rows
from metaclust.data.kinds import KINDS, check_kind, kind_named
from metaclust.data.preparation import embeddings, image_embeddings
from metaclust.data.preparation.prepare import PREPARATIONS
from metaclust.data.readers.cells import Reading
from metaclust.data.readers.columns import rows_from_table
from metaclust.data.sparse import dense

COUNT = 400
WORDS = [f"word{i}" for i in range(500)]


def vectors() -> Rows:
    names = [f"column {i}" for i in range(300)]
    return rows_from_array(np.random.default_rng(0).normal(3, 2, (COUNT, 300)), LABELS, columns=names, source="a.csv")


def images() -> Rows:
    return rows_from_array(np.random.default_rng(0).integers(0, 255, (COUNT, 9, 7), np.uint8), LABELS, source="a.npz")


def text() -> Rows:
    generator = np.random.default_rng(0)
    return rows_from_array([" ".join(generator.choice(WORDS, 12)) for _ in range(COUNT)], LABELS, source="a.jsonl")


def sounds() -> Rows:
    generator = np.random.default_rng(0)
    values = [generator.integers(0, 256, (64, generator.integers(1, 99)), np.uint8) for _ in range(COUNT)]
    return Rows("sounds", values, [str(i) for i in range(COUNT)], LABELS, source="a")


def table() -> Rows:
    generator = np.random.default_rng(0)
    days = [date(2024, 1, 1) + timedelta(days=int(day)) for day in generator.integers(0, 700, COUNT)]
    columns = {
        "number": [None if row % 9 == 0 else float(row % 50) for row in range(COUNT)],
        "colour": generator.choice(["red", "green", "blue"], COUNT).tolist(),
        "since": days,
        "text": [" ".join(generator.choice(WORDS, 12)) for _ in range(COUNT)],
        "label": LABELS,
    }
    return rows_from_table(pl.DataFrame(columns), reading=Reading("a.parquet"))


LABELS = [f"category {i % 7}" for i in range(COUNT)]
EXAMPLES = {"vectors": vectors, "images": images, "sounds": sounds, "text": text, "table": table}
WAYS = [(kind.name, way) for kind in KINDS.values() for way in kind.preparations]


class Embedder:
    """In place of a sentence-transformers model: a unit vector by the hash of the text."""

    fingerprint = "abc" * 20
    width = 32

    def __init__(self, model: str, **_: object) -> None:
        self.model = model

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        bits = np.array([list(hashlib.sha256(text.encode()).digest()) for text in texts], np.float32)
        return bits / np.linalg.norm(bits, axis=1, keepdims=True)


class OfImages(Embedder):
    """In place of an image model: a unit vector by the hash of the pixels."""

    about = "as they are"
    place = Path("stub")

    def embed(self, images: list[NDArray[np.uint8]]) -> NDArray[np.float32]:
        return super().embed([image.tobytes().hex() for image in images])


@pytest.fixture(autouse=True)
def _embedder() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embeddings, "SentenceEmbedder", Embedder)
        patch.setattr(image_embeddings, "ImageEmbedder", OfImages)
        yield


def prepared(kind: str, way: str):
    models = {"embedding_model": "stub", "image_model": "stub"}
    options = {KINDS[kind].option: way, **models} if KINDS[kind].option else {}
    return fit_preparation(EXAMPLES[kind](), **options)


def test_every_kind_has_an_example_and_every_preparation_a_kind():
    assert set(EXAMPLES) == set(KINDS)
    named = {(name, kind.name) for kind in KINDS.values() for name in kind.preparations.values()}
    assert named == {(name, cls.kind) for name, cls in PREPARATIONS.items()}
    assert all(cls.name == name for name, cls in PREPARATIONS.items())


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_a_preparation_described_as_json_prepares_the_same_tensors(kind, way):
    preparation, rows = prepared(kind, way)
    description = json.loads(json.dumps(describe_preparation(preparation), allow_nan=False))
    again = preparation_from(description)
    assert again == preparation
    assert description["preparation"] == KINDS[kind].preparations[way]
    tensor = dense(preparation(rows))
    assert tensor.shape == (len(rows), *preparation.input_shape)
    assert tensor.dtype == dense(again(rows)).dtype
    assert (tensor == dense(again(rows))).all()


@pytest.mark.parametrize(("kind", "way"), WAYS)
@pytest.mark.parametrize("other", KINDS)
def test_rows_of_another_kind_are_refused_with_both_names(kind, way, other):
    if other == kind:
        return
    preparation, _ = prepared(kind, way)
    rows = EXAMPLES[other]()
    with pytest.raises(DataError, match=f"^{rows.source} holds {other}, but the model was trained on {kind}$"):
        preparation(rows)


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_reprs_are_one_short_line_without_the_data(kind, way):
    preparation, rows = prepared(kind, way)
    for thing in (rows, preparation):
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 120
        assert "word1" not in repr(thing)
    source, counts = str(rows).split("; ")[0].split(": ")
    assert repr(rows) == f"<Rows of {source}: {counts}>"
    assert counts.startswith(f"{len(rows)} {KINDS[kind].plural}")


@pytest.mark.parametrize("kind", ["vectors", "images", "text", "table"])
def test_the_kind_of_an_array_is_detected_and_another_one_is_refused(kind):
    rows = EXAMPLES[kind]()
    assert rows.data_kind is kind_named(kind)
    if kind == "table":
        assert as_rows(rows.table.frame).kind == kind
        return
    values = rows.values[:, 0] if kind == "images" else rows.values
    assert rows_from_array(values).kind == kind
    for other in set(KINDS) - {kind}:
        with pytest.raises(DataError, match=f"X holds {kind}, not {other}: .* {KINDS[other].plural} are"):
            rows_from_array(values, kind=other)


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="kind='audio': choose 'vectors', 'images', 'sounds', 'text' or 'table'"):
        Rows("audio", [], [])
    with pytest.raises(
        ValueError, match="kind='audio': choose 'auto', 'vectors', 'images', 'sounds', 'text' or 'table'"
    ):
        check_kind("audio")
