"""What sets a cluster apart from the others: words of texts, columns of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

SUREST = 2.0
"""Words must differ by this many standard errors: less may be chance."""
BLOCK = 1 << 22
"""Cells of a table that are looked at together."""


@dataclass(frozen=True)
class Word:
    """A word, and the shares of the cluster's rows and of all other rows that hold it."""

    word: str
    here: float
    elsewhere: float


@dataclass(frozen=True)
class Column:
    """A column by number, its mean in the cluster and in all rows, and their difference in standard deviations."""

    number: int
    mean: float
    overall: float
    deviations: float


def words_apart(texts: list[str], labels: NDArray[np.int64], clusters: int, most: int = 10) -> list[list[Word]]:
    """For each cluster the words of two letters or more that its rows hold and others do not, the clearest first.

    By the log-odds of a row holding the word, in the cluster against outside, with half a row added to each count, in
    units of its standard error; equal ones in alphabetical order.
    """
    found: list[list[Word]] = [[] for _ in range(clusters)]
    try:
        vectorizer = CountVectorizer(binary=True)
        holds = vectorizer.fit_transform(texts)
    except ValueError:
        # Not a single word in all texts.
        return found
    vocabulary = vectorizer.get_feature_names_out()
    here = members(labels, clusters) @ holds
    everywhere = np.asarray(holds.sum(0), np.float64).ravel()
    sizes = np.bincount(labels, minlength=clusters)
    for cluster in range(clusters):
        size, others = int(sizes[cluster]), len(texts) - int(sizes[cluster])
        if not size or not others:
            continue
        a = here[[cluster]].toarray().ravel()
        b = everywhere - a
        cells = (a + 0.5, size - a + 0.5, b + 0.5, others - b + 0.5)
        odds = np.log(cells[0] / cells[1]) - np.log(cells[2] / cells[3])
        score = odds / np.sqrt(sum(1 / cell for cell in cells))
        # Rounded, so that words with the same counts are equal and stay in alphabetical order.
        found[cluster] = [
            Word(str(vocabulary[i]), float(a[i] / size), float(b[i] / others))
            for i in largest(score.round(9), most)
            if score[i] >= SUREST
        ]
    return found


@dataclass(frozen=True)
class Table:
    """Vectors by column: mean and standard deviation over all rows, and the mean in each cluster; NaN is left out."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    means: NDArray[np.float64]
    """(clusters, columns); NaN where the cluster has no value."""

    @classmethod
    def of(cls, values: NDArray[Any] | sparse.csr_array, labels: NDArray[np.int64], clusters: int) -> Table:
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

    def apart(self, cluster: int, most: int = 6) -> list[Column]:
        """The columns whose mean in the cluster is farthest from that of all rows, farthest first."""
        away = self.deviations(self.means[cluster])
        return [
            Column(i, float(self.means[cluster, i]), float(self.mean[i]), float(away[i]))
            for i in largest(np.abs(away).round(9), most)
            if abs(away[i]) > 0
        ]

    def deviations(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """(..., columns): how far from the mean of all rows, in standard deviations; 0 for constants and for NaN."""
        away = np.nan_to_num(values.astype(np.float64) - self.mean)
        # A constant column has a deviation of rounding errors only.
        varies = self.deviation > 1e-6 * np.abs(self.mean)
        return np.divide(away, self.deviation, out=np.zeros_like(away), where=np.broadcast_to(varies, away.shape))


def members(labels: NDArray[np.int64], clusters: int) -> sparse.csr_array:
    """(clusters, rows): 1 where the row is in the cluster."""
    rows = len(labels)
    return sparse.csr_array((np.ones(rows), (labels, np.arange(rows))), shape=(clusters, rows))


def largest(values: NDArray[np.float64], most: int) -> list[int]:
    """Where the largest values are, the largest first, equal ones in their order."""
    kept = np.arange(len(values))
    if len(values) > most:
        kept = np.flatnonzero(values >= np.partition(values, -most)[-most])
    order: list[int] = kept[np.argsort(-values[kept], kind="stable")[:most]].tolist()
    return order


def blocks(values: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Some rows after the other, as float64."""
    step = max(1, BLOCK // max(1, values.shape[1]))
    for start in range(0, len(values), step):
        yield slice(start, start + step), values[start : start + step].astype(np.float64)
