"""The expected log likelihood and the statistics of each family as one matrix product with features of the rows.

For very many rows these two products are all the work there is, and they need no (rows, components, width) array. In
exact arithmetic they are what the families compute. Features are kept as (features, rows): sums over components then
run over whole vectors of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from metaclust.mixture.families.full import Full, FullParameters, expected_log_det, identity
from metaclust.mixture.families.spherical import LOG_2PI, Spherical, SphericalParameters
from metaclust.mixture.inference import Family
from metaclust.mixture.statistics import Statistics


@runtime_checkable
class Products(Protocol):
    """A family in the form of products."""

    @property
    def family(self) -> Family: ...
    def number(self, width: int) -> int: ...
    def place(self, features: Tensor) -> Tensor: ...
    def fill(self, features: Tensor) -> None: ...
    def weights(self, parameters: Any) -> Tensor: ...
    def read(self, sums: Tensor) -> Statistics: ...
    def around(self, means: Tensor, precision: float) -> Any: ...


@dataclass(frozen=True)
class SphericalProducts:
    family: Spherical

    def number(self, width: int) -> int:
        """How many features a row has."""
        return width + 2

    def place(self, features: Float[Tensor, "f n"]) -> Float[Tensor, "s n"]:
        """Where the rows themselves are among their features."""
        return features[2:]

    def fill(self, features: Float[Tensor, "f n"]) -> None:
        """The others beside them: (1, ||z||^2, z), as the family has them."""
        features[0] = 1
        torch.sum(features[2:].square(), 0, out=features[1])

    def weights(self, parameters: SphericalParameters) -> Float[Tensor, "k f"]:
        return self.family.score_weights(parameters)

    def read(self, sums: Float[Tensor, "k f"]) -> Statistics:
        return self.family.read(sums)

    def around(self, means: Float[Tensor, "k s"], precision: float) -> SphericalParameters:
        """Components of one precision around given means: where inference starts from seeds."""
        one = means.new_ones(len(means))
        return SphericalParameters(means, torch.zeros_like(one), precision * one, one)


@dataclass(frozen=True)
class FullProducts:
    family: Full

    def number(self, width: int) -> int:
        return (width + 1) * (width + 2) // 2

    def width(self, number: int) -> int:
        """Of the rows, from the number of their features."""
        return (math.isqrt(8 * number + 1) - 3) // 2

    def place(self, features: Float[Tensor, "f n"]) -> Float[Tensor, "s n"]:
        return features[1 : self.width(len(features)) + 1]

    def fill(self, features: Float[Tensor, "f n"]) -> None:
        """(1, z, z_i z_j for i <= j)."""
        z = self.place(features)
        features[0] = 1
        first = len(z) + 1
        for i in range(len(z)):
            torch.mul(z[i], z[i:], out=features[first : first + len(z) - i])
            first += len(z) - i

    def weights(self, parameters: FullParameters) -> Float[Tensor, "k f"]:
        """The family's expected log likelihood, its square multiplied out.

        With the precision P = a_k b_k^-1, -(z - theta)^T P (z - theta) / 2 is
        -theta^T P theta / 2 + z^T P theta - sum_i P_ii z_i^2 / 2 - sum_{i<j} P_ij z_i z_j.
        """
        theta, width = parameters.theta, parameters.theta.shape[-1]
        precision = parameters.a[:, None, None] * torch.cholesky_inverse(parameters.factor)
        linear = (precision @ theta[..., None])[..., 0]
        constant = expected_log_det(parameters) - width * (LOG_2PI + 1 / parameters.kappa) - (linear * theta).sum(-1)
        quadratic = -(precision - 0.5 * precision * identity(theta))
        rows, columns = torch.triu_indices(width, width)
        return torch.cat((0.5 * constant[:, None], linear, quadratic[:, rows, columns]), -1)

    def read(self, sums: Float[Tensor, "k f"]) -> Statistics:
        width = self.width(sums.shape[-1])
        rows, columns = torch.triu_indices(width, width)
        second = sums.new_empty((len(sums), width, width))
        second[:, rows, columns] = sums[:, width + 1 :]
        second[:, columns, rows] = sums[:, width + 1 :]
        return Statistics(count=sums[:, 0], first=sums[:, 1 : width + 1], second=second)

    def around(self, means: Float[Tensor, "k s"], precision: float) -> FullParameters:
        one = means.new_ones(len(means))
        b = (identity(means) / precision).expand(len(means), -1, -1)
        return FullParameters(means, one, one * means.shape[-1], means.shape[-1] * b, (means.shape[-1] * b).sqrt())


def products_of(family: Family) -> Products:
    """The family in the form of products."""
    if isinstance(family, Spherical):
        return SphericalProducts(family)
    if isinstance(family, Full):
        return FullProducts(family)
    raise TypeError(f"family={family!r}: there are products for Spherical and Full only")
