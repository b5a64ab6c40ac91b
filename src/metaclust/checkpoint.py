"""Save and load: safetensors with a JSON header, nothing that can run code; files are replaced whole or not at all."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from metaclust.devices import choose_device
from metaclust.model import ClusteringModel
from metaclust.model_config import ModelConfig

HEADER = "metaclust"
FORMAT = 1


class CheckpointError(ValueError):
    """A file that is not there, broken, or not what was asked for."""


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


def versions() -> dict[str, str]:
    try:
        own = metadata.version("metaclust")
    except metadata.PackageNotFoundError:
        own = "unknown"
    return {"metaclust": own, "torch": str(torch.__version__), "python": platform.python_version()}


def write_tensors(path: str | os.PathLike[str], tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write beside the target and move into place."""
    target = Path(path)
    if not target.parent.is_dir():
        raise CheckpointError(f"cannot write {target}: the folder {target.parent} is not there; create it first")
    if target.is_dir():
        raise CheckpointError(f"cannot write {target}: it is a folder; give the path of a file")
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    beside = Path(name)
    try:
        # A copy of each: safetensors refuses tensors that share memory, as an encoder with tied weights has.
        content = {
            key: value.detach().cpu().clone(memory_format=torch.contiguous_format) for key, value in tensors.items()
        }
        save_file(content, name, {HEADER: json.dumps({"format": FORMAT, **header}, allow_nan=False)})
        # mkstemp makes files private; a model file is as readable as any other new file.
        umask = os.umask(0)
        os.umask(umask)
        beside.chmod(0o666 & ~umask)
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def read_tensors(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the header of a file of ours; any other file is an error that says what it is."""
    source = Path(path)
    if not source.is_file():
        raise CheckpointError(f"cannot read {source}: there is no such file")
    try:
        with safe_open(source, framework="pt") as file:
            notes = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{source} is not a safetensors file, or it is cut short: {error}") from error
    try:
        header = json.loads(notes[HEADER])
        found, version = header["kind"], header["format"]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{source} is a safetensors file, but not one of metaclust's: it has no '{HEADER}' header"
        ) from error
    if version != FORMAT:
        raise CheckpointError(f"{source} has format {version}, this version reads {FORMAT}: update metaclust")
    if found != kind:
        raise CheckpointError(f"{source} is a {found} file, not a {kind} file")
    return tensors, header
