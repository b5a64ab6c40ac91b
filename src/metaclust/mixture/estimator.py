"""InfiniteGaussianMixture: the mixture alone as a scikit-learn estimator, for any number of rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from metaclust.data.rows import DataError
from metaclust.data.streams import ArrayStream, RowStream, in_blocks, joined, row_stream
from metaclust.data.survey import check_block
from metaclust.mixture.blocks import Map, Worker, block_size
from metaclust.mixture.families.spherical import MeanCovariance
from metaclust.mixture.fit import FitRows, Inference, Plan, StreamRows, fit_mixture, in_units_of_rows, map_of
from metaclust.mixture.inference import component_family
from metaclust.mixture.prior import Prior
from metaclust.mixture.products import Products, products_of
from metaclust.mixture.seeding import Init
from metaclust.mixture.settings import (
    check_mixture_settings,
    checked_weights,
    default_prior,
    settings_as_json,
    start_means,
)
from metaclust.mixture.state import FitState, load_state, save_state
from metaclust.mixture.sticks import expected_weights
from metaclust.mixture.streaming import score_weights
from metaclust.mixture.threads import over_blocks

SAMPLE = 20_000
"""The most rows among which seeds are looked for."""
FLOAT32_ROWS = 20_000
"""Fewer rows than this are fast enough in float64."""
FLOAT32_TOL = 1e-6
"""Tolerances below this need a bound that is more precise than float32's."""


class InfiniteGaussianMixture(DensityMixin, BaseEstimator):  # type: ignore[misc]
    """A truncated Dirichlet-process mixture of Gaussians, fitted by variational Bayes in blocks of rows.

    What scikit-learn's ``BayesianGaussianMixture`` is, with the same attributes, for any number of rows: one pass over
    them a step, memory that does not grow with them. ``X`` is an array, the path of a .npy or .parquet file, or a
    function that returns an iterator of arrays. ``metaclust.data.EncodedStream`` has an encoder applied to the rows in
    every pass, ``metaclust.data.encode_to_file`` once.

    >>> X = np.concatenate([np.random.default_rng(k).normal(9 * k, 1, (50, 2)) for k in range(3)])
    >>> mixture = InfiniteGaussianMixture(max_components=10).fit(X)
    >>> len(np.unique(mixture.predict(X)))
    3

    Parameters
    ----------
    max_components : how many components there may be; those that are not needed stay almost empty.
    covariance : "spherical", one variance for each component, or "full", a matrix for each.
    alpha : the concentration: the larger, the more components.
    max_iter, tol : at most so many passes; done when one changes the bound by no more than ``tol`` (rows + |bound|).
    init : "kmeans++" seeds among a sample of the rows, "kmeans" with ten rounds of it, "random" rows, or an array of
        means.
    n_init : the number of starts; the best by bound is kept.
    seed : of everything random.
    prior : of means and precisions, on the scale of the data: rows are centred and scaled to unit variance (for full
        covariances, whitened). None is a weak one: means are spread as the rows are, the variance of a component counts
        as one row does that is as far from the mean as rows are on average.
    mean_covariance : of spherical components' means, "optimal", or "unit" as in the paper.
    batch_rows : update after so many rows, not after all: fewer passes over rows that take hours. The bound is exact.
    precision : "auto" multiplies in float32 where that is precise enough, "float64" never; sums are in float64 always.
    warm_start : start from where the last fit ended.
    progress : a progress bar with rows per second.

    Attributes
    ----------
    weights_, means_, precisions_, covariances_ : of the components; (k,), (k, s) and (k,) or (k, s, s).
    weight_concentration_ : the two parameters of the Beta distribution of each stick.
    lower_bound_, lower_bounds_ : the bound of the evidence of ``X``, every constant included; after each pass.
    n_iter_, converged_, n_features_in_
    """

    n_features_in_: int
    _map: Map
    _weights: Tensor
    _parameters: Any

    def __init__(
        self,
        max_components: int = 50,
        *,
        covariance: Literal["spherical", "full"] = "spherical",
        alpha: float = 1.0,
        max_iter: int = 100,
        tol: float = 1e-4,
        init: Init | NDArray[np.float64] = "kmeans++",
        n_init: int = 1,
        seed: int = 0,
        prior: Prior | None = None,
        mean_covariance: MeanCovariance = "optimal",
        batch_rows: int | None = None,
        precision: Literal["auto", "float64"] = "auto",
        warm_start: bool = False,
        progress: bool = False,
    ) -> None:
        self.max_components = max_components
        self.covariance = covariance
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.init = init
        self.n_init = n_init
        self.seed = seed
        self.prior = prior
        self.mean_covariance = mean_covariance
        self.batch_rows = batch_rows
        self.precision = precision
        self.warm_start = warm_start
        self.progress = progress

    def fit(
        self,
        X: Any,  # noqa: N803 - scikit-learn's name
        y: Any = None,
        sample_weight: Any = None,
        *,
        state: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> InfiniteGaussianMixture:
        """Fit the mixture to rows; ``y`` is ignored. A row of weight two counts as two rows.

        With ``state``, a path, what was found is kept there after every pass, and ``resume=True`` goes on with a fit
        that was stopped.
        """
        self.check_settings()
        full = self.covariance == "full"
        warm: bool = self.warm_start and hasattr(self, "_map") and full == (self._map.scale.ndim == 2)
        if isinstance(X, FitRows):
            rows = X
        else:
            stream = self._stream(X, reset=not warm)
            width = self.n_features_in_ if warm or isinstance(stream, ArrayStream) else None
            rows = StreamRows(stream, width, checked_weights(sample_weight))
        settings = settings_as_json(self.get_params())
        if state is not None and not resume and Path(state).exists():
            raise FileExistsError(
                f"state={str(state)!r} holds a fit already: pass resume=True to go on with it, or another path"
            )
        kept = None if state is None else load_state(state, settings, full)
        if kept is None:
            kept = FitState(rows.survey(SAMPLE, int(self.seed)))
        seen = kept.survey
        self.n_features_in_ = len(seen.mean)
        if not bool((seen.covariance.diagonal() > 0).any()):
            raise DataError(f"all {seen.rows} rows of {rows.name} are equal: there is nothing to cluster")

        def save(reached: FitState) -> None:
            if state is not None:
                save_state(state, reached, settings)

        save(kept)
        transform = self._map if warm else map_of(seen, full)
        family = component_family(
            self.covariance, self.mean_covariance, self.prior or default_prior(full, len(seen.mean))
        )
        products = products_of(family)
        inference = Inference(
            products,
            transform,
            torch.tensor(float(self.alpha), dtype=torch.float64),
            self.precision == "auto" and seen.rows >= FLOAT32_ROWS and self.tol >= FLOAT32_TOL,
            None if self.batch_rows is None else int(self.batch_rows),
        )
        with rows.progress(seen.rows, self.progress) as told:
            plan = Plan(
                int(self.max_components),
                self.init if isinstance(self.init, str) else start_means(self.init, len(seen.mean)),
                1 if warm or not isinstance(self.init, str) else int(self.n_init),
                int(self.max_iter),
                float(self.tol),
                int(self.seed),
                (self._weights, self._parameters) if warm else None,
            )
            passes = rows.passes(inference, len(seen.mean), told)
            end = fit_mixture(plan, passes, kept, save, (lambda name: None) if told is None else told.phase)
        self._map, self._parameters = transform, end.parameters
        self._products, self._weights = products, score_weights(products, end.parameters, end.sticks)
        self.converged_, self.n_iter_ = end.converged, len(end.bounds)
        volume = seen.weight * transform.log_volume
        self.lower_bounds_ = [bound + volume for bound in end.bounds]
        self.lower_bound_ = self.lower_bounds_[-1]
        self.weight_concentration_ = (end.sticks.gamma1.numpy(), end.sticks.gamma2.numpy())
        share = expected_weights(end.sticks).numpy()
        self.weights_ = share / share.sum()
        self.means_, self.precisions_ = in_units_of_rows(end.parameters, transform)
        if not self.converged_:
            warnings.warn(
                f"the bound still changed by more than tol={self.tol!r} after max_iter={self.max_iter!r} passes: give "
                "a larger max_iter, or a larger tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> NDArray[np.int64]:  # noqa: N803
        """Fit the mixture, then the most probable component of each row."""
        return self.fit(X, y, sample_weight).predict(X)

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: N803
        """The most probable component of each row."""
        return self._each(X, Worker.labels)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """(rows, components): how probable each component is for each row."""
        return self._each(X, Worker.probabilities)

    def score_samples(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """The log density of each row, in expectation of log weights and log densities, as scikit-learn has it."""
        values: NDArray[np.float64] = self._each(X, Worker.log_evidence) + self._map.log_volume
        return values

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """The mean of :meth:`score_samples`."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Rows drawn from the mixture, and their components."""
        check_is_fitted(self, "means_")
        generator = np.random.default_rng([int(self.seed), 0x5A5])
        labels = np.repeat(np.arange(len(self.weights_)), generator.multinomial(n_samples, self.weights_))
        noise = generator.normal(size=(n_samples, self.n_features_in_))
        if self.covariance == "full":
            noise = np.einsum("nst,nt->ns", np.linalg.cholesky(self.covariances_)[labels], noise)
        else:
            noise *= np.sqrt(self.covariances_)[labels, None]
        return self.means_[labels] + noise, labels

    @property
    def covariances_(self) -> NDArray[np.float64]:
        """The inverse of ``precisions_``."""
        spherical = self.precisions_.ndim == 1
        return np.asarray(1 / self.precisions_ if spherical else np.linalg.inv(self.precisions_), np.float64)

    def _each(
        self,
        X: Any,  # noqa: N803
        what: Callable[[Worker, Tensor], Tensor],
    ) -> NDArray[Any]:
        """What a worker makes of each row, in float64: what is said of a row does not depend on other rows."""
        check_is_fitted(self, "means_")
        stream, size, rows = self._stream(X, reset=False), block_size(len(self.weights_)), 0

        def make() -> Worker:
            return Worker(self._products, self._map, self._weights, torch.float64, size)

        def checked() -> Iterator[tuple[Tensor]]:
            nonlocal rows
            for x in in_blocks(stream.arrays(), size):
                check_block(x, rows, self.n_features_in_, "X")
                rows += len(x)
                yield (x,)

        found = joined((part.numpy() for part in over_blocks(make, what, checked())), stream.count())
        if found is None:
            raise DataError("X has no rows: give at least one")
        return found

    def _stream(self, X: Any, reset: bool) -> RowStream:  # noqa: N803
        """Arrays are checked as scikit-learn does; files and functions while they are read."""
        if isinstance(X, str | os.PathLike | Iterator) or callable(X) or hasattr(X, "arrays"):
            if reset and hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            return row_stream(X)
        values = validate_data(
            self,
            X.detach().cpu().numpy() if isinstance(X, Tensor) else X,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_min_samples=2 if reset else 1,
        )
        return ArrayStream(values)

    def scoring(self) -> tuple[Products, Map, Tensor]:
        """What gives a row its scores: the family, the scale of the rows, the score weights."""
        check_is_fitted(self, "means_")
        return self._products, self._map, self._weights

    def check_settings(self) -> None:
        """Before anything is read: a setting that cannot be is an error that names it."""
        check_mixture_settings(self.get_params())
