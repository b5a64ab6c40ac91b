"""What the clustering found, in a few words and figures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metaclust.inference.result import Clustering, Start
from metaclust.report.wording import counted, number, percent

SCORES = {
    "ari": (
        "ARI",
        "adjusted Rand index",
        "Of all pairs of rows, how many are rightly together or rightly apart, corrected for chance: "
        "1 is perfect, 0 is what chance gives.",
    ),
    "nmi": (
        "NMI",
        "normalised mutual information",
        "How much the clusters tell about the categories and the other way round: 1 is everything, 0 is nothing.",
    ),
    "acc": (
        "ACC",
        "accuracy",
        "The share of rows that are right when each cluster is matched with one category and no category twice.",
    ),
    "k_error": (
        "K error",
        "{clusters} for {categories}",
        "The number of clusters minus the number of known categories: 0 is right, above 0 there are too many clusters.",
    ),
}


@dataclass(frozen=True)
class Figure:
    """A number with its name, what the name stands for, and what it means."""

    value: str
    name: str
    what: str
    meaning: str


@dataclass(frozen=True)
class Alternative:
    """A number of clusters that starts ended with: how many did, and how much worse the best of them fits."""

    clusters: int
    starts: int
    worse: float
    per: str
    """What the difference is of: a row, or all rows."""

    @property
    def words(self) -> str:
        how = "the best answer" if self.worse == 0 else f"worse by {self.difference}"
        return f"{counted(self.clusters, 'cluster')}: {how} ({counted(self.starts, 'start')})"

    @property
    def difference(self) -> str:
        worse = self.worse
        amount = "less than 0.01" if worse < 0.01 else f"{worse:.2f}" if worse < 1 else number(round(worse, 1))
        return f"{amount} {self.per}"


def headline(clustering: Clustering) -> str:
    return f"{counted(len(clustering), 'row')}, {counted(clustering.n_clusters, 'cluster')}"


def data_words(clustering: Clustering) -> str:
    """What was clustered: where it comes from and what it is."""
    about = clustering.about
    if clustering.rows is None:
        source, kind = str(about.get("data", "")), str(about.get("kind", ""))
        return ": ".join(part for part in (source, kind) if part)
    rows = clustering.rows
    if isinstance(rows.values, list):
        what = "texts"
    elif rows.kind == "images":
        channels, height, width = rows.values.shape[1:]
        what = f"{'grey' if channels == 1 else 'colour'} images of {width} × {height}"  # noqa: RUF001
    else:
        what = f"vectors of {counted(rows.values.shape[1], 'column')}"
    return f"{rows.source}: {what}"


def alternatives(clustering: Clustering) -> list[Alternative]:
    """The numbers of clusters that the starts ended with, smallest first."""
    best: dict[int, float] = {}
    for start in clustering.starts:
        best[start.clusters] = max(best.get(start.clusters, -math.inf), merit(start))
    top = max(best.values(), default=0.0)
    # Rows that were only assigned to the clusters are not the ones that the bounds are of.
    rows, per = (1, "in all") if clustering.about.get("assigned") else (len(clustering), "per row")
    if any(start.score is not None for start in clustering.starts):
        rows, per = 1, "in the learned score"
    return [
        Alternative(k, sum(start.clusters == k for start in clustering.starts), (top - best[k]) / rows, per)
        for k in sorted(best)
    ]


def merit(start: Start) -> float:
    """By what it was compared with the others."""
    return start.bound if start.score is None else start.score


def sureness(clustering: Clustering) -> list[str]:
    """How sure the number of clusters is: one sentence for each thing there is to say."""
    found = sorted(alternatives(clustering), key=lambda answer: answer.worse)
    if not found:
        return []
    best, starts = found[0], len(clustering.starts)
    k = counted(best.clusters, "cluster")
    if starts == 1:
        said = [f"The only start found {k}, so there is no other answer to compare with."]
    elif len(found) == 1:
        said = [f"All {starts} starts found {k}."]
    else:
        second = found[1]
        said = [
            f"{best.starts} of {starts} starts found {k}; the next best answer, {counted(second.clusters, 'cluster')}, "
            f"fits {'as well' if second.worse == 0 else f'worse by {second.difference}'}."
        ]
    if best.clusters != clustering.n_clusters:
        left = f"{clustering.n_clusters:,} {'is' if clustering.n_clusters == 1 else 'are'} left"
        said.append(f"Of the {k} of the best start {left}: those that were empty or too small were dissolved.")
    if 1 < clustering.n_clusters == clustering.about.get("max_clusters"):
        said.append(f"All {clustering.n_clusters:,} clusters that were allowed are in use, so there may be more.")
    if clustering.about.get("assigned"):
        said.append("The clusters were found in other rows, and these rows were put into them.")
    return said


def figures(clustering: Clustering) -> list[Figure]:
    """How many rows are unsure, how sure all are and, with known categories, how well they are found."""
    unsure = int(clustering.unsure.sum())
    shown = [
        Figure(
            percent(unsure / len(clustering)),
            "Unsure",
            f"{counted(unsure, 'row') if unsure else 'no row'} below {percent(clustering.threshold)} confidence",
            "Rows whose most probable cluster has a lower probability than this; they keep their cluster.",
        ),
        Figure(
            percent(float(clustering.confidence.mean())),
            "Confidence",
            "mean over all rows",
            "The probability of the cluster that a row was put into.",
        ),
    ]
    if clustering.categories is None:
        return shown
    scores = clustering.scores()
    known = counted(len(set(clustering.categories)), "known category", "known categories")
    for key, (name, what, meaning) in SCORES.items():
        if key == "k_error":
            what = what.format(clusters=counted(clustering.n_clusters, "cluster"), categories=known)
            shown.append(Figure(signed(round(scores[key])), name, what, meaning))
        else:
            # Not -0.00, which is what an index a little below chance would be.
            value = f"{round(scores[key], 2) + 0.0:.2f}".replace("-", "\N{MINUS SIGN}")
            shown.append(Figure(value, name, what, meaning))
    return shown


def signed(value: int) -> str:
    return f"+{value}" if value > 0 else number(value)
