"""Weights of an embedding model that were trained further: what a model file holds of them, and how they are loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from metaclust.data.rows import DataError, listed

LARGEST = 1e6
"""No weight is larger."""


@dataclass(frozen=True, eq=False, repr=False)
class TunedWeights:
    """Weights of a sentence-transformers model by their names; the others are as in the model's folder."""

    tensors: Mapping[str, Tensor]

    @cached_property
    def digest(self) -> str:
        """A hash, in hex, of names, shapes and values."""
        found = hashlib.sha256(b"metaclust tuned weights 1\n")
        for name, value in sorted(self.tensors.items()):
            found.update(f"{name}\0{tuple(value.shape)}\0".encode())
            found.update(value.detach().cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    def checked(self) -> TunedWeights:
        """Return the weights, if they are numbers of 32 bits that a network can hold; a file may hold anything."""
        for name, value in self.tensors.items():
            if value.dtype != torch.float32:
                raise ValueError(f"{name} holds {value.dtype}: it must hold torch.float32")
            if not bool((value.abs() <= LARGEST).all()):
                raise ValueError(f"{name} holds values that are not finite, or larger than {LARGEST:,.0f}")
        return self

    def load_into(self, model: Any) -> None:
        """Replace weights of a sentence-transformers model; where one does not fit, none is."""
        own = model.state_dict()
        unlike = [name for name, value in self.tensors.items() if name not in own or own[name].shape != value.shape]
        if unlike:
            raise DataError(
                f"the weights that were trained further do not fit the embedding model ({listed(sorted(unlike))}): "
                "give the model that was used in training"
            )
        model.load_state_dict(dict(self.tensors), strict=False)
