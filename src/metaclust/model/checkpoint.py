"""Save and load models: weights as safetensors, everything else as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from metaclust._util import schema
from metaclust._util.devices import choose_device
from metaclust._util.tensors import CheckpointError, read_tensors, refusing, versions, with_prefix, write_tensors
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.model.encoders.residual_image import ResidualImageEncoder
from metaclust.model.held import PREFIX, without_held
from metaclust.model.weights import check_weights

DESCRIBED = {
    "config": schema.mapping,
    "categories": schema.list_of(schema.text),
    "input": schema.mapping,
    "versions": schema.mapping,
}


PROBED_SIDE = 64
"""The largest side of an image of zeros by which weights are tried."""


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
    place = choose_device(device)
    tensors, header = read_tensors(path, "model")
    if header.get("custom_encoder") and encoder is None:
        raise CheckpointError(
            f"{path} was trained with a custom encoder, whose code is not in the file: pass such a module as "
            "`encoder`; its weights are loaded"
        )
    with refusing(path, "a model"):
        return model_from(tensors, header, encoder, place)


def model_from(
    tensors: dict[str, Tensor], header: Any, encoder: nn.Module | None, device: torch.device
) -> tuple[ClusteringModel, Description]:
    """Build the model from the weights and the header of a file.

    What the header says of sizes is compared with the tensors before any memory is taken for it.
    """
    schema.fields(header, DESCRIBED, {"custom_encoder": schema.flag})
    held = with_prefix(tensors, PREFIX)
    tensors, settings = without_old_selector(without_held(tensors), header["config"])
    config = ModelConfig.from_dict(settings)
    with torch.device("meta"):
        model = ClusteringModel(config, encoder)
    check_weights(tensors, model.state_dict(), model.custom_encoder)
    dtype = schema.common_dtype(tensors, "its weights")
    for part in model.children():
        # A user's module has its own memory, and may have more in it than the file has.
        part.to(dtype) if part is encoder else part.to(dtype).to_empty(device="cpu")
    model.load_state_dict(tensors)
    # A model that is saved by itself, without an estimator, has no names of categories.
    if model.known is not None and header["categories"]:
        check_known(model.known.category, len(header["categories"]))
    model = model.to(device).eval()
    if encoder is None:
        check_encoder(model)
    model.hold_embedder(held)
    description = Description(header["categories"], header["input"], header["versions"])
    return model, description


def check_known(category: Tensor, categories: int) -> None:
    """Raise ValueError unless the categories that are recognised are different ones of the training, in order."""
    if bool((category.diff() <= 0).any()) or int(category[-1]) >= categories:
        raise ValueError(f"known.category: numbers of categories must rise, and be below {categories}")


def without_old_selector(
    tensors: dict[str, Tensor], settings: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Leave out a selector of files before format 3, whose features are no longer computed."""
    if "choice.mean" not in tensors:
        return tensors, settings
    kept = {name: value for name, value in tensors.items() if not name.startswith("choice.")}
    return kept, {**settings, "choice": False}


@torch.no_grad()
def check_encoder(model: ClusteringModel) -> None:
    """Raise ValueError if the weights, finite as they are, have no finite representation for a row of zeros."""
    shape = model.config.input_shape
    if isinstance(model.encoder, ResidualImageEncoder):
        # Its weights serve images of any size, and a file may claim one that takes all memory.
        shape = (shape[0], *(min(side, PROBED_SIDE) for side in shape[1:]))
    row = torch.zeros(1, *shape, dtype=model.weight_dtype, device=model.device)
    if not bool(model.encoder(row).isfinite().all()):
        raise ValueError("its weights are so large that even a row of zeros has no finite representation")
