"""Candidate clusterings of rows: for each number of clusters, starts from which the mixture goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist
from sklearn.cluster import kmeans_plusplus
from torch import Tensor

from metaclust.mixture import Posterior
from metaclust.mixture.posterior import one_task
from metaclust.mixture.seeding import EMPTY
from metaclust.model.clustering_model import ClusteringModel

Labels = NDArray[np.int64]
Floats = NDArray[np.float64]

WARD_ROWS = 4000
"""Ward's method looks at all pairs: of more rows than this, at a sample, and the others go to the nearest centre."""
STEPS = 20
"""Steps of inference from each start."""
ROUNDS = 6
"""How often at most the weight of a row is found again from the number of clusters."""
WIDTH_ROWS = 20.0
"""As how many rows the width counts that the model expects of clusters, against that of a start's own clusters."""
ALL_UP_TO = 12
BATCH = 30_000_000
"""The most numbers in the assignments of all starts that go through the inference together."""


@dataclass(frozen=True)
class Starts:
    """Labels from which the inference starts."""

    every: list[Labels]
    limit: int
    """The largest number of clusters that was asked for."""


@dataclass(frozen=True)
class Candidate:
    """Where the inference went from one start."""

    labels: Labels
    bound: float
    weight: float
    """How much each row counts in the bound."""
    width: float
    """How wide clusters were expected to be, against the model's prior."""
    ends: Posterior
    """Where it and others went, side by side."""
    place: int
    """Which of them it is."""

    @property
    def posterior(self) -> Posterior:
        """Its own, apart from the others."""
        own: Posterior = one_task(self.ends, self.place)
        return own


def centred(z: Floats) -> Floats:
    """Rows around their mean: where in space the rows of a task lie says nothing about their clusters."""
    around: Floats = z - z.mean(0)
    return around


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

    In the inference every row counts. In the bounds of all candidates, so that they compare, a row counts the same, as
    less than one: ``weight``, or such that a cluster counts, in the mean, as ``effective_rows`` rows (see
    :func:`metaclust.inference.search.find_clusters`). How many clusters there are is not known before: the weight is
    found in rounds.
    """
    return candidates_from(model, z, find_starts(z, numbers, seed, restarts), effective_rows, weight)


def find_starts(z: Floats, numbers: Sequence[int], seed: int = 0, restarts: int = 1) -> Starts:
    """For each number of clusters Ward's start and ``restarts`` others from seeds."""
    generator = np.random.default_rng([seed, 0xCA7])
    numbers = sorted({min(number, len(z)) for number in numbers})
    wards = ward_starts(z, numbers, generator)
    seeded = [labels for _ in range(restarts) for labels in seeded_starts(z, numbers, generator)]
    return Starts(different([*wards, *seeded]), numbers[-1])


def candidates_from(
    model: ClusteringModel, z: Floats, starts: Starts, effective_rows: float | None, weight: float | None = None
) -> list[Candidate]:
    """As :func:`find_candidates`, from starts that are there."""
    ends = ends_of(model, z, starts.every)
    labels = [end.labels for end in ends]
    if weight is None:
        weight, bounds = common_weight(model, z, labels, starts.limit, effective_rows)
    else:
        bounds = bounds_of(model, z, labels, weight)
    return [replace(end, bound=bound, weight=weight) for end, bound in zip(ends, bounds, strict=True)]


def ends_of(model: ClusteringModel, z: Floats, starts: Sequence[Labels]) -> list[Candidate]:
    """Where each start leads when every row counts, in the order of their numbers of clusters; each partition once."""
    found: dict[bytes, Candidate] = {}
    for group in groups(starts):
        ends, widths = steps_from(model, z, [starts[place] for place in group], 1.0, STEPS)
        hard = ends.assignments.argmax(-1).cpu().numpy()
        bounds = ends.exact_bound.cpu().tolist()
        for place, labels in enumerate(hard):
            labels = in_order(labels)
            end = Candidate(labels, bounds[place], 1.0, widths[place], ends, place)
            found.setdefault(labels.tobytes(), end)
    return list(found.values())


def common_weight(
    model: ClusteringModel, z: Floats, clusterings: Sequence[Labels], limit: int, effective_rows: float | None
) -> tuple[float, list[float]]:
    """The weight at which the best, by the bound, has clusters of ``effective_rows`` rows in the mean; and the bounds.

    Where there are several, the largest: few clusters make a row count little, and then few are seen.
    """
    if effective_rows is None:
        return 1.0, bounds_of(model, z, clusterings, 1.0)
    number = limit
    for _ in range(ROUNDS):
        weight = min(1.0, effective_rows * number / len(z))
        bounds = bounds_of(model, z, clusterings, weight)
        found = int(clusterings[int(np.argmax(bounds))].max()) + 1
        if found >= number:
            break
        number = found
    return weight, bounds


def bounds_of(model: ClusteringModel, z: Floats, clusterings: Sequence[Labels], weight: float) -> list[float]:
    """The bound of the evidence of each, where each row counts as ``weight`` rows."""
    bounds = [0.0] * len(clusterings)
    for group in groups(clusterings):
        ends, _ = steps_from(model, z, [clusterings[place] for place in group], weight, 1)
        for place, bound in zip(group, ends.exact_bound.cpu().tolist(), strict=True):
            bounds[place] = bound
    return bounds


def steps_from(
    model: ClusteringModel, z: Floats, group: Sequence[Labels], weight: float, steps: int
) -> tuple[Posterior, list[float]]:
    """Some steps from each of the labels, side by side; and how wide clusters were expected to be."""
    rows = torch.from_numpy(z).to(model.device)
    clusters = max(int(labels.max()) + 1 for labels in group)
    logits = torch.stack([start_logits(labels, clusters) for labels in group]).to(rows)
    widths = [own_width(z, labels, model.expected_variance) for labels in group]
    weights = torch.full((len(group),), weight, dtype=rows.dtype, device=rows.device)
    expanded = rows.expand(len(group), *rows.shape)
    return model.from_starts(expanded, logits, steps, weights, torch.tensor(widths).to(weights)), widths


def own_width(z: Floats, labels: Labels, expected: float) -> float:
    """The variance within the clusters of a start against the expected one, which counts as ``WIDTH_ROWS`` rows."""
    order = np.argsort(labels, kind="stable")
    size = np.bincount(labels)
    sums = np.add.reduceat(z[order], np.concatenate(([0], np.cumsum(size)[:-1])))
    square = max(0.0, float(np.square(z).sum() - (np.square(sums).sum(1) / size).sum()))
    return (WIDTH_ROWS + square / expected) / (WIDTH_ROWS + len(z) - len(size))


def different(starts: Sequence[Labels]) -> list[Labels]:
    """Each partition once; labels are numbered from 0 in the order of their first row."""
    known = {labels.tobytes(): labels for labels in map(in_order, starts)}
    return list(known.values())


def in_order(labels: Labels) -> Labels:
    """The same partition, numbered from 0 in the order of the first row of each cluster."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def groups(clusterings: Sequence[Labels]) -> list[list[int]]:
    """Which of them go through the inference together: of similar numbers of clusters, and not too many."""
    numbers = [int(labels.max()) + 1 for labels in clusterings]
    result: list[list[int]] = []
    for place in np.argsort(numbers, kind="stable").tolist():
        size = numbers[place] * len(clusterings[place])
        if result and size * (len(result[-1]) + 1) <= BATCH and numbers[place] <= 2 * numbers[result[-1][0]] + 8:
            result[-1].append(place)
        else:
            result.append([place])
    return result


def start_logits(labels: Labels, clusters: int) -> Tensor:
    logits = torch.full((len(labels), clusters), EMPTY, dtype=torch.float64)
    logits[torch.arange(len(labels)), torch.from_numpy(labels)] = 0
    return logits
