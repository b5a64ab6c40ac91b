"""Fisher's linear discriminant analysis, by scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from metaclust.experiments.methods.linear import LinearMethod

WIDEST = 500
"""Wider rows go through PCA first (as Fisherfaces do, Belhumeur et al. 1997): with more columns than rows, the variance
within categories has no inverse."""


class FisherDiscriminant(LinearMethod):
    """The directions in which categories differ most, relative to how much they spread."""

    name = "flda"
    title = "FLDA"

    def fit_map(
        self, x: NDArray[np.float32], y: NDArray[np.int64], columns: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        narrow = PCA(min(WIDEST, *x.shape), random_state=self.training.seed).fit(x)
        columns = min(columns, len(np.unique(y)) - 1)
        flda = LinearDiscriminantAnalysis(n_components=columns)
        with warnings.catch_warnings():
            # Columns that are the same in all rows.
            warnings.filterwarnings("ignore", "Variables are collinear")
            flda.fit(narrow.transform(x), y)
        weight = narrow.components_.T @ flda.scalings_[:, :columns]
        # scikit-learn centres on the mean of the categories' means.
        mean = narrow.mean_ + flda.xbar_ @ narrow.components_
        return mean.astype(np.float64), weight.astype(np.float64)
