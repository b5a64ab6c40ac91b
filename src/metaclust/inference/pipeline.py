"""The pipeline that training, validation and prediction run: initialise, refine, select."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from metaclust.inference.initialise import (
    INITIALISERS,
    KMeansPlusPlusStarts,
    LearnedStart,
    TreeCuts,
    candidate_numbers,
    initial_assignments,
    untried_near,
)
from metaclust.inference.links import Links
from metaclust.inference.refine import AdaptiveRefinement, Refinement, weighted
from metaclust.inference.select import SELECTORS, BestBound, LearnedSelector
from metaclust.inference.stages import Candidate, Floats, Initial, Initialiser, Refiner, Sample, Selector
from metaclust.mixture.seeding import seed_numbers
from metaclust.model.clustering_model import ClusteringModel

CONVERGED_STEPS, CONVERGED_TOL = 200, 1e-5
"""Inference to convergence: at most so many steps, until the bound changes by less."""
PAPER_STARTS = 10
Proposed = TypeVar("Proposed", Initial, Candidate)
COMPARED_STEPS = 3
"""Steps of inference from each cut of a tree, before candidates are compared."""


@dataclass(frozen=True)
class Search:
    """How clusters are searched for."""

    max_clusters: int | None = None
    """The largest number of clusters; None for as many as there may be."""
    min_cluster_size: int = 1
    restarts: int | None = None
    """k-means++ starts for each number of clusters, beside those of trees; with the paper's prior, starts in all."""
    effective_rows: float | None = 20.0
    seed: int = 0
    choose: Literal["auto", "learned", "bound"] = "auto"
    """Select by the learned selector or by the bound; "auto" is "learned", but for the paper's prior."""

    @classmethod
    def of(cls, model: ClusteringModel, seed: int = 0) -> Search:
        """Return the search that a model ships with; before it has a selector, by the bound.

        The selector of the package needs to know how wide categories are, which is fitted after the training.
        """
        choose: Literal["auto", "bound"] = "bound" if model.choice is None else "auto"
        return cls(effective_rows=model.config.effective_rows, seed=seed, choose=choose)

    def limit(self, model: ClusteringModel) -> int | None:
        """Return the largest number of clusters; where the bound selects, it is never unlimited."""
        if self.max_clusters is None and (self.choose == "bound" or not selects_by_network(model)):
            return model.config.max_clusters
        return self.max_clusters


@dataclass(frozen=True)
class Selection:
    """The candidate that was selected, beside all that were compared."""

    best: Candidate
    candidates: tuple[Candidate, ...]
    scores: Floats
    place: int
    """Which of the candidates was selected."""


@dataclass(frozen=True)
class Pipeline:
    """The three stages, and which numbers of clusters are tried."""

    initialise: tuple[Initialiser, ...]
    refine: Refiner
    select: Selector
    effective_rows: float | None = None
    """As how many rows a cluster counts, on average, when bounds are compared; None counts every row."""
    numbers: Callable[[int], list[int]] = candidate_numbers
    """From the largest number of clusters to the numbers to try."""
    rounds: int = 1
    """With two, the numbers between the best one and its neighbours are tried, too."""
    centred: bool = False
    """Whether rows are taken around their mean, or where the encoder puts them."""

    def sample(self, z: NDArray[Any], mean: Floats | None = None, links: Links | None = None) -> Sample:
        """Return rows to cluster together; ``mean`` is that of more rows than these."""
        return Sample.of(z, mean if self.centred else np.zeros(z.shape[1]), links)

    def candidates(
        self, model: ClusteringModel, sample: Sample, numbers: Sequence[int], seed: int, weight: float | None = None
    ) -> list[Candidate]:
        """Initialise and refine: the candidate clusterings for some numbers of clusters."""
        initial = obeying(model, sample, initial_assignments(self.initialise, model, sample, numbers, seed))
        found = obeying(model, sample, self.refine(model, sample, initial))
        limit = min(max(numbers), len(sample))
        return weighted(self.refine, model, sample, found, self.effective_rows, weight, limit)

    def __call__(
        self,
        model: ClusteringModel,
        sample: Sample,
        max_clusters: int | None,
        seed: int = 0,
        advance: Callable[[], object] = lambda: None,
    ) -> Selection:
        """Run all three stages; ``advance`` is called after each round."""
        numbers = self.numbers(len(sample) if max_clusters is None else min(max_clusters, len(sample)))
        tried: list[Candidate] = []
        for _ in range(self.rounds):
            weight = tried[0].weight if tried else None
            tried += self.candidates(model, sample, numbers, seed, weight)
            scores = self.select.scores(model, sample, tried)
            place = self.select.choose(tried, scores)
            advance()
            numbers = untried_near(tried[place].clusters, numbers)
            if not numbers:
                break
        return Selection(self.select.finish(model, sample, tried[place], self.refine), tuple(tried), scores, place)


def obeying(model: ClusteringModel, sample: Sample, proposed: Sequence[Proposed]) -> list[Proposed]:
    """Return clusterings changed as far as links demand it, each partition once; soft ones are left as they are."""
    links = sample.links
    if links is None:
        return list(proposed)
    different: dict[bytes, Proposed] = {}
    for one in proposed:
        if isinstance(one, Candidate) or one.logits is None:
            one = replace(one, labels=links.obeyed(sample.z, one.labels, model.expected_variance))
        different.setdefault(one.labels.tobytes(), one)
    return list(different.values())


class UnlimitedPipeline(Pipeline):
    """Finds clusters as if there were no limit; only where there are more than allowed, it finds as many as allowed."""

    def __call__(
        self,
        model: ClusteringModel,
        sample: Sample,
        max_clusters: int | None,
        seed: int = 0,
        advance: Callable[[], object] = lambda: None,
    ) -> Selection:
        found = super().__call__(model, sample, None, seed, advance)
        if max_clusters is None or found.best.clusters <= max_clusters:
            return found
        return replace(found, best=self.as_many_as(model, sample, max_clusters, seed))

    def as_many_as(self, model: ClusteringModel, sample: Sample, max_clusters: int, seed: int = 0) -> Candidate:
        """Return the best candidate of those with as many clusters as allowed."""
        every = self.candidates(model, sample, [max_clusters], seed)
        # Rows that have to be apart may need more.
        least = max(max_clusters, min(one.clusters for one in every))
        fewer = [one for one in every if one.clusters <= least]
        most = max(candidate.clusters for candidate in fewer)
        fewer = [candidate for candidate in fewer if candidate.clusters == most]
        place = self.select.choose(fewer, self.select.scores(model, sample, fewer))
        return self.select.finish(model, sample, fewer[place], self.refine)


def selects_by_network(model: ClusteringModel) -> bool:
    """Return whether clusterings of a model may be selected by a network; the paper's are selected by the bound."""
    return model.config.learn_prior and model.config.inference == "vb"


def pipeline_for(model: ClusteringModel, search: Search | None = None) -> Pipeline:
    """Return the pipeline that a model ships with: the one that users get, and that validation selects weights by."""
    config = model.config
    search = search or Search.of(model)
    if not selects_by_network(model):
        rows = None if config.inference == "em" else search.effective_rows
        return paper_pipeline(search.restarts or PAPER_STARTS, effective_rows=rows)
    if search.choose == "bound":
        possible = [make(model, search.restarts or 1) for make in INITIALISERS.values()]
        starts = tuple(start for start in possible if start is not None)
        select = SELECTORS["bound"](model)
        return Pipeline(starts, AdaptiveRefinement(), select, search.effective_rows, rounds=2, centred=True)
    return learned_pipeline(model, LearnedSelector.for_model(model), search.restarts)


def learned_pipeline(model: ClusteringModel, select: LearnedSelector, restarts: int | None = None) -> Pipeline:
    """Return the pipeline in which a network proposes cuts of trees, and selects among what becomes of them."""
    starts: tuple[Initialiser, ...] = (TreeCuts(select.network, restarts or 0),)
    if (learned := LearnedStart.for_model(model, 1)) is not None:
        starts = (*starts, learned)
    return UnlimitedPipeline(starts, AdaptiveRefinement(COMPARED_STEPS), select, numbers=only, centred=True)


def only(limit: int) -> list[int]:
    """Return the one number that initialisers are given which find the numbers of clusters by themselves."""
    return [limit]


def paper_pipeline(
    starts: int = PAPER_STARTS,
    tol: float | None = CONVERGED_TOL,
    steps: int | None = None,
    effective_rows: float | None = None,
) -> Pipeline:
    """Return the paper's pipeline, from one or several starts, selected by the bound.

    The first start is the model's own (by its task network, or random), the others are k-means++ seeds, from as many as
    there may be clusters down to two. ``starts=1, tol=None, steps=T`` is Algorithm 1 as printed.
    """
    for name, value in (("starts", starts), ("steps", steps)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value!r}: it must be a whole number of 1 or more")
    refine = Refinement(CONVERGED_STEPS if steps is None else steps, tol)
    initialise: tuple[Initialiser, ...] = (LearnedStart(),)
    if starts > 1:
        initialise = (*initialise, KMeansPlusPlusStarts())
    return Pipeline(initialise, refine, BestBound(), effective_rows, partial(spread_numbers, starts=starts - 1))


def spread_numbers(limit: int, starts: int) -> list[int]:
    """Return the numbers of seeds of several starts, evenly from ``limit`` down to two."""
    return seed_numbers(limit, starts) or [limit]
