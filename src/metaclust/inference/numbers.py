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
NARROWEST = 0.02
WIDEST = 1.5
"""The smallest and the largest standard deviation of the log number of clusters."""


@dataclass(frozen=True)
class NumberModel:
    """How the scores of candidates become probabilities of numbers of clusters.

    Candidates are weighted by the softmax of their scores over ``temperature``. Around the number K of clusters of
    each, the log of the true number is normal with mean log K + ``shift`` and standard deviation ``deviation``.
    """

    temperature: float
    shift: float
    deviation: float

    def probabilities(self, scores: Floats, clusters: Sequence[int], rows: int) -> dict[int, float]:
        """Return the probability of each number of clusters that ``rows`` rows may have."""
        most = min(rows, int(np.ceil(max(clusters) * np.exp(abs(self.shift) + 4 * self.deviation))) + 1)
        cumulated = self.cumulated(scores, clusters, np.arange(1.0, most + 1))
        found = np.diff(cumulated, prepend=0.0)
        kept = np.flatnonzero(found >= min(LEAST, found.max()))
        total = found[kept].sum()
        return {int(place) + 1: float(found[place] / total) for place in kept}

    def cumulated(self, scores: Floats, clusters: Sequence[int], numbers: Floats) -> Floats:
        """Return the probability that the true number is at most each of ``numbers``."""
        weight = softmax(np.asarray(scores) / self.temperature)
        centre = np.log(np.asarray(clusters, np.float64)) + self.shift
        below = ndtr((np.log(numbers + 0.5)[:, None] - centre) / self.deviation)
        cumulated: Floats = below @ weight
        return cumulated

    def log_likelihood(self, scores: Floats, clusters: Sequence[int], true: int) -> float:
        """Return the log probability of the true number."""
        low, high = self.cumulated(scores, clusters, np.array([true - 1.0, float(true)]))
        return float(np.log(max(high - (low if true > 1 else 0.0), 1e-12)))


@dataclass(frozen=True)
class NumberExample:
    """A task of which the number of categories is known."""

    scores: Floats
    clusters: Sequence[int]
    true: int


def fit_numbers(examples: Sequence[NumberExample]) -> NumberModel:
    """Return the model of the number of clusters that makes the true numbers most probable."""

    def model(values: Floats) -> NumberModel:
        temperature, shift, deviation = values
        return NumberModel(
            float(np.exp(np.clip(temperature, -5, 5))),
            float(np.clip(shift, -1, 1)),
            float(np.clip(np.exp(deviation), NARROWEST, WIDEST)),
        )

    def loss(values: Floats) -> float:
        found = model(values)
        # A weak pull towards no change, for few tasks.
        prior = 0.5 * float(np.square(values - start).sum())
        return prior - sum(found.log_likelihood(one.scores, one.clusters, one.true) for one in examples)

    start = np.array([0.0, 0.0, np.log(0.15)])
    return model(minimize(loss, start, method="Nelder-Mead", options={"maxiter": 300}).x)


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
