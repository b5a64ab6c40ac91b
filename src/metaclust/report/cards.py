"""The card of each cluster: its categories, distinctive features, most typical and least certain rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from metaclust._util.progress import Waiting
from metaclust.inference.result import Clustering
from metaclust.report.content import CARD_NAME, Content
from metaclust.report.distinctive import Column, Word
from metaclust.report.wording import percent, shortened, shortened_name

MAX_CATEGORIES = 6
MIN_SHOWN = 0.01
"""Probabilities below this are not shown."""


@dataclass(frozen=True)
class CardRow:
    """A row on a card."""

    id: str
    confidence: str
    second_choice: str
    """The second most probable cluster; empty if its probability is negligible."""
    category: str | None
    text: str | None = None
    picture: str | None = None
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True)
class CategoryShare:
    """A category's share of a cluster."""

    name: str
    count: int
    share: float


@dataclass(frozen=True)
class ClusterCard:
    """What the report says about a cluster."""

    number: int
    name: str
    is_new: bool
    size: int
    share: str
    confidence: float
    categories: list[CategoryShare]
    further_categories: int
    words: list[Word]
    columns: list[tuple[str, Column]]
    heads: tuple[str, ...]
    """The names of the columns that the ``numbers`` of its rows come from."""
    typical: list[CardRow]
    least_sure: list[CardRow]

    @property
    def summary(self) -> str:
        """A few of the words, columns or categories of the cluster."""
        words = [word.word for word in self.words]
        columns = [f"{name} {'high' if column.deviations > 0 else 'low'}" for name, column in self.columns]
        return ", ".join((words or columns or [share.name for share in self.categories])[:3])


def make_cards(clustering: Clustering, content: Content, progress: bool = False) -> list[ClusterCard]:
    """Return one card per cluster."""
    clusters = range(clustering.n_clusters)
    typical = [clustering.typical(k, content.typical).tolist() for k in clusters]
    least_sure: list[list[int]] = [
        clustering.least_sure(k, content.least_sure).tolist() if len(clusters) > 1 < clustering.sizes[k] else []
        for k in clusters
    ]
    content.prepare_cards([row for rows in (*typical, *least_sure) for row in rows])
    cards = []
    with Waiting("report: cards", len(clusters), enabled=progress) as bar:
        for cluster in clusters:
            cards.append(make_card(clustering, content, cluster, typical[cluster], least_sure[cluster]))
            bar.advance()
    return cards


def make_card(
    clustering: Clustering, content: Content, cluster: int, typical: list[int], least_sure: list[int]
) -> ClusterCard:
    """Return the card of a cluster with these rows."""
    here = clustering.labels == cluster
    size = int(here.sum())
    known = clustering.categories
    counts = Counter() if known is None else Counter(known[i] for i in np.flatnonzero(here).tolist())
    largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MAX_CATEGORIES]
    columns = content.card_columns(cluster)
    return ClusterCard(
        number=cluster,
        name=shortened(clustering.names[cluster], CARD_NAME),
        is_new=bool(clustering.is_new[cluster]),
        size=size,
        share=percent(size / len(here)),
        confidence=float(clustering.confidence[here].mean()) if size else 0.0,
        categories=[CategoryShare(shortened(name, CARD_NAME), count, count / size) for name, count in largest],
        further_categories=len(counts) - len(largest),
        words=content.words(cluster),
        columns=[(column_name(content, column.index), column) for column in content.columns(cluster)],
        heads=tuple(column_name(content, column) for column in columns),
        typical=[make_row(clustering, content, row, columns) for row in typical],
        least_sure=[make_row(clustering, content, row, columns) for row in least_sure],
    )


def make_row(clustering: Clustering, content: Content, row: int, columns: list[int]) -> CardRow:
    return CardRow(
        id=shortened_name(clustering.ids[row], CARD_NAME),
        confidence=percent(float(clustering.confidence[row])),
        second_choice=second_choice(clustering, row),
        category=None if clustering.categories is None else shortened(clustering.categories[row], CARD_NAME),
        **content.on_card(row, columns),
    )


def column_name(content: Content, i: int) -> str:
    return shortened_name(content.column_name(i), CARD_NAME)


def second_choice(clustering: Clustering, row: int) -> str:
    probabilities = clustering.components.probabilities(clustering.representations[[row]])[0]
    if len(probabilities) < 2:
        return ""
    second = int(np.argsort(-probabilities, kind="stable")[1])
    shown = probabilities[second] >= MIN_SHOWN
    return f"cluster {second}: {percent(float(probabilities[second]))}" if shown else ""
