"""Second stage: inference from each of the initial assignments, many of them in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from metaclust.inference.groups import sums_of_clusters, sums_of_rows
from metaclust.inference.stages import Candidate, Floats, Initial, Labels, Refiner, Sample, in_order
from metaclust.mixture import Posterior
from metaclust.mixture.inference import Sums, features_of
from metaclust.mixture.posterior import without_rows
from metaclust.model.clustering_model import ClusteringModel

STEPS = 20
"""Steps of inference from each start."""
ROUNDS = 6
"""How often at most the weight of a row is found again from the number of clusters."""
PRIOR_ROWS = 20.0
"""As how many rows the variance expected by the prior counts, against that of a start's own clusters."""
BATCH = 30_000_000
"""The most numbers in the assignments of all starts that go through inference together."""
PADDING = 16_000
"""Of them, the most that fill up starts with fewer clusters for another start's sake: beyond it, a batch of its own
takes less time."""


@dataclass(frozen=True)
class Refinement:
    """Inference as the model's configuration has it: variational Bayes of the infinite mixture, or EM.

    With ``tol`` each start goes on until a step changes its bound by no more than ``tol`` times (rows + |bound|), for
    at most ``steps`` steps.
    """

    steps: int = STEPS
    tol: float | None = None

    def __call__(self, model: ClusteringModel, sample: Sample, initial: Sequence[Initial]) -> list[Candidate]:
        found: dict[bytes, Candidate] = {}
        for group in batches([start.clusters for start in initial], len(sample)):
            some = [initial[place] for place in group]
            ends, factors = self.run(model, sample, some, 1.0, self.steps, self.tol)
            bounds = ends.exact_bound.cpu().tolist()
            every = ends.scores.argmax(-1).cpu().numpy()
            ends = without_rows(ends)
            for place, labels in enumerate(every):
                labels = in_order(labels)
                candidate = Candidate(labels, bounds[place], 1.0, factors[place], ends, place)
                found.setdefault(labels.tobytes(), candidate)
        return list(found.values())

    def bounds(
        self, model: ClusteringModel, sample: Sample, clusterings: Sequence[Labels], weight: float
    ) -> list[float]:
        bounds = [0.0] * len(clusterings)
        for group in batches([int(labels.max()) + 1 for labels in clusterings], len(sample)):
            some = [Initial(clusterings[place]) for place in group]
            ends, _ = self.run(model, sample, some, weight, *self.comparing)
            for place, bound in zip(group, ends.exact_bound.cpu().tolist(), strict=True):
                bounds[place] = bound
        return bounds

    def run(
        self,
        model: ClusteringModel,
        sample: Sample,
        initial: Sequence[Initial],
        weight: float,
        steps: int,
        tol: float | None,
    ) -> tuple[Posterior, list[float]]:
        """Take steps from each start, side by side; also return the variance factors of the starts."""
        rows = torch.from_numpy(sample.z).to(model.device)
        factors = self.variance_factors(model, sample, [start.labels for start in initial])
        each = torch.tensor(factors).to(rows)
        if model.config.inference == "vb" and all(start.logits is None for start in initial):
            features = features_of(rows, model.family).cpu().numpy()
            sums = sums_of_clusters(features, [start.labels for start in initial])
            return model.from_starts(rows, Sums(torch.from_numpy(sums).to(rows)), steps, tol, weight, each), factors
        clusters = max(start.clusters for start in initial)
        logits = torch.stack([start.as_logits(clusters).to(rows) for start in initial])
        expanded = rows.expand(len(initial), *rows.shape)
        return model.from_starts(expanded, logits, steps, tol, weight, each), factors

    @property
    def comparing(self) -> tuple[int, float | None]:
        """Steps and tolerance from labels to the bounds by which candidates are compared."""
        return self.steps, self.tol

    def variance_factors(self, model: ClusteringModel, sample: Sample, clusterings: Sequence[Labels]) -> list[float]:
        """Return the variance to expect of clusters in each partition, as a multiple of that of the model's prior."""
        return [1.0] * len(clusterings)


@dataclass(frozen=True)
class AdaptiveRefinement(Refinement):
    """Inference that expects clusters to be about as wide as those that it starts from.

    New categories may be wider or narrower than the known ones, by which the prior was learned.
    """

    @property
    def comparing(self) -> tuple[int, float | None]:
        # With a prior that was learned, one step from the labels of a candidate finds its bound.
        return 1, None

    def variance_factors(self, model: ClusteringModel, sample: Sample, clusterings: Sequence[Labels]) -> list[float]:
        return own_variance_factors(sample.z, clusterings, model.expected_variance)


def own_variance_factors(z: Floats, clusterings: Sequence[Labels], expected: float) -> list[float]:
    """Return the variance within clusters over the expected one, which counts as ``PRIOR_ROWS`` rows."""
    total = float(np.square(z).sum())
    factors = []
    for labels in clusterings:
        order = np.argsort(labels, kind="stable")
        size = np.bincount(labels)
        sums = sums_of_rows(z, np.cumsum(size) - size, order)
        square = max(0.0, total - float((np.square(sums).sum(1) / size).sum()))
        factors.append((PRIOR_ROWS + square / expected) / (PRIOR_ROWS + len(z) - len(size)))
    return factors


def weighted(
    refine: Refiner,
    model: ClusteringModel,
    sample: Sample,
    candidates: Sequence[Candidate],
    effective_rows: float | None,
    weight: float | None,
    limit: int,
) -> list[Candidate]:
    """Return the candidates with bounds in which a row counts as ``weight`` rows, the same for all.

    No category is exactly Gaussian, and the more rows there are, the more evidence there is of it: large clusters would
    fall apart. So a row of many counts as less than one when candidates are compared (the likelihood is raised to a
    power, as in Miller and Dunson, Robust Bayesian inference via coarsening, 2019): such that a cluster counts, on
    average, as ``effective_rows`` rows. ``None`` leaves the candidates as they are. ``limit`` is the largest number of
    clusters that was tried.
    """
    if effective_rows is None:
        return list(candidates)
    labels = [candidate.labels for candidate in candidates]
    if weight is None:
        weight, bounds = common_weight(refine, model, sample, labels, limit, effective_rows)
    else:
        bounds = refine.bounds(model, sample, labels, weight)
    pairs = zip(candidates, bounds, strict=True)
    return [replace(candidate, bound=bound, weight=weight) for candidate, bound in pairs]


def common_weight(
    refine: Refiner,
    model: ClusteringModel,
    sample: Sample,
    clusterings: Sequence[Labels],
    limit: int,
    effective_rows: float | None,
) -> tuple[float, list[float]]:
    """Return the weight at which the best clustering has ``effective_rows`` rows a cluster on average, and the bounds.

    How many clusters there are is not known before: the weight is found in rounds, from ``limit`` clusters down. Where
    several weights fit, the largest is taken: few clusters make a row count little, and then few are found.
    """
    if effective_rows is None:
        return 1.0, refine.bounds(model, sample, clusterings, 1.0)
    number = limit
    for _ in range(ROUNDS):
        weight = min(1.0, effective_rows * number / len(sample))
        bounds = refine.bounds(model, sample, clusterings, weight)
        found = int(clusterings[int(np.argmax(bounds))].max()) + 1
        if found >= number:
            break
        number = found
    return weight, bounds


def batches(clusters: Sequence[int], rows: int) -> list[list[int]]:
    """Divide starts into batches of similar numbers of clusters, and of not too many numbers."""
    result: list[list[int]] = []
    for place in np.argsort(clusters, kind="stable").tolist():
        size = clusters[place] * rows
        last = result[-1] if result else []
        padding = (clusters[place] - clusters[last[-1]]) * rows * len(last) if last else 0
        if last and size * (len(last) + 1) <= BATCH and padding <= PADDING:
            last.append(place)
        else:
            result.append([place])
    return result
