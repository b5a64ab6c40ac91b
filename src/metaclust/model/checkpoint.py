"""Save and load models: weights as safetensors, everything else as JSON."""

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
    """The content of a model file besides the model: training categories, row preparation, versions that wrote it."""

    categories: list[str] = field(default_factory=list)
    input: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def save_model(
    model: ClusteringModel,
    path: str | os.PathLike[str],
    categories: Iterable[object] = (),
    input: dict[str, Any] | None = None,  # noqa: A002
) -> None:
    """Write a model to a safetensors file.

    Parameters
    ----------
    model : ClusteringModel
    path : path
        The file to write or to replace.
    categories : iterable, optional
        The names of the categories the model was trained on.
    input : dict, optional
        How rows are prepared, as values that JSON can hold.
    """
    write_tensors(path, model.state_dict(), {"kind": "model", **model_header(model, categories, input or {})})


def model_header(model: ClusteringModel, categories: Iterable[object], prepared: dict[str, Any]) -> dict[str, Any]:
    """Return the header of a model file."""
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
    """Read a file that :func:`save_model` wrote.

    Parameters
    ----------
    path : path
    encoder : nn.Module, optional
        Required if the model was built with a custom encoder: a module of the same architecture. Its weights are
        loaded from the file.
    device : str or torch.device
        "auto" uses CUDA or MPS if available.

    Returns
    -------
    model : ClusteringModel
        In evaluation mode.
    description : Description
        ``categories``, ``input`` and ``versions`` as saved.

    Raises
    ------
    CheckpointError
        If the file is not a model that this version can read.
    """
    tensors, header = read_tensors(path, "model")
    if header.get("custom_encoder") and encoder is None:
        raise CheckpointError(
            f"{path} was trained with a custom encoder, whose code is not in the file: pass such a module as "
            "`encoder`; its weights are loaded"
        )
    try:
        return model_from(tensors, header, encoder, device)
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path} does not hold a model this version can read: {error}") from error


def model_from(
    tensors: dict[str, Tensor], header: dict[str, Any], encoder: nn.Module | None, device: str | torch.device
) -> tuple[ClusteringModel, Description]:
    """Build the model from the weights and the header of a file."""
    model = ClusteringModel(ModelConfig.from_dict(header["config"]), encoder)
    for dtype in {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}:
        model.to(dtype)
    model.load_state_dict(tensors)
    description = Description(header["categories"], header["input"], header["versions"])
    return model.to(choose_device(device)).eval(), description
