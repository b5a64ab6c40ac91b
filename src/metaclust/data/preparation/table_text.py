"""Texts of a table as a few columns of numbers: TF-IDF on its first principal directions, or sentence embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from sklearn.feature_extraction.text import TfidfTransformer

from metaclust._util import schema
from metaclust.data.preparation.base import Options
from metaclust.data.preparation.embeddings import EmbeddingPreparation
from metaclust.data.preparation.vocabulary import Words, vectorizer
from metaclust.data.rows import Rows

MOST_WORDS = 2000
"""The most frequent words, in two texts or more, that TF-IDF is of."""
DIRECTIONS = 32
"""The largest number of principal directions of TF-IDF."""
DIGITS = 5
"""Significant digits of what is saved of the directions."""
MOST_WIDTH = 1 << 16
LARGEST_IDF = 1e6
LARGEST_SCALE = 1e6
WORDS_FIELDS = {
    "name": schema.text,
    "vocabulary": lambda value: schema.list_of(schema.text)(value),
    "scale": schema.number(1 / LARGEST_SCALE, LARGEST_SCALE),
}
EMBEDDING_FIELDS = {
    "name": schema.text,
    "model": schema.text,
    "fingerprint": schema.text,
    "width": schema.whole(1, MOST_WIDTH),
    "scale": schema.number(1 / LARGEST_SCALE, LARGEST_SCALE),
}


@dataclass(frozen=True)
class TextColumn:
    """How a column of texts becomes columns of numbers.

    The rows of TF-IDF, or the embeddings, are centred, and scaled such that their total variance over the training rows
    is the one that was asked for. A gap is at the mean.
    """

    name: str
    mean: NDArray[np.float32]
    scale: float
    words: Words | None = None
    directions: NDArray[np.float32] | None = None
    embedder: EmbeddingPreparation | None = None

    @property
    def width(self) -> int:
        return len(self.mean)

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the texts as vectors, before they are centred and scaled."""
        if self.embedder is not None:
            found = self.embedder(Rows("text", list(texts), [str(row) for row in range(len(texts))]))
            return found.numpy()
        assert self.words is not None and self.directions is not None  # noqa: S101, PT018 - one or the other
        return np.asarray(self.words.weigh(self.words.count(list(texts))) @ self.directions, np.float32)

    def __call__(self, texts: Sequence[str | None]) -> NDArray[np.float32]:
        """Return (rows, width), zero where there is no text."""
        features = np.zeros((len(texts), self.width), np.float32)
        given = [row for row, text in enumerate(texts) if text is not None]
        if given:
            features[given] = (self.vectors([str(texts[row]) for row in given]) - self.mean) * np.float32(self.scale)
        return features

    def unknown(self, texts: Sequence[str | None]) -> int:
        """Return how many texts have no word that is known."""
        given = [text for text in texts if text is not None]
        if self.words is None or not given:
            return 0
        return int((np.diff(self.words.count(given).indptr) == 0).sum())

    def describe(self) -> dict[str, Any]:
        """Return the column as JSON can hold it."""
        own: dict[str, Any] = {"name": self.name, "mean": self.mean.tolist(), "scale": self.scale}
        if self.embedder is not None:
            embedder = self.embedder
            return {**own, "model": embedder.model, "fingerprint": embedder.fingerprint, "width": embedder.width}
        assert self.words is not None and self.directions is not None  # noqa: S101, PT018
        directions = [shortened(row) for row in self.directions]
        return {
            **own,
            "vocabulary": list(self.words.vocabulary),
            "idf": list(self.words.idf or ()),
            "directions": directions,
        }

    @classmethod
    def from_description(cls, described: Any) -> TextColumn:
        """Return the column that a file describes; ValueError for what cannot be one."""
        schema.fields(described, {"name": schema.text}, name="texts")
        if "model" in described:
            schema.fields(described, EMBEDDING_FIELDS, name="texts")
            width = described["width"]
            check_numbers(described, "mean", width, 1.0001)
            embedder = EmbeddingPreparation(described["model"], described["fingerprint"], width, scaled=False)
            return cls(
                described["name"], np.array(described["mean"], np.float32), described["scale"], embedder=embedder
            )
        schema.fields(described, WORDS_FIELDS, name="texts")
        vocabulary = described["vocabulary"]
        if not 0 < len(set(vocabulary)) == len(vocabulary) <= MOST_WORDS:
            raise ValueError(f"texts.vocabulary must hold from 1 to {MOST_WORDS} words, no two alike")
        check_numbers(described, "idf", len(vocabulary), LARGEST_IDF)
        directions = described.get("directions")
        if not isinstance(directions, list) or len(directions) != len(vocabulary):
            raise ValueError("texts.directions must hold a list for each word")
        mean = described.get("mean")
        width = len(mean) if isinstance(mean, list) else 0
        if not 1 <= width <= DIRECTIONS:
            raise ValueError(f"texts.mean must hold from 1 to {DIRECTIONS} numbers")
        check_numbers(described, "mean", width, 1.0001)
        for row in directions:
            check_numbers({"directions": row}, "directions", width, 1.0001)
        return cls(
            described["name"],
            np.array(mean, np.float32),
            described["scale"],
            Words(tuple(vocabulary), tuple(float(value) for value in described["idf"])),
            np.array(directions, np.float32),
        )


def check_numbers(described: Any, field: str, length: int, largest: float) -> None:
    """Raise ValueError unless a field holds so many numbers that are not larger than ``largest``."""
    check = schema.list_of(schema.number(-largest, largest), length)
    schema.fields(described, {field: check}, name="texts")


def shortened(values: NDArray[np.float32]) -> list[float]:
    """Return numbers with a few significant digits.

    >>> shortened(np.array([0.12345678, -1e-9], np.float32))
    [0.12346, -1e-09]
    """
    return [float(f"{value:.{DIGITS}g}") for value in values.tolist()]


def fit_text(name: str, texts: Sequence[str | None], variance: float, options: Options) -> TextColumn | None:
    """Return how texts become columns of a total variance; None where there is nothing to tell them apart by."""
    given = [text for text in texts if text is not None]
    if options.text == "embeddings":
        found = EmbeddingPreparation.from_rows(Rows("text", given, [""] * len(given)), options)[0]
        column = TextColumn(name, np.zeros(found.width, np.float32), 1.0, embedder=found)
    else:
        words = words_of(given)
        if words is None:
            return None
        column = TextColumn(name, np.zeros(1, np.float32), 1.0, words, principal(words.weigh(words.count(given))))
    vectors = column.vectors(given).astype(np.float64)
    mean = vectors.mean(0)
    total = float(np.square(vectors - mean).sum(1).mean())
    if total < 1e-9:
        return None
    return TextColumn(
        name,
        np.array(shortened(mean.astype(np.float32)), np.float32),
        float(f"{math.sqrt(variance / total):.{DIGITS}g}"),
        column.words,
        column.directions,
        column.embedder,
    )


def words_of(texts: Sequence[str]) -> Words | None:
    """Return the words that are in two texts or more, and their weights; None where there is none."""
    learned = vectorizer(min_df=2, max_features=MOST_WORDS)
    try:
        counts = sparse.csr_array(learned.fit_transform(texts))
    except ValueError:
        return None
    idf = TfidfTransformer(sublinear_tf=True).fit(counts).idf_
    return Words(
        tuple(str(word) for word in learned.get_feature_names_out()),
        tuple(float(f"{value:.{DIGITS}g}") for value in idf),
    )


def principal(rows: sparse.csr_array) -> NDArray[np.float32]:
    """Return (words, directions), the directions of most weight, which do not depend on the order of the rows."""
    gram = np.asarray((rows.T @ rows).todense(), np.float64)
    words = len(gram)
    most = min(DIRECTIONS, words)
    _, vectors = linalg.eigh(gram, subset_by_index=(words - most, words - 1))
    vectors = vectors[:, ::-1]
    # The sign is free: the largest entry of each is positive.
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(0), np.arange(most)])
    return np.array([shortened(row) for row in vectors.astype(np.float32)], np.float32)
