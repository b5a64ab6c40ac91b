"""Third stage: which of several candidate clusterings is best, by the evidence or as was learned.

Bounds choose by a fixed rule. The learned selector is a small network that scores candidates by their features, trained
on tasks of known categories so that candidates with a high score have a high ARI. The softmax of the scores is taken
for the probability that a candidate is the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import softmax

from metaclust._util.tensors import read_tensors
from metaclust.inference.features import adjusted_rand_indices, describe, evidence_of, merge_probabilities
from metaclust.inference.numbers import NumberModel
from metaclust.inference.stages import Candidate, Floats, Initial, Labels, Refiner, Sample, Selector, in_order
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.selector import SelectorNetwork

SINGLE, ABOVE = 0.38, 2.0
"""Where the last merges are within a category with a higher probability, the score of a single cluster is as much above
all others."""
SINGLE_ROWS, FARTHEST_BELOW = 300, 13.0
"""That is so in piles of at most so many rows, as most tasks of one category have, and unless the score of a single
cluster is farther below the best: where both disagree as much, a whole pile in one cluster is the worse mistake. For
that reason larger piles are one cluster only where the score and the last merges both say so."""
LIKELY = 0.01
"""Candidates of a smaller probability are left out of account."""
LOWEST = 10.0
"""How far below all others the score of a single cluster is where it is not taken."""


@dataclass(frozen=True)
class BestBound:
    """The candidate with the highest evidence lower bound."""

    name: ClassVar[str] = "bound"

    def scores(self, model: ClusteringModel, sample: Sample, candidates: Sequence[Candidate]) -> Floats:
        return np.array([candidate.bound for candidate in candidates])

    def choose(self, candidates: Sequence[Candidate], scores: Floats) -> int:
        return int(scores.argmax())

    def finish(self, model: ClusteringModel, sample: Sample, best: Candidate, refine: Refiner) -> Candidate:
        return best


@dataclass(frozen=True)
class MergedBound(BestBound):
    """The candidate with the highest bound, with neighbouring clusters merged as long as the bound rises."""

    def finish(self, model: ClusteringModel, sample: Sample, best: Candidate, refine: Refiner) -> Candidate:
        return merged(model, sample, best, refine)


@dataclass(frozen=True)
class LearnedSelector:
    """The candidate with the highest expected ARI, where each is the right one with a probability given by its score.

    A single cluster has the highest score where the network takes the last merges of the trees for merges within a
    category, see :func:`with_single_cluster`.
    """

    network: SelectorNetwork
    general: bool = False
    """Whether it was learned from other data: then a single cluster is not taken, if there is anything else."""
    name: ClassVar[str] = "learned"

    @classmethod
    def for_model(cls, model: ClusteringModel) -> LearnedSelector:
        """Take the selector that the model has learned, or the one that comes with the package."""
        return cls(shipped_selector(), general=True) if model.choice is None else cls(model.choice)

    def scores(self, model: ClusteringModel, sample: Sample, candidates: Sequence[Candidate]) -> Floats:
        evidence = evidence_of(model, sample)
        probabilities = merge_probabilities(evidence, self.network)
        features = describe(evidence, probabilities, [candidate.labels for candidate in candidates])
        scores = self.network.scores.outputs(features)
        single = np.array([candidate.clusters == 1 for candidate in candidates])
        if self.general and not single.all():
            # Few categories say little about how wide one is, and a whole pile in one cluster is the worst mistake.
            return np.where(single, scores.min() - LOWEST, scores)
        return with_single_cluster(scores, single, probability_of_one(probabilities), len(sample))

    def choose(self, candidates: Sequence[Candidate], scores: Floats) -> int:
        return highest_expected(scores, [candidate.labels for candidate in candidates])

    def finish(self, model: ClusteringModel, sample: Sample, best: Candidate, refine: Refiner) -> Candidate:
        return best

    @property
    def numbers(self) -> NumberModel:
        """How scores become probabilities of numbers of clusters."""
        return NumberModel.of(self.network.number.double().tolist())


def probability_of_one(probabilities: Sequence[Floats]) -> float:
    """Return the probability that the last merges of the trees join rows of one category; 1 for a single row."""
    return float(np.mean([each[-1] for each in probabilities])) if len(probabilities[0]) else 1.0


def with_single_cluster(scores: Floats, single: NDArray[np.bool_], probability: float, rows: int) -> Floats:
    """Return the scores with that of a single cluster as the highest, if this is as probable as :data:`SINGLE`.

    The few tasks of one category that a selector learns from teach this merge by merge better than score by score. Of
    many rows, a single cluster has the lowest score where it is less probable than that.
    """
    if single.all() or not single.any():
        return scores
    if rows > SINGLE_ROWS:
        return scores if probability > SINGLE else np.where(single, scores.min() - LOWEST, scores)
    if probability <= SINGLE:
        return scores
    highest = scores.max()
    return np.where(single & (scores >= highest - FARTHEST_BELOW), highest + ABOVE, scores)


def highest_expected(scores: Floats, partitions: Sequence[Labels]) -> int:
    """Return the place of the partition with the highest expected ARI with the right one.

    Each is the right one with the probability that the softmax of the scores gives it. Those that are hardly ever right
    do not count, and are not taken.
    """
    probability = softmax(scores)
    likely = np.flatnonzero(probability >= min(LIKELY, probability.max()))
    if len(likely) == 1:
        return int(likely[0])
    expected = adjusted_rand_indices([partitions[place] for place in likely.tolist()]) @ probability[likely]
    return int(likely[expected.argmax()])


SELECTORS: dict[str, Callable[[ClusteringModel], Selector]] = {
    "bound": lambda _: MergedBound(),
    "learned": LearnedSelector.for_model,
}


@cache
def shipped_selector() -> SelectorNetwork:
    """Return the selector that comes with the package, learned from the categories of several data sets."""
    tensors, _ = read_tensors(Path(__file__).parent / "selector.safetensors", "selector")
    network = SelectorNetwork()
    network.load_state_dict(tensors)
    return network.eval()


def merged(model: ClusteringModel, sample: Sample, candidate: Candidate, refine: Refiner) -> Candidate:
    """The candidate, or what becomes of it when neighbours are merged that the bound prefers merged.

    In each round every cluster and its nearest are merged on trial, and the best of these is kept if its bound is
    higher. From where this ends the inference goes on; its end is taken if its bound is higher, too.
    """
    labels, bound = candidate.labels, candidate.bound
    while labels.max() > 0:
        trials = [in_order(np.where(labels == one, other, labels)) for one, other in neighbours(sample.z, labels)]
        bounds = refine.bounds(model, sample, trials, candidate.weight)
        best = int(np.argmax(bounds))
        if bounds[best] <= bound:
            break
        labels, bound = trials[best], bounds[best]
    if labels is candidate.labels:
        return candidate
    (end,) = refine(model, sample, [Initial(labels)])
    (bound,) = refine.bounds(model, sample, [end.labels], candidate.weight)
    return max(candidate, replace(end, bound=bound, weight=candidate.weight), key=lambda one: one.bound)


def neighbours(z: Floats, labels: Labels) -> list[tuple[int, int]]:
    """Each cluster and the one whose mean is nearest to its own, each pair once."""
    centres = np.stack([z[labels == cluster].mean(0) for cluster in range(labels.max() + 1)])
    apart = cdist(centres, centres)
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(1).tolist()
    return sorted({(min(pair), max(pair)) for pair in enumerate(nearest)})
