"""Inference that goes on from the clusters of a sample with all rows, in blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust.inference.refine import STEPS, own_variance_factors
from metaclust.inference.stages import Candidate, Floats, Sample
from metaclust.inference.tally import Tally
from metaclust.mixture.blocks import Map
from metaclust.mixture.components import Components
from metaclust.mixture.families import Family
from metaclust.mixture.fit import BlockRefinement, PosteriorStart, fit_mixture
from metaclust.mixture.posterior import with_tensors
from metaclust.mixture.rows import FitRows, Progress
from metaclust.mixture.state import FitState
from metaclust.mixture.step import score_weights
from metaclust.mixture.sticks import Sticks
from metaclust.mixture.streaming import BlockMixture
from metaclust.model.clustering_model import ClusteringModel


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


@dataclass(frozen=True)
class Mixture:
    """A mixture that inference with all rows goes on from, in the memory of the CPU."""

    family: Family
    parameters: Any
    sticks: Sticks

    @classmethod
    def of(cls, model: ClusteringModel, best: Candidate) -> Mixture:
        """Take that of a candidate which variational Bayes found."""
        posterior = best.posterior
        assert posterior.sticks is not None  # noqa: S101 - for mypy
        found: Mixture = with_tensors(
            cls(model.family_of(best.variance_factor), posterior.parameters, posterior.sticks), Tensor.cpu
        )
        return found

    @classmethod
    @torch.no_grad()
    def of_labels(cls, model: ClusteringModel, sample: Sample, labels: NDArray[np.int64]) -> Mixture:
        """Take one step of inference from clusters, the largest first."""
        (factor,) = own_variance_factors(sample.z, [labels], model.expected_variance)
        clusters = int(labels.max()) + 1
        tally = Tally.of(model, sample.z, labels, clusters, np.zeros(sample.z.shape[1]), factor)
        family, parameters, sticks, _ = tally.mixture(model)
        return cls(family, parameters, sticks)


@torch.no_grad()
def with_all_rows(
    model: ClusteringModel, rows: FitRows, state: FitState, start: Mixture, mean: Floats, hooks: Hooks
) -> tuple[Components, tuple[float, ...]]:
    """Go on from the clusters of a sample with all rows, in blocks; also return the bound after each pass."""
    family = start.family
    mixture = BlockMixture(
        family, Map(torch.from_numpy(mean), torch.ones((), dtype=torch.float64)), model.alpha.cpu().double()
    )
    initialise = PosteriorStart(score_weights(family, start.parameters, start.sticks), start.parameters)
    passes = rows.passes(mixture, len(mean), hooks.progress)
    # As many passes for any rows: clusters do not depend on when a bound has converged.
    end = fit_mixture(initialise, BlockRefinement(STEPS, tol=None), passes, state, hooks.save, hooks.phase)
    hooks.advance()
    return Components.of_parameters(family, end.parameters, end.sticks), end.bounds
