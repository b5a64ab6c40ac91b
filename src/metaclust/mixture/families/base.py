"""The interface of a component family, and everything that does not depend on which family it is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util.moments import Covariance
from metaclust.mixture.prior import PAPER, Prior
from metaclust.mixture.statistics import Statistics

MeanCovariance = Literal["unit", "optimal"]
Array = NDArray[np.float64]
LOG_2PI = math.log(2 * math.pi)
ARRAYS = 8
"""About so many arrays of statistics, weights and parameters are in memory at a time."""
PSEUDO_ROWS = 1e-6
"""The number of standard-normal rows that each component of the EM algorithm sees besides its own.

A component without rows would have no mean and no variance. These make its update well defined, and the
likelihood that includes them still never falls.
"""


@dataclass(frozen=True)
class Family(ABC):
    """A family of mixture components: the prior, the update of q, the likelihood and the KL divergence.

    Statistics and scores are one matrix product each with features of the rows, which hold 1, z and squares of z:

        statistics = read(r^T features),    constant_k - (z - theta_k)^T P_k (z - theta_k) / 2 = features weights^T.

    Everything has leading task axes, except where rows come in blocks: there, features are (f, n).
    """

    prior: Prior = PAPER

    parameters_type: ClassVar[type]
    """The dataclass of the parameters of q: theta, a, b and whatever else the family needs."""
    precision_axes: ClassVar[int]
    """A component's precision is a number (0), a number for each column (1) or a matrix (2)."""
    first_column: ClassVar[int]
    """The place of z among the features."""

    # Features and statistics

    @abstractmethod
    def feature_count(self, width: int) -> int:
        """The number of features of a row with ``width`` columns."""

    @abstractmethod
    def width(self, feature_count: int) -> int:
        """The number of columns of a row with this many features."""

    @abstractmethod
    def features(
        self, z: Float[Tensor, "*task n s"], mask: Bool[Tensor, "*task n"] | None = None
    ) -> Float[Tensor, "*task n f"]:
        """The features of rows. Those of padding are zero, so that it adds nothing to the statistics."""

    @abstractmethod
    def fill(self, features: Float[Tensor, "f n"]) -> None:
        """Compute the features of a block in place, given z at :meth:`place`."""

    def place(self, features: Float[Tensor, "f n"]) -> Float[Tensor, "s n"]:
        """The part of a block's features that is z itself, as a view."""
        return features[self.first_column : self.first_column + self.width(len(features))]

    @abstractmethod
    def read(self, sums: Float[Tensor, "*task k f"]) -> Statistics:
        """The statistics, given r^T features."""

    def statistics(self, features: Float[Tensor, "*#task n f"], r: Float[Tensor, "*task n k"]) -> Statistics:
        return self.read(r.mT @ features)

    # Variational Bayes

    @abstractmethod
    def start(self, features: Float[Tensor, "*task n f"], k: int) -> Any:
        """The parameters of the prior, for each of ``k`` components."""

    @abstractmethod
    def update(self, statistics: Statistics, previous: Any) -> Any:
        """The parameters that maximize the bound given the assignments."""

    @abstractmethod
    def kl(self, parameters: Any) -> Float[Tensor, "*task k"]:
        """KL(q || prior) of each component, including every constant."""

    @abstractmethod
    def weights(self, parameters: Any, constant: Float[Tensor, "*task k"]) -> Float[Tensor, "*task k f"]:
        """A new tensor whose product with the features is constant_k - (z - theta_k)^T P_k (z - theta_k) / 2."""

    @abstractmethod
    def expected_constant(self, parameters: Any) -> Float[Tensor, "*task k"]:
        """The terms of E[log N(z | k)] that do not depend on z."""

    def scores(
        self, features: Float[Tensor, "*#task n f"], parameters: Any, constant: Float[Tensor, "*task k"]
    ) -> Float[Tensor, "*task n k"]:
        """constant_k - (z_n - theta_k)^T P_k (z_n - theta_k) / 2."""
        return (self.weights(parameters, constant) @ features.mT).mT

    def score_weights(self, parameters: Any) -> Float[Tensor, "*task k f"]:
        """A new tensor whose product with the features is the expected log likelihood."""
        return self.weights(parameters, self.expected_constant(parameters))

    def expected_log_likelihood(
        self, features: Float[Tensor, "*#task n f"], parameters: Any
    ) -> Float[Tensor, "*task n k"]:
        """E[log N(z_n | k)] under q."""
        return self.scores(features, parameters, self.expected_constant(parameters))

    # Expectation maximization

    @abstractmethod
    def maximize(self, statistics: Statistics) -> Any:
        """The parameters of maximum likelihood."""

    @abstractmethod
    def constant(self, parameters: Any) -> Float[Tensor, "*task k"]:
        """The log density of each component at its mean."""

    def log_likelihood(self, features: Float[Tensor, "*task n f"], parameters: Any) -> Float[Tensor, "*task n k"]:
        """log N(z_n; theta_k, P_k^-1)."""
        return self.scores(features, parameters, self.constant(parameters))

    def with_pseudo_rows(self, statistics: Statistics) -> Statistics:
        """The statistics where each component has also seen the pseudo-rows."""
        sums = PSEUDO_ROWS * self.standard_features(statistics.first)
        return statistics + self.read(sums.expand(*statistics.count.shape, -1))

    def pseudo_log_likelihood(self, parameters: Any, log_weights: Float[Tensor, "*task k"]) -> Float[Tensor, "*task k"]:
        """The expected log likelihood of each component's pseudo-rows."""
        weights = self.weights(parameters, log_weights + self.constant(parameters))
        return PSEUDO_ROWS * (weights @ self.standard_features(parameters.theta))

    @abstractmethod
    def standard_features(self, like: Float[Tensor, "*task k s"]) -> Float[Tensor, " f"]:
        """E[features] of z ~ N(0, I), of the width, dtype and device of ``like``."""

    @classmethod
    def memory(cls, width: int, components: int) -> int:
        """About how many bytes the statistics, weights and parameters of components of this width take in a fit."""
        return ARRAYS * 8 * components * cls().feature_count(width)

    # Precisions

    @abstractmethod
    def expected_precisions(self, parameters: Any) -> Float[Tensor, "*axes"]:
        """E[Lambda_k]: (*task, k), (*task, k, s) or (*task, k, s, s)."""

    @abstractmethod
    def around(self, means: Float[Tensor, "k s"], precision: float) -> Any:
        """Parameters of components of one precision around given means, to start from."""

    @classmethod
    @abstractmethod
    def default_prior(cls, width: int) -> Prior:
        """A weak prior for rows of unit variance around zero."""

    @classmethod
    @abstractmethod
    def scale(cls, covariance: Covariance) -> Float[Tensor, "*axes"]:
        """The scale that standardizes rows of this covariance: a number, one for each column, or a matrix.

        Families without matrices need the variances alone.
        """

    @classmethod
    def rescaled(cls, precisions: Array, scale: Array) -> Array:
        """The precisions (k, ...) of rows x, given those of z = scale x."""
        return precisions * scale**2

    @classmethod
    def inverse(cls, precisions: Array) -> Array:
        """The covariances (k, ...)."""
        return 1 / precisions

    @classmethod
    def squares(cls, difference: Array, precisions: Array) -> Array:
        """d^T P_k d for differences (k, n, s), as (k, n)."""
        count, _, width = difference.shape
        columns = np.broadcast_to(precisions.reshape(count, -1), (count, width))
        result: Array = (np.square(difference) @ columns[..., None])[..., 0]
        return result

    @classmethod
    def correlated(cls, noise: Array, covariances: Array, labels: NDArray[np.int64]) -> Array:
        """Standard-normal rows (n, s) given the covariance of the components ``labels``."""
        deviations: Array = np.sqrt(covariances).reshape(len(covariances), -1)
        return noise * deviations[labels]
