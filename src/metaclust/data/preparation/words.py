"""Texts as bags of words: counts or TF-IDF, which stay sparse until the encoder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from metaclust.data.kinds import Kind
from metaclust.data.preparation.base import Options, are_numbers, are_strings, require, short_repr, values_of
from metaclust.data.preparation.vocabulary import Words, find_words
from metaclust.data.rows import DataError, Rows, shown
from metaclust.data.sparse import SparseRows

LARGEST_IDF = 1e6
"""The logarithm of a number of documents is far below."""
SOME = 100
"""Texts that are looked at first, to see whether any differ."""


def differ(words: Words, rows: Rows) -> bool:
    """Return whether two of the texts are different bags of words."""
    counted = words(rows)
    return bool((counted.max(0) - counted.min(0)).count_nonzero())


@dataclass(frozen=True)
class WordPreparation:
    """Bags of words over the vocabulary of the training texts."""

    name: ClassVar[str] = "words"
    kind: ClassVar[Kind] = "text"
    vocabulary: tuple[str, ...]
    idf: tuple[float, ...] | None = None
    columns: tuple[str, ...] = ()

    __repr__ = short_repr

    def __post_init__(self) -> None:
        words = self.vocabulary
        require(are_strings(words) and len(set(words)) == len(words) > 0, "vocabulary", words)
        require(self.idf is None or are_numbers(self.idf, len(words), 0, LARGEST_IDF), "idf", self.idf)
        require(are_strings(self.columns), "columns", self.columns)

    @classmethod
    def from_rows(cls, rows: Rows, options: Options) -> tuple[WordPreparation, Rows]:
        """Return how to prepare rows like these, and the rows that the word rules keep."""
        words, kept = find_words(rows, options.rules, "counts" if options.text == "counts" else "tfidf")
        if kept.labels is not None and not (
            differ(words, kept.take(np.arange(len(kept)) < SOME)) or differ(words, kept)
        ):
            column = f"those of column {shown(rows.columns[0])}" if rows.columns else "the texts"
            raise DataError(
                f"{rows.source}: {column} do not differ in their words, so they cannot be told apart: name another "
                "column of texts (text=), or columns of numbers (columns=)"
            )
        return cls(words.vocabulary, words.idf, rows.columns), kept

    @cached_property
    def words(self) -> Words:
        return Words(self.vocabulary, self.idf)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (len(self.vocabulary),)

    def reading(self) -> dict[str, Any]:
        return {"usual_text": self.columns[0] if self.columns else None}

    def __call__(self, rows: Rows) -> SparseRows:
        values_of(rows, self.kind)
        prepared = self.words(rows)
        # TF-IDF rows have length one, too little for a first layer that expects numbers of about one.
        return SparseRows(prepared if self.idf is None else prepared * np.float32(np.sqrt(len(self.vocabulary))))
