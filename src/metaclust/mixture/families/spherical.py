"""Spherical components: mu_k ~ N(0, I / l0), beta_k ~ Gamma(a0, b0), z ~ N(mu_k, I / beta_k).

q(mu_k) = N(theta_k, s_k I) and q(beta_k) = Gamma(a_k, b_k), with shape a and *rate* b. The paper has l0 = a0 = b0 = 1
and fixes s_k = 1 ("unit"): no component can then be much narrower than unit variance.
The free optimum is s_k = 1 / (l0 + E[beta_k] N_k) ("optimal").
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
class SphericalParameters:
    """q(mu_k) = N(theta_k, s_k I), q(beta_k) = Gamma(a_k, b_k)."""

    theta: Float[Tensor, "*task k s"]
    s: Float[Tensor, "*task k"]
    a: Float[Tensor, "*task k"]
    b: Float[Tensor, "*task k"]


@dataclass(frozen=True)
class Spherical(Family):
    """Components with one variance each; the features are (1, ||z||^2, z)."""

    mean_covariance: MeanCovariance = "unit"

    parameters_type = SphericalParameters
    precision_axes = 0
    first_column = 2

    def feature_count(self, width: int) -> int:
        return width + 2

    def width(self, feature_count: int) -> int:
        return feature_count - 2

    def features(
        self, z: Float[Tensor, "*task n s"], mask: Bool[Tensor, "*task n"] | None = None
    ) -> Float[Tensor, "*task n f"]:
        return torch.cat((row_weights(z, mask), z.square().sum(-1, keepdim=True), z), -1)

    def fill(self, features: Float[Tensor, "f n"]) -> None:
        features[0] = 1
        torch.sum(features[2:].square(), 0, out=features[1])

    def read(self, sums: Float[Tensor, "*task k f"]) -> Statistics:
        return Statistics(count=sums[..., 0], first=sums[..., 2:], second=sums[..., 1])

    def start(self, features: Float[Tensor, "*task n f"], k: int) -> SphericalParameters:
        precision, shape, rate = self.prior.columns()
        one = features.new_ones((*features.shape[:-2], k))
        theta = features.new_zeros((*one.shape, features.shape[-1] - 2))
        s = one / precision if self.mean_covariance == "optimal" else one
        return SphericalParameters(theta, s, one * shape, one * rate)

    def update(self, statistics: Statistics, previous: SphericalParameters) -> SphericalParameters:
        """Eq. 7: theta (and s) from the previous a, b; then a, b from the new theta.

        Erratum: the weight in theta is E[beta_k] = a_k / b_k, where the paper prints b_k / a_k.
        """
        count, first, second = statistics.count, statistics.first, statistics.second
        width = first.shape[-1]
        precision, shape, rate = self.prior.columns()
        beta = previous.a / previous.b
        shrink = 1 / (precision + beta * count)
        theta = first * (beta * shrink)[..., None]
        s = shrink if self.mean_covariance == "optimal" else torch.ones_like(shrink)
        square = scatter_around(theta, count, first, second)
        return SphericalParameters(
            theta=theta, s=s, a=shape + (width / 2) * count, b=rate + 0.5 * (square + width * (count * s))
        )

    def kl(self, parameters: SphericalParameters) -> Float[Tensor, "*task k"]:
        """KL(q(mu_k) || N(0, I / l0)) + KL(q(beta_k) || Gamma(a0, b0))."""
        theta, s, a, b = parameters.theta, parameters.s, parameters.a, parameters.b
        width = theta.shape[-1]
        l0, a0, b0 = (torch.as_tensor(value, dtype=a.dtype, device=a.device) for value in self.prior.columns())
        mean = 0.5 * (l0 * theta.square().sum(-1) + width * (l0 * s - 1 - (l0 * s).log()))
        gamma = torch.lgamma(a0) - torch.lgamma(a) + (a - a0) * torch.digamma(a)
        return mean + gamma + a0 * (b.log() - b0.log()) + a * (b0 - b) / b

    def weights(
        self, parameters: SphericalParameters, constant: Float[Tensor, "*task k"]
    ) -> Float[Tensor, "*task k f"]:
        beta, theta = self.expected_precisions(parameters)[..., None], parameters.theta
        scaled = beta * theta
        return torch.cat(((constant - 0.5 * (scaled * theta).sum(-1))[..., None], -0.5 * beta, scaled), -1)

    def expected_constant(self, parameters: SphericalParameters) -> Float[Tensor, "*task k"]:
        """S / 2 (E[log beta_k] - log 2 pi - E[beta_k] s_k), from Eq. 8.

        Erratum: the precision term is + S/2 (psi(a_k) - log b_k), where the paper prints a minus.
        """
        beta = self.expected_precisions(parameters)
        expected_log_beta = torch.digamma(parameters.a) - parameters.b.log()
        return 0.5 * (parameters.theta.shape[-1] * (expected_log_beta - LOG_2PI - beta * parameters.s))

    def maximize(self, statistics: Statistics) -> SphericalParameters:
        """Maximum likelihood: a / b is the precision and s = 0."""
        count, first = statistics.count, statistics.first
        theta = first / count[..., None]
        square = scatter_around(theta, count, first, statistics.second)
        return SphericalParameters(theta, torch.zeros_like(count), 0.5 * first.shape[-1] * count, 0.5 * square)

    def constant(self, parameters: SphericalParameters) -> Float[Tensor, "*task k"]:
        """S / 2 (log beta_k - log 2 pi)."""
        return 0.5 * parameters.theta.shape[-1] * (self.expected_precisions(parameters).log() - LOG_2PI)

    def standard_features(self, like: Float[Tensor, "*task k s"]) -> Float[Tensor, " f"]:
        width = like.shape[-1]
        features = like.new_zeros(width + 2)
        features[0], features[1] = 1, width
        return features

    def expected_precisions(self, parameters: SphericalParameters) -> Float[Tensor, "*task k"]:
        return parameters.a / parameters.b

    def around(self, means: Float[Tensor, "k s"], precision: float) -> SphericalParameters:
        one = means.new_ones(len(means))
        return SphericalParameters(means, torch.zeros_like(one), precision * one, one)

    @classmethod
    def default_prior(cls, width: int) -> Prior:
        """Means are spread as the rows are; the variance counts as much as one row at the average distance."""
        return Prior(mean_precision=1.0, shape=0.5 * width, rate=0.5 * width)

    @classmethod
    def scale(cls, covariance: Covariance) -> Float[Tensor, ""]:
        """One number: the columns have unit variance on average."""
        return variances_of(covariance).mean().rsqrt()


def scatter_around(
    theta: Float[Tensor, "*task k s"],
    count: Float[Tensor, "*task k"],
    first: Float[Tensor, "*task k s"],
    second: Float[Tensor, "*task k"],
) -> Float[Tensor, "*task k"]:
    """sum_n r_nk ||z_n - theta_k||^2, clamped at zero because rounding could make it negative."""
    return (second + (theta * (count[..., None] * theta - 2 * first)).sum(-1)).clamp_min(0)
