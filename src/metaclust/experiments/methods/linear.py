"""Linear maps of the rows, fitted by scikit-learn: principal components, without labels, and Fisher discriminants."""

from __future__ import annotations

import warnings
from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor, nn

from metaclust.data.sparse import dense
from metaclust.experiments.methods.base import EncoderMethod, FitArguments, Inputs
from metaclust.model.clustering_model import ClusteringModel

MeanAndWeight = tuple[NDArray[np.float64], NDArray[np.float64]]
WIDEST = 500
"""Wider rows go through PCA before FLDA (as Fisherfaces do, Belhumeur et al. 1997): with more columns than rows, the
variance within categories has no inverse."""


class LinearMap(nn.Module):
    """(x - mean) W, for rows of any shape."""

    mean: Tensor
    weight: Tensor

    def __init__(self, width: int, representation: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("weight", torch.zeros(width, representation))

    def forward(self, x: Tensor) -> Tensor:
        return (flat(x) - self.mean) @ self.weight


def flat(x: Tensor) -> Tensor:
    """Return rows as vectors; uint8 images are scaled to [0, 1]."""
    return (x.float() / 255 if x.dtype == torch.uint8 else x).flatten(1)


class LinearMethod(EncoderMethod):
    """Fitted on the rows of the training categories; columns that the map does not have are zero."""

    @abstractmethod
    def fit_map(self, x: NDArray[np.float32], y: NDArray[np.int64], columns: int) -> MeanAndWeight:
        """Return the mean, and W with at most ``columns`` columns."""

    def build(self) -> ClusteringModel:
        width = int(np.prod(self.config.input_shape))
        return ClusteringModel(self.config, LinearMap(width, self.config.representation))

    def fit_encoder(self, arguments: FitArguments) -> None:
        sampler = arguments.sampler
        rows = np.flatnonzero(np.isin(sampler.y, sampler.categories))
        x = training_rows(sampler.x, rows)
        columns = min(self.config.representation, *x.shape)
        mean, weight = self.fit_map(x, sampler.y[rows], columns)
        encoder = self.model.encoder
        if not isinstance(encoder, LinearMap):
            raise TypeError(f"a linear method has a linear encoder, not {type(encoder).__name__}")
        encoder.mean.copy_(torch.from_numpy(mean))
        encoder.weight[:, : weight.shape[1]] = torch.from_numpy(weight.astype(np.float32))


def training_rows(x: Inputs, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    chosen: NDArray[np.float32] = flat(dense(x[torch.from_numpy(rows)])).numpy()
    return chosen


class PrincipalComponents(LinearMethod):
    """The directions of largest variance."""

    name = "pca"
    title = "PCA"

    def fit_map(self, x: NDArray[np.float32], y: NDArray[np.int64], columns: int) -> MeanAndWeight:
        pca = PCA(columns, random_state=self.training.seed).fit(x)
        return pca.mean_.astype(np.float64), pca.components_.T.astype(np.float64)


class FisherDiscriminant(LinearMethod):
    """The directions in which categories differ most, relative to how much they spread."""

    name = "flda"
    title = "FLDA"

    def fit_map(self, x: NDArray[np.float32], y: NDArray[np.int64], columns: int) -> MeanAndWeight:
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
