"""The continuous ARI of a step's tasks, from the representations of its rows, as one operation of autograd."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from metaclust.episodes import Batch
from metaclust.model import ClusteringModel

SWITCH = "METACLUST_COMPILED"
STARTED = os.getpid()
MOST_ROWS = 512
"""Of a task: with more, a sort takes less time than all pairs, and torch computes more than it calls."""
MOST_HIDDEN = 128
"""The width of the task networks: with more, torch's products take less time."""


@cache
def installed() -> bool:
    """Whether there is numba, and nobody has switched it off: METACLUST_COMPILED=0 before the first training."""
    if os.environ.get(SWITCH, "1").lower() in ("0", "no", "off", "false") or importlib.util.find_spec("numba") is None:
        return False
    try:
        importlib.import_module("numba")
    except ImportError as error:
        warnings.warn(f"training goes without numba, which cannot be imported: {error}", RuntimeWarning, stacklevel=2)
        return False
    return True


def suited(model: ClusteringModel) -> bool:
    """Whether the loops are for the training of such a model."""
    config = model.config
    return (
        model.device.type == "cpu"
        and config.initial == "network"
        and config.task_hidden <= MOST_HIDDEN
        and not (config.dropout and model.training)
        and config.inference == "vb"
        and config.components == "spherical"
        and installed()
    )


def compiled_index(
    model: ClusteringModel, z: Float[Tensor, "m s"], batch: Batch, seeded: int, last: bool, limit: float | None
) -> Float[Tensor, "steps b"] | None:
    """The index of each task by the network's assignments and after each step, or after the ``last`` alone.

    What :meth:`ClusteringModel.trajectory` and :func:`continuous_ari` give, on the way back with the gradient of each
    task limited; where a task's rows are not in the order of their categories, other seeds are drawn. None where the
    loops are not for such a step.
    """
    network, config = model.task_network, model.config
    small = len(batch.y) > 0 and batch.y.shape[1] <= MOST_ROWS
    if network is None or z.dtype != torch.float32 or not small or not suited(model):
        return None
    from metaclust.compiled.loops import fitting

    layers = network.layers()
    hidden, width, columns = config.task_hidden, z.shape[1], config.max_clusters
    # A layer may have been replaced by one of another size.
    if sum(layer.numel() for layer in layers) != hidden * (2 * width + 7 * hidden + 8 + columns) + columns:
        return None
    if not fitting(batch.index.numpy(), batch.mask.numpy(), batch.y.numpy(), len(z)):
        return None
    numbers, draws = model.draw_seeds(batch.y.shape[:1], seeded, batch.tasks)
    settings = Settings(
        batch,
        numbers.numpy(),
        draws.contiguous().numpy(),
        config.steps,
        last,
        config.mean_covariance == "optimal",
        0.0 if limit is None else limit,
    )
    alpha = model.alpha if config.learn_prior else config.alpha
    found: Tensor = TaskIndex.apply(settings, z, alpha, *vars(model.prior).values(), *layers)
    return found


class Settings(NamedTuple):
    """What passes no gradient."""

    batch: Batch
    numbers: NDArray[np.int64]
    draws: NDArray[np.float64]
    steps: int
    last: bool
    optimal: bool
    limit: float


class TaskIndex(torch.autograd.Function):
    """There and back, a call each."""

    @staticmethod
    def forward(ctx: Any, settings: Settings, z: Tensor, *values: Any) -> Tensor:
        from metaclust.compiled.loops import kept_size, there, there_all

        prior = tuple(float(value) for value in values[:4])
        layers = values[4:]
        flat = torch.cat([value.flatten() for value in layers])
        batch, steps = settings.batch, settings.steps
        (tasks, rows), hidden, components = batch.y.shape, len(layers[1]), len(layers[-1])
        found = torch.empty((1 if settings.last else steps + 1, tasks), dtype=torch.float32)
        kept = np.empty((tasks, kept_size(rows, z.shape[1], hidden, components, steps, len(found))), np.float32)
        best = np.empty(tasks, np.int64)
        sizes = hidden, components, steps
        given = (z.detach().contiguous().numpy(), batch.index.numpy(), batch.mask.numpy(), batch.y.numpy())
        over_tasks(
            there,
            there_all,
            tasks,
            sizes,
            *given,
            settings.draws,
            settings.numbers,
            flat.numpy(),
            prior,
            settings.optimal,
            kept,
            best,
            found.numpy(),
        )
        ctx.save_for_backward(z, flat)
        ctx.shapes = [value.shape for value in layers]
        ctx.kept = settings, sizes, given, prior, kept, best
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from metaclust.compiled.loops import back, back_all

        z, flat = ctx.saved_tensors
        settings, sizes, given, prior, kept, best = ctx.kept
        of_z = torch.zeros(z.shape, dtype=torch.float32)
        of_prior = torch.zeros((len(best), 4), dtype=torch.float64)
        of_flat = torch.empty((len(best), len(flat)), dtype=torch.float32)
        over_tasks(
            back,
            back_all,
            len(best),
            sizes,
            *given,
            flat.numpy(),
            prior,
            settings.optimal,
            settings.limit,
            kept,
            best,
            gradient.contiguous().numpy(),
            of_z.numpy(),
            of_flat.numpy(),
            of_prior.numpy(),
        )
        summed, first, of_layers = of_flat.sum(0), 0, []
        for shape in ctx.shapes:
            of_layers.append(summed.as_strided(shape, (*shape[1:], 1), first))
            first += shape.numel()
        # The prior, where it is learned.
        learned = of_prior.sum(0).unbind(0) if any(ctx.needs_input_grad[2:6]) else (None,) * 4
        needed = zip(learned, ctx.needs_input_grad[2:6], strict=True)
        return None, of_z, *(slope if need else None for slope, need in needed), *of_layers


def over_tasks(one: Callable[..., None], every: Callable[..., None], tasks: int, *values: Any) -> None:
    """``one(task, *values)`` of each task, or ``every(threads, *values)`` of them, in as many threads as torch's."""
    wanted = min(torch.get_num_threads(), tasks)
    # OpenMP ends a process that was forked off and starts threads of its own.
    if wanted <= 1 or os.getpid() != STARTED or not safe_threads():
        for task in range(tasks):
            one(task, *values)
        return
    import numba

    before = numba.get_num_threads()
    threads = min(wanted, numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    numba.set_num_threads(threads)
    try:
        every(threads, *values)
    finally:
        numba.set_num_threads(before)


@cache
def safe_threads() -> bool:
    """Whether threads of Python may call numba's at the same time: those of TBB and of OpenMP, not its own."""
    import numba

    try:
        numba.get_num_threads()
        layer: str = numba.threading_layer()  # type: ignore[attr-defined]
    except ValueError:  # The threads that numba is to take are not there.
        return False
    return layer in ("tbb", "omp")
