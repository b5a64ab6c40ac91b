"""Clusters of rows wherever they are: in memory, in blocks of very many, on shards.

Of very many rows a sample is clustered; from its clusters the inference goes on with all rows, in blocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
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
from metaclust.inference.confidence import Confidence, cluster_facts
from metaclust.inference.features import evidence_of, mean_ari, merge_probabilities, pairs_of
from metaclust.inference.numbers import interval
from metaclust.inference.pipeline import Pipeline, Search, Selection, pipeline_for
from metaclust.inference.refine import STEPS
from metaclust.inference.result import Start
from metaclust.inference.select import LearnedSelector
from metaclust.inference.stages import Candidate, Floats, Sample
from metaclust.mixture.blocks import Map
from metaclust.mixture.components import Components
from metaclust.mixture.fit import BlockRefinement, PosteriorStart, fit_mixture
from metaclust.mixture.outcome import check_components
from metaclust.mixture.posterior import with_tensors
from metaclust.mixture.rows import FitRows, Progress, StreamRows
from metaclust.mixture.state import FitState
from metaclust.mixture.step import score_weights
from metaclust.mixture.streaming import BlockMixture
from metaclust.model.clustering_model import ClusteringModel

SAMPLE_ROWS = 4000
"""The most rows among which candidates are compared."""
MANY_ROWS = 12_000
"""The same, where there are many clusters."""
ROWS_OF_A_CLUSTER = 25
"""Where a sample may have fewer rows of a cluster, on average, a larger one is drawn."""

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

    def assigned(self, z: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the cluster and the confidence of each row."""
        return (self.confidence or self.components).assigned(z)


@dataclass(frozen=True)
class MemoryRows(StreamRows):
    """Rows in memory, of which the sample is all, where there are not too many."""

    def survey(self, most: int, seed: int, moments: Moments = "mean") -> Survey:
        z = np.asarray(self.stream.values)  # type: ignore[attr-defined]
        if len(z) > most:
            return super().survey(most, seed, moments)
        count = torch.ones(len(z), dtype=torch.float64)
        empty = torch.zeros(z.shape[1], dtype=torch.float64)
        mean = torch.from_numpy(z.mean(0, dtype=np.float64))
        return Survey(len(z), float(len(z)), mean, empty, torch.from_numpy(z), count)


@dataclass(frozen=True)
class Hooks:
    """What a search reports to, and where it is kept."""

    state: FitState | None = None
    """Where a run that was interrupted goes on."""
    save: Callable[[FitState], object] = lambda state: None
    progress: Progress | None = None
    advance: Callable[[], object] = lambda: None

    def phase(self, name: str) -> None:
        if self.progress is not None:
            self.progress.phase(name)


def find_clusters(
    model: ClusteringModel, rows: FitRows, search: Search, count: Counter, hooks: Hooks | None = None
) -> Found:
    """Find the clusters of representations, and how many there are.

    ``count`` goes through all rows; clusters of fewer than ``search.min_cluster_size`` rows are dissolved, the smallest
    first, and their rows go where they are next most probable.
    """
    hooks = hooks or Hooks()
    state = hooks.state or FitState(rows.survey(SAMPLE_ROWS, search.seed))
    pipeline = pipeline_for(model, search)
    if hooks.state is None:
        hooks.save(state)
    for larger in (MANY_ROWS, None):
        seen = state.survey
        drawn = np.repeat(seen.sample.numpy(), seen.sample_weights.long().numpy(), axis=0)
        if len(drawn) < seen.rows or not isinstance(rows, MemoryRows):
            drawn = drawn[canonical_order(drawn.astype(np.float32))]
        sample = pipeline.sample(drawn, seen.mean.double().numpy())
        hooks.phase("select")
        selection = pipeline(model, sample, search.limit(model), search.seed, hooks.advance)
        if larger is None or len(sample) >= min(larger, seen.rows):
            break
        most = selection.best.clusters
        if isinstance(pipeline.select, LearnedSelector):
            most = max(most, interval(number_probabilities(model, pipeline.select, sample, selection))[1])
        if most * ROWS_OF_A_CLUSTER <= len(sample):
            break
        state = FitState(rows.survey(larger, search.seed))
        hooks.save(state)
    best = selection.best
    components, bound, weight, passes = Components.of(best.posterior), best.bound, best.weight, 0
    if len(sample) < seen.rows and best.posterior.sticks is not None:
        weight *= len(sample) / seen.rows  # A cluster counts as much as it did in the sample.
        components, bounds = with_all_rows(model, rows, state, best, sample.mean, hooks)
        bound, passes = bounds[-1], len(bounds)
    components = replace(components, means=components.means + sample.mean)
    check_components(components, bound, rows.name)
    hooks.phase("sizes")
    components = by_size(components, search.min_cluster_size, count)
    numbers, confidence = certainty(model, pipeline, sample, selection, components)
    name = pipeline.select.name
    starts = starts_of(selection, name)
    return Found(components, bound, starts, weight, name, numbers, confidence, passes)


def number_probabilities(
    model: ClusteringModel, select: LearnedSelector, sample: Sample, selection: Selection
) -> dict[int, float]:
    """Return the probabilities of numbers of clusters of a sample."""
    evidence = evidence_of(model, sample)
    numbers = [candidate.clusters for candidate in selection.candidates]
    chosen = selection.candidates[int(selection.scores.argmax())].labels
    expected = mean_ari(pairs_of(evidence, merge_probabilities(evidence, select.network), chosen))
    return select.numbers.probabilities(selection.scores, numbers, len(sample), expected)


def certainty(
    model: ClusteringModel, pipeline: Pipeline, sample: Sample, selection: Selection, components: Components
) -> tuple[dict[int, float], Confidence | None]:
    """Return the probabilities of numbers of clusters, and what assigns rows with a calibrated confidence."""
    select = pipeline.select
    if not isinstance(select, LearnedSelector):
        return {}, None
    labels = [candidate.labels for candidate in selection.candidates]
    evidence = evidence_of(model, sample)
    facts = cluster_facts(
        evidence,
        merge_probabilities(evidence, select.network),
        components.placed(sample.z + sample.mean),
        len(components.weights),
        labels,
        softmax(selection.scores),
    )
    found = number_probabilities(model, select, sample, selection)
    return found, Confidence(components, facts, select.network, model.expected_variance)


def starts_of(selection: Selection, selected_by: str) -> tuple[Start, ...]:
    """Return what is reported of each candidate."""
    pairs = zip(selection.candidates, selection.scores.tolist(), strict=True)
    return tuple(
        Start(candidate.clusters, candidate.bound, score if selected_by == "learned" else None)
        for candidate, score in pairs
    )


@torch.no_grad()
def with_all_rows(
    model: ClusteringModel, rows: FitRows, state: FitState, best: Candidate, mean: Floats, hooks: Hooks
) -> tuple[Components, tuple[float, ...]]:
    """Go on from the clusters of a sample with all rows, in blocks; also return the bound after each pass."""
    start, family = (
        with_tensors(value, Tensor.cpu) for value in (best.posterior, model.family_of(best.variance_factor))
    )
    mixture = BlockMixture(
        family, Map(torch.from_numpy(mean), torch.ones((), dtype=torch.float64)), model.alpha.cpu().double()
    )
    initialise = PosteriorStart(score_weights(family, start.parameters, start.sticks), start.parameters)
    passes = rows.passes(mixture, len(mean), hooks.progress)
    # As many passes for any rows: clusters do not depend on when a bound has converged.
    end = fit_mixture(initialise, BlockRefinement(STEPS, tol=None), passes, state, hooks.save, hooks.phase)
    hooks.advance()
    return Components.of_parameters(family, end.parameters, end.sticks), end.bounds


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
    model: ClusteringModel, z: NDArray[np.float32], search: Search, advance: Callable[[], object] = lambda: None
) -> tuple[Found, NDArray[np.int64], NDArray[np.float64]]:
    """Find the clusters of representations in memory; also return the label and the confidence of each row.

    Rows are taken in an order that depends on the rows alone: the clusters do not depend on the order they come in.
    """
    found = cluster_in_order(model, z[canonical_order(z)], search, advance)
    return found, *found.assigned(z)


def cluster_in_order(
    model: ClusteringModel, z: NDArray[np.float32], search: Search, advance: Callable[[], object] = lambda: None
) -> Found:
    """Find the clusters of representations in memory, taken in the order they come in."""

    def count(components: Components) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return sizes_of(components.assigned(z)[0], len(components.weights))

    return find_clusters(model, MemoryRows(ArrayStream(z)), search, count, Hooks(advance=advance))


def sizes_of(labels: NDArray[np.int64], clusters: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many rows each cluster has, and the first of them (the number of rows where it has none)."""
    first = np.full(clusters, len(labels))
    np.minimum.at(first, labels, np.arange(len(labels)))
    return np.bincount(labels, minlength=clusters), first


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
