"""Saving and loading a clustering, with the model that made it, as one safetensors file."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

import torch

from metaclust._util.tensors import CheckpointError, read_tensors, write_tensors
from metaclust.estimator import MetaClusterer
from metaclust.inference.result import Clustering, Start
from metaclust.mixture.components import Components
from metaclust.model.checkpoint import model_from, model_header

ARRAYS = ("labels", "confidence", "representations")
COMPONENTS = ("weights", "means", "precisions", "offsets")


def save_clustering(clustering: Clustering, path: str | os.PathLike[str]) -> None:
    """Write a clustering, but not the rows themselves, to a file."""
    tensors = {name: torch.from_numpy(getattr(clustering, name)) for name in ARRAYS}
    tensors |= {name: torch.from_numpy(value) for name, value in asdict(clustering.components).items()}
    header: dict[str, Any] = {
        "kind": "clustering",
        "bound": clustering.bound,
        "starts": [asdict(start) for start in clustering.starts],
        "ids": clustering.ids,
        "threshold": clustering.threshold,
        "categories": clustering.categories,
        "about": json.loads(json.dumps(clustering.about)),
    }
    model: MetaClusterer | None = clustering.model
    if model is not None:
        header["model"] = model_header(model.model_, model.categories_, model.description())
        tensors |= {f"model.{name}": value for name, value in model.model_.state_dict().items()}
    write_tensors(path, tensors, header)


def load_clustering(path: str | os.PathLike[str], device: str = "auto") -> Clustering:
    """Read a clustering that :func:`save_clustering` wrote; it does not include the rows themselves."""
    tensors, header = read_tensors(path, "clustering")
    weights = {name.removeprefix("model."): tensors[name] for name in tensors if name.startswith("model.")}
    try:
        model = None
        if header.get("model") is not None:
            model = MetaClusterer.of(*model_from(weights, header["model"], None, device), device)
        return Clustering(
            labels=tensors["labels"].numpy(),
            # Files of format 1 may hold all probabilities instead.
            confidence=(tensors["confidence"] if "confidence" in tensors else tensors["probabilities"].amax(1)).numpy(),
            representations=tensors["representations"].numpy(),
            components=Components(**{name: tensors[name].numpy() for name in COMPONENTS}),
            bound=float(header["bound"]),
            starts=tuple(Start(**start) for start in header["starts"]),
            ids=header["ids"],
            threshold=header["threshold"],
            categories=header["categories"],
            about=header["about"],
            model=model,
        )
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path} does not hold a clustering this version can read: {error}") from error
