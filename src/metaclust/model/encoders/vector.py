"""The encoder of vectors: a free network."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from metaclust.model.layers import feed_forward


class VectorEncoder(nn.Module):
    """f_Z for vectors: (rows, width) -> (rows, S)."""

    def __init__(self, width: int, representation: int = 10, hidden: int = 256, dropout: float = 0.1) -> None:
        super().__init__()
        self.network = feed_forward(width, representation, hidden, dropout)

    def forward(self, x: Float[Tensor, "rows width"]) -> Float[Tensor, "rows s"]:
        z: Tensor = self.network(x)
        return z
