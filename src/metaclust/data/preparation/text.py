"""Bags of words: which words, documents and categories are kept, counts and TF-IDF. Sparse throughout."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

from metaclust.data.rows import DataError, DataWarning, Rows

Weighting = Literal["counts", "tfidf"]
WORD = r"(?u)\b\w\w+\b"


@dataclass(frozen=True)
class WordRules:
    """What is left out: words in fewer than ``min_documents`` documents, all but the ``max_words`` most frequent
    words, documents with fewer than ``min_words`` distinct ones of these, categories of fewer than ``min_rows`` rows.

    The three are applied once, in this order, as the paper lists them.
    """

    min_documents: int = 2
    min_words: int = 1
    min_rows: int = 1
    max_words: int | None = 20_000

    def __post_init__(self) -> None:
        for name in ("min_documents", "min_words", "min_rows", "max_words"):
            value = getattr(self, name)
            if value is None and name == "max_words":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < (0 if name == "min_words" else 1):
                raise ValueError(
                    f"{name}={value!r}: it must be a whole number of {0 if name == 'min_words' else 1} or more"
                )


USUAL_RULES = WordRules()
PAPER_RULES = {"patent": WordRules(100, 100, 10, None), "dmoz": WordRules(300, 300, 10, None)}
"""The rules by which the paper made its two text data sets."""


@dataclass(frozen=True)
class Words:
    """A vocabulary, and how texts become rows over it: counts, or TF-IDF of length one."""

    vocabulary: tuple[str, ...]
    idf: tuple[float, ...] | None = None
    """Inverse document frequencies, one for each word; None for counts."""

    def __post_init__(self) -> None:
        if not self.vocabulary:
            raise DataError("the vocabulary is empty: give more or longer texts, or lower min_documents")
        if self.idf is not None and len(self.idf) != len(self.vocabulary):
            raise DataError(
                f"idf has {len(self.idf)} entries for {len(self.vocabulary)} words: there must be one for each"
            )

    def count(self, texts: list[str]) -> sparse.csr_array:
        return sparse.csr_array(vectorizer(vocabulary=self.vocabulary).transform(texts), dtype=np.float32)

    def weigh(self, counts: sparse.csr_array) -> sparse.csr_array:
        """Counts, or (1 + log count) idf, scaled to rows of length one."""
        if self.idf is None:
            return counts
        transformer = TfidfTransformer(sublinear_tf=True)
        transformer.idf_ = np.array(self.idf)
        return sparse.csr_array(transformer.transform(counts), dtype=np.float32)

    def __call__(self, rows: Rows) -> sparse.csr_array:
        """Sparse rows; those without a single known word are zero, and said."""
        counts = self.count(texts_of(rows))
        unknown = np.diff(counts.indptr) == 0
        if unknown.any():
            warnings.warn(
                f"{rows.source}: {int(unknown.sum()):,} of {len(rows):,} texts have no word that the model knows, "
                f"first row {int(unknown.argmax())} (counting from 0): they all look alike to it",
                DataWarning,
                stacklevel=2,
            )
        return self.weigh(counts)


def find_words(rows: Rows, rules: WordRules = USUAL_RULES, weighting: Weighting = "tfidf") -> tuple[Words, Rows]:
    """The vocabulary of texts by ``rules``, and the rows that the rules keep."""
    if weighting not in ("counts", "tfidf"):
        raise ValueError(f"weighting={weighting!r}: choose 'counts' or 'tfidf'")
    texts = texts_of(rows)
    learned = vectorizer(min_df=min(rules.min_documents, len(texts)), max_features=rules.max_words)
    try:
        counts = sparse.csr_array(learned.fit_transform(texts), dtype=np.float32)
    except ValueError as error:
        raise DataError(
            f"{rows.source}: no word is in {rules.min_documents} of the {len(texts):,} texts or more: give more "
            "texts, or lower min_documents"
        ) from error
    if rules.min_documents > len(texts):
        raise DataError(
            f"{rows.source} has {len(texts):,} texts, fewer than min_documents={rules.min_documents}: lower "
            "min_documents"
        )
    vocabulary = tuple(str(word) for word in learned.get_feature_names_out())
    enough = np.diff(counts.indptr) >= rules.min_words
    if not enough.any():
        raise DataError(
            f"{rows.source}: no text has min_words={rules.min_words} distinct words of the {len(vocabulary):,} that "
            "are kept: lower min_words"
        )
    kept, counts = rows.take(enough), counts[enough]
    if rows.labels is not None and rules.min_rows > 1:
        numbers, names = kept.numbered()
        large = np.bincount(numbers, minlength=len(names))[numbers] >= rules.min_rows
        if not large.any():
            raise DataError(f"{rows.source}: no category has min_rows={rules.min_rows} rows: lower min_rows")
        kept, counts = kept.take(large), counts[large]
    note = f"{len(vocabulary):,} words, {len(rows) - len(kept):,} of {len(rows):,} texts left out"
    kept = replace(kept, notes=(*kept.notes, note))
    idf = None
    if weighting == "tfidf":
        idf = tuple(float(value) for value in TfidfTransformer(sublinear_tf=True).fit(counts).idf_)
    return Words(vocabulary, idf), kept


def vectorizer(**settings: Any) -> CountVectorizer:
    return CountVectorizer(token_pattern=WORD, lowercase=True, dtype=np.float32, **settings)


def texts_of(rows: Rows) -> list[str]:
    if not isinstance(rows.values, list):
        raise DataError(f"{rows.source} holds {rows.kind}, not text: give a file with a column of text")
    return rows.values
