"""Clusters of rows wherever they are: in memory, in blocks of very many, on shards.

Of very many rows a sample is clustered; from its clusters the inference goes on with all rows, in blocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from metaclust.data.inputs import canonical_order
from metaclust.data.rows import DataError, DataWarning
from metaclust.data.sparse import SparseRows
from metaclust.data.streams import ArrayStream
from metaclust.data.survey import Moments, Survey
from metaclust.inference.confidence import ClusterFacts, Confidence, cluster_facts
from metaclust.inference.continued import Hooks, Mixture, with_all_rows
from metaclust.inference.features import evidence_of, mean_ari, merge_probabilities, pairs_of
from metaclust.inference.links import Links
from metaclust.inference.numbers import interval
from metaclust.inference.pipeline import Pipeline, Search, Selection, pipeline_for
from metaclust.inference.regions import REGION_ROWS, Part, at_most, clustered_regions, divided, sum_of_numbers
from metaclust.inference.result import Start
from metaclust.inference.select import LearnedSelector
from metaclust.inference.settle import Known, Settled, settled, sizes_of
from metaclust.inference.stages import Sample, Selector
from metaclust.mixture.components import Components
from metaclust.mixture.outcome import check_components
from metaclust.mixture.rows import FitRows, StreamRows
from metaclust.mixture.state import FitState
from metaclust.model.clustering_model import ClusteringModel

SAMPLE_ROWS = 4000
"""The most rows among which candidates are compared."""
MANY_ROWS = 60_000
"""The most rows that are divided into regions, where there may be many clusters."""
ROWS_OF_A_CLUSTER, TIMES_AS_MANY = 50, 2
"""Where a sample may have fewer rows of a cluster, on average, and there are so many times as many rows, regions are
clustered one by one."""

Counter = Callable[[Components], tuple[NDArray[np.int64], NDArray[np.int64]]]
"""Goes through the rows: the size of each cluster and its first row, see :func:`sizes_of`."""


@dataclass(frozen=True)
class Found:
    """Clusters of rows, the largest first."""

    components: Components
    bound: float
    starts: tuple[Start, ...]
    weight: float
    """How much each row counted when candidates were compared."""
    selected_by: str
    k_probabilities: dict[int, float] = field(default_factory=dict)
    """The probability of each number of clusters; empty where the bound selects."""
    confidence: Confidence | None = None
    """What assigns rows with a calibrated confidence; None where the bound selects."""
    passes: int = 0
    """How many passes over all rows the inference took, beyond the sample."""
    describe: Callable[[Components], Confidence | None] = lambda components: None
    """Tells what assigns rows to other clusters of the same rows with a calibrated confidence."""

    def assigned(self, z: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the cluster and the confidence of each row."""
        return (self.confidence or self.components).assigned(z)


@dataclass(frozen=True)
class MemoryRows(StreamRows):
    """Rows in memory, of which the sample is all, where there are not too many."""

    links: Links | None = None
    """Which rows have to be together or apart."""

    def survey(self, most: int, seed: int, moments: Moments = "mean") -> Survey:
        z = np.asarray(self.stream.values)  # type: ignore[attr-defined]
        if len(z) > most:
            return super().survey(most, seed, moments)
        count = torch.ones(len(z), dtype=torch.float64)
        empty = torch.zeros(z.shape[1], dtype=torch.float64)
        mean = torch.from_numpy(z.mean(0, dtype=np.float64))
        return Survey(len(z), float(len(z)), mean, empty, torch.from_numpy(z), count)


def find_clusters(
    model: ClusteringModel, rows: FitRows, search: Search, count: Counter, hooks: Hooks | None = None
) -> Found:
    """Find the clusters of representations, and how many there are.

    ``count`` goes through all rows; clusters of fewer than ``search.min_cluster_size`` rows are dissolved, the smallest
    first, and their rows go where they are next most probable.
    """
    hooks = hooks or Hooks()
    state = hooks.state or FitState(rows.survey(SAMPLE_ROWS, search.seed))
    if hooks.state is None:
        hooks.save(state)
    pipeline = pipeline_for(model, search)
    sample = drawn_sample(pipeline, state.survey, rows)
    limit = search.limit(model)
    if len(sample) <= SAMPLE_ROWS:
        hooks.phase("select")
        part = Part(sample, pipeline(model, sample, limit, search.seed, hooks.advance))
        if may_be_many(model, pipeline.select, part, state.survey.rows, limit):
            state = FitState(rows.survey(MANY_ROWS, search.seed))
            hooks.save(state)
            sample = drawn_sample(pipeline, state.survey, rows)
    seen = state.survey
    if len(sample) <= SAMPLE_ROWS:
        parts, best = [part], part.selection.best
        components, bound, weight, passes = Components.of(best.posterior), best.bound, best.weight, 0
        starts = starts_of(part.selection, pipeline.select.name)
        start = Mixture.of(model, best) if len(sample) < seen.rows and best.posterior.sticks is not None else None
    else:
        parts, start = found_in_regions(model, pipeline, sample, search.seed, limit, hooks)
        starts, weight = (), 1.0
    if start is not None:
        weight *= len(sample) / seen.rows  # A cluster counts as much as it did in the sample.
        components, bounds = with_all_rows(model, rows, state, start, sample.mean, hooks)
        bound, passes = bounds[-1], len(bounds)
    components = replace(components, means=components.means + sample.mean)
    check_components(components, bound, rows.name)
    hooks.phase("sizes")
    components = by_size(components, search.min_cluster_size, count)
    numbers = probabilities_of_numbers(model, pipeline, parts)
    confidence = confidence_of(model, pipeline, parts, components)
    name = pipeline.select.name

    def describe(others: Components) -> Confidence | None:
        return confidence_of(model, pipeline, parts, others)

    starts = starts or (Start(len(components.weights), bound, None, True),)
    return Found(components, bound, starts, weight, name, numbers, confidence, passes, describe)


def drawn_sample(pipeline: Pipeline, seen: Survey, rows: FitRows) -> Sample:
    """Return the rows of a survey's sample, in an order that depends on the rows alone."""
    drawn = np.repeat(seen.sample.numpy(), seen.sample_weights.long().numpy(), axis=0)
    links = rows.links if isinstance(rows, MemoryRows) else None
    if len(drawn) < seen.rows or not isinstance(rows, MemoryRows):
        drawn = drawn[canonical_order(drawn.astype(np.float32))]
        if links is not None:
            links = links.of_rows(drawn, np.asarray(rows.stream.values))  # type: ignore[attr-defined]
    return pipeline.sample(drawn, seen.mean.double().numpy(), links)


def may_be_many(model: ClusteringModel, select: Selector, part: Part, rows: int, limit: int | None) -> bool:
    """Return whether there may be more clusters than a sample of the rows shows."""
    if not isinstance(select, LearnedSelector) or rows < TIMES_AS_MANY * len(part.sample):
        return False
    found = part.selection.best.clusters
    if limit is not None and found >= limit:
        return False
    most = max(found, interval(number_probabilities(model, select, part))[1])
    return most * ROWS_OF_A_CLUSTER > len(part.sample)


def found_in_regions(
    model: ClusteringModel, pipeline: Pipeline, sample: Sample, seed: int, limit: int | None, hooks: Hooks
) -> tuple[list[Part], Mixture]:
    """Cluster regions one by one; return them, and all their clusters as one mixture, of as many as allowed."""
    select = pipeline.select
    assert isinstance(select, LearnedSelector)  # noqa: S101 - for mypy
    generator = np.random.default_rng([seed, 0x2E6])
    some = np.sort(generator.choice(len(sample), SAMPLE_ROWS, replace=False))
    regions = divided(model, select, sample, some, REGION_ROWS)
    parts, labels = clustered_regions(model, pipeline, sample, regions, SAMPLE_ROWS, seed, hooks.phase, hooks.advance)
    return parts, Mixture.of_labels(model, sample, at_most(sample.z, labels, limit))


def number_probabilities(model: ClusteringModel, select: LearnedSelector, part: Part) -> dict[int, float]:
    """Return the probabilities of numbers of clusters of some rows."""
    evidence, selection = evidence_of(model, part.sample), part.selection
    numbers = [candidate.clusters for candidate in selection.candidates]
    chosen = selection.candidates[selection.place].labels
    expected = mean_ari(pairs_of(evidence, merge_probabilities(evidence, select.network), chosen))
    return select.numbers.probabilities(selection.scores, numbers, len(part.sample), expected)


def probabilities_of_numbers(model: ClusteringModel, pipeline: Pipeline, parts: Sequence[Part]) -> dict[int, float]:
    """Return the probabilities of numbers of clusters; none where the bound selects."""
    select = pipeline.select
    if not isinstance(select, LearnedSelector):
        return {}
    return sum_of_numbers([number_probabilities(model, select, part) for part in parts])


def confidence_of(
    model: ClusteringModel, pipeline: Pipeline, parts: Sequence[Part], components: Components
) -> Confidence | None:
    """Return what assigns rows to clusters with a calibrated confidence; None where the bound selects."""
    select = pipeline.select
    if not isinstance(select, LearnedSelector):
        return None
    described = [described_clusters(model, select, part, components) for part in parts]
    # What is known of a cluster is known from where most of its rows are.
    owner = np.argmax([sizes for _, sizes in described], 0)
    clusters = np.arange(len(owner))
    facts = ClusterFacts(
        *(
            np.stack([getattr(facts, name) for facts, _ in described])[owner, clusters]
            for name in ("features", "mean_square", "deviation")
        )
    )
    return Confidence(components, facts, select.network, model.expected_variance)


def described_clusters(
    model: ClusteringModel, select: LearnedSelector, part: Part, components: Components
) -> tuple[ClusterFacts, NDArray[np.int64]]:
    """Return what the rows of a part tell of clusters, and how many of them each cluster has."""
    evidence, selection = evidence_of(model, part.sample), part.selection
    placed = components.placed(part.sample.z + part.sample.mean)
    facts = cluster_facts(
        evidence,
        merge_probabilities(evidence, select.network),
        placed,
        len(components.weights),
        [candidate.labels for candidate in selection.candidates],
        softmax(selection.scores),
    )
    return facts, np.bincount(placed.labels, minlength=len(components.weights))


def starts_of(selection: Selection, selected_by: str) -> tuple[Start, ...]:
    """Return what is reported of each candidate."""
    scores: list[float | None] = [None] * len(selection.candidates)
    if selected_by == "learned":
        scores = selection.scores.tolist()
    return tuple(
        Start(candidate.clusters, candidate.bound, scores[place], place == selection.place)
        for place, candidate in enumerate(selection.candidates)
    )


def representations(model: ClusteringModel, x: Tensor | SparseRows, name: str) -> NDArray[np.float32]:
    """Encode prepared rows; ``name`` is what messages call them.

    Rows are encoded in an order that does not depend on the one given: sums in a matrix product depend on it in the
    last bit.
    """
    order = torch.from_numpy(canonical_order(x))
    z = np.empty((len(x), model.config.representation), np.float32)
    z[order.numpy()] = model.transform(x[order]).float().cpu().numpy()
    # Squares included, for distances are sums of them.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(np.square(z).sum(1))
    if not finite.all():
        raise DataError(
            f"{name}: row {int((~finite).argmax())} (counting from 0) is so far from the training rows that it has no "
            "finite representation: check its values"
        )
    return z


def cluster_array(
    model: ClusteringModel,
    z: NDArray[np.float32],
    search: Search,
    known: Known | None = None,
    links: Links | None = None,
    advance: Callable[[], object] = lambda: None,
) -> tuple[Found, Settled]:
    """Find the clusters of representations in memory, and settle which are known.

    Rows are taken in an order that depends on the rows alone: the clusters do not depend on the order they come in.
    """
    order = canonical_order(z)
    rows, links = z[order], None if links is None else links.take(order)
    known = Known.of(model, [], use=False) if known is None else known
    found = cluster_in_order(model, rows, search, advance, links)
    limit = search.limit(model)
    result = settled(model, rows, found, known, links, limit, search.min_cluster_size)
    return found, result.take(np.argsort(order))


def cluster_in_order(
    model: ClusteringModel,
    z: NDArray[np.float32],
    search: Search,
    advance: Callable[[], object] = lambda: None,
    links: Links | None = None,
) -> Found:
    """Find the clusters of representations in memory, taken in the order they come in."""

    def count(components: Components) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return sizes_of(components.assigned(z)[0], len(components.weights))

    return find_clusters(model, MemoryRows(ArrayStream(z), links=links), search, count, Hooks(advance=advance))


def by_size(components: Components, least: int, count: Counter) -> Components:
    """Return the clusters that have rows, the largest first; those of fewer than ``least`` rows are dissolved."""
    while True:
        sizes, first = count(components)
        # Those without rows go together: no row has to find another.
        kept = np.flatnonzero(sizes)
        if len(kept) == 1 or sizes[kept].min() >= least:
            # Of the same size by the first row.
            order = kept[np.lexsort((first[kept], -sizes[kept]))]
            return components.take(order)
        components = components.take(np.delete(kept, sizes[kept].argmin()))


def warn_if_all_are_used(found: int, limit: int | None, rows: int) -> None:
    if limit is not None and found == limit < rows:
        warnings.warn(
            f"all {limit} clusters are in use, so there may be more: pass a larger max_clusters, or 'auto'",
            DataWarning,
            stacklevel=3,
        )
