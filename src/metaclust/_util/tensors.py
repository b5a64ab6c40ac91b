"""Files of tensors: safetensors with a JSON header, nothing that can run code; replaced whole or not at all."""

from __future__ import annotations

import json
import os
import platform
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from metaclust._util.files import NotRegularError, open_regular, replacing
from metaclust._util.schema import check_plain, is_whole

HEADER = "metaclust"
FORMAT = 4
"""What this version writes. Each change of what a file holds raises it.

1: version 0.1.0. A model's settings may lack ``task_hidden`` (then the width of all networks is ``hidden``); a
   clustering may hold ``probabilities`` in place of ``confidence``; embeddings of texts are multiplied by the root of
   their width.
2: a model's settings have ``learned_start``, its description ``decisions``; embeddings of texts say whether they are
   multiplied (``scaled``).
3: the learned selector of a model is another one (that of older files is not used), and a clustering may hold
   ``k_probabilities`` and facts of its clusters.
4: a model may hold the categories of its training; a clustering holds the names and statistics of its clusters, whether
   rows are new or belong nowhere, what has been changed by hand, and what its ids were (``index``). Rows may be
   prepared as those of a table of several types.
"""
READABLE = (1, 2, 3, 4)
LONGEST_REASON = 600
"""Characters of an error that a message quotes."""


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
    notes = {HEADER: json.dumps({"format": FORMAT, **header}, allow_nan=False)}
    try:
        with replacing(target) as path:
            save_file(content, path, notes)
    except SafetensorError as error:
        raise CheckpointError(
            f"cannot write {target}: {error}. Make room on its disk, or choose another path; what was there before is "
            "as it was"
        ) from error


def read_tensors(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the header of a file of ours; its format is ``header["format"]``.

    Any other file is an error that says what it is. The tensors are copies: the file may change afterwards. The values
    of the header are plain: finite, of at most 64 bits, not deeply nested. What they mean is for the caller to check.
    """
    source = Path(path)
    content = regular_content(source)
    try:
        tensors = load(content)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError, AssertionError) as error:
        raise CheckpointError(
            f"{source} is not a safetensors file, or it is cut short: {shortened(error)}. Get another copy of it"
        ) from error
    try:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][HEADER], parse_constant=float)
        found, version = header["kind"], header["format"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{source} is a safetensors file, but not one of metaclust's: it has no '{HEADER}' header"
        ) from error
    with refusing(source, f"a {kind}"):
        check_plain(header)
    if not is_whole(version) or version not in READABLE:
        raise CheckpointError(
            f"{source} has format {reprlib.repr(version)}, this version reads {', '.join(map(str, READABLE))}: "
            "update metaclust"
        )
    if found != kind:
        raise CheckpointError(f"{source} is a {str(found)[:40]} file, not a {kind} file")
    return tensors, header


def regular_content(source: Path) -> bytes:
    """Return the content of a file; what is no regular file, such as a pipe or a device, is refused unread."""
    try:
        with open_regular(source) as file:
            return file.read()
    except FileNotFoundError as error:
        raise CheckpointError(f"cannot read {source}: there is no such file") from error
    except NotRegularError as error:
        raise CheckpointError(f"cannot read {source}: {error}; give the path of a regular file") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {source}: {error}") from error


@contextmanager
def refusing(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Raise CheckpointError, with the file and the reason, where the content of a file is not ``what`` it must be."""
    try:
        yield
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise CheckpointError(
            f"{path} does not hold {what} this version can read: {shortened(error)}. Save it again, or get another copy"
        ) from error


def shortened(error: Exception) -> str:
    """Return the message of an error, of which a damaged file may have made a very long one."""
    message = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return message if len(message) <= LONGEST_REASON else message[:LONGEST_REASON] + " ..."


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with ``prefix``, named without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
