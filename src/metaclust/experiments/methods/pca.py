"""Principal component analysis, by scikit-learn; no labels are used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from metaclust.experiments.methods.linear import LinearMethod


class PrincipalComponents(LinearMethod):
    """The directions of largest variance."""

    name = "pca"
    title = "PCA"

    def fit_map(
        self, x: NDArray[np.float32], y: NDArray[np.int64], columns: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        pca = PCA(columns, random_state=self.training.seed).fit(x)
        return pca.mean_.astype(np.float64), pca.components_.T.astype(np.float64)
