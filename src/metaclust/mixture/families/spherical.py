"""Spherical components: mu_k ~ N(0, I / l0), beta_k ~ Gamma(a0, b0), z ~ N(mu_k, I / beta_k). The paper has all at 1.

q(mu_k) = N(theta_k, s_k I) and q(beta_k) = Gamma(a_k, b_k), with shape a and *rate* b.
The paper fixes s_k = 1 ("unit"): no component is then narrower than about unit variance.
The free optimum is s_k = 1 / (l0 + E[beta_k] N_k) ("optimal").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metaclust.mixture.prior import PAPER, Prior
from metaclust.mixture.statistics import Statistics, row_weights

MeanCovariance = Literal["unit", "optimal"]
LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class SphericalParameters:
    theta: Float[Tensor, "*task k s"]
    s: Float[Tensor, "*task k"]
    a: Float[Tensor, "*task k"]
    b: Float[Tensor, "*task k"]


@dataclass(frozen=True)
class Spherical:
    """The component family."""

    mean_covariance: MeanCovariance = "unit"
    prior: Prior = PAPER

    def features(
        self, z: Float[Tensor, "*task n s"], mask: Bool[Tensor, "*task n"] | None = None
    ) -> Float[Tensor, "*task n f"]:
        """(1, ||z||^2, z): the statistics and the expected log likelihood are one product each with it.

        All zero for padding, which then adds nothing to the statistics.
        """
        return torch.cat((row_weights(z, mask), z.square().sum(-1, keepdim=True), z), -1)

    def statistics(self, features: Float[Tensor, "*task n f"], r: Float[Tensor, "*task n k"]) -> Statistics:
        return self.read(r.mT @ features)

    def read(self, sums: Float[Tensor, "*task k f"]) -> Statistics:
        """The statistics that are sums of the features, weighted by the assignments."""
        return Statistics(count=sums[..., 0], first=sums[..., 2:], second=sums[..., 1])

    def start(self, features: Float[Tensor, "*task n f"], k: int) -> SphericalParameters:
        """The prior itself."""
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

    def expected_log_likelihood(
        self, features: Float[Tensor, "*task n f"], parameters: SphericalParameters
    ) -> Float[Tensor, "*task n k"]:
        """E[log N(z_n; mu_k, I/beta_k)], from Eq. 8."""
        return (self.score_weights(parameters) @ features.mT).mT

    def score_weights(self, parameters: SphericalParameters) -> Float[Tensor, "*task k f"]:
        """What the features are multiplied with for the expected log likelihood.

        Erratum: the precision term is + S/2 (psi(a_k) - log b_k), where the paper prints a minus.
        """
        width = parameters.theta.shape[-1]
        beta = parameters.a / parameters.b
        expected_log_beta = torch.digamma(parameters.a) - parameters.b.log()
        constant = 0.5 * (width * (expected_log_beta - LOG_2PI - beta * parameters.s))
        return spherical_weights(parameters.theta, beta, constant)

    def kl(self, parameters: SphericalParameters) -> Float[Tensor, "*task k"]:
        """KL(q(mu_k) || N(0, I / l0)) + KL(q(beta_k) || Gamma(a0, b0))."""
        theta, s, a, b = parameters.theta, parameters.s, parameters.a, parameters.b
        width = theta.shape[-1]
        l0, a0, b0 = (torch.as_tensor(value, dtype=a.dtype, device=a.device) for value in self.prior.columns())
        mean = 0.5 * (l0 * theta.square().sum(-1) + width * (l0 * s - 1 - (l0 * s).log()))
        gamma = torch.lgamma(a0) - torch.lgamma(a) + (a - a0) * torch.digamma(a)
        return mean + gamma + a0 * (b.log() - b0.log()) + a * (b0 - b) / b

    def maximize(self, statistics: Statistics) -> SphericalParameters:
        """Maximum likelihood, for the EM algorithm: a / b is the precision and s = 0."""
        count, first = statistics.count, statistics.first
        theta = first / count[..., None]
        square = scatter_around(theta, count, first, statistics.second)
        return SphericalParameters(theta, torch.zeros_like(count), 0.5 * first.shape[-1] * count, 0.5 * square)

    def log_likelihood(
        self, features: Float[Tensor, "*task n f"], parameters: SphericalParameters
    ) -> Float[Tensor, "*task n k"]:
        """log N(z_n; theta_k, (b_k / a_k) I)."""
        beta = parameters.a / parameters.b
        constant = 0.5 * parameters.theta.shape[-1] * (beta.log() - LOG_2PI)
        return features @ spherical_weights(parameters.theta, beta, constant).mT

    def with_standard_rows(self, statistics: Statistics, rows: float) -> Statistics:
        """Each component also sees ``rows`` rows drawn from N(0, I), in expectation."""
        width = statistics.first.shape[-1]
        return Statistics(statistics.count + rows, statistics.first, statistics.second + rows * width)

    def standard_log_likelihood(self, parameters: SphericalParameters) -> Float[Tensor, "*task k"]:
        """The expectation of log N(z; theta_k, (b_k / a_k) I) over z drawn from N(0, I)."""
        beta, width = parameters.a / parameters.b, parameters.theta.shape[-1]
        return 0.5 * (width * (beta.log() - LOG_2PI) - beta * (parameters.theta.square().sum(-1) + width))


def scatter_around(
    theta: Float[Tensor, "*task k s"],
    count: Float[Tensor, "*task k"],
    first: Float[Tensor, "*task k s"],
    second: Float[Tensor, "*task k"],
) -> Float[Tensor, "*task k"]:
    """sum_n r_nk ||z_n - theta_k||^2; never below zero, which rounding could make it."""
    return (second + (theta * (count[..., None] * theta - 2 * first)).sum(-1)).clamp_min(0)


def spherical_weights(
    theta: Float[Tensor, "*task k s"], beta: Float[Tensor, "*task k"], constant: Float[Tensor, "*task k"]
) -> Float[Tensor, "*task k f"]:
    """The product of the features (1, ||z||^2, z) with these is constant_k - beta_k / 2 ||z_n - theta_k||^2."""
    scaled = beta[..., None] * theta
    return torch.cat(((constant - 0.5 * (scaled * theta).sum(-1))[..., None], -0.5 * beta[..., None], scaled), -1)
