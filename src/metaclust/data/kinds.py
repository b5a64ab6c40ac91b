"""The kinds of data: what each is called, what its rows hold and how they can be prepared. One entry a kind.

A new kind is an entry here, a preparation in a file of its own, and a line for it in ``preparation/prepare.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = str
"""A key of :data:`KINDS`."""


@dataclass(frozen=True)
class DataKind:
    """A kind of data: its name, what one row and several rows are called, what they hold and how they are prepared."""

    name: Kind
    singular: str
    plural: str
    values: Literal["numbers", "pixels", "spectrograms", "strings", "columns"]
    form: str
    """What arrays of this kind look like, for messages."""
    preparations: Mapping[str, str]
    """The names of the preparations, by the value of ``option`` that asks for each."""
    option: str | None = None
    """The argument of ``fit_preparation`` that chooses among several preparations."""


KINDS: dict[Kind, DataKind] = {
    kind.name: kind
    for kind in (
        DataKind("vectors", "vector", "vectors", "numbers", "numbers of shape (rows, columns)", {"": "vectors"}),
        DataKind(
            "images",
            "image",
            "images",
            "pixels",
            "numbers of shape (rows, height, width) or (rows, 1 or 3, height, width)",
            {"pixels": "images", "embeddings": "image-embeddings"},
            option="images",
        ),
        DataKind(
            "sounds",
            "sound",
            "sounds",
            "spectrograms",
            "read from folders of .wav and .flac files",
            {"statistics": "sound-statistics", "spectrograms": "spectrograms", "embeddings": "sound-embeddings"},
            option="sounds",
        ),
        DataKind(
            "text",
            "text",
            "texts",
            "strings",
            "strings",
            {"tfidf": "words", "counts": "words", "embeddings": "embeddings"},
            option="text",
        ),
        DataKind(
            "table",
            "table row",
            "table rows",
            "columns",
            "data frames with columns of several types",
            {"tfidf": "table", "embeddings": "table"},
            option="text",
        ),
    )
}


def kind_named(name: str) -> DataKind:
    """Return the kind of that name.

    >>> kind_named("text").plural
    'texts'
    """
    if name not in KINDS:
        raise ValueError(f"kind={name!r}: choose {one_of(KINDS)}")
    return KINDS[name]


def check_kind(kind: str) -> None:
    """Raise ValueError unless ``kind`` is "auto" or the name of a kind."""
    if kind != "auto" and kind not in KINDS:
        raise ValueError(f"kind={kind!r}: choose {one_of(['auto', *KINDS])}")


def one_of(names: Iterable[str]) -> str:
    """Return the names as the choices of a message.

    >>> one_of(["auto", "vectors", "images"])
    "'auto', 'vectors' or 'images'"
    """
    *others, last = [repr(name) for name in names]
    return f"{', '.join(others)} or {last}" if others else last
