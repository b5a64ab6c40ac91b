"""Sufficient statistics, which are sums over rows: all that an update of the mixture needs of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Statistics:
    """Sums over rows, weighted by the assignments r; two blocks of rows add up with ``a + b``.

    ``count`` is N_k = sum_n r_nk and ``first`` is sum_n r_nk z_n. ``second`` holds the squares that the family needs:
    sum_n r_nk ||z_n||^2, the same for each column, or sum_n r_nk z_n z_n^T.
    """

    count: Float[Tensor, "*task k"]
    first: Float[Tensor, "*task k s"]
    second: Float[Tensor, "*task k"] | Float[Tensor, "*task k s"] | Float[Tensor, "*task k s s"]

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        for name in ("count", "first", "second"):
            ours, theirs = getattr(self, name).shape, getattr(other, name).shape
            if ours != theirs:
                raise ValueError(
                    f"cannot add statistics: {name} has shape {tuple(ours)} on the left and {tuple(theirs)} on "
                    "the right; both must come from the same components and the same tasks"
                )
        return Statistics(self.count + other.count, self.first + other.first, self.second + other.second)


def row_weights(z: Float[Tensor, "*task n s"], mask: Bool[Tensor, "*task n"] | None) -> Float[Tensor, "*task n 1"]:
    """One for each row, zero for padding."""
    return torch.ones_like(z[..., :1]) if mask is None else mask[..., None].to(z.dtype)


def accumulation_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums over rows: float64 if the device supports it.

    The second moments of rows far from the origin cancel in float32: at a distance of
    1e6 they are 1e12, and a spread of one is lost in the last digit.
    """
    return dtype if device.type == "mps" else torch.float64
