"""Rows from .npy and .npz files; object arrays, which could run code, are refused."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from metaclust.data.kinds import Kind
from metaclust.data.readers.arrays import rows_from_array
from metaclust.data.readers.cells import Missing
from metaclust.data.rows import DataError, DataWarning, Rows, listed

VALUE_NAMES = ("X", "x", "data", "values", "images", "embeddings", "features", "texts", "text", "rows")
LABEL_NAMES = ("y", "label", "labels", "category", "categories", "target")
NAMES_OF_LABELS = ("label_names", "category_names", "class_names", "categories", "names")
ID_NAMES = ("ids", "id")


def read_npy(path: Path, label: str | None, kind: Kind, missing: Missing) -> Rows:
    """Return the rows of one array; ``label`` is the path of a second .npy with the labels."""
    labels = None
    if label is not None:
        beside = Path(label)
        if beside.suffix != ".npy" or not beside.is_file():
            raise DataError(
                f"label={label!r}: a .npy file has no columns, so give the path of a second .npy file with one label "
                "a row"
            )
        labels = load_array(beside)
    return rows_from_array(load_array(path), labels, kind=kind, missing=missing, source=path.name)


def read_npz(path: Path, label: str | None, ids: str | None, kind: Kind, missing: Missing) -> Rows:
    """Return the rows of a file with arrays of rows, labels and ids, by their usual names or ``label`` and ``ids``."""
    arrays = load_arrays(path)
    for argument, name in (("label", label), ("ids", ids)):
        if name is not None and name not in arrays:
            raise DataError(f"{argument}={name!r}: {path.name} has no such array; it has {listed(sorted(arrays), 20)}")
    label = label or next((name for name in LABEL_NAMES if name in arrays and arrays[name].ndim == 1), None)
    ids = ids or next((name for name in ID_NAMES if name in arrays), None)
    rest = [name for name in arrays if name not in (label, ids)]
    chosen = next((name for name in VALUE_NAMES if name in rest), rest[0] if len(rest) == 1 else None)
    if chosen is None:
        raise DataError(
            f"{path.name} has the arrays {listed(sorted(arrays), 20)}: call the one with the rows 'X' and the labels "
            "'y'"
        )
    labels = None if label is None else arrays[label]
    notes = [f"rows from array {chosen!r}"]
    if labels is not None:
        notes.append(f"labels from array {label!r}")
        meaning = next((name for name in NAMES_OF_LABELS if name in rest and name != chosen), None)
        if meaning is not None and labels.dtype.kind in "iu" and arrays[meaning].dtype.kind == "U":
            labels = named_labels(labels, arrays[meaning], f"{path.name}: array {label!r}")
            notes.append(f"their names from array {meaning!r}")
    rows = rows_from_array(
        arrays[chosen], labels, None if ids is None else arrays[ids], kind=kind, missing=missing, source=path.name
    )
    return replace(rows, notes=(*notes, *rows.notes))


def named_labels(labels: NDArray[Any], names: NDArray[Any], what: str) -> NDArray[Any]:
    """Return names in place of numbers; a warning lists the names without a row."""
    if len(labels) and (labels.min() < 0 or labels.max() >= len(names)):
        raise DataError(f"{what} has numbers from {labels.min()} to {labels.max()}, but there are {len(names)} names")
    empty = np.setdiff1d(np.arange(len(names)), labels)
    if len(empty):
        warnings.warn(
            f"{what}: {len(empty)} categories have no row: {listed(names[empty].tolist())}", DataWarning, stacklevel=4
        )
    chosen: NDArray[Any] = names[labels]
    return chosen


def load_array(path: Path) -> NDArray[Any]:
    try:
        with path.open("rb") as file:
            array = np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path.name} is not a .npy file that can be read, or it is cut short: {error}") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path.name} is not a .npy file with one array: rename it to .npz if it is one")
    return array


def load_arrays(path: Path, needed: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file, all or the ``needed`` ones."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path.name} in {path.parent}")
    try:
        with path.open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            if isinstance(arrays, np.ndarray):
                raise ValueError("it holds one array (.npy)")
            found = {name: arrays[name] for name in (arrays.files if needed is None else needed)}
            other = [name for name, value in found.items() if not isinstance(value, np.ndarray)]
            if other:
                raise ValueError(f"{listed(other)} in it is not an array")
            return found
    except (KeyError, ValueError, BadZipFile, zlib.error, OSError, EOFError) as error:
        raise DataError(f"{path} is not the .npz file it should be, or it is cut short: {error}") from error
