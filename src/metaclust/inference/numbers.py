"""The distribution over the number of clusters, from the scores of candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, softmax

from metaclust.inference.stages import Floats

LEAST = 1e-4
"""Numbers of clusters with a smaller probability are left out."""
NARROWEST, WIDEST = 0.02, 1.5
"""The smallest and the largest standard deviation of the log number of clusters."""
COLDEST, HOTTEST = 0.02, 20.0
"""The lowest and the highest temperature."""
USUAL_ARI = 0.8
"""The expected ARI at which temperature and deviation are stated."""


@dataclass(frozen=True)
class NumberModel:
    """How the scores of candidates become probabilities of numbers of clusters.

    Candidates are weighted by the softmax of their scores over a temperature. Around the number K of clusters of each,
    the log of the true number is normal with mean log K + ``shift`` and a standard deviation. The logs of temperature
    and deviation are linear in the log number of clusters and in the ARI that the probabilities of pairs let expect of
    the best candidate: of few clusters that lie apart, the number is surer than of many that overlap.
    """

    temperature: float = 1.0
    """For one cluster and an expected ARI of :data:`USUAL_ARI`; the same is true of ``deviation``."""
    shift: float = 0.0
    deviation: float = 0.15
    temperature_slopes: tuple[float, float] = (0.0, 0.0)
    """Change of the log temperature with the log number of clusters of the best candidate, and with the ARI."""
    deviation_slopes: tuple[float, float] = (0.0, 0.0)
    """Change of the log deviation with the log number of clusters, and with the expected ARI."""

    @classmethod
    def of(cls, values: Sequence[float]) -> NumberModel:
        """Take a model from the seven numbers that are stored of it."""
        temperature, by_number, by_ari, shift, deviation, wider, by_expected = values
        return cls(np.exp(temperature), shift, np.exp(deviation), (by_number, by_ari), (wider, by_expected))

    @property
    def values(self) -> tuple[float, ...]:
        """The seven numbers that are stored of it: logs, and slopes."""
        temperature, deviation = float(np.log(self.temperature)), float(np.log(self.deviation))
        return (temperature, *self.temperature_slopes, self.shift, deviation, *self.deviation_slopes)

    def probabilities(
        self, scores: Floats, clusters: Sequence[int], rows: int, expected_ari: float = USUAL_ARI
    ) -> dict[int, float]:
        """Return the probability of each number of clusters that ``rows`` rows may have."""
        task = tuple(np.asarray(values, np.float64)[None] for values in (scores, clusters, expected_ari))
        weight, centre, deviation = (values[0] for values in self._mixture(*task))
        most = min(rows, int(np.ceil(np.exp((centre + 4 * deviation).max()))) + 1)
        found = np.diff(cumulated(weight, centre, deviation, np.arange(1.0, most + 1)[:, None]), prepend=0.0)
        kept = np.flatnonzero(found >= min(LEAST, found.max()))
        total = found[kept].sum()
        return {int(place) + 1: float(found[place] / total) for place in kept}

    def log_likelihoods(self, tasks: Tasks) -> Floats:
        """Return the log probability of the true number of each task."""
        mixture = self._mixture(tasks.scores, tasks.clusters, tasks.expected_ari)
        high, low = (cumulated(*mixture, number[:, None]) for number in (tasks.true, tasks.true - 1))
        found: Floats = np.log(np.maximum(high - np.where(tasks.true > 1, low, 0.0), 1e-12))
        return found

    def _mixture(self, scores: Floats, clusters: Floats, expected_ari: Floats) -> tuple[Floats, Floats, Floats]:
        """Return (tasks, candidates): the weight of each, the mean of the log number, and its deviation."""
        log_clusters, above = np.log(clusters), expected_ari[:, None] - USUAL_ARI
        of_best = np.take_along_axis(log_clusters, scores.argmax(1)[:, None], 1)
        logs = np.log(self.temperature) + self.temperature_slopes[0] * of_best + self.temperature_slopes[1] * above
        weight = softmax(scores / np.clip(np.exp(np.clip(logs, -9, 9)), COLDEST, HOTTEST), axis=1)
        logs = np.log(self.deviation) + self.deviation_slopes[0] * log_clusters + self.deviation_slopes[1] * above
        return weight, log_clusters + self.shift, np.clip(np.exp(np.clip(logs, -9, 9)), NARROWEST, WIDEST)


def cumulated(weight: Floats, centre: Floats, deviation: Floats, numbers: Floats) -> Floats:
    """Return the probability that the true number is at most each of ``numbers``; candidates are the last axis."""
    below: Floats = (ndtr((np.log(numbers + 0.5) - centre) / deviation) * weight).sum(-1)
    return below


@dataclass(frozen=True)
class NumberExample:
    """A task of which the number of categories is known."""

    scores: Floats
    clusters: Sequence[int]
    true: int
    expected_ari: float = USUAL_ARI
    """Of the candidate that was taken, by the probabilities of pairs."""


@dataclass(frozen=True, eq=False)
class Tasks:
    """Several tasks side by side; of fewer candidates, the others have a score of minus infinity."""

    scores: Floats
    clusters: Floats
    true: Floats
    expected_ari: Floats

    @classmethod
    def of(cls, examples: Sequence[NumberExample]) -> Tasks:
        longest = max(len(one.scores) for one in examples)
        scores, clusters = np.full((len(examples), longest), -np.inf), np.ones((len(examples), longest))
        for place, one in enumerate(examples):
            scores[place, : len(one.scores)], clusters[place, : len(one.clusters)] = one.scores, one.clusters
        true, expected = ([getattr(one, name) for one in examples] for name in ("true", "expected_ari"))
        return cls(scores, clusters, np.array(true, np.float64), np.array(expected, np.float64))


def fit_numbers(examples: Sequence[NumberExample]) -> NumberModel:
    """Return the model of the number of clusters that makes the true numbers most probable."""
    start = np.array(NumberModel().values)
    if not examples:
        return NumberModel()
    tasks = Tasks.of(examples)

    def loss(values: Floats) -> float:
        # A weak pull towards no change, for few tasks.
        prior = 0.5 * float(np.square((values - start) / SPREAD).sum())
        return prior - float(NumberModel.of(values.tolist()).log_likelihoods(tasks).sum())

    found = minimize(loss, start, method="L-BFGS-B", bounds=[(-LARGEST, LARGEST)] * len(start))
    return NumberModel.of(found.x.tolist())


SPREAD = np.array([1.0, 0.5, 2.0, 1.0, 1.0, 0.5, 2.0])
"""Of the logs and slopes, before any task is seen."""
LARGEST = 5.0
"""No log or slope is larger, or a file holds it no more."""


def shifted(probabilities: Mapping[int, float], by: int) -> dict[int, float]:
    """Return the distribution of a number that is larger by ``by``, and at least 1.

    >>> shifted({1: 0.25, 2: 0.75}, 1), shifted({1: 0.25, 2: 0.75}, -1)
    ({2: 0.25, 3: 0.75}, {1: 1.0})
    """
    found: dict[int, float] = {}
    for number, probability in probabilities.items():
        number = max(1, number + by)
        found[number] = found.get(number, 0.0) + probability
    return found


def interval(probabilities: Mapping[int, float], level: float = 0.9) -> tuple[int, int]:
    """Return the interval of the number of clusters whose probability is nearest to ``level``.

    Intervals grow from the most probable number, each time on the side that is more probable.

    >>> interval({3: 0.04, 4: 0.5, 5: 0.42, 6: 0.04})
    (4, 5)
    """
    numbers = sorted(probabilities)
    first = last = numbers.index(max(numbers, key=lambda number: (probabilities[number], -number)))
    reached = probabilities[numbers[first]]
    best, off = (first, last), abs(reached - level)

    def beside(place: int, step: int) -> float:
        """The probability of the number beside a place in either direction: 0 where it is left out, -1 at the end."""
        if not 0 <= place + step < len(numbers):
            return -1.0
        return probabilities[numbers[place + step]] if numbers[place + step] == numbers[place] + step else 0.0

    # From one number that has a probability to the next: between them may be very many that have none.
    while first > 0 or last < len(numbers) - 1:
        if beside(first, -1) >= beside(last, 1):
            first -= 1
            reached += probabilities[numbers[first]]
        else:
            last += 1
            reached += probabilities[numbers[last]]
        if abs(reached - level) < off:
            best, off = (first, last), abs(reached - level)
    return numbers[best[0]], numbers[best[1]]
