"""InfiniteGaussianMixture: the mixture alone as a scikit-learn estimator, for any number of rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from metaclust._util.locks import writing
from metaclust._util.targets import check_folder
from metaclust._util.tensors import CheckpointError
from metaclust.data.memory import check_memory
from metaclust.data.rows import DataError
from metaclust.data.streams import ArrayStream, RowStream, in_blocks, joined, row_stream
from metaclust.data.survey import Survey, check_block, check_spread
from metaclust.mixture.blocks import Map, Worker, block_size
from metaclust.mixture.families import FAMILIES, Family, MeanCovariance, component_family
from metaclust.mixture.fit import BlockInitialiser, BlockRefinement, MeansStart, PosteriorStart, SeedStarts, fit_mixture
from metaclust.mixture.outcome import check_finite, check_labels
from metaclust.mixture.prior import Prior
from metaclust.mixture.rows import FitRows, StreamRows
from metaclust.mixture.seeding import Init
from metaclust.mixture.settings import check_mixture_settings, checked_weights, settings_as_json, start_means
from metaclust.mixture.state import FitState, load_state, resuming, save_state
from metaclust.mixture.step import score_weights
from metaclust.mixture.sticks import expected_weights
from metaclust.mixture.streaming import BlockMixture, BlockPosterior
from metaclust.mixture.threads import over_blocks

SAMPLE = 20_000
"""The maximum number of rows from which seeds are chosen."""
FLOAT32_ROWS = 20_000
"""Fewer rows than this are fast enough in float64."""
FLOAT32_TOL = 1e-6
"""Smaller tolerances need a bound that is more precise than float32's."""


class InfiniteGaussianMixture(DensityMixin, BaseEstimator):  # type: ignore[misc]
    """A truncated Dirichlet-process mixture of Gaussians, fitted by variational Bayes in blocks of rows.

    It corresponds to scikit-learn's ``BayesianGaussianMixture`` and has the same attributes, but takes any number of
    rows: a step is one pass over them, and memory does not grow with them. ``X`` is an array, the path of a .npy or
    .parquet file, or a function that returns an iterator of arrays. ``metaclust.data.EncodedStream`` applies an encoder
    to the rows in every pass, ``metaclust.data.encode_to_file`` once.

    Parameters
    ----------
    max_components : int, default=50
        Maximum number of components; those that are not needed stay almost empty.
    covariance : str, default="spherical"
        Component family, a key of ``metaclust.mixture.FAMILIES``: "spherical" has one variance for each component,
        "full" a covariance matrix.
    alpha : float, default=1.0
        Concentration of the Dirichlet process: the larger, the more components.
    max_iter : int, default=100
        Maximum number of passes over the rows.
    tol : float, default=1e-4
        The fit has converged when a pass changes the bound by at most ``tol * (rows + |bound|)``.
    init : {"kmeans++", "kmeans", "random"} or array of shape (k, s), default="kmeans++"
        Initial means: k-means++ seeds from a sample of the rows, the same after ten iterations of k-means, random rows,
        or the given means.
    n_init : int, default=1
        Number of starts; the one with the best bound is kept.
    seed : int, default=0
        Random seed.
    prior : Prior, optional
        Prior of means and precisions of the standardized rows: centred and scaled to unit variance, or whitened for
        full covariances. By default a weak prior: the means are spread as the rows are, and the variance of a component
        counts as much as one row at the average distance from the mean.
    mean_covariance : {"optimal", "unit"}, default="optimal"
        Covariance of q(mu_k) in families with a factorized posterior; "unit" is the paper's.
    batch_rows : int, optional
        Update after every batch of so many rows, which needs fewer passes. The bound is still exact.
    precision : {"auto", "float64"}, default="auto"
        Whether products may be computed in float32 if that is precise enough; sums are always in float64.
    warm_start : bool, default=False
        Start from the result of the previous fit.
    progress : bool, default=False
        Show a progress bar with rows per second.

    Attributes
    ----------
    weights_ : array of shape (k,)
        Expected weights of the components.
    means_ : array of shape (k, s)
        Means of the components.
    precisions_, covariances_ : array of shape (k,), (k, s) or (k, s, s)
        Expected precisions of the components, and their inverses.
    weight_concentration_ : tuple of two arrays of shape (k,)
        Parameters of the Beta distribution of each stick.
    lower_bound_ : float
        Lower bound of the log evidence of ``X``, including every constant.
    lower_bounds_ : list of float
        The lower bound after each pass.
    n_iter_ : int
        Number of passes of the best start.
    converged_ : bool
        Whether the best start converged.
    n_features_in_ : int
        Number of columns of ``X``.

    Examples
    --------
    >>> X = np.concatenate([np.random.default_rng(k).normal(9 * k, 1, (50, 2)) for k in range(3)])
    >>> mixture = InfiniteGaussianMixture(max_components=10).fit(X)
    >>> len(np.unique(mixture.predict(X)))
    3
    """

    n_features_in_: int
    _family: Family
    _map: Map
    _weights: Tensor
    _parameters: Any

    def __init__(
        self,
        max_components: int = 50,
        *,
        covariance: str = "spherical",
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
        """Fit the mixture.

        Parameters
        ----------
        X : array, path, or function that returns an iterator of arrays
            Rows to fit the mixture to.
        y : ignored
        sample_weight : array of shape (n,), optional
            Weights of the rows; a row of weight two counts as two rows.
        state : path, optional
            File in which the state of the fit is saved after every pass.
        resume : bool, default=False
            Resume the fit saved in ``state``, if there is one.

        Returns
        -------
        InfiniteGaussianMixture
            The fitted estimator.
        """
        self.check_settings()
        if state is None:
            return self._fit(X, sample_weight, None)
        if not (place := Path(state).absolute().parent).is_dir():
            raise CheckpointError(f"cannot write {state}: the folder {place} is not there; create it first")
        check_folder(place, Path(state))
        if not resume and Path(state).exists():
            raise FileExistsError(
                f"state={str(state)!r} holds a fit already: pass resume=True to resume it, or another path"
            )
        with writing(state):
            return self._fit(X, sample_weight, state)

    def _fit(
        self,
        X: Any,  # noqa: N803
        sample_weight: Any,
        state: str | os.PathLike[str] | None,
    ) -> InfiniteGaussianMixture:
        """Fit the mixture, from the state where there is one."""
        kind = FAMILIES[self.covariance]
        warm: bool = self.warm_start and type(getattr(self, "_family", None)) is kind
        rows = self._rows(X, sample_weight, warm)
        settings = settings_as_json(self.get_params())
        reached = None if state is None else load_state(state, settings, kind)
        resumed = None if reached is None else state
        if reached is None:
            reached = FitState(
                rows.survey(SAMPLE, int(self.seed), "covariance" if kind.precision_axes == 2 else "variances")
            )

        def save(reached: FitState) -> None:
            if state is not None:
                save_state(state, reached, settings)

        seen, width = reached.survey, len(reached.survey.mean)
        self.n_features_in_ = width
        check_memory(
            kind.memory(width, int(self.max_components)),
            f"{rows.name} has {width:,} columns, of which {self.max_components} {self.covariance} components",
            "use fewer components or columns, or covariance='spherical'",
        )
        check_spread(seen, rows.name)
        save(reached)
        with resuming(resumed), rows.progress(seen.rows, self.progress) as progress:
            mixture = self._mixture(seen, self._map if warm else Map(seen.mean, kind.scale(seen.covariance)))
            passes = rows.passes(mixture, width, progress)
            phase = (lambda name: None) if progress is None else progress.phase
            refine = BlockRefinement(int(self.max_iter), float(self.tol))
            posterior = fit_mixture(self._initialiser(width, warm), refine, passes, reached, save, phase)
        self._keep(mixture, posterior, seen.weight)
        if not self.converged_:
            warnings.warn(
                f"the bound still changed by more than tol={self.tol!r} after max_iter={self.max_iter!r} passes: give "
                "a larger max_iter, or a larger tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _rows(self, X: Any, sample_weight: Any, warm: bool) -> FitRows:  # noqa: N803
        """The rows to fit; rows of a warm start must be as wide as those before."""
        if isinstance(X, FitRows):
            return X
        stream = self._stream(X, reset=not warm)
        width = self.n_features_in_ if warm or isinstance(stream, ArrayStream) else None
        return StreamRows(stream, width, checked_weights(sample_weight))

    def _mixture(self, seen: Survey, transform: Map) -> BlockMixture:
        prior = self.prior or FAMILIES[self.covariance].default_prior(len(seen.mean))
        return BlockMixture(
            component_family(self.covariance, self.mean_covariance, prior),
            transform,
            torch.tensor(float(self.alpha), dtype=torch.float64),
            self.precision == "auto" and seen.rows >= FLOAT32_ROWS and self.tol >= FLOAT32_TOL,
            None if self.batch_rows is None else int(self.batch_rows),
        )

    def _initialiser(self, width: int, warm: bool) -> BlockInitialiser:
        if warm:
            return PosteriorStart(self._weights, self._parameters)
        if isinstance(self.init, str):
            return SeedStarts(int(self.max_components), self.init, int(self.n_init), int(self.seed))
        return MeansStart(start_means(self.init, width))

    def _keep(self, mixture: BlockMixture, posterior: BlockPosterior, rows: float) -> None:
        """Set the fitted attributes, in units of the rows."""
        family, transform, sticks = mixture.family, mixture.transform, posterior.sticks
        self._family, self._map, self._parameters = family, transform, posterior.parameters
        self._weights = score_weights(family, posterior.parameters, sticks)
        self.converged_, self.n_iter_ = posterior.converged, len(posterior.bounds)
        self.lower_bounds_ = [bound + rows * transform.log_volume for bound in posterior.bounds]
        self.lower_bound_ = self.lower_bounds_[-1]
        self.weight_concentration_ = (sticks.gamma1.numpy(), sticks.gamma2.numpy())
        share = expected_weights(sticks).numpy()
        self.weights_ = share / share.sum()
        self.means_ = transform.inverse(posterior.parameters.theta).numpy()
        precisions = family.expected_precisions(posterior.parameters).numpy()
        self.precisions_ = family.rescaled(precisions, transform.scale.double().numpy())

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> NDArray[np.int64]:  # noqa: N803
        """Fit the mixture and return the most probable component of each row."""
        return self.fit(X, y, sample_weight).predict(X)

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: N803
        """Return the most probable component of each row."""
        return self._each(X, Worker.labels)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each component for each row, as (rows, components)."""
        return self._each(X, Worker.probabilities)

    def score_samples(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the log density of each row, from expected log weights and log densities as in scikit-learn."""
        values: NDArray[np.float64] = self._each(X, Worker.log_evidence) + self._map.log_volume
        return values

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return the mean of :meth:`score_samples`."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw rows from the mixture; return them and their components."""
        check_is_fitted(self, "means_")
        generator = np.random.default_rng([int(self.seed), 0x5A5])
        labels = np.repeat(np.arange(len(self.weights_)), generator.multinomial(n_samples, self.weights_))
        noise = generator.normal(size=(n_samples, self.n_features_in_))
        return self.means_[labels] + self._family.correlated(noise, self.covariances_, labels), labels

    @property
    def covariances_(self) -> NDArray[np.float64]:
        """The inverses of ``precisions_``."""
        return self._family.inverse(self.precisions_)

    def _each(
        self,
        X: Any,  # noqa: N803
        method: Callable[[Worker, Tensor], Tensor],
    ) -> NDArray[Any]:
        """The result of a worker's method for each row, in float64: it does not depend on other rows."""
        check_is_fitted(self, "means_")
        stream, size, rows = self._stream(X, reset=False), block_size(*self._weights.shape), 0

        def make() -> Worker:
            return Worker(self._family, self._map, self._weights, torch.float64, size)

        def checked() -> Iterator[tuple[Tensor]]:
            nonlocal rows
            for x in in_blocks(stream.arrays(), size):
                check_block(x, rows, self.n_features_in_, "X")
                rows += len(x)
                yield (x,)

        def parts() -> Iterator[NDArray[Any]]:
            done = 0
            for part in (part.numpy() for part in over_blocks(make, method, checked())):
                check = check_finite if part.dtype.kind == "f" else partial(check_labels, clusters=len(self._weights))
                check(part, name="X", before=done)
                done += len(part)
                yield part

        found = joined(parts(), stream.count())
        if found is None:
            raise DataError("X has no rows: give at least one")
        return found

    def _stream(self, X: Any, reset: bool) -> RowStream:  # noqa: N803
        """The rows as a stream. Arrays are checked as in scikit-learn; files and functions while they are read."""
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

    def scoring(self) -> tuple[Family, Map, Tensor]:
        """The family, the map of the rows and the score weights, with which a :class:`Worker` scores rows."""
        check_is_fitted(self, "means_")
        return self._family, self._map, self._weights

    def check_settings(self) -> None:
        """Raise an error that names a setting that is not valid."""
        check_mixture_settings(self.get_params())
