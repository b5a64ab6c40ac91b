"""A card for each cluster: what it holds, its most typical rows and those least sure of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaclust._util.progress import Waiting
from metaclust.data.rows import Rows
from metaclust.inference.result import Clustering
from metaclust.report.apart import Column, Table, Word, words_apart
from metaclust.report.pictures import Pictures
from metaclust.report.wording import number, percent, shortened, shortened_name

TYPICAL = {"images": 14, "text": 5, "vectors": 4, "ids": 10}
LEAST_SURE = {"images": 7, "text": 3, "vectors": 3, "ids": 5}
"""How many rows a card shows, by kind; ids alone where the rows are not at hand."""
TEXT = 220
NAME = 48
PICTURE_BYTES = 3_000_000
MOST_CATEGORIES = 6
MOST_NUMBERS = 4


@dataclass(frozen=True)
class Shown:
    """A row on a card."""

    id: str
    confidence: str
    otherwise: str
    """The next most probable cluster, where there is one to speak of."""
    category: str | None
    text: str | None = None
    picture: str | None = None
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Share:
    """A category's part of a cluster."""

    name: str
    count: int
    share: float


@dataclass(frozen=True)
class Card:
    """What is told about a cluster."""

    number: int
    size: int
    share: str
    confidence: float
    categories: list[Share]
    further_categories: int
    words: list[Word]
    columns: list[tuple[str, Column]]
    heads: tuple[str, ...]
    """The names of the columns that ``numbers`` of its rows come from."""
    typical: list[Shown]
    least_sure: list[Shown]

    @property
    def gist(self) -> str:
        """A few of the words, columns or categories: what the cluster is about."""
        words = [word.word for word in self.words]
        columns = [f"{name} {'high' if column.deviations > 0 else 'low'}" for name, column in self.columns]
        return ", ".join((words or columns or [share.name for share in self.categories])[:3])


def cards(clustering: Clustering, progress: bool = False) -> list[Card]:
    """One for each cluster, in their order."""
    maker = CardMaker(clustering)
    made = []
    with Waiting("report: cards", clustering.n_clusters, enabled=progress) as bar:
        for cluster in range(clustering.n_clusters):
            made.append(maker.card(cluster))
            bar.advance()
    return made


class CardMaker:
    """What all cards need, computed once."""

    def __init__(self, clustering: Clustering) -> None:
        self.clustering = clustering
        self.rows = clustering.rows
        self.kind = "ids" if self.rows is None else self.rows.kind
        self.sizes = clustering.sizes
        self.confidence = clustering.confidence
        clusters = range(clustering.n_clusters)
        self.typical = [clustering.typical(k, TYPICAL[self.kind]).tolist() for k in clusters]
        self.least_sure = [
            clustering.least_sure(k, LEAST_SURE[self.kind]).tolist() if self.sizes[k] > 1 < len(clusters) else []
            for k in clusters
        ]
        self.words: list[list[Word]] = [[] for _ in clusters]
        self.table: Table | None = None
        self.pictures: Pictures | None = None
        if self.rows is None:
            return
        values = self.rows.values
        if isinstance(values, list):
            self.words = words_apart(values, clustering.labels, clustering.n_clusters)
        elif self.rows.kind == "images":
            shown = [row for rows in (*self.typical, *self.least_sure) for row in rows]
            self.pictures = Pictures.within(values, shown, PICTURE_BYTES)
        else:
            self.table = Table.of(values, clustering.labels, clustering.n_clusters)

    def card(self, cluster: int) -> Card:
        here = self.clustering.labels == cluster
        size = int(self.sizes[cluster])
        known = self.clustering.categories
        counts = Counter() if known is None else Counter(known[i] for i in np.flatnonzero(here).tolist())
        largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_CATEGORIES]
        columns = [] if self.table is None else self.table.apart(cluster)
        heads = [column.number for column in columns[:MOST_NUMBERS]]
        if self.table is not None and not heads:
            heads = list(range(min(MOST_NUMBERS, len(self.table.mean))))
        return Card(
            number=cluster,
            size=size,
            share=percent(size / len(here)),
            confidence=float(self.confidence[here].mean()) if size else 0.0,
            categories=[Share(shortened(name, NAME), count, count / size) for name, count in largest],
            further_categories=len(counts) - len(largest),
            words=self.words[cluster],
            columns=[(self.column(column.number), column) for column in columns],
            heads=tuple(self.column(head) for head in heads),
            typical=[self.shown(row, heads) for row in self.typical[cluster]],
            least_sure=[self.shown(row, heads) for row in self.least_sure[cluster]],
        )

    def column(self, i: int) -> str:
        return shortened_name(column_name(self.rows, i), NAME)

    def shown(self, row: int, heads: Sequence[int]) -> Shown:
        """How a row is shown; ``heads`` are the columns to show of vectors."""
        clustering = self.clustering
        text: str | None = None
        numbers: tuple[str, ...] = ()
        if self.rows is not None and isinstance(self.rows.values, list):
            text = shortened(self.rows.values[row], TEXT)
        elif self.rows is not None and self.table is not None:
            values: Any = self.rows.values
            numbers = tuple(number(float(values[row, head])) for head in heads)
        return Shown(
            id=shortened_name(clustering.ids[row], NAME),
            confidence=percent(float(self.confidence[row])),
            otherwise=self.otherwise(row),
            category=None if clustering.categories is None else shortened(clustering.categories[row], NAME),
            text=text,
            picture=None if self.pictures is None else self.pictures.one(row),
            numbers=numbers,
        )

    def otherwise(self, row: int) -> str:
        probabilities = self.clustering.components.probabilities(self.clustering.representations[[row]])[0]
        if len(probabilities) < 2:
            return ""
        second = int(np.argsort(-probabilities, kind="stable")[1])
        return f"else {second}: {percent(float(probabilities[second]))}" if probabilities[second] >= 0.01 else ""


def column_name(rows: Rows | None, i: int) -> str:
    """The name of a column of vectors, or its number from 0 where the names are not known."""
    if rows is None or isinstance(rows.values, list) or len(rows.columns) != rows.values.shape[1]:
        return f"column {i}"
    return rows.columns[i]
