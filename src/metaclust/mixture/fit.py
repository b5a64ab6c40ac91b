"""Fitting the mixture to rows in blocks: the rows, the starts, and when to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util.progress import RowsBar
from metaclust._util.threads import one_torch_thread
from metaclust.data.rows import DataError
from metaclust.data.streams import RowStream, in_blocks
from metaclust.data.survey import Moments, Survey, check_width, survey
from metaclust.mixture.blocks import Map
from metaclust.mixture.seeding import Init, precision_around, seeds
from metaclust.mixture.state import FitState
from metaclust.mixture.streaming import (
    BlockMixture,
    BlockPosterior,
    LocalPasses,
    Memo,
    Passes,
    block_steps,
    first_memo,
    largest_first,
)


@dataclass(frozen=True)
class WeightedRows:
    """A stream of rows with their weights, as a source of blocks."""

    stream: RowStream
    width: int
    weights: Tensor | None = None

    def blocks(self, size: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        first = 0
        for x in in_blocks(self.stream.arrays(), size):
            check_width(x, first, self.width, self.stream.name)
            yield x, None if self.weights is None else self.weights[first : first + len(x)]
            first += len(x)


@runtime_checkable
class Progress(Protocol):
    """Receives the progress of a fit, as :class:`metaclust._util.progress.RowsBar` does."""

    def phase(self, name: str) -> None: ...
    def advance(self, rows: int) -> None: ...


@runtime_checkable
class FitRows(Protocol):
    """Rows that a mixture can be fitted to, wherever they are."""

    @property
    def name(self) -> str: ...
    def survey(self, most: int, seed: int, moments: Moments = "mean") -> Survey:
        """The first pass, with a sample of at most ``most`` rows, and these moments of all rows."""

    def progress(self, rows: int, wanted: bool) -> AbstractContextManager[Progress | None]:
        """The receiver of the progress of the passes that follow."""

    def passes(self, mixture: BlockMixture, width: int, progress: Progress | None) -> Passes:
        """The passes over rows of this width."""


@dataclass(frozen=True)
class StreamRows:
    """The rows of a stream, processed in this process."""

    stream: RowStream
    width: int | None = None
    """The required number of columns, if known."""
    weights: NDArray[np.float64] | None = None

    @property
    def name(self) -> str:
        return self.stream.name

    def survey(self, most: int, seed: int, moments: Moments = "mean") -> Survey:
        return survey(self.stream, self.weights, most, seed, self.width, moments)

    def progress(self, rows: int, wanted: bool) -> AbstractContextManager[Progress | None]:
        return RowsBar(rows) if wanted else nullcontext()

    def passes(self, mixture: BlockMixture, width: int, progress: Progress | None) -> Passes:
        weights = None if self.weights is None else torch.from_numpy(self.weights)
        source = WeightedRows(self.stream, width, weights)
        return LocalPasses(source, mixture) if progress is None else LocalPasses(source, mixture, progress.advance)


@dataclass(frozen=True)
class FitSettings:
    """How a fit starts and when it stops."""

    components: int
    init: Init | NDArray[np.float64]
    starts: int
    max_iter: int
    tol: float
    seed: int
    warm_start: tuple[Tensor, Any] | None = None
    """Score weights and parameters to start from, instead of seeds."""


def fit_mixture(
    settings: FitSettings,
    passes: Passes,
    state: FitState,
    save: Callable[[FitState], object],
    phase: Callable[[str], object],
) -> BlockPosterior:
    """Fit from each start, from ``state`` on, and return the posterior with the best bound.

    ``save`` is called with the state after every pass, ``phase`` with the name of what is done next.
    """
    while state.start < settings.starts:
        if state.memo is None:
            phase("start")
            start = settings.warm_start
            memo = first_memo(passes, *start) if start else memo_from_seeds(settings, passes, state)
            state = replace(state, memo=memo, bounds=())
            save(state)
        assert state.memo is not None  # noqa: S101 - for mypy
        steps = block_steps(passes, state.memo, state.bounds)
        while state.memo is not None:
            phase(f"pass {len(state.bounds) + 1}")
            posterior, memo = next(steps)
            if not np.isfinite(posterior.bounds[-1]):
                raise DataError("the bound is no number any more: X has changed since it was checked, or is too large")
            posterior = replace(posterior, converged=has_converged(posterior.bounds, state.survey.weight, settings.tol))
            state = replace(state, memo=memo, bounds=posterior.bounds)
            if posterior.converged or len(posterior.bounds) >= settings.max_iter:
                better = state.best is None or posterior.bounds[-1] > state.best.bounds[-1]
                state = FitState(state.survey, state.start + 1, best=posterior if better else state.best)
            save(state)
    assert state.best is not None  # noqa: S101 - for mypy
    return state.best


def has_converged(bounds: tuple[float, ...], rows: float, tol: float) -> bool:
    """Whether the last pass changed the bound by at most ``tol * (rows + |bound|)``."""
    return len(bounds) > 1 and abs(bounds[-1] - bounds[-2]) <= tol * (rows + abs(bounds[-2]))


def memo_from_seeds(settings: FitSettings, passes: Passes, state: FitState) -> Memo:
    """The statistics of components around seeds from the sample, or around the given means."""
    family, transform = passes.mixture.family, passes.mixture.transform
    z, counts = mapped(transform, state.survey.sample), state.survey.sample_weights.numpy()
    if isinstance(settings.init, np.ndarray):
        means = mapped(transform, torch.from_numpy(settings.init))
    else:
        seed = int(np.random.SeedSequence([settings.seed, state.start]).generate_state(1)[0])
        means = seeds(z, counts, settings.components, settings.init, seed)
    around = family.around(torch.from_numpy(means), precision_around(z, counts, means))
    prior = family.start(family.features(torch.from_numpy(z[:0])), len(means))
    return largest_first(first_memo(passes, family.score_weights(around), prior))


def mapped(transform: Map, x: Tensor) -> NDArray[np.float64]:
    """(n, s) rows to (n, s) z, in float64."""
    z = torch.empty(x.T.shape, dtype=torch.float64)
    with one_torch_thread():
        transform(x, z)
    return z.T.contiguous().numpy()
