"""Second moments of columns: variances, or a covariance matrix where it is needed."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

Covariance = Float[Tensor, "s"] | Float[Tensor, "s s"]
"""The variances of the columns, or their covariance matrix, which grows with the square of their number."""


def variances_of(covariance: Covariance) -> Float[Tensor, "s"]:
    """The variances, which are the diagonal of a covariance matrix."""
    return covariance if covariance.ndim == 1 else covariance.diagonal()
