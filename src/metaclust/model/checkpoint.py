"""Save and load a model: weights as safetensors, everything else as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from metaclust._util.devices import choose_device
from metaclust._util.tensors import CheckpointError, read_tensors, versions, write_tensors
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig


@dataclass(frozen=True)
class Description:
    """What a model file says of its model besides the weights."""

    categories: list[str] = field(default_factory=list)
    """The categories it was trained on."""
    input: dict[str, Any] = field(default_factory=dict)
    """How rows were prepared."""
    versions: dict[str, str] = field(default_factory=dict)
    """What wrote the file."""


def save_model(
    model: ClusteringModel,
    path: str | os.PathLike[str],
    categories: Iterable[object] = (),
    input: dict[str, Any] | None = None,  # noqa: A002
) -> None:
    """Write the weights, the configuration, the categories seen, the input's description and the versions."""
    write_tensors(path, model.state_dict(), {"kind": "model", **model_header(model, categories, input or {})})


def model_header(model: ClusteringModel, categories: Iterable[object], prepared: dict[str, Any]) -> dict[str, Any]:
    """What a file says of a model besides its weights."""
    return {
        "config": model.config.to_dict(),
        "custom_encoder": model.custom_encoder,
        "categories": [str(category) for category in categories],
        "input": prepared,
        "versions": versions(),
    }


def load_model(
    path: str | os.PathLike[str], encoder: nn.Module | None = None, device: str | torch.device = "auto"
) -> tuple[ClusteringModel, Description]:
    """Read what :func:`save_model` wrote. A model with a user's own encoder needs that module again, as ``encoder``.

    ``device="auto"`` is CUDA or MPS where there is one.
    """
    tensors, header = read_tensors(path, "model")
    if header.get("custom_encoder") and encoder is None:
        raise CheckpointError(
            f"{path} was trained with an encoder of your own, whose code is not in the file: pass such a module as "
            "`encoder`; its weights are loaded"
        )
    try:
        return model_from(tensors, header, encoder, device)
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path} does not hold a model this version can read: {error}") from error


def model_from(
    tensors: dict[str, Tensor], header: dict[str, Any], encoder: nn.Module | None, device: str | torch.device
) -> tuple[ClusteringModel, Description]:
    """The model of a file's weights and header."""
    model = ClusteringModel(ModelConfig.from_dict(header["config"]), encoder)
    for kind in {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}:
        model.to(kind)
    model.load_state_dict(tensors)
    description = Description(header["categories"], header["input"], header["versions"])
    return model.to(choose_device(device)).eval(), description
