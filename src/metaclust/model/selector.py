"""The networks that select among candidate clusterings, and say how sure the answer is.

Their inputs are dimensionless features (:mod:`metaclust.inference.merges`, :mod:`metaclust.inference.features`,
:mod:`metaclust.inference.confidence`), so that what is learned from some categories holds for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.float64]

MERGE_FEATURES = (
    "log rows of the smaller",
    "log rows of the larger",
    "log share of the rows",
    "distance over expected",
    "variance of the smaller",
    "variance of the larger",
    "distance over variance",
    "gap",
    "beyond the middle",
    "flatness",
    "neighbours of the smaller",
    "neighbours of the larger",
    "to parent",
    "to child",
    "log rank",
    "rank",
    "log rows",
    "variance of all",
    "nearest over expected",
    "nearest over all",
    "tree",
)
SHAPE_FEATURES = (
    "log clusters",
    "log rows",
    "log rows of a cluster",
    "within over all",
    "within over expected",
    "narrow over expected",
    "median over expected",
    "wide over expected",
    "silhouette",
    "low silhouette",
    "share without silhouette",
    "silhouette of the worst",
    "silhouette of a quarter",
    "silhouette of the median",
    "nearest gap",
    "near gap",
    "median gap",
    "mean gap",
    "nearest in cluster",
    "five nearest in cluster",
    "ten nearest in cluster",
    "neighbours of the worst",
    "neighbours of a tenth",
    "neighbours of the median",
    "evenness",
    "log rows of the smallest",
    "rows in small clusters",
    "rows alone",
    "mean first axis",
    "largest first axis",
    "mean kurtosis",
    "least kurtosis",
    "mean flatness",
    "most flatness",
    "mean crossing",
    "low crossing",
    "least crossing",
)
"""Of a partition, by the geometry of its clusters."""
PAIR_FEATURES = ("expected ARI", "precision", "recall", "relative pairs")
"""Of a partition, by the probabilities of the merges of one tree."""
TREES = ("ward", "average")
CONTEXT = (
    "within over all",
    "silhouette",
    "low silhouette",
    "near gap",
    "median gap",
    "mean gap",
    "nearest in cluster",
    "five nearest in cluster",
    "neighbours of a tenth",
    "evenness",
    "mean flatness",
    "mean crossing",
    "low crossing",
    "mean kurtosis",
    "mean first axis",
)
"""Features whose change towards fewer and more clusters is a feature, too."""
RATIOS = (0.5, 0.75, 4 / 3, 2.0)
"""These numbers of clusters, as multiples."""
FEATURES = (
    *SHAPE_FEATURES,
    *(f"{name}, {tree}" for tree in TREES for name in PAIR_FEATURES),
    "expected ARI below the best",
    *(f"{name}, {ratio:.2f}" for ratio in RATIOS for name in CONTEXT),
)
ROW_FEATURES = (
    "probability",
    "silhouette",
    "distance over expected",
    "distance over its cluster",
    "distance in deviations",
)
CLUSTER_FEATURES = (
    "log rows",
    "log share",
    "variance over expected",
    "gap",
    "precision",
    "precision, average",
    "agreement",
    "flatness",
    "score",
    "log clusters",
)
FARTHEST = 4.0
"""Standard deviations from its mean at which a feature is cut off."""
CONFIDENCE_FEATURES = (*ROW_FEATURES, *CLUSTER_FEATURES, "further row")
FURTHER = len(CONFIDENCE_FEATURES) - 1
"""The feature that is one for rows that were assigned to clusters found in other rows."""


def relative_to_expected(names: Sequence[str]) -> list[int]:
    """Return which features are relative to the variance expected of a category."""
    words = ("over expected", "variance of")
    return [place for place, name in enumerate(names) if any(word in name for word in words)]


class TaskDropout(nn.Module):
    """Dropout of the same features for all candidates of a task: (tasks, candidates, features)."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, features: Tensor) -> Tensor:
        if not self.training or not self.probability:
            return features
        shape = (*features.shape[:-2], 1, features.shape[-1]) if features.ndim > 1 else features.shape
        return features * self.kept(shape, features.device)

    def kept(self, shape: tuple[int, ...], device: torch.device | None = None) -> Tensor:
        """Draw factors, which are zero for what is dropped."""
        kept = torch.rand(shape, device=device) >= self.probability
        return kept / (1 - self.probability)


class FeatureNetwork(nn.Module):
    """A small network of standardized features: (..., features) -> (...)."""

    mean: Tensor
    spread: Tensor

    def __init__(self, features: int, hidden: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("spread", torch.ones(features))
        layers: list[nn.Module] = [TaskDropout(dropout)]
        for inputs, outputs in zip((features, *hidden), hidden, strict=False):
            layers += [nn.Linear(inputs, outputs), nn.SiLU()]
        self.network = nn.Sequential(*layers, nn.Linear(hidden[-1], 1))

    def forward(self, features: Tensor) -> Tensor:
        return self.of_standardized(self.standardized(features))

    def standardized(self, features: Tensor) -> Tensor:
        """Return features in standard deviations from their mean."""
        return (features - self.mean) / self.spread

    def of_standardized(self, features: Tensor) -> Tensor:
        """Return the outputs for features that are standardized already."""
        # What is unlike all that was learned from is taken for the nearest that was.
        outputs: Tensor = self.network(features.clamp(-FARTHEST, FARTHEST))[..., 0]
        return outputs

    @property
    def parts(self) -> tuple[TaskDropout, nn.Sequential]:
        """The dropout, and the layers after it."""
        return cast(TaskDropout, self.network[0]), cast(nn.Sequential, self.network[1:])

    @torch.no_grad()
    def standardize(self, features: Tensor) -> None:
        """Subtract the mean of these features from now on, and divide by their standard deviation."""
        self.mean.copy_(features.mean(0))
        self.spread.copy_(features.std(0).clamp_min(1e-3))

    @torch.no_grad()
    def outputs(self, features: Floats) -> Floats:
        """Return the outputs for arrays of features, in evaluation mode."""
        self.eval()
        found = self(torch.from_numpy(features).to(self.mean))
        return found.double().cpu().numpy()  # type: ignore[no-any-return]


class SelectorNetwork(nn.Module):
    """The learned selector.

    ``merges`` gives the log odds that a pair of rows on the two sides of a merge is of one category, ``scores`` the
    score of a candidate (the highest is best), ``confidence`` the log odds that a row is in the right cluster.
    """

    number: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.merges = FeatureNetwork(len(MERGE_FEATURES), (48, 48))
        self.scores = FeatureNetwork(len(FEATURES), (128,), dropout=0.3)
        self.confidence = FeatureNetwork(len(CONFIDENCE_FEATURES), (24,))
        # The distribution over numbers of clusters: see metaclust.inference.numbers.NumberModel.
        self.register_buffer("number", torch.tensor([0.0, 0.0, 0.0, 0.0, -2.0, 0.0, 0.0]))

    def merge_probabilities(self, features: Floats) -> Floats:
        """Return the probability that a pair brought together by each merge is of one category."""
        return sigmoid(self.merges.outputs(features)) if len(features) else np.empty(0)


def log_odds(probability: Floats) -> Floats:
    """Return the inverse of :func:`sigmoid`; for zero and one, numbers that are far from zero."""
    return np.log(np.clip(probability, 1e-12, 1)) - np.log(np.clip(1 - probability, 1e-12, 1))


def sigmoid(values: Floats) -> Floats:
    """Return the logistic function of log odds."""
    return 1 / (1 + np.exp(-np.clip(values, -40, 40)))
