"""The prior of a component: how far apart means lie, and how wide clusters are."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

Value = float | Float[Tensor, "*#task"]


@dataclass(frozen=True)
class Prior:
    """mu_k ~ N(0, I / mean_precision), beta_k ~ Gamma(shape, rate); each a number, or a tensor with one for each task.

    Clusters are expected to have the variance rate / shape, and the surer of it the larger the shape. For full
    covariances see :mod:`metaclust.mixture.families.full`.
    """

    mean_precision: Value = 1.0
    shape: Value = 1.0
    rate: Value = 1.0

    def columns(self) -> tuple[Value, Value, Value]:
        """The three, to be broadcast against (tasks..., components)."""
        mean_precision, shape, rate = (
            value[..., None] if isinstance(value, Tensor) else value
            for value in (self.mean_precision, self.shape, self.rate)
        )
        return mean_precision, shape, rate


PAPER = Prior()
"""mu_k ~ N(0, I), beta_k ~ Gamma(1, 1)."""
