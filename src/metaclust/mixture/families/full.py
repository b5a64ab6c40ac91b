"""Full-covariance components: Lambda_k ~ Wishart(nu0, W0), mu_k | Lambda_k ~ N(0, (l0 Lambda_k)^-1).

q(mu_k, Lambda_k) is Normal-Wishart with mean theta_k, kappa_k, a_k degrees of freedom and the
inverse scale matrix b_k, so that E[Lambda_k] = a_k b_k^-1, as a_k / b_k is for spherical ones.
The prior nu0 = S - 1 + 2 a0, W0^-1 = nu0 b0 / a0 I has E[Lambda] = a0 / b0 I and is Gamma(a0, b0) at S = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metaclust.mixture.families.spherical import LOG_2PI
from metaclust.mixture.prior import PAPER, Prior
from metaclust.mixture.statistics import Statistics, row_weights


@dataclass(frozen=True)
class FullParameters:
    theta: Float[Tensor, "*task k s"]
    kappa: Float[Tensor, "*task k"]
    a: Float[Tensor, "*task k"]
    b: Float[Tensor, "*task k s s"]
    factor: Float[Tensor, "*task k s s"]
    """The lower Cholesky factor of b."""


@dataclass(frozen=True)
class Full:
    """The component family; the joint q(mu_k, Lambda_k) is updated in closed form."""

    prior: Prior = PAPER

    def wishart(self, like: Float[Tensor, "*task k"], width: int) -> tuple[Tensor, Tensor, Tensor]:
        """l0, nu0 and w0 (W0^-1 = w0 I) of each component."""
        precision, shape, rate = (torch.as_tensor(value, dtype=like.dtype) for value in self.prior.columns())
        nu0 = width - 1 + 2 * shape
        return tuple(value.to(like.device).expand_as(like) for value in (precision, nu0, nu0 * rate / shape))  # type: ignore[return-value]

    def features(
        self, z: Float[Tensor, "*task n s"], mask: Bool[Tensor, "*task n"] | None = None
    ) -> Float[Tensor, "*task n f"]:
        """(1, z); all zero for padding, which then adds nothing to the statistics."""
        return torch.cat((row_weights(z, mask), z), -1)

    def statistics(self, features: Float[Tensor, "*task n f"], r: Float[Tensor, "*task n k"]) -> Statistics:
        sums = r.mT @ features
        z = features[..., None, :, 1:]
        return Statistics(count=sums[..., 0], first=sums[..., 1:], second=(r.mT[..., None] * z).mT @ z)

    def start(self, features: Float[Tensor, "*task n f"], k: int) -> FullParameters:
        width = features.shape[-1] - 1
        kappa, a, scale = self.wishart(features.new_empty((*features.shape[:-2], k)), width)
        theta = features.new_zeros((*kappa.shape, width))
        b = scale[..., None, None] * identity(theta)
        return FullParameters(theta, kappa, a, b, torch.linalg.cholesky(b))

    def update(self, statistics: Statistics, previous: FullParameters) -> FullParameters:
        """kappa = l0 + N_k, theta = sum r z / kappa, a = nu0 + N_k, b = W0^-1 + sum r z z^T - kappa theta theta^T."""
        precision, nu0, scale = self.wishart(statistics.count, statistics.first.shape[-1])
        kappa = precision + statistics.count
        theta = statistics.first / kappa[..., None]
        b = scatter_matrix(theta, kappa, statistics) + scale[..., None, None] * identity(theta)
        return FullParameters(theta, kappa, nu0 + statistics.count, b, torch.linalg.cholesky(b))

    def expected_log_likelihood(
        self, features: Float[Tensor, "*task n f"], parameters: FullParameters
    ) -> Float[Tensor, "*task n k"]:
        """(E[log |Lambda_k|] - S log 2 pi - S / kappa_k - a_k (z - theta_k)^T b_k^-1 (z - theta_k)) / 2."""
        width = parameters.theta.shape[-1]
        constant = expected_log_det(parameters) - width * (LOG_2PI + 1 / parameters.kappa)
        square = parameters.a[..., None, :] * mahalanobis(features, parameters)
        return 0.5 * (constant[..., None, :] - square)

    def kl(self, parameters: FullParameters) -> Float[Tensor, "*task k"]:
        """KL of the Normal-Wishart posterior from its prior, every constant included."""
        theta, kappa, a = parameters.theta, parameters.kappa, parameters.a
        width = theta.shape[-1]
        precision, nu0, scale = self.wishart(a, width)
        inverse = torch.cholesky_inverse(parameters.factor)
        quadratic = (theta[..., None, :] @ inverse @ theta[..., None])[..., 0, 0]
        mean = 0.5 * (width * (precision / kappa - 1 + (kappa / precision).log()) + precision * a * quadratic)
        trace = scale * inverse.diagonal(dim1=-2, dim2=-1).sum(-1)
        half = torch.arange(width, dtype=a.dtype, device=a.device) / 2
        digammas = torch.digamma(a[..., None] / 2 - half).sum(-1)
        wishart = (
            0.5 * nu0 * (log_det(parameters.factor) - width * scale.log())
            + 0.5 * a * (trace - width)
            + torch.mvlgamma(nu0 / 2, width)
            - torch.mvlgamma(a / 2, width)
            + 0.5 * (a - nu0) * digammas
        )
        return mean + wishart

    def maximize(self, statistics: Statistics) -> FullParameters:
        """Maximum likelihood, for the EM algorithm: a b^-1 is the precision matrix."""
        count = statistics.count
        theta = statistics.first / count[..., None]
        b = scatter_matrix(theta, count, statistics)
        return FullParameters(theta, count, count, b, torch.linalg.cholesky(b))

    def log_likelihood(
        self, features: Float[Tensor, "*task n f"], parameters: FullParameters
    ) -> Float[Tensor, "*task n k"]:
        """log N(z_n; theta_k, b_k / a_k)."""
        width = parameters.theta.shape[-1]
        constant = width * (parameters.a.log() - LOG_2PI) - log_det(parameters.factor)
        square = parameters.a[..., None, :] * mahalanobis(features, parameters)
        return 0.5 * (constant[..., None, :] - square)

    def with_standard_rows(self, statistics: Statistics, rows: float) -> Statistics:
        """Each component also sees ``rows`` rows drawn from N(0, I), in expectation."""
        second = statistics.second + rows * identity(statistics.first)
        return Statistics(statistics.count + rows, statistics.first, second)

    def standard_log_likelihood(self, parameters: FullParameters) -> Float[Tensor, "*task k"]:
        """The expectation of log N(z; theta_k, b_k / a_k) over z drawn from N(0, I)."""
        theta, a = parameters.theta, parameters.a
        inverse = torch.cholesky_inverse(parameters.factor)
        square = (
            inverse.diagonal(dim1=-2, dim2=-1).sum(-1) + (theta[..., None, :] @ inverse @ theta[..., None])[..., 0, 0]
        )
        return 0.5 * (theta.shape[-1] * (a.log() - LOG_2PI) - log_det(parameters.factor) - a * square)


def identity(like: Float[Tensor, "*task n s"]) -> Float[Tensor, "s s"]:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


def log_det(factor: Float[Tensor, "*task k s s"]) -> Float[Tensor, "*task k"]:
    """log |b| from its Cholesky factor."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def scatter_matrix(
    theta: Float[Tensor, "*task k s"], weight: Float[Tensor, "*task k"], statistics: Statistics
) -> Float[Tensor, "*task k s s"]:
    """sum_n r_nk z_n z_n^T - weight_k theta_k theta_k^T, symmetric.

    The subtraction can leave a matrix that is not positive definite by as much as the rounding of
    its terms, so that much is added to the diagonal.
    """
    scatter = statistics.second - (weight[..., None] * theta)[..., :, None] * theta[..., None, :]
    trace = statistics.second.diagonal(dim1=-2, dim2=-1).sum(-1)
    rounding = (4 * torch.finfo(trace.dtype).eps) * trace.detach()
    return 0.5 * (scatter + scatter.mT) + rounding[..., None, None] * identity(theta)


def expected_log_det(parameters: FullParameters) -> Float[Tensor, "*task k"]:
    """E[log |Lambda_k|] = sum_i psi((a_k + 1 - i) / 2) + S log 2 - log |b_k|."""
    width = parameters.theta.shape[-1]
    half = torch.arange(width, dtype=parameters.a.dtype, device=parameters.a.device) / 2
    digammas = torch.digamma(parameters.a[..., None] / 2 - half).sum(-1)
    log_two = torch.log(torch.full_like(parameters.a, 2.0))
    return digammas + width * log_two - log_det(parameters.factor)


def mahalanobis(features: Float[Tensor, "*task n f"], parameters: FullParameters) -> Float[Tensor, "*task n k"]:
    """(z_n - theta_k)^T b_k^-1 (z_n - theta_k)."""
    difference = features[..., None, :, 1:] - parameters.theta[..., :, None, :]
    whitened = torch.linalg.solve_triangular(parameters.factor, difference.mT, upper=False)
    squared: Tensor = whitened.square().sum(-2)
    return squared.mT
