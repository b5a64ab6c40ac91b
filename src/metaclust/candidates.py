"""Candidate clusterings of rows: for each number of clusters, starts from which the mixture goes on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist
from sklearn.cluster import kmeans_plusplus
from torch import Tensor

from metaclust.mixture import Posterior
from metaclust.mixture.inference import one_task
from metaclust.model import EMPTY, ClusteringModel

Labels = NDArray[np.int64]
Floats = NDArray[np.float64]

WARD_ROWS = 4000
"""Ward's method looks at all pairs: of more rows than this, at a sample, and the others go to the nearest centre."""
STEPS = 20
"""Steps of inference from each start."""
FEW_STEPS = 5
"""Where it is only asked how many clusters there are about."""
ROUNDS = 3
"""How often the weight of a row is found again from the number of clusters."""
ALL_UP_TO = 12
BATCH = 30_000_000
"""The most numbers in the assignments of all starts that go through the inference together."""


@dataclass(frozen=True)
class Starts:
    """Labels from which the inference starts."""

    wards: list[Labels]
    """Those by Ward's method."""
    every: list[Labels]
    limit: int
    """The largest number of clusters that was asked for."""


@dataclass(frozen=True)
class Candidate:
    """Where the inference went from one start."""

    labels: Labels
    bound: float
    weight: float
    """How much each row counted."""
    ends: Posterior
    """Where it and others went, side by side."""
    place: int
    """Which of them it is."""

    @property
    def posterior(self) -> Posterior:
        """Its own, apart from the others."""
        own: Posterior = one_task(self.ends, self.place)
        return own


def candidate_numbers(limit: int) -> list[int]:
    """The numbers of clusters that are tried: all of the first, then each about an eighth more.

    >>> candidate_numbers(30)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 21, 24, 28, 30]
    """
    numbers = list(range(1, min(limit, ALL_UP_TO) + 1))
    while numbers[-1] < limit:
        numbers.append(min(limit, round(numbers[-1] * 1.125 + 0.5)))
    return numbers


def ward_starts(z: Floats, numbers: Sequence[int], generator: np.random.Generator) -> list[Labels]:
    """Labels by Ward's method, one for each number of clusters, from one tree."""
    if len(z) == 1:
        return [np.zeros(1, np.int64) for _ in numbers]
    sample = np.arange(len(z))
    if len(z) > WARD_ROWS:
        sample = np.sort(generator.choice(len(z), WARD_ROWS, replace=False))
    tree = linkage(z[sample], "ward")
    starts = []
    for number in numbers:
        cut = np.unique(fcluster(tree, number, "maxclust"), return_inverse=True)[1]
        if len(sample) < len(z):
            centres = np.stack([z[sample][cut == cluster].mean(0) for cluster in range(cut.max() + 1)])
            cut = nearest(z, centres)
        starts.append(cut.astype(np.int64))
    return starts


def seeded_starts(z: Floats, numbers: Sequence[int], generator: np.random.Generator) -> list[Labels]:
    """Labels by the nearest of k-means++ seeds, one for each number of clusters, from one sequence of seeds."""
    seeds, _ = kmeans_plusplus(z, min(max(numbers), len(z)), random_state=int(generator.integers(2**31)))
    labels, least = np.zeros(len(z), np.int64), np.full(len(z), np.inf)
    found = []
    for place, distance in enumerate(distances_to(z, seeds)):
        nearer = distance < least
        labels[nearer] = place
        least[nearer] = distance[nearer]
        found.append(labels.copy())
    return [found[min(number, len(seeds)) - 1] for number in numbers]


def distances_to(z: Floats, centres: Floats) -> Iterator[Floats]:
    """The squared distances of all rows to each of the centres."""
    squares = np.square(z).sum(1)
    for centre in centres:
        yield squares - 2 * (z @ centre) + centre @ centre


def nearest(z: Floats, centres: Floats, block: int = 100_000) -> Labels:
    parts = [cdist(z[start : start + block], centres, "sqeuclidean").argmin(1) for start in range(0, len(z), block)]
    return np.concatenate(parts)


def find_candidates(
    model: ClusteringModel,
    z: Floats,
    numbers: Sequence[int],
    *,
    effective_rows: float | None,
    seed: int = 0,
    weight: float | None = None,
    restarts: int = 1,
) -> list[Candidate]:
    """For each number of clusters from Ward's start and ``restarts`` others from seeds: what the inference makes of it.

    All rows have the same weight, so that the bounds of candidates compare: ``weight``, or such that a cluster counts,
    in the mean, as ``effective_rows`` rows (see :func:`metaclust.search.find_clusters`). How many clusters there are is
    not known before: the weight is found in rounds, from the candidates of Ward's method.
    """
    return candidates_from(model, z, find_starts(z, numbers, seed, restarts), effective_rows, weight)


def find_starts(z: Floats, numbers: Sequence[int], seed: int = 0, restarts: int = 1) -> Starts:
    """For each number of clusters Ward's start and ``restarts`` others from seeds."""
    generator = np.random.default_rng([seed, 0xCA7])
    numbers = sorted({min(number, len(z)) for number in numbers})
    wards = different(ward_starts(z, numbers, generator))
    seeded = [labels for _ in range(restarts) for labels in seeded_starts(z, numbers, generator)]
    return Starts(wards, different([*wards, *seeded]), numbers[-1])


def candidates_from(
    model: ClusteringModel, z: Floats, starts: Starts, effective_rows: float | None, weight: float | None = None
) -> list[Candidate]:
    """As :func:`find_candidates`, from starts that are there."""
    rows = torch.from_numpy(z).to(model.device)
    if weight is None:
        weight = common_weight(model, rows, starts.wards, starts.limit, effective_rows)
    return ends_of(model, rows, starts.every, weight, STEPS)


def common_weight(
    model: ClusteringModel, rows: Tensor, starts: Sequence[Labels], limit: int, effective_rows: float | None
) -> float:
    """The weight at which the best of the starts, by the bound, has clusters of ``effective_rows`` rows in the mean."""
    if effective_rows is None:
        return 1.0
    # Between two clusters and as many as there may be.
    weight = min(1.0, effective_rows * math.sqrt(2 * limit) / len(rows))
    for _ in range(ROUNDS):
        ends = ends_of(model, rows, starts, weight, FEW_STEPS)
        best = max(ends, key=lambda end: end.bound)
        better = min(1.0, effective_rows * len(np.unique(best.labels)) / len(rows))
        if abs(better - weight) <= 0.05 * weight:
            break
        weight = better
    return weight


def ends_of(
    model: ClusteringModel, rows: Tensor, starts: Sequence[Labels], weight: float, steps: int
) -> list[Candidate]:
    """Where each start leads, in the order of their numbers of clusters."""
    found: list[Candidate] = []
    for group in groups(starts, len(rows)):
        clusters = max(int(labels.max()) + 1 for labels in group)
        logits = torch.stack([start_logits(labels, clusters) for labels in group]).to(rows)
        weights = torch.full((len(group),), weight, dtype=rows.dtype, device=rows.device)
        ends = model.from_starts(rows.expand(len(group), *rows.shape), logits, steps, weights)
        hard = ends.assignments.argmax(-1).cpu().numpy()
        bounds = ends.exact_bound.cpu().tolist()
        found += [Candidate(labels, bounds[i], weight, ends, i) for i, labels in enumerate(hard)]
    return found


def different(starts: Sequence[Labels]) -> list[Labels]:
    """Each partition once; labels are numbered from 0 in the order of their first row."""
    known: dict[bytes, Labels] = {}
    for labels in starts:
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        renamed = np.argsort(np.argsort(first))[inverse]
        known.setdefault(renamed.tobytes(), renamed)
    return list(known.values())


def groups(starts: Sequence[Labels], rows: int) -> list[list[Labels]]:
    """Starts that go through the inference together: of similar numbers of clusters, and not too many."""
    result: list[list[Labels]] = []
    for labels in sorted(starts, key=lambda labels: int(labels.max())):
        clusters = int(labels.max()) + 1
        if (
            result
            and clusters * rows * (len(result[-1]) + 1) <= BATCH
            and clusters <= 2 * (result[-1][0].max() + 1) + 8
        ):
            result[-1].append(labels)
        else:
            result.append([labels])
    return result


def start_logits(labels: Labels, clusters: int) -> Tensor:
    logits = torch.full((len(labels), clusters), EMPTY, dtype=torch.float64)
    logits[torch.arange(len(labels)), torch.from_numpy(labels)] = 0
    return logits
