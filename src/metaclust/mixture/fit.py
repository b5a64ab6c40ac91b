"""Fitting the mixture to rows in blocks: starts, when to stop, and how rows are scaled."""

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
from metaclust.data.streams import RowStream, in_blocks
from metaclust.data.survey import Survey, check_width, survey
from metaclust.mixture.blocks import Map
from metaclust.mixture.products import Products
from metaclust.mixture.seeding import Init, precision_around, seeds
from metaclust.mixture.state import End, FitState
from metaclust.mixture.streaming import Memo, Passes, Setting, block_steps, first_memo, largest_first


@dataclass(frozen=True)
class WeightedRows:
    """A stream with what each row counts: what inference goes through."""

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
class Told(Protocol):
    """What is told how far a fit is; :class:`metaclust._util.progress.RowsBar` shows it."""

    def phase(self, name: str) -> None: ...
    def advance(self, rows: int) -> None: ...


@dataclass(frozen=True)
class Inference:
    """What goes through the rows: the components, the scale they are on, and whether float32 may do."""

    products: Products
    transform: Map
    alpha: Tensor
    float32: bool = True
    batch_rows: int | None = None


@runtime_checkable
class FitRows(Protocol):
    """Rows that a mixture can be fitted to, wherever they are."""

    @property
    def name(self) -> str: ...
    def survey(self, most: int, seed: int) -> Survey:
        """The first pass, with a sample of at most ``most`` rows."""

    def progress(self, rows: int, wanted: bool) -> AbstractContextManager[Told | None]:
        """What is told of the passes that follow."""

    def passes(self, inference: Inference, width: int, told: Told | None) -> Passes:
        """The passes themselves, over rows of this width."""


@dataclass(frozen=True)
class StreamRows:
    """Those of a stream, gone through in this process."""

    stream: RowStream
    width: int | None = None
    """What they must have, where that is known."""
    weights: NDArray[np.float64] | None = None

    @property
    def name(self) -> str:
        return self.stream.name

    def survey(self, most: int, seed: int) -> Survey:
        return survey(self.stream, self.weights, most, seed, self.width)

    def progress(self, rows: int, wanted: bool) -> AbstractContextManager[Told | None]:
        return RowsBar(rows) if wanted else nullcontext()

    def passes(self, inference: Inference, width: int, told: Told | None) -> Passes:
        return Setting(
            WeightedRows(self.stream, width, None if self.weights is None else torch.from_numpy(self.weights)),
            inference.products,
            inference.transform,
            inference.alpha,
            inference.batch_rows,
            inference.float32,
            (lambda rows: None) if told is None else told.advance,
        )


@dataclass(frozen=True)
class Plan:
    """What a fit does."""

    components: int
    init: Init | NDArray[np.float64]
    starts: int
    max_iter: int
    tol: float
    seed: int
    before: tuple[Tensor, Any] | None = None
    """Score weights and parameters to start from, instead of seeds."""


def fit_mixture(
    plan: Plan, setting: Passes, state: FitState, save: Callable[[FitState], object], phase: Callable[[str], object]
) -> End:
    """The end with the best bound. ``save`` is called after every pass, ``phase`` is told what is done next."""
    while state.start < plan.starts:
        if state.memo is None:
            phase("start")
            memo = first_memo(setting, *plan.before) if plan.before else from_seeds(plan, setting, state)
            state = replace(state, memo=memo, bounds=())
            save(state)
        assert state.memo is not None  # noqa: S101 - for mypy
        steps = block_steps(setting, state.memo)
        while state.memo is not None:
            phase(f"pass {len(state.bounds) + 1}")
            posterior = next(steps)
            if not np.isfinite(posterior.bound):
                raise ValueError("the bound is no number any more: X has changed since it was checked, or is too large")
            bounds = (*state.bounds, posterior.bound)
            converged = len(bounds) > 1 and abs(bounds[-1] - bounds[-2]) <= plan.tol * (
                state.survey.weight + abs(bounds[-2])
            )
            state = replace(state, memo=posterior.memo, bounds=bounds)
            if converged or len(bounds) >= plan.max_iter:
                end = End(posterior.parameters, posterior.sticks, bounds, converged)
                better = state.best is None or end.bounds[-1] > state.best.bounds[-1]
                state = FitState(state.survey, state.start + 1, best=end if better else state.best)
            save(state)
    assert state.best is not None  # noqa: S101 - for mypy
    return state.best


def from_seeds(plan: Plan, setting: Passes, state: FitState) -> Memo:
    """The statistics of components around seeds among the sample, or around the means given."""
    products, z = setting.products, mapped(setting.transform, state.survey.sample)
    counts = state.survey.sample_weights.numpy()
    if isinstance(plan.init, np.ndarray):
        means = mapped(setting.transform, torch.from_numpy(plan.init))
    else:
        seed = int(np.random.SeedSequence([plan.seed, state.start]).generate_state(1)[0])
        means = seeds(z, counts, plan.components, plan.init, seed)
    around = products.around(torch.from_numpy(means), precision_around(z, counts, means))
    prior = products.family.start(products.family.features(torch.from_numpy(z[:0])), len(means))
    return largest_first(first_memo(setting, products.weights(around), prior))


def mapped(transform: Map, x: Tensor) -> NDArray[np.float64]:
    """(n, s) to (n, s), in float64."""
    z = torch.empty(x.T.shape, dtype=torch.float64)
    transform(x, z)
    return z.T.contiguous().numpy()


def map_of(survey: Survey, full: bool) -> Map:
    """Rows around zero, on a scale of one: by one number, or for full covariances by a matrix that whitens.

    A column that is constant, or follows from others, is given a millionth of its variance.
    """
    variance = survey.covariance.diagonal()
    if not full:
        return Map(survey.mean, variance.mean().rsqrt())
    deviation = variance.sqrt().where(variance > 0, 1)
    correlation = survey.covariance / torch.outer(deviation, deviation)
    floor = 1e-6 * torch.eye(len(deviation), dtype=torch.float64)
    factor = torch.linalg.cholesky(correlation + floor)
    return Map(survey.mean, torch.linalg.inv(factor * deviation[:, None]))


def in_units_of_rows(parameters: Any, transform: Map) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The means (k, s) and the expected precisions, (k,) or (k, s, s)."""
    theta, a, b = (value.numpy() for value in (parameters.theta, parameters.a, parameters.b))
    centre, scale = transform.centre.double().numpy(), transform.scale.double().numpy()
    if scale.ndim == 0:
        return centre + theta / scale, a / b * scale**2
    precisions = scale.T @ (a[:, None, None] * np.linalg.inv(b)) @ scale
    return centre + np.linalg.solve(scale, theta.T).T, precisions
