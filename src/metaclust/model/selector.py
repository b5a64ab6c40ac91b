"""The network that scores candidate clusterings by the features of :mod:`metaclust.inference.features`."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.float64]

FEATURES = (
    "within over all",
    "within over expected",
    "widest over expected",
    "narrowest over expected",
    "silhouette",
    "silhouette of the worst",
    "silhouette of the median",
    "below zero",
    "silhouette of centres",
    "nearest gap",
    "mean gap",
    "largest first axis",
    "mean first axis",
    "flattest",
    "mean flatness",
    "evenness",
    "smallest",
    "log clusters",
    "agreement",
    "agreement of the same number",
    "fall from fewer",
    "fall to more",
    "bound",
)


class SelectorNetwork(nn.Module):
    """The learned selector: (candidates, features) -> (candidates,); the highest score is best."""

    mean: Tensor
    spread: Tensor

    def __init__(self, hidden: int = 16, dropout: float = 0.1) -> None:
        super().__init__()
        inputs = 2 * len(FEATURES)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("spread", torch.ones(inputs))
        self.network = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, 1, bias=False)
        )

    def forward(self, features: Tensor) -> Tensor:
        scores: Tensor = self.network((features - self.mean) / self.spread)[..., 0]
        return scores

    @torch.no_grad()
    def scores(self, features: Floats) -> Floats:
        """Return the scores of arrays of features, in evaluation mode."""
        self.eval()
        scored = self(torch.from_numpy(features).to(self.mean))
        return scored.double().cpu().numpy()  # type: ignore[no-any-return]
