"""What a model keeps of the categories it was trained on, to find them again in a pile beside new ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metaclust.model.selector import ROW_FEATURES, FeatureNetwork

KNOWN_FEATURES = (
    "distance over expected",
    "distance to the next category",
    "distance over its category",
    "distance over its cluster",
    "log rows of the category",
    "trained on",
    "share of the cluster",
    "cluster over expected",
    "cluster to the next cluster",
    "cluster to the next category",
    "nearest of the cluster",
    "log rows of the cluster",
    "variance of the cluster over expected",
    "mean of the cluster, distance over expected",
    "mean of all, distance over expected",
    "log clusters",
    "log categories",
)
"""Of a row, its cluster and the category that it may be of, see :mod:`metaclust.inference.known`."""
OUTLIER_FEATURES = (
    *ROW_FEATURES,
    "log rows of the cluster",
    "nearest over expected",
    "fifth nearest over expected",
    "nearest over that of others",
    "fifth nearest over that of others",
)
"""Of a row in its cluster, and of its distance to the rows that are nearest to it."""


class KnownCategories(nn.Module):
    """The categories of the training: the mean of each, its rows, and the mean squared distance of these.

    ``judge`` gives the log odds that a row is of the category that is nearest to it, and not of a new one, and counts
    where the probability is above ``threshold``; ``novelty`` gives the log odds that a row is of none of these
    categories, and ``outliers`` those that it is of no category of which there are others.
    """

    category: Tensor
    """Which of the categories of the training each of these is; those without rows are left out."""
    means: Tensor
    counts: Tensor
    squares: Tensor
    threshold: Tensor

    def __init__(self, categories: int, width: int) -> None:
        super().__init__()
        self.register_buffer("category", torch.arange(categories))
        self.register_buffer("means", torch.zeros(categories, width))
        self.register_buffer("counts", torch.ones(categories))
        self.register_buffer("squares", torch.zeros(categories))
        self.register_buffer("threshold", torch.tensor(0.5))
        self.judge = FeatureNetwork(len(KNOWN_FEATURES), (32,))
        self.novelty = FeatureNetwork(len(KNOWN_FEATURES), (32,))
        self.outliers = FeatureNetwork(len(OUTLIER_FEATURES), (16,))
