"""Weights that a model file holds besides the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

PREFIX = "embedder."
"""What the names of these weights start with in a file."""


class HeldWeights(nn.Module):
    """Weights of the model that embedded the texts, which were trained further: kept and saved, not computed with."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.tensors = dict(tensors)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, value in self.tensors.items():
            destination[prefix + name] = value if keep_vars else value.detach()


def without_held(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the model itself."""
    return {name: value for name, value in tensors.items() if not name.startswith(PREFIX)}
