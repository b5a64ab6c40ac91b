"""Files of tensors: safetensors with a JSON header, nothing that can run code; replaced whole or not at all."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from metaclust._util.files import replacing

HEADER = "metaclust"
FORMAT = 2
"""What this version writes. Each change of what a file holds raises it.

1: version 0.1.0. A model's settings may lack ``task_hidden`` (then the width of all networks is ``hidden``); a
   clustering may hold ``probabilities`` in place of ``confidence``; embeddings of texts are multiplied by the root of
   their width.
2: a model's settings have ``learned_start``, its description ``decisions``; embeddings of texts say whether they are
   multiplied (``scaled``).
"""
READABLE = (1, 2)


class CheckpointError(ValueError):
    """A file that is not there, broken, or not what was asked for."""


def versions() -> dict[str, str]:
    """Return the versions of what writes a file."""
    try:
        own = metadata.version("metaclust")
    except metadata.PackageNotFoundError:
        own = "unknown"
    return {"metaclust": own, "torch": str(torch.__version__), "python": platform.python_version()}


def write_tensors(path: str | os.PathLike[str], tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write tensors with a JSON header; what was there is replaced whole."""
    target = Path(path)
    if not target.parent.is_dir():
        raise CheckpointError(f"cannot write {target}: the folder {target.parent} is not there; create it first")
    if target.is_dir():
        raise CheckpointError(f"cannot write {target}: it is a folder; give the path of a file")
    # A copy of each: safetensors refuses tensors that share memory, as an encoder with tied weights has.
    content = {key: value.detach().cpu().clone(memory_format=torch.contiguous_format) for key, value in tensors.items()}
    with replacing(target) as path:
        save_file(content, path, {HEADER: json.dumps({"format": FORMAT, **header}, allow_nan=False)})


def read_tensors(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the header of a file of ours; its format is ``header["format"]``.

    Any other file is an error that says what it is.
    """
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
    if version not in READABLE:
        raise CheckpointError(
            f"{source} has format {version!r}, this version reads {', '.join(map(str, READABLE))}: update metaclust"
        )
    if found != kind:
        raise CheckpointError(f"{source} is a {found} file, not a {kind} file")
    return tensors, header


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with ``prefix``, named without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
