"""Fitting the mixture to rows in blocks: initialise, refine, select, one start after the other.

    initialise: passes over the rows, a survey of them -> the statistics that a start begins from
    refine:     the statistics                         -> the posterior, when the bound has converged
    select:     the posteriors of all starts           -> the one with the highest bound

These are the stages of :mod:`metaclust.inference.stages` for rows that do not fit into memory. A start is finished
before the next one begins, and the state after every pass is enough to resume.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util.threads import one_torch_thread
from metaclust.data.rows import DataError
from metaclust.data.survey import Survey
from metaclust.mixture.blocks import Map
from metaclust.mixture.seeding import Init, precision_around, seeds
from metaclust.mixture.state import FitState
from metaclust.mixture.streaming import BlockPosterior, Memo, Passes, block_steps, first_memo, largest_first


@runtime_checkable
class BlockInitialiser(Protocol):
    """Proposes the statistics to start from, for each of several starts."""

    @property
    def starts(self) -> int: ...
    def __call__(self, passes: Passes, survey: Survey, start: int) -> Memo: ...


@dataclass(frozen=True)
class SeedStarts:
    """Components around seeds from the sample, other ones for each start."""

    components: int
    init: Init
    starts: int
    seed: int

    def __call__(self, passes: Passes, survey: Survey, start: int) -> Memo:
        z, counts = mapped(passes.mixture.transform, survey.sample), survey.sample_weights.numpy()
        seed = int(np.random.SeedSequence([self.seed, start]).generate_state(1)[0])
        return memo_around(passes, survey, seeds(z, counts, self.components, self.init, seed))


@dataclass(frozen=True)
class MeansStart:
    """Components around given means, in the units of the rows."""

    means: NDArray[np.float64]
    starts = 1

    def __call__(self, passes: Passes, survey: Survey, start: int) -> Memo:
        return memo_around(passes, survey, mapped(passes.mixture.transform, torch.from_numpy(self.means)))


@dataclass(frozen=True)
class PosteriorStart:
    """A posterior that was found before: its score weights and its parameters."""

    weights: Float[Tensor, "k f"]
    parameters: Any
    starts = 1

    def __call__(self, passes: Passes, survey: Survey, start: int) -> Memo:
        return first_memo(passes, self.weights, self.parameters)


@dataclass(frozen=True)
class BlockRefinement:
    """Passes until one changes the bound by at most ``tol * (rows + |bound|)``, and at most ``max_iter`` of them.

    Without ``tol`` there are always ``max_iter`` passes.
    """

    max_iter: int
    tol: float | None

    def __call__(
        self, passes: Passes, state: FitState, save: Callable[[FitState], object], phase: Callable[[str], object]
    ) -> BlockPosterior:
        """Go on from the statistics in ``state``; ``save`` is called with the state after every pass but the last."""
        assert state.memo is not None  # noqa: S101 - for mypy
        steps = block_steps(passes, state.memo, state.bounds)
        while True:
            phase(f"pass {len(state.bounds) + 1}")
            posterior, memo = next(steps)
            if not np.isfinite(posterior.bounds[-1]):
                raise DataError("the bound is not finite: X has changed since it was checked, or is too large")
            posterior = replace(posterior, converged=self.has_converged(posterior.bounds, state.survey.weight))
            if posterior.converged or len(posterior.bounds) >= self.max_iter:
                return posterior
            state = replace(state, memo=memo, bounds=posterior.bounds)
            save(state)

    def has_converged(self, bounds: tuple[float, ...], rows: float) -> bool:
        if self.tol is None or len(bounds) < 2:
            return False
        return abs(bounds[-1] - bounds[-2]) <= self.tol * (rows + abs(bounds[-2]))


def best_bound(one: BlockPosterior | None, other: BlockPosterior) -> BlockPosterior:
    """Return the posterior with the higher bound, the first where they are equal."""
    return one if one is not None and one.bounds[-1] >= other.bounds[-1] else other


def fit_mixture(
    initialise: BlockInitialiser,
    refine: BlockRefinement,
    passes: Passes,
    state: FitState,
    save: Callable[[FitState], object] = lambda state: None,
    phase: Callable[[str], object] = lambda name: None,
) -> BlockPosterior:
    """Fit from each start, from ``state`` on, and return the posterior with the best bound.

    ``save`` is called with the state after every pass, ``phase`` with the name of what is done next.
    """
    while state.start < initialise.starts:
        if state.memo is None:
            phase("start")
            state = replace(state, memo=initialise(passes, state.survey, state.start), bounds=())
            save(state)
        found = refine(passes, state, save, phase)
        state = FitState(state.survey, state.start + 1, best=best_bound(state.best, found))
        save(state)
    assert state.best is not None  # noqa: S101 - for mypy
    return state.best


def memo_around(passes: Passes, survey: Survey, means: NDArray[np.float64]) -> Memo:
    """The statistics of components around means, as precise as the sample lies around them; the largest first."""
    family, transform = passes.mixture.family, passes.mixture.transform
    z, counts = mapped(transform, survey.sample), survey.sample_weights.numpy()
    around = family.around(torch.from_numpy(means), precision_around(z, counts, means))
    prior = family.start(family.features(torch.from_numpy(z[:0])), len(means))
    return largest_first(first_memo(passes, family.score_weights(around), prior))


def mapped(transform: Map, x: Tensor) -> NDArray[np.float64]:
    """(n, s) rows to (n, s) z, in float64."""
    z = torch.empty(x.T.shape, dtype=torch.float64)
    with one_torch_thread():
        transform(x, z)
    return z.T.contiguous().numpy()
