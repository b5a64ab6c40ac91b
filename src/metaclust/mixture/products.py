"""The expected log likelihood and the statistics of each family as one matrix product with features of the rows.

For very many rows these two products are all the work there is, and they need no (rows, components, width) array. In
exact arithmetic they are what the families compute. Features are kept as (features, rows): sums over components then
run over whole vectors of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from metaclust.mixture.full import Full, FullParameters, expected_log_det, identity
from metaclust.mixture.inference import Family
from metaclust.mixture.spherical import LOG_2PI, Spherical, SphericalParameters
from metaclust.mixture.statistics import Statistics


@runtime_checkable
class Products(Protocol):
    """A family in the form of products."""

    @property
    def family(self) -> Family: ...
    def number(self, width: int) -> int: ...
    def fill(self, z: Tensor, out: Tensor) -> None: ...
    def weights(self, parameters: Any) -> Tensor: ...
    def read(self, sums: Tensor) -> Statistics: ...
    def around(self, means: Tensor, precision: float) -> Any: ...


@dataclass(frozen=True)
class SphericalProducts:
    family: Spherical

    def number(self, width: int) -> int:
        """How many features a row has."""
        return width + 2

    def fill(self, z: Float[Tensor, "s n"], out: Float[Tensor, "f n"]) -> None:
        """(1, ||z||^2, z), as the family has them."""
        out[0] = 1
        torch.sum(z.square(), 0, out=out[1])
        out[2:] = z

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
        return 1 + width + width * (width + 1) // 2

    def fill(self, z: Float[Tensor, "s n"], out: Float[Tensor, "f n"]) -> None:
        """(1, z, z_i z_j for i <= j)."""
        width = len(z)
        out[0] = 1
        out[1 : width + 1] = z
        first = width + 1
        for i in range(width):
            torch.mul(z[i], z[i:], out=out[first : first + width - i])
            first += width - i

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
        width = int(((8 * sums.shape[-1] + 1) ** 0.5 - 3) / 2)
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
