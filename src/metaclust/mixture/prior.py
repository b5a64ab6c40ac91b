"""The prior of a component: how far apart the means are, and how wide the clusters are."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

Value = float | Float[Tensor, "*#task"]


@dataclass(frozen=True)
class Prior:
    """The prior of means and precisions: mu_k ~ N(0, I / mean_precision), beta_k ~ Gamma(shape, rate).

    Clusters are expected to have the variance rate / shape, the more certainly the larger the shape. What it means for
    other than spherical components is in the docstring of each module of ``metaclust.mixture.families``.

    Parameters
    ----------
    mean_precision : float or Tensor
        Precision of the means; a tensor has one value for each task.
    shape, rate : float or Tensor
        Shape and rate of the Gamma distribution of the precisions; a tensor has one value for each task.
    """

    mean_precision: Value = 1.0
    shape: Value = 1.0
    rate: Value = 1.0

    def columns(self) -> tuple[Value, Value, Value]:
        """The three parameters, shaped to broadcast against (*task, components)."""
        mean_precision, shape, rate = (
            value[..., None] if isinstance(value, Tensor) else value
            for value in (self.mean_precision, self.shape, self.rate)
        )
        return mean_precision, shape, rate


PAPER = Prior()
"""mu_k ~ N(0, I), beta_k ~ Gamma(1, 1)."""
