"""Checks of the arguments of inference."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from metaclust.mixture.statistics import accumulation_dtype


def positive(name: str, value: float | Tensor, z: Tensor) -> Tensor:
    """A parameter of the prior as a tensor, checked to be positive and to broadcast against the task axes of z."""
    number = torch.as_tensor(value, dtype=accumulation_dtype(z.device, z.dtype), device=z.device)
    if not bool((number > 0).all()) or not bool(number.isfinite().all()):
        raise ValueError(f"{name}={value!r}: it must be positive and finite")
    if broadcast(number.shape, z.shape[:-2]) != z.shape[:-2]:
        raise ValueError(
            f"{name} has shape {tuple(number.shape)}, which does not fit the task axes {tuple(z.shape[:-2])} of z: "
            "pass one number, or one for each task"
        )
    return number


def broadcast(*shapes: torch.Size) -> torch.Size | None:
    """The broadcast shape, or None if the shapes do not broadcast."""
    try:
        return torch.Size(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        return None


def check_problem(z: Tensor, logits: Tensor, steps: int, mask: Tensor | None, tol: float | None) -> None:
    """Raise an error that names the argument, its value and the remedy if inference cannot run."""
    if not isinstance(steps, int | np.integer) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"steps={steps!r}: the number of steps must be a whole number of 1 or more")
    if tol is not None and not tol >= 0:
        raise ValueError(f"tol={tol!r}: the tolerance must be 0 or more, or None for a fixed number of steps")
    for name, value in (("z", z), ("logits", logits)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} is {kind}: pass a floating-point tensor")
        if value.ndim < 2:
            raise ValueError(f"{name} has shape {tuple(value.shape)}: it needs at least two axes, rows and columns")
    if z.shape[:-1] != logits.shape[:-1]:
        raise ValueError(
            f"z has shape {tuple(z.shape)} and logits {tuple(logits.shape)}: all axes but the last must agree"
        )
    if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != z.shape[:-1]):
        raise ValueError(
            f"mask is {getattr(mask, 'dtype', type(mask).__name__)} of shape {tuple(getattr(mask, 'shape', ()))}: "
            f"pass booleans of shape {tuple(z.shape[:-1])} as a tensor"
        )
    if z.shape[-2] == 0 or z.shape[-1] == 0 or logits.shape[-1] == 0:
        raise ValueError(
            f"z has shape {tuple(z.shape)} and logits {tuple(logits.shape)}: there must be at least one row, one "
            "column and one component"
        )
    for name, value in (("z", z), ("logits", logits)):
        finite = value.isfinite().all(-1)
        if not bool((finite if mask is None else finite | ~mask).all()):
            raise ValueError(f"{name} holds NaN or infinity: remove or impute those rows, or leave them out by mask")
