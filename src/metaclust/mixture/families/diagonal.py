"""Diagonal-covariance components: mu_kd ~ N(0, 1 / l0), beta_kd ~ Gamma(a0, b0), z_d ~ N(mu_kd, 1 / beta_kd).

The spherical family with a precision for each column d. q(mu_kd) = N(theta_kd, s_kd), q(beta_kd) = Gamma(a_k, b_kd):

    theta_kd = E[beta_kd] s_kd sum_n r_nk z_nd,      s_kd = 1 / (l0 + E[beta_kd] N_k),
    a_k = a0 + N_k / 2,      b_kd = b0 + (sum_n r_nk (z_nd - theta_kd)^2 + N_k s_kd) / 2,      E[beta_kd] = a_k / b_kd.

With mean_covariance="unit", q(mu_kd) has s_kd = 1, as in the paper's spherical components. All columns share a_k.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metaclust._util.moments import Covariance, variances_of
from metaclust.mixture.families.base import LOG_2PI, Family, MeanCovariance
from metaclust.mixture.prior import Prior
from metaclust.mixture.statistics import Statistics, row_weights


@dataclass(frozen=True)
class DiagonalParameters:
    """q(mu_kd) = N(theta_kd, s_kd), q(beta_kd) = Gamma(a_k, b_kd)."""

    theta: Float[Tensor, "*task k s"]
    s: Float[Tensor, "*task k s"]
    a: Float[Tensor, "*task k"]
    b: Float[Tensor, "*task k s"]


@dataclass(frozen=True)
class Diagonal(Family):
    """Components with a variance for each column; the features are (1, z, z^2)."""

    mean_covariance: MeanCovariance = "unit"

    parameters_type = DiagonalParameters
    precision_axes = 1
    first_column = 1

    def feature_count(self, width: int) -> int:
        return 2 * width + 1

    def width(self, feature_count: int) -> int:
        return feature_count // 2

    def features(
        self, z: Float[Tensor, "*task n s"], mask: Bool[Tensor, "*task n"] | None = None
    ) -> Float[Tensor, "*task n f"]:
        return torch.cat((row_weights(z, mask), z, z.square()), -1)

    def fill(self, features: Float[Tensor, "f n"]) -> None:
        z = self.place(features)
        features[0] = 1
        torch.mul(z, z, out=features[len(z) + 1 :])

    def read(self, sums: Float[Tensor, "*task k f"]) -> Statistics:
        width = self.width(sums.shape[-1])
        return Statistics(sums[..., 0], sums[..., 1 : width + 1], sums[..., width + 1 :])

    def start(self, features: Float[Tensor, "*task n f"], k: int) -> DiagonalParameters:
        precision, shape, rate = self.prior.columns()
        one = features.new_ones((*features.shape[:-2], k))
        theta = features.new_zeros((*one.shape, self.width(features.shape[-1])))
        s = one / precision if self.mean_covariance == "optimal" else one
        return DiagonalParameters(theta, s[..., None].expand_as(theta), one * shape, (one * rate)[..., None] + theta)

    def update(self, statistics: Statistics, previous: DiagonalParameters) -> DiagonalParameters:
        """theta and s from the previous a, b; then a, b from the new theta."""
        count, first = statistics.count[..., None], statistics.first
        precision, shape, rate = (for_columns(value, count) for value in self.prior.columns())
        beta = self.expected_precisions(previous)
        shrink = 1 / (precision + beta * count)
        theta = first * (beta * shrink)
        s = shrink if self.mean_covariance == "optimal" else torch.ones_like(shrink)
        square = scatter_of_columns(theta, statistics)
        return DiagonalParameters(theta, s, (shape + 0.5 * count)[..., 0], rate + 0.5 * (square + count * s))

    def kl(self, parameters: DiagonalParameters) -> Float[Tensor, "*task k"]:
        """The sum over columns of KL(q(mu_kd) || N(0, 1 / l0)) + KL(q(beta_kd) || Gamma(a0, b0))."""
        theta, s, a, b = parameters.theta, parameters.s, parameters.a[..., None], parameters.b
        l0, a0, b0 = (for_columns(value, a) for value in self.prior.columns())
        mean = 0.5 * (l0 * theta.square() + l0 * s - 1 - (l0 * s).log())
        gamma = torch.lgamma(a0) - torch.lgamma(a) + (a - a0) * torch.digamma(a)
        return (mean + gamma + a0 * (b.log() - b0.log()) + a * (b0 - b) / b).sum(-1)

    def weights(self, parameters: DiagonalParameters, constant: Float[Tensor, "*task k"]) -> Float[Tensor, "*task k f"]:
        beta, theta = self.expected_precisions(parameters), parameters.theta
        scaled = beta * theta
        return torch.cat(((constant - 0.5 * (scaled * theta).sum(-1))[..., None], scaled, -0.5 * beta), -1)

    def expected_constant(self, parameters: DiagonalParameters) -> Float[Tensor, "*task k"]:
        """sum_d (E[log beta_kd] - log 2 pi - E[beta_kd] s_kd) / 2."""
        expected_log_beta = torch.digamma(parameters.a)[..., None] - parameters.b.log()
        return 0.5 * (expected_log_beta - LOG_2PI - self.expected_precisions(parameters) * parameters.s).sum(-1)

    def maximize(self, statistics: Statistics) -> DiagonalParameters:
        """Maximum likelihood: a / b is the precision and s = 0."""
        theta = statistics.first / statistics.count[..., None]
        square = scatter_of_columns(theta, statistics)
        return DiagonalParameters(theta, torch.zeros_like(theta), 0.5 * statistics.count, 0.5 * square)

    def constant(self, parameters: DiagonalParameters) -> Float[Tensor, "*task k"]:
        """sum_d (log beta_kd - log 2 pi) / 2."""
        return 0.5 * (self.expected_precisions(parameters).log() - LOG_2PI).sum(-1)

    def standard_features(self, like: Float[Tensor, "*task k s"]) -> Float[Tensor, " f"]:
        one = like.new_ones(like.shape[-1])
        return torch.cat((one[:1], torch.zeros_like(one), one))

    def expected_precisions(self, parameters: DiagonalParameters) -> Float[Tensor, "*task k s"]:
        return parameters.a[..., None] / parameters.b

    def around(self, means: Float[Tensor, "k s"], precision: float) -> DiagonalParameters:
        return DiagonalParameters(
            means, torch.zeros_like(means), precision * means.new_ones(len(means)), torch.ones_like(means)
        )

    @classmethod
    def default_prior(cls, width: int) -> Prior:
        """Means are spread as the rows are; the variance of a column counts as much as one row at unit distance."""
        return Prior(mean_precision=1.0, shape=0.5, rate=0.5)

    @classmethod
    def scale(cls, covariance: Covariance) -> Float[Tensor, " s"]:
        """A number for each column, so that it has unit variance; columns that are constant keep their scale."""
        variance = variances_of(covariance)
        return variance.where(variance > 0, 1).rsqrt()


def for_columns(value: float | Tensor, like: Float[Tensor, "*task k 1"]) -> Tensor:
    """A parameter of the prior, shaped to broadcast against (*task, k, s)."""
    return torch.as_tensor(value, dtype=like.dtype, device=like.device)[..., None]


def scatter_of_columns(theta: Float[Tensor, "*task k s"], statistics: Statistics) -> Float[Tensor, "*task k s"]:
    """sum_n r_nk (z_nd - theta_kd)^2, clamped at zero because rounding could make it negative."""
    return (statistics.second + theta * (statistics.count[..., None] * theta - 2 * statistics.first)).clamp_min(0)
