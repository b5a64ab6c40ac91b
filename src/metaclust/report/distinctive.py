"""Features that distinguish a cluster from the others: words of texts, columns of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

MIN_STANDARD_ERRORS = 2.0
"""Log-odds of a word below this many standard errors may be due to chance."""
BLOCK = 1 << 22
"""Values that are processed at a time."""


@dataclass(frozen=True)
class Word:
    """A word, and the shares of the cluster's rows and of all other rows that contain it."""

    word: str
    here: float
    elsewhere: float


@dataclass(frozen=True)
class Column:
    """A column by index, its mean in the cluster and over all rows, and their difference in standard deviations."""

    index: int
    mean: float
    overall: float
    deviations: float


def distinctive_words(texts: list[str], labels: NDArray[np.int64], clusters: int, most: int = 10) -> list[list[Word]]:
    """Return, for each cluster, the words of two or more letters that are most typical of it, in descending order.

    The score is the log-odds ratio of a row containing the word, inside against outside the cluster, with half a row
    added to each count, divided by its standard error; ties are in alphabetical order.
    """
    words: list[list[Word]] = [[] for _ in range(clusters)]
    try:
        vectorizer = CountVectorizer(binary=True)
        contains = vectorizer.fit_transform(texts)
    except ValueError:
        # No text contains a word.
        return words
    vocabulary = vectorizer.get_feature_names_out()
    here = members(labels, clusters) @ contains
    everywhere = np.asarray(contains.sum(0), np.float64).ravel()
    sizes = np.bincount(labels, minlength=clusters)
    for cluster in range(clusters):
        size, others = int(sizes[cluster]), len(texts) - int(sizes[cluster])
        if not size or not others:
            continue
        a = here[[cluster]].toarray().ravel()
        b = everywhere - a
        counts = (a + 0.5, size - a + 0.5, b + 0.5, others - b + 0.5)
        odds = np.log(counts[0] / counts[1]) - np.log(counts[2] / counts[3])
        score = odds / np.sqrt(sum(1 / count for count in counts))
        # Rounded, so that words with equal counts tie and stay in alphabetical order.
        words[cluster] = [
            Word(str(vocabulary[i]), float(a[i] / size), float(b[i] / others))
            for i in largest(score.round(9), most)
            if score[i] >= MIN_STANDARD_ERRORS
        ]
    return words


@dataclass(frozen=True)
class ColumnStatistics:
    """Mean and standard deviation of each column over all rows, and its mean in each cluster; NaN is ignored."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    means: NDArray[np.float64]
    """(clusters, columns); NaN where the cluster has no value."""

    @classmethod
    def of(cls, values: NDArray[Any] | sparse.csr_array, labels: NDArray[np.int64], clusters: int) -> ColumnStatistics:
        """Compute the statistics of ``values`` of shape (rows, columns)."""
        sums = np.zeros((clusters, values.shape[1]))
        counts = np.zeros_like(sums)
        if sparse.issparse(values):
            sums += (members(labels, clusters) @ values).toarray()
            counts += np.bincount(labels, minlength=clusters)[:, None]
        else:
            for rows, block in blocks(values):
                belong = members(labels[rows], clusters)
                sums += belong @ np.nan_to_num(block)
                counts += belong @ (~np.isnan(block)).astype(np.float64)
        present = np.maximum(1.0, counts.sum(0))
        mean = sums.sum(0) / present
        if sparse.issparse(values):
            doubles: sparse.csr_array = values.astype(np.float64)
            squares = np.maximum(0.0, doubles.power(2).sum(0) - present * np.square(mean))
        else:
            squares = np.zeros_like(mean)
            for _, block in blocks(values):
                squares += np.nan_to_num(np.square(block - mean)).sum(0)
        means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
        return cls(mean, np.sqrt(squares / present), means)

    def distinctive(self, cluster: int, most: int = 6) -> list[Column]:
        """Return the columns whose mean in the cluster is farthest from that of all rows, in descending order."""
        away = self.deviations(self.means[cluster])
        return [
            Column(i, float(self.means[cluster, i]), float(self.mean[i]), float(away[i]))
            for i in largest(np.abs(away).round(9), most)
            if abs(away[i]) > 0
        ]

    def deviations(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return (..., columns): standard deviations from the mean of all rows; 0 for constants and NaN."""
        away = np.nan_to_num(values.astype(np.float64) - self.mean)
        # The deviation of a constant column is a rounding error.
        varies = self.deviation > 1e-6 * np.abs(self.mean)
        return np.divide(away, self.deviation, out=np.zeros_like(away), where=np.broadcast_to(varies, away.shape))


def members(labels: NDArray[np.int64], clusters: int) -> sparse.csr_array:
    """Return (clusters, rows): 1 where the row is in the cluster."""
    rows = len(labels)
    return sparse.csr_array((np.ones(rows), (labels, np.arange(rows))), shape=(clusters, rows))


def largest(values: NDArray[np.float64], most: int) -> list[int]:
    """Return the indices of the largest values in descending order; ties keep their order."""
    kept = np.arange(len(values))
    if len(values) > most:
        kept = np.flatnonzero(values >= np.partition(values, -most)[-most])
    order: list[int] = kept[np.argsort(-values[kept], kind="stable")[:most]].tolist()
    return order


def blocks(values: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield blocks of rows as float64."""
    step = max(1, BLOCK // max(1, values.shape[1]))
    for start in range(0, len(values), step):
        yield slice(start, start + step), values[start : start + step].astype(np.float64)
