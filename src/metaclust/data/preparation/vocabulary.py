"""Bags of words: which words, documents and categories are kept, counts and TF-IDF. Sparse throughout."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

from metaclust.data.rows import DataError, DataWarning, Rows

Weighting = Literal["counts", "tfidf"]
WORD = r"(?u)\b\w\w+\b"


@dataclass(frozen=True)
class WordRules:
    """Which words, documents and categories are kept in bags of words.

    The rules are applied once, in this order, as the paper lists them.

    Parameters
    ----------
    min_documents : int
        Words in fewer documents are left out.
    min_words : int
        Documents with fewer distinct words of those that are kept are left out.
    min_rows : int
        Categories of fewer documents are left out.
    max_words : int or None
        Only so many of the most frequent words are kept; None keeps all.
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


DEFAULT_RULES = WordRules()
PAPER_RULES = {"patent": WordRules(100, 100, 10, None), "dmoz": WordRules(300, 300, 10, None)}
"""The rules by which the paper made its two text data sets."""


@dataclass(frozen=True)
class Words:
    """A vocabulary, and how texts become rows over it: counts, or TF-IDF rows of length one."""

    vocabulary: tuple[str, ...]
    idf: tuple[float, ...] | None = None
    """Inverse document frequencies, one for each word; None for counts."""

    def __repr__(self) -> str:
        return f"Words({len(self.vocabulary):,} words, {'counts' if self.idf is None else 'tfidf'})"

    def __post_init__(self) -> None:
        if not self.vocabulary:
            raise DataError("the vocabulary is empty: give more or longer texts")
        if self.idf is not None and len(self.idf) != len(self.vocabulary):
            raise DataError(
                f"idf has {len(self.idf)} entries for {len(self.vocabulary)} words: there must be one for each"
            )

    def count(self, texts: list[str]) -> sparse.csr_array:
        """Return how often each word is in each text."""
        return sparse.csr_array(vectorizer(vocabulary=self.vocabulary).transform(texts), dtype=np.float32)

    def weigh(self, counts: sparse.csr_array) -> sparse.csr_array:
        """Return the counts, or (1 + log count) idf scaled to rows of length one."""
        if self.idf is None:
            return counts
        transformer = TfidfTransformer(sublinear_tf=True)
        transformer.idf_ = np.array(self.idf)
        return sparse.csr_array(transformer.transform(counts), dtype=np.float32)

    def __call__(self, rows: Rows) -> sparse.csr_array:
        """Return sparse rows; those without a known word are zero, and a warning counts them."""
        counts = self.count(texts_of(rows))
        unknown = np.diff(counts.indptr) == 0
        if unknown.any():
            warnings.warn(
                f"{rows.source}: {int(unknown.sum()):,} of {len(rows):,} texts have no word that the model knows, "
                f"first row {int(unknown.argmax())} (counting from 0): it cannot tell them apart",
                DataWarning,
                stacklevel=2,
            )
        return self.weigh(counts)


def find_words(rows: Rows, rules: WordRules | None = None, weighting: Weighting = "tfidf") -> tuple[Words, Rows]:
    """Return the vocabulary of texts by ``rules``, and the rows that the rules keep."""
    if weighting not in ("counts", "tfidf"):
        raise ValueError(f"weighting={weighting!r}: choose 'counts' or 'tfidf'")
    # Only who has given rules can lower one.
    lower = "" if rules is None else ", or lower {} of the rules"
    rules = rules or DEFAULT_RULES
    texts = texts_of(rows)
    learned = vectorizer(min_df=min(rules.min_documents, len(texts)), max_features=rules.max_words)
    try:
        counts = sparse.csr_array(learned.fit_transform(texts), dtype=np.float32)
    except ValueError as error:
        raise DataError(
            f"{rows.source}: no word is in {rules.min_documents} of the {len(texts):,} texts or more: give more or "
            f"longer texts{lower.format('min_documents')}"
        ) from error
    if rules.min_documents > len(texts):
        raise DataError(
            f"{rows.source} has {len(texts):,} texts, and words must be in {rules.min_documents} of them: give more "
            f"texts{lower.format('min_documents')}"
        )
    vocabulary = tuple(str(word) for word in learned.get_feature_names_out())
    enough = np.diff(counts.indptr) >= rules.min_words
    if not enough.any():
        raise DataError(
            f"{rows.source}: no text has min_words={rules.min_words} distinct words of the {len(vocabulary):,} that "
            f"are kept: give longer texts{lower.format('min_words')}"
        )
    kept, counts = rows.take(enough), counts[enough]
    if rows.labels is not None and rules.min_rows > 1:
        numbers, names = kept.numbered()
        large = np.bincount(numbers, minlength=len(names))[numbers] >= rules.min_rows
        if not large.any():
            raise DataError(
                f"{rows.source}: no category has min_rows={rules.min_rows} texts: give more texts"
                f"{lower.format('min_rows')}"
            )
        kept, counts = kept.take(large), counts[large]
    note = f"{len(vocabulary):,} words, {len(rows) - len(kept):,} of {len(rows):,} texts left out"
    idf = None
    if weighting == "tfidf":
        idf = tuple(float(value) for value in TfidfTransformer(sublinear_tf=True).fit(counts).idf_)
    return Words(vocabulary, idf), replace(kept, notes=(*kept.notes, note))


def vectorizer(**settings: Any) -> CountVectorizer:
    return CountVectorizer(token_pattern=WORD, lowercase=True, dtype=np.float32, **settings)


def texts_of(rows: Rows) -> list[str]:
    if rows.data_kind.values != "strings":
        raise DataError(f"{rows.source} holds {rows.kind}, not text: give a file with a column of text")
    return cast("list[str]", rows.values)
