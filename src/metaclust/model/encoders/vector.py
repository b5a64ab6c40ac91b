"""The vector encoder: a feed-forward network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor, nn

from metaclust.model.layers import feed_forward

if TYPE_CHECKING:
    from metaclust.model.config import ModelConfig


class VectorEncoder(nn.Module):
    """f_Z for vectors: (rows, features) -> (rows, S)."""

    AXES = 1

    def __init__(self, n_features: int, representation: int = 10, hidden: int = 256, dropout: float = 0.1) -> None:
        super().__init__()
        self.network = feed_forward(n_features, representation, hidden, dropout)

    @classmethod
    def of(cls, config: ModelConfig) -> VectorEncoder:
        return cls(config.input_shape[0], config.representation, config.hidden, config.dropout)

    def forward(self, x: Float[Tensor, "rows features"]) -> Float[Tensor, "rows s"]:
        z: Tensor = self.network(x)
        return z
