"""The top of the page: the result in a few sentences and metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metaclust.inference.result import Clustering, Start
from metaclust.report.content import Content
from metaclust.report.wording import counted, number, percent

SCORES = {
    "ari": (
        "ARI",
        "adjusted Rand index",
        "The agreement of clusters and categories over all pairs of rows, corrected for chance: "
        "1 is perfect, 0 is chance level.",
    ),
    "nmi": (
        "NMI",
        "normalised mutual information",
        "How much information clusters and categories share: 1 is all of it, 0 is none.",
    ),
    "acc": (
        "ACC",
        "accuracy",
        "The share of correct rows when each cluster is matched to a different category.",
    ),
    "k_error": (
        "K error",
        "{clusters} for {categories}",
        "The number of clusters minus the number of known categories: above 0, there are too many clusters.",
    ),
}


@dataclass(frozen=True)
class Metric:
    """A value with its name, a description and an explanation."""

    value: str
    name: str
    description: str
    explanation: str


@dataclass(frozen=True)
class Alternative:
    """A number of clusters that candidates have: how many do, and how much worse the best of them fits."""

    clusters: int
    starts: int
    worse: float
    per: str
    """The unit of the difference."""
    taken: bool = False
    """Whether one of them was taken."""

    @property
    def words(self) -> str:
        how = "taken" if self.taken else "as good a fit" if self.worse == 0 else f"worse by {self.difference}"
        return f"{counted(self.clusters, 'cluster')}: {how} ({counted(self.starts, 'candidate')})"

    @property
    def difference(self) -> str:
        worse = self.worse
        amount = "less than 0.01" if worse < 0.01 else f"{worse:.2f}" if worse < 1 else number(round(worse, 1))
        return f"{amount} {self.per}"


def headline(clustering: Clustering) -> str:
    """Return the numbers of rows and clusters, and how sure the latter is."""
    numbers = f"{counted(len(clustering), 'row')}, {counted(clustering.n_clusters, 'cluster')}"
    new = int(clustering.is_new.sum())
    if new < clustering.n_clusters:
        numbers += f", {number(new)} of them new"
    if not clustering.k_probabilities:
        return numbers
    low, high = clustering.k_interval()
    return f"{numbers} (90%: {number(low)} to {number(high)})" if low < high else f"{numbers} (90%: {number(low)})"


def data_description(clustering: Clustering, content: Content) -> str:
    """Return the source of the data and what they are."""
    about = clustering.about
    if clustering.rows is None:
        source, kind = str(about.get("data", "")), str(about.get("kind", ""))
        return ": ".join(part for part in (source, kind) if part)
    return f"{clustering.rows.source}: {content.describe()}"


def alternatives(clustering: Clustering) -> list[Alternative]:
    """Return the numbers of clusters that the candidates have, in ascending order; a bound must be a number."""
    best: dict[int, float] = {}
    starts = [start for start in clustering.starts if math.isfinite(merit(start))]
    for start in starts:
        best[start.clusters] = max(best.get(start.clusters, -math.inf), merit(start))
    # What was taken has the highest expected index, and not always the highest score: others then fit as well.
    taken = [start.clusters for start in starts if start.selected]
    top = best[taken[0]] if taken else max(best.values(), default=0.0)
    # The bounds are not those of rows that were only assigned to the clusters.
    rows, per = (1, "in total") if clustering.about.get("assigned") else (len(clustering), "per row")
    if any(start.score is not None for start in starts):
        rows, per = 1, "in the learned score"
    return [
        Alternative(k, sum(start.clusters == k for start in starts), max(0.0, top - best[k]) / rows, per, k in taken)
        for k in sorted(best)
    ]


def merit(start: Start) -> float:
    """Return what the candidate was selected by."""
    return start.bound if start.score is None else start.score


def certainty(clustering: Clustering) -> list[str]:
    """Return sentences on how certain the number of clusters is."""
    answers = sorted(alternatives(clustering), key=lambda answer: (not answer.taken, answer.worse))
    if not answers:
        return []
    best, starts = answers[0], sum(answer.starts for answer in answers)
    k = counted(best.clusters, "cluster")
    if starts == 1 and clustering.k_probabilities and clustering.starts[0].score is None:
        sentences = ["There are so many clusters that they were found region by region."]
    elif starts == 1:
        sentences = [f"The only candidate has {k}, so there is nothing to compare it with."]
    elif len(answers) == 1:
        sentences = [f"All {starts} candidates have {k}."]
    else:
        second = answers[1]
        how = "as well" if second.worse == 0 else f"worse by {second.difference}"
        sentences = [
            f"{best.starts} of {starts} candidates {'has' if best.starts == 1 else 'have'} {k}; the next best number, "
            f"{counted(second.clusters, 'cluster')}, fits {how}."
        ]
    if (new := int(clustering.is_new.sum())) < clustering.n_clusters:
        known = clustering.n_clusters - new
        sentences.append(
            f"Rows of {number(known)} known {'category' if known == 1 else 'categories'} were then put together, which "
            f"leaves {counted(new, 'new cluster')}."
        )
    elif clustering.edits or clustering.about.get("updates"):
        sentences.append(f"They have been edited or updated since: there are {clustering.n_clusters:,} now.")
    elif best.clusters != clustering.n_clusters:
        left = f"{clustering.n_clusters:,} {'is' if clustering.n_clusters == 1 else 'are'} left"
        sentences.append(f"Of the {k} of the best candidate, {left}: empty and small ones were dissolved.")
    if 1 < clustering.n_clusters == clustering.about.get("max_clusters"):
        sentences.append(f"All {clustering.n_clusters:,} clusters that were allowed are in use, so there may be more.")
    if clustering.about.get("assigned"):
        sentences.append("The clusters were found in other rows; these rows were assigned to them.")
    return sentences


def metrics(clustering: Clustering) -> list[Metric]:
    """Return the share of unsure rows, the mean confidence and, with known categories, the scores."""
    unsure = int(clustering.unsure.sum())
    shown = [
        Metric(
            percent(unsure / len(clustering)),
            "Unsure",
            f"{counted(unsure, 'row') if unsure else 'no row'} below {percent(clustering.threshold)} confidence",
            "Rows whose confidence is below the threshold; they keep their cluster.",
        ),
        Metric(
            percent(float(clustering.confidence.mean())),
            "Confidence",
            "mean over all rows",
            "The probability that a row is in the right cluster."
            if clustering.k_probabilities
            else "The probability of the cluster that a row is assigned to.",
        ),
    ]
    if clustering.categories is None:
        return shown
    scores = clustering.scores()
    known = counted(len(set(clustering.categories)), "known category", "known categories")
    for key, (name, description, explanation) in SCORES.items():
        if key == "k_error":
            description = description.format(clusters=counted(clustering.n_clusters, "cluster"), categories=known)
            shown.append(Metric(signed(round(scores[key])), name, description, explanation))
        else:
            # Adding 0.0 turns -0.00 into 0.00.
            value = f"{round(scores[key], 2) + 0.0:.2f}".replace("-", "\N{MINUS SIGN}")
            shown.append(Metric(value, name, description, explanation))
    return shown


def signed(value: int) -> str:
    return f"+{value}" if value > 0 else number(value)
