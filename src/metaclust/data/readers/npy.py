"""Rows from .npy and .npz files; object arrays, which could run code, are refused."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from io import BufferedIOBase
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from metaclust.data.files import DEFAULT_LIMIT, Limit, open_regular, size_of
from metaclust.data.kinds import Kind
from metaclust.data.labels import UNLABELLED, check_characters
from metaclust.data.npy_format import opened_npy, read_header, read_values
from metaclust.data.readers.arrays import array_rows
from metaclust.data.readers.cells import Missing, Reading
from metaclust.data.rows import DataError, DataWarning, Rows, listed, reason_of, shown

VALUE_NAMES = ("X", "x", "data", "values", "images", "embeddings", "features", "texts", "text", "rows")
LABEL_NAMES = ("y", "label", "labels", "category", "categories", "target")
NAMES_OF_LABELS = ("label_names", "category_names", "class_names", "categories", "names")
ID_NAMES = ("ids", "id")
MOST_ARRAYS = 10_000


def read_npy(
    path: Path, label: str | None, kind: Kind, missing: Missing, limit: Limit = DEFAULT_LIMIT, partial: bool = False
) -> Rows:
    """Return the rows of one array; ``label`` is the path of a second .npy with the labels."""
    labels = None
    if label is not None:
        beside = Path(label)
        if beside.suffix != ".npy" or not beside.exists():
            raise DataError(
                f"label={label!r}: a .npy file has no columns, so give the path of a second .npy file with one label "
                "a row"
            )
        labels = load_array(beside, limit)
    return array_rows(load_array(path, limit), labels, None, kind, Reading(path.name, missing, partial=partial))


def read_npz(
    path: Path,
    label: str | None,
    ids: str | None,
    kind: Kind,
    missing: Missing,
    limit: Limit = DEFAULT_LIMIT,
    partial: bool = False,
) -> Rows:
    """Return the rows of a file with arrays of rows, labels and ids, by their usual names or ``label`` and ``ids``."""
    arrays = load_arrays(path, limit=limit)
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
    notes = [f"rows from array {shown(chosen)}"]
    if labels is not None:
        notes.append(f"labels from array {shown(label)}")
        meaning = next((name for name in NAMES_OF_LABELS if name in rest and name != chosen), None)
        names = None if meaning is None else arrays[meaning]
        # Labels of another shape are refused where the rows are known.
        if (
            names is not None
            and labels.dtype.kind in "iu"
            and names.dtype.kind == "U"
            and names.ndim == labels.ndim == 1
        ):
            labels = named_labels(labels, names, f"{path.name}: array {shown(label)}", partial)
            notes.append(f"their names from array {shown(meaning)}")
    reading = Reading(path.name, missing, partial=partial)
    rows = array_rows(arrays[chosen], labels, None if ids is None else arrays[ids], kind, reading)
    return replace(rows, notes=(*notes, *rows.notes))


def named_labels(labels: NDArray[Any], names: NDArray[Any], what: str, partial: bool = False) -> NDArray[Any]:
    """Return names in place of numbers; a warning lists the names without a row.

    With ``partial`` there may be rows of the number -1, whose name is "".
    """
    check_characters(names, what)
    if partial and UNLABELLED in labels:
        known = labels != UNLABELLED
        chosen = np.zeros(len(labels), np.result_type(names.dtype, "U1"))
        chosen[known] = named_labels(labels[known], names, what)
        return chosen
    if len(labels) and (labels.min() < 0 or labels.max() >= len(names)):
        raise DataError(f"{what} has numbers from {labels.min()} to {labels.max()}, but there are {len(names)} names")
    empty = np.setdiff1d(np.arange(len(names)), labels)
    if len(empty):
        warnings.warn(
            f"{what}: {len(empty)} categories have no row: {listed(names[empty].tolist())}", DataWarning, stacklevel=4
        )
    found: NDArray[Any] = names[labels]
    return found


def load_array(path: Path, limit: Limit = DEFAULT_LIMIT) -> NDArray[Any]:
    """Return the array of a .npy file."""
    with opened_npy(path, path.name, "a .npy file that can be read") as (file, header):
        limit.check(path.name, header.nbytes)
        return read_values(file, header)


def load_arrays(
    path: Path, needed: Sequence[str] | None = None, limit: Limit = DEFAULT_LIMIT
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file, all or the ``needed`` ones."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path.name} in {path.parent}")
    what = f"{path} is not the .npz file it should be, or it is cut short"
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = npz_members(archive)
                absent = [name for name in needed or () if name not in members]
                if absent:
                    raise DataError(f"{what}: it has no array {listed(absent)}, only {listed(sorted(members))}")
                chosen = {name: members[name] for name in needed or members}
                # As the directory says; a member that holds more is not read to its end.
                limit.check(path.name, sum(member.file_size for member in chosen.values()), size_of(file))
                return {name: read_member(archive, member, name) for name, member in chosen.items()}
        except DataError:
            raise
        # zipfile raises a dozen kinds of exception for a damaged file.
        except Exception as error:
            raise DataError(f"{what}: {reason_of(error)}") from error


def npz_members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members of an .npz file by the names of their arrays."""
    infos = archive.infolist()
    if len(infos) > MOST_ARRAYS:
        raise ValueError(f"it holds {len(infos):,} arrays, more than {MOST_ARRAYS:,}")
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise ValueError(f"it holds several arrays called {shown(name)}")
        # Bits 0, 6 and 13: encrypted, strongly encrypted, encrypted headers.
        if info.flag_bits & 0x2041:
            raise ValueError(f"{shown(name)} in it is encrypted: save it without a password")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{shown(name)} in it is compressed in a way that numpy does not write")
        if not info.filename.endswith(".npy"):
            raise ValueError(f"{shown(name)} in it is not an array")
        members[name] = info
    return members


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    with archive.open(member) as stream:
        file = cast("BufferedIOBase", stream)
        try:
            return read_values(file, read_header(file, member.file_size))
        except ValueError as error:
            raise ValueError(f"{shown(name)} in it is not an array that can be read: {error}") from error
