"""Finding the clusters of rows: several starts, and rows that count as much as they did in training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust.data.streams import ArrayStream
from metaclust.inference.calibrate import figures_of
from metaclust.inference.candidates import STEPS, Candidate, candidate_numbers, find_candidates
from metaclust.inference.merging import merged
from metaclust.inference.result import Start
from metaclust.mixture import Posterior
from metaclust.mixture.blocks import Map
from metaclust.mixture.components import Components
from metaclust.mixture.fit import StreamRows
from metaclust.mixture.posterior import with_tensors
from metaclust.mixture.step import score_weights
from metaclust.mixture.streaming import BlockMixture, block_steps, first_memo
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.selector import Choice

CHOOSING_ROWS = 5000
"""The most rows among which the learned choice compares candidates."""
ROUNDS = 3
"""How often the weight of a row is found again from the number of clusters."""


@dataclass(frozen=True)
class Search:
    """How clusters are looked for."""

    max_clusters: int
    min_cluster_size: int = 1
    restarts: int = 10
    """Starts from seeds: in all, or for each number of clusters where these are candidates to choose from."""
    effective_rows: float | None = 20.0
    seed: int = 0
    choose: Literal["auto", "learned", "bound"] = "auto"
    """By the model's learned choice or by the bound; "auto" by what was learned, where the model has learned it."""


@dataclass(frozen=True)
class Found:
    """Clusters of rows, numbered by size."""

    labels: NDArray[np.int64]
    confidence: NDArray[np.float64]
    components: Components
    bound: float
    starts: tuple[Start, ...]
    weight: float
    """How much each row counted."""


def find_clusters(
    model: ClusteringModel, z: NDArray[np.float32], search: Search, advance: Callable[[], object] = lambda: None
) -> Found:
    """The clusters of representations ``z``; ``advance`` is called after each start.

    No category is exactly Gaussian, and the more rows there are, the more evidence there is of it: large clusters
    would fall apart. So a row of many counts as less than one (the likelihood is raised to a power, as in Miller and
    Dunson, Robust Bayesian inference via coarsening, 2019): such that a cluster counts, in the mean, as
    ``effective_rows`` rows, about as many as in training. How many clusters there are is not known before: the weight
    is found in rounds.
    """
    choice = learned_choice(model, search)
    if model.config.learn_prior and model.config.inference == "vb":
        return choose_clusters(model, choice, z, search, advance)
    rows = torch.from_numpy(z).to(model.device)

    def once(weight: float) -> Found:
        ends = model.ends(
            rows,
            starts=search.restarts,
            max_clusters=search.max_clusters,
            generator=torch.Generator().manual_seed(search.seed),
            weight=weight,
        )
        posteriors = []
        for end in ends:
            posteriors.append(end)
            advance()
        return clusters_of(posteriors, z, search.min_cluster_size, weight)

    # Maximum likelihood has no prior that the evidence of many rows could outweigh.
    if search.effective_rows is None or model.config.inference == "em":
        return once(1.0)
    # Between two clusters and as many as there may be.
    guess = (2 * search.max_clusters) ** 0.5
    weight = min(1.0, search.effective_rows * guess / len(z))
    found = once(weight)
    for _ in range(ROUNDS - 1):
        better = min(1.0, search.effective_rows * len(found.components.weights) / len(z))
        if abs(better - weight) <= 0.05 * weight:
            break
        weight = better
        found = once(weight)
    return found


def learned_choice(model: ClusteringModel, search: Search) -> Choice | None:
    """The learned choice, if it is to choose."""
    if search.choose == "learned" and model.choice is None:
        raise ValueError("choose='learned': this model has not learned to choose; use choose='bound'")
    return None if search.choose == "bound" else model.choice


def choose_clusters(
    model: ClusteringModel,
    choice: Choice | None,
    z: NDArray[np.float32],
    search: Search,
    advance: Callable[[], object] = lambda: None,
) -> Found:
    """Candidates for many numbers of clusters, then for all near the best; the best by the choice, or by the bound.

    Where the bound chooses, clusters of the best are merged that the bound prefers merged.
    Of very many rows a sample chooses, and the inference goes on from its clusters with all rows.
    """
    mean = z.mean(0, dtype=np.float64)
    chosen = np.arange(len(z))
    if len(z) > CHOOSING_ROWS:
        generator = np.random.default_rng([search.seed, 0x5A3])
        chosen = np.sort(generator.choice(len(z), CHOOSING_ROWS, replace=False))
    sample = z[chosen] - mean
    best, starts = choose_among(model, choice, sample, search, advance)
    weight, components = best.weight, Components.of(best.posterior)
    if len(sample) < len(z):
        weight *= len(sample) / len(z)  # A cluster counts as much as it did in the sample.
        components = with_all_rows(model, z, mean, best)
        advance()
    components = replace(components, means=components.means + mean)
    return found_with(components, z, search.min_cluster_size, best.bound, starts, weight)


def choose_among(
    model: ClusteringModel,
    choice: Choice | None,
    sample: NDArray[np.float64],
    search: Search,
    advance: Callable[[], object] = lambda: None,
) -> tuple[Candidate, tuple[Start, ...]]:
    """The best clustering of some rows, which lie around zero, and all that were compared."""
    numbers = candidate_numbers(min(search.max_clusters, len(sample)))
    tried: list[Candidate] = []
    weight = None
    for _ in range(2):
        tried += find_candidates(
            model,
            sample,
            numbers,
            effective_rows=search.effective_rows,
            seed=search.seed,
            weight=weight,
            restarts=search.restarts,
        )
        weight = tried[0].weight
        bounds = np.array([candidate.bound for candidate in tried])
        scores = bounds if choice is None else choice.scores(figures_of(model, sample, tried))
        advance()
        best = tried[int(scores.argmax())]
        numbers = untried_near(len(np.unique(best.labels)), numbers)
        if not numbers:
            break
    if choice is None:
        best = merged(model, sample, best)
    starts = tuple(
        Start(len(np.unique(candidate.labels)), candidate.bound, None if choice is None else float(score))
        for candidate, score in zip(tried, scores, strict=True)
    )
    return best, starts


@torch.no_grad()
def with_all_rows(
    model: ClusteringModel, z: NDArray[np.float32], mean: NDArray[np.float64], best: Candidate
) -> Components:
    """Where the inference goes from a sample's clusters when it sees all rows, in blocks: around their mean."""
    mixture, *start = inference_from(model, torch.from_numpy(mean), best)
    passes = StreamRows(ArrayStream(z)).passes(mixture, z.shape[1], None)
    end, _ = next(islice(block_steps(passes, first_memo(passes, *start)), STEPS - 1, None))
    return Components.of_parameters(mixture.family, end.parameters, end.sticks)


@torch.no_grad()
def inference_from(model: ClusteringModel, mean: Tensor, best: Candidate) -> tuple[BlockMixture, Tensor, Any]:
    """How it goes on from the clusters of a sample; the score weights and parameters that it starts from."""
    start, family = (with_tensors(value, Tensor.cpu) for value in (best.posterior, model.family_of(best.width)))
    centring = Map(mean, torch.ones((), dtype=torch.float64))
    mixture = BlockMixture(family, centring, model.alpha.cpu().double())
    return mixture, score_weights(family, start.parameters, start.sticks), start.parameters


def untried_near(number: int, numbers: Sequence[int]) -> list[int]:
    """The numbers between the one that was found and those that were tried before and after it.

    >>> untried_near(14, [1, 2, 12, 14, 17, 20])
    [13, 15, 16]
    """
    below = max((other for other in numbers if other < number), default=number)
    above = min((other for other in numbers if other > number), default=number)
    return [other for other in range(below + 1, above) if other not in numbers]


def clusters_of(
    posteriors: Sequence[Posterior], z: NDArray[Any], min_cluster_size: int = 1, weight: float = 1.0
) -> Found:
    """The end with the best bound, its empty clusters left out.

    Clusters of fewer than ``min_cluster_size`` rows are dissolved, the smallest first: their rows go where they are
    next most probable.
    """
    bounds = [float(posterior.exact_bound) for posterior in posteriors]
    starts = tuple(
        Start(int(posterior.assignments.argmax(-1).unique().numel()), bound)
        for posterior, bound in zip(posteriors, bounds, strict=True)
    )
    best = Components.of(posteriors[int(np.argmax(bounds))])
    return found_with(best, z, min_cluster_size, max(bounds), starts, weight)


def found_with(
    components: Components,
    z: NDArray[Any],
    min_cluster_size: int,
    bound: float,
    starts: tuple[Start, ...],
    weight: float,
) -> Found:
    """The rows in these clusters, without those that are empty or too small; numbered by size."""
    labels, confidence = np.empty(0, np.int64), np.empty(0)

    def count(now: Components) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        nonlocal labels, confidence
        labels, confidence = now.assigned(z)
        return sizes_of(labels, len(now.weights))

    components, order, counted = by_size(components, min_cluster_size, count)
    if len(order) == counted:
        labels = np.argsort(order)[labels]
    else:
        # Without those that are empty, rows are a little surer.
        labels, confidence = components.assigned(z)
    return Found(labels, confidence, components, bound, starts, weight)


def sizes_of(labels: NDArray[np.int64], clusters: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many rows each cluster has, and the first of them; the number of rows for a cluster without any."""
    first = np.full(clusters, len(labels))
    np.minimum.at(first, labels, np.arange(len(labels)))
    return np.bincount(labels, minlength=clusters), first


def by_size(
    components: Components,
    least: int,
    count: Callable[[Components], tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[Components, NDArray[np.int64], int]:
    """The clusters that have rows, the largest first, those of fewer than ``least`` rows dissolved, the smallest first.

    ``count`` goes through the rows: their sizes and first rows, see :func:`sizes_of`. Also given are the places of the
    clusters among those that were counted last, and how many these were.
    """
    while True:
        sizes, first = count(components)
        # Those without rows go together: no row has to find another.
        kept = np.flatnonzero(sizes)
        if len(kept) == 1 or sizes[kept].min() >= least:
            # Of the same size by the first row.
            order = kept[np.lexsort((first[kept], -sizes[kept]))]
            return components.take(order), order, len(sizes)
        components = components.take(np.delete(kept, sizes[kept].argmin()))
