"""Saving and loading a clustering, with the model that made it, as one safetensors file."""

from __future__ import annotations

import json
import os
import re
import warnings
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util import schema
from metaclust._util.devices import choose_device
from metaclust._util.tensors import read_tensors, refusing, with_prefix, write_tensors
from metaclust.data.input_table import STRINGS, Index
from metaclust.estimator import MetaClusterer
from metaclust.inference.living_file import (
    COMPONENTS,
    PROBABILITY_ROUNDING,
    check_components,
    checked_facts,
    checked_living,
    living_arrays,
)
from metaclust.inference.result import Clustering, Start
from metaclust.mixture.components import Components
from metaclust.model.checkpoint import model_from, model_header

ARRAYS = ("labels", "confidence", "representations")
FLOATS = (torch.float64, torch.float32)
"""What NumPy computes in; it mixes the two."""
START = {"clusters": schema.whole(1), "bound": schema.number()}
LONGEST_NUMBER = 9
"""Digits of a number of clusters."""
LARGEST_PRECISION = 1e100
"""Such that the squared distance of a row, times a precision, is still a number."""


def save_clustering(clustering: Clustering, path: str | os.PathLike[str]) -> None:
    """Write a clustering, but not the rows themselves, to a file."""
    arrays = {name: getattr(clustering, name) for name in ARRAYS}
    arrays |= vars(clustering.components)
    header: dict[str, Any] = {
        "kind": "clustering",
        "bound": clustering.bound,
        "starts": [asdict(start) for start in clustering.starts],
        "ids": clustering.ids,
        "threshold": clustering.threshold,
        "categories": clustering.categories,
        "about": json.loads(json.dumps(clustering.about)),
    }
    if clustering.k_probabilities:
        header["k_probabilities"] = {str(number): value for number, value in clustering.k_probabilities.items()}
    if clustering.index is not None and clustering.index != STRINGS:
        header["index"] = asdict(clustering.index)
    if clustering.facts is not None:
        arrays |= {f"facts.{name}": value for name, value in vars(clustering.facts).items()}
    living, more = living_arrays(clustering)
    tensors = tensors_of(arrays | living)
    header |= more
    model: MetaClusterer | None = clustering.model
    if model is not None:
        header["model"] = model_header(model.model_, model.categories_, model.description())
        tensors |= {f"model.{name}": value for name, value in model.model_.state_dict().items()}
    write_tensors(path, tensors, header)


def tensors_of(arrays: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Return arrays as tensors that share their memory and are only read."""
    with warnings.catch_warnings():
        # The arrays of a clustering are read-only, which torch warns of.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def load_clustering(path: str | os.PathLike[str], device: str = "auto") -> Clustering:
    """Read a clustering that :func:`save_clustering` wrote; it does not include the rows themselves."""
    place = choose_device(device)
    tensors, header = read_tensors(path, "clustering")
    with refusing(path, "a clustering"):
        weights = with_prefix(tensors, "model.")
        facts = {name: value for name, value in tensors.items() if name.startswith("facts.")}
        living = with_prefix(tensors, "living.")
        others = {
            name: value for name, value in tensors.items() if not name.startswith(("model.", "facts.", "living."))
        }
        arrays = checked_arrays(others)
        rows, width = arrays["representations"].shape
        names = schema.list_of(schema.text, rows)
        required = {"ids": names, "bound": schema.number(), "threshold": schema.number(0, 1), "about": schema.mapping}
        required["starts"] = schema.list_of(schema.mapping)
        schema.fields(
            header,
            {**required, "categories": schema.optional(names)},
            {"model": schema.optional(schema.mapping), "k_probabilities": schema.mapping, "index": schema.mapping},
        )
        index = checked_index(header["index"], header["ids"]) if "index" in header else None
        for start in header["starts"]:
            schema.fields(start, START, {"score": schema.optional(schema.number()), "selected": schema.flag}, "starts")
        model = None
        if header.get("model") is not None:
            model = MetaClusterer.of(*model_from(weights, header["model"], None, place), device)
            if (own := model.model_.config.representation) != width:
                raise ValueError(f"its representations have {width} columns, but those of its model have {own}")
        else:
            schema.check_names(weights, ())
        return Clustering(
            labels=arrays["labels"],
            confidence=np.minimum(arrays["confidence"], 1),
            representations=arrays["representations"],
            components=Components(**{name: arrays[name] for name in COMPONENTS}),
            index=index,
            bound=float(header["bound"]),
            starts=tuple(Start(**start) for start in header["starts"]),
            ids=header["ids"],
            threshold=header["threshold"],
            categories=header["categories"],
            about=header["about"],
            model=model,
            k_probabilities=checked_numbers(header.get("k_probabilities", {})),
            facts=checked_facts(facts, len(arrays["means"])) if facts else None,
            **checked_living(living, header, arrays, model),
        )


def checked_numbers(described: dict[str, Any]) -> dict[int, float]:
    """Return the probabilities of numbers of clusters, if they are that."""
    found = {}
    for name, value in described.items():
        if not name.isascii() or not name.isdigit() or not 1 <= len(name) <= LONGEST_NUMBER or int(name) < 1:
            raise ValueError(f"k_probabilities has {name[:40]!r}: it must be a number of clusters")
        schema.fields({name: value}, {name: schema.number(0, 1 + PROBABILITY_ROUNDING)}, name="k_probabilities")
        found[int(name)] = float(value)
    return dict(sorted(found.items()))


def checked_index(described: dict[str, Any], ids: list[str]) -> Index:
    """Return what the ids of rows were, if they can have been that."""
    kinds = {"whole": schema.flag, "pandas": schema.flag, "name": schema.optional(schema.text)}
    schema.fields(described, kinds, name="index")
    index = Index(**{name: described[name] for name in kinds})
    for name in ids if index.whole else ():
        if not re.fullmatch(r"-?[0-9]{1,19}", name, re.ASCII) or not -(2**63) <= int(name) < 2**63:
            raise ValueError(f"ids has {name[:40]!r}: it must be a whole number of 64 bits, as the index says")
    return index


def checked_arrays(tensors: dict[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a clustering, if their shapes agree and their values are in range."""
    schema.check_names(tensors.keys() | {"confidence"}, {*ARRAYS, *COMPONENTS, *({"probabilities"} & tensors.keys())})
    if (means := tensors["means"]).ndim != 2 or 0 in means.shape:
        raise ValueError(f"means has shape {tuple(means.shape)}: it must be (clusters, columns), at least one of each")
    (clusters, width), rows = means.shape, len(tensors["labels"]) if tensors["labels"].ndim else 0
    if "confidence" not in tensors:
        # Files of format 1 may hold all probabilities instead.
        probabilities = schema.tensor(tensors, "probabilities", (rows, clusters), 0, 1 + PROBABILITY_ROUNDING, FLOATS)
        tensors = {**tensors, "confidence": probabilities.amax(1)}
    axes = min(max(tensors["precisions"].ndim - 1, 0), 2)
    check_components(tensors, clusters, width, axes, FLOATS, LARGEST_PRECISION)
    schema.tensor(tensors, "labels", (rows,), 0, clusters - 1, dtypes=(torch.int64,))
    schema.tensor(tensors, "confidence", (rows,), 0, 1 + PROBABILITY_ROUNDING, FLOATS)
    schema.tensor(tensors, "representations", (rows, width), dtypes=FLOATS)
    return {name: tensors[name].numpy() for name in (*ARRAYS, *COMPONENTS)}
