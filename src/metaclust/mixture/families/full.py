"""Full-covariance components: Lambda_k ~ Wishart(nu0, W0), mu_k | Lambda_k ~ N(0, (l0 Lambda_k)^-1).

q(mu_k, Lambda_k) is Normal-Wishart with mean theta_k, kappa_k, a_k degrees of freedom and the
inverse scale matrix b_k, so that E[Lambda_k] = a_k b_k^-1, as a_k / b_k is for spherical ones.
The prior nu0 = S - 1 + 2 a0, W0^-1 = nu0 b0 / a0 I has E[Lambda] = a0 / b0 I and is Gamma(a0, b0) at S = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from metaclust.mixture.families.base import LOG_2PI, Array, Family
from metaclust.mixture.prior import Prior
from metaclust.mixture.statistics import Statistics, row_weights


@dataclass(frozen=True)
class FullParameters:
    """q(mu_k, Lambda_k) = N(mu_k; theta_k, (kappa_k Lambda_k)^-1) Wishart(Lambda_k; a_k, b_k^-1)."""

    theta: Float[Tensor, "*task k s"]
    kappa: Float[Tensor, "*task k"]
    a: Float[Tensor, "*task k"]
    b: Float[Tensor, "*task k s s"]
    factor: Float[Tensor, "*task k s s"]
    """The lower Cholesky factor of b."""


@dataclass(frozen=True)
class Full(Family):
    """Components with a covariance matrix each; the features are (1, z, z_i z_j for i <= j)."""

    parameters_type = FullParameters
    precision_axes = 2
    first_column = 1

    def wishart(self, like: Float[Tensor, "*task k"], width: int) -> tuple[Tensor, Tensor, Tensor]:
        """l0, nu0 and w0 (W0^-1 = w0 I) of each component."""
        precision, shape, rate = (torch.as_tensor(value, dtype=like.dtype) for value in self.prior.columns())
        nu0 = width - 1 + 2 * shape
        return tuple(value.to(like.device).expand_as(like) for value in (precision, nu0, nu0 * rate / shape))  # type: ignore[return-value]

    def feature_count(self, width: int) -> int:
        return (width + 1) * (width + 2) // 2

    def width(self, feature_count: int) -> int:
        return (math.isqrt(8 * feature_count + 1) - 3) // 2

    def features(
        self, z: Float[Tensor, "*task n s"], mask: Bool[Tensor, "*task n"] | None = None
    ) -> Float[Tensor, "*task n f"]:
        rows, columns = torch.triu_indices(z.shape[-1], z.shape[-1], device=z.device)
        return torch.cat((row_weights(z, mask), z, z[..., rows] * z[..., columns]), -1)

    def fill(self, features: Float[Tensor, "f n"]) -> None:
        z = self.place(features)
        features[0] = 1
        first = len(z) + 1
        for i in range(len(z)):
            torch.mul(z[i], z[i:], out=features[first : first + len(z) - i])
            first += len(z) - i

    def read(self, sums: Float[Tensor, "*task k f"]) -> Statistics:
        width = self.width(sums.shape[-1])
        second = sums[..., width + 1 :].index_select(-1, triangle_places(width, sums.device).flatten())
        return Statistics(sums[..., 0], sums[..., 1 : width + 1], second.unflatten(-1, (width, width)))

    def start(self, features: Float[Tensor, "*task n f"], k: int) -> FullParameters:
        width = self.width(features.shape[-1])
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

    def kl(self, parameters: FullParameters) -> Float[Tensor, "*task k"]:
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

    def weights(self, parameters: FullParameters, constant: Float[Tensor, "*task k"]) -> Float[Tensor, "*task k f"]:
        """The square multiplied out: with the precision P = a_k b_k^-1, -(z - theta)^T P (z - theta) / 2 is
        -theta^T P theta / 2 + z^T P theta - sum_i P_ii z_i^2 / 2 - sum_{i<j} P_ij z_i z_j.
        """
        theta, width = parameters.theta, parameters.theta.shape[-1]
        precision = self.expected_precisions(parameters)
        linear = (precision @ theta[..., None])[..., 0]
        quadratic = -(precision - 0.5 * precision * identity(theta))
        rows, columns = torch.triu_indices(width, width, device=theta.device)
        shifted = constant - 0.5 * (linear * theta).sum(-1)
        return torch.cat((shifted[..., None], linear, quadratic[..., rows, columns]), -1)

    def scores(
        self, features: Float[Tensor, "*#task n f"], parameters: FullParameters, constant: Float[Tensor, "*task k"]
    ) -> Float[Tensor, "*task n k"]:
        """From the differences z - theta: multiplied out, the terms of rows far from zero would cancel."""
        z = features[..., None, :, 1 : parameters.theta.shape[-1] + 1]
        difference = z - parameters.theta[..., :, None, :]
        whitened = torch.linalg.solve_triangular(parameters.factor, difference.mT, upper=False)
        square = parameters.a[..., None, :] * whitened.square().sum(-2).mT
        scores: Tensor = constant[..., None, :] - 0.5 * square
        return scores

    def expected_constant(self, parameters: FullParameters) -> Float[Tensor, "*task k"]:
        """(E[log |Lambda_k|] - S log 2 pi - S / kappa_k) / 2."""
        width = parameters.theta.shape[-1]
        return 0.5 * (expected_log_det(parameters) - width * (LOG_2PI + 1 / parameters.kappa))

    def maximize(self, statistics: Statistics) -> FullParameters:
        """Maximum likelihood: a b^-1 is the precision matrix."""
        count = statistics.count
        theta = statistics.first / count[..., None]
        b = scatter_matrix(theta, count, statistics)
        return FullParameters(theta, count, count, b, torch.linalg.cholesky(b))

    def constant(self, parameters: FullParameters) -> Float[Tensor, "*task k"]:
        """(S (log a_k - log 2 pi) - log |b_k|) / 2."""
        return 0.5 * (parameters.theta.shape[-1] * (parameters.a.log() - LOG_2PI) - log_det(parameters.factor))

    def standard_features(self, like: Float[Tensor, "*task k s"]) -> Float[Tensor, " f"]:
        rows, columns = torch.triu_indices(like.shape[-1], like.shape[-1], device=like.device)
        zero = like.new_zeros(like.shape[-1])
        return torch.cat((like.new_ones(1), zero, (rows == columns).to(like.dtype)))

    def expected_precisions(self, parameters: FullParameters) -> Float[Tensor, "*task k s s"]:
        return parameters.a[..., None, None] * torch.cholesky_inverse(parameters.factor)

    def around(self, means: Float[Tensor, "k s"], precision: float) -> FullParameters:
        one = means.new_ones(len(means))
        b = (identity(means) / precision).expand(len(means), -1, -1)
        return FullParameters(means, one, one * means.shape[-1], means.shape[-1] * b, (means.shape[-1] * b).sqrt())

    @classmethod
    def default_prior(cls, width: int) -> Prior:
        """scikit-learn's: as many degrees of freedom as columns, a component's covariance expected to be that of the
        rows, and the mean as certain as from one row.
        """
        return Prior(mean_precision=1.0, shape=0.5, rate=0.5 / width)

    @classmethod
    def scale(cls, covariance: Float[Tensor, "s s"]) -> Float[Tensor, "s s"]:
        """A whitening matrix. The diagonal of the correlation is raised by a millionth, for columns that are constant
        or depend linearly on others.
        """
        variance = covariance.diagonal()
        deviation = variance.sqrt().where(variance > 0, 1)
        correlation = covariance / torch.outer(deviation, deviation)
        factor = torch.linalg.cholesky(correlation + 1e-6 * identity(covariance))
        whitening: Tensor = torch.linalg.inv(factor * deviation[:, None])
        return whitening

    @classmethod
    def rescaled(cls, precisions: Array, scale: Array) -> Array:
        result: Array = scale.T @ precisions @ scale
        return result

    @classmethod
    def inverse(cls, precisions: Array) -> Array:
        return np.asarray(np.linalg.inv(precisions), np.float64)

    @classmethod
    def squares(cls, difference: Array, precisions: Array) -> Array:
        result: Array = np.einsum("kns,kst,knt->kn", difference, precisions, difference, optimize=True)
        return result

    @classmethod
    def correlated(cls, noise: Array, covariances: Array, labels: NDArray[np.int64]) -> Array:
        result: Array = np.einsum("nst,nt->ns", np.linalg.cholesky(covariances)[labels], noise)
        return result


def identity(like: Float[Tensor, "*task n s"]) -> Float[Tensor, "s s"]:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


def triangle_places(width: int, device: torch.device) -> Int[Tensor, "s s"]:
    """The place of z_i z_j among the products with i <= j, for each i and j."""
    rows, columns = torch.triu_indices(width, width, device=device)
    places = torch.empty((width, width), dtype=torch.int64, device=device)
    places[rows, columns] = places[columns, rows] = torch.arange(len(rows), device=device)
    return places


def log_det(factor: Float[Tensor, "*task k s s"]) -> Float[Tensor, "*task k"]:
    """log |b| from its Cholesky factor."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def scatter_matrix(
    theta: Float[Tensor, "*task k s"], weight: Float[Tensor, "*task k"], statistics: Statistics
) -> Float[Tensor, "*task k s s"]:
    """sum_n r_nk z_n z_n^T - weight_k theta_k theta_k^T, symmetric.

    Rounding in the subtraction can leave a matrix that is not positive definite, by as much as the rounding error of
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
