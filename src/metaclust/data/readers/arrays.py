"""Rows from arrays: in memory, .npy and .npz."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metaclust.data.rows import DataError, DataWarning, Kind, Rows, check_kind, listed

Missing = Literal["error", "drop", "mean"]
VALUE_NAMES = ("X", "x", "data", "values", "images", "embeddings", "features", "texts", "text", "rows")
LABEL_NAMES = ("y", "label", "labels", "category", "categories", "target")
NAMES_OF_LABELS = ("label_names", "category_names", "class_names", "categories", "names")
ID_NAMES = ("ids", "id")


def rows_from_array(
    values: Any,
    labels: Any = None,
    ids: Any = None,
    *,
    kind: Kind | Literal["auto"] = "auto",
    columns: Sequence[str] = (),
    missing: Missing = "error",
    source: str = "X",
) -> Rows:
    """Numbers (rows, columns) as vectors, (rows, height, width[, 1 or 3]) or (rows, 1 or 3, height, width) as
    images, strings as text. The kind follows from type and shape; ``kind`` only insists on it.
    """
    check_kind(kind)
    check_missing(missing)
    array: Any = values
    if sparse.issparse(values):
        found: Kind = "vectors"
        array = as_sparse(values, source)
    else:
        array = as_array(values, source)
        found = "text" if array.dtype.kind in "UO" else "vectors" if array.ndim == 2 else "images"
    if kind not in ("auto", found):
        raise DataError(
            f"{source} holds {found}, not {kind}: it has type {array.dtype} and shape {array.shape}. Vectors have "
            "shape (rows, columns), images (rows, height, width) or (rows, 1 or 3, height, width), texts are strings"
        )
    if len(array.shape) == 0 or array.shape[0] == 0:
        raise DataError(f"{source} has no rows: give at least one")
    count = array.shape[0]
    numbers = [str(i) for i in range(count)] if ids is None else names_of(ids, count, f"the ids of {source}")
    known = None if labels is None else names_of(labels, count, f"the labels of {source}")
    if found == "text":
        return text_rows(list(array), numbers, known, missing=missing, source=source)
    if found == "vectors":
        return vector_rows(array, numbers, known, columns=columns, missing=missing, source=source)
    return Rows("images", as_images(array, source), numbers, known, source=source)


def as_sparse(values: Any, source: str) -> sparse.csr_array:
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise DataError(
            f"{source} has shape {values.shape} and type {values.dtype}: give real numbers in rows and columns"
        )
    with np.errstate(over="ignore"):
        return sparse.csr_array(values, dtype=np.float32)


def as_array(values: Any, source: str) -> NDArray[Any]:
    """An array of numbers, or an array of str objects (never of other objects)."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    mixed = isinstance(values, list | tuple) and any(isinstance(value, str) for value in values)
    try:
        # As objects, so that numpy does not make strings of what else is among the strings.
        array = np.asarray(values, dtype=object if mixed else None)
    except ValueError as error:
        widths = sorted({len(row) for row in values if hasattr(row, "__len__")})
        raise DataError(
            f"{source} has rows of different widths ({listed(widths)}): give every row the same columns"
        ) from error
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{source} holds bytes that are not UTF-8 ({error}): decode them first") from error
    if array.dtype.kind in "UO":
        if array.ndim != 1:
            raise DataError(
                f"{source} holds strings or objects in shape {array.shape}: numbers must have a numeric type "
                "(array.astype(float)), texts one string for each row"
            )
        return array.astype(object)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{source} has type {array.dtype}: give numbers (float, int, uint8) or strings")
    if array.ndim in (0, 1):
        raise DataError(
            f"{source} has shape {array.shape}: it needs rows and columns (array.reshape(-1, 1) for one column)"
        )
    if array.ndim > 4 or 0 in array.shape[1:]:
        raise DataError(
            f"{source} has shape {array.shape}: vectors have shape (rows, columns), images (rows, height, width) or "
            "(rows, 1 or 3, height, width)"
        )
    return array


def vector_rows(
    values: NDArray[Any] | sparse.csr_array,
    ids: list[str],
    labels: list[str] | None,
    *,
    columns: Sequence[str],
    missing: Missing,
    source: str,
    notes: tuple[str, ...] = (),
    unlabelled: Mapping[str, NDArray[np.bool_]] = MappingProxyType({}),
) -> Rows:
    """float32 vectors without NaN or infinity; with missing="mean" NaN stays, for the preparation to fill."""
    given = values
    with np.errstate(over="ignore"):
        values = values if sparse.issparse(values) else np.ascontiguousarray(values, np.float32)
    cells: Any = values.data if sparse.issparse(values) else values
    rows = Rows("vectors", values, ids, labels, tuple(columns), source, notes)
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(cells.sum(dtype=np.float64))
    if finite:
        return without(rows, unlabelled)
    if sparse.issparse(values):
        if not np.isfinite(cells).all():
            raise DataError(f"{source} is sparse and holds NaN or infinity: replace such entries")
        return without(rows, unlabelled)
    infinite = np.isinf(values)
    if infinite.any():
        row, column = (int(i) for i in np.argwhere(infinite)[0])
        raise DataError(
            f"{source}: row {row} (counting from 0), column {named(columns, column)}: {given[row, column]} is not a "
            "finite float32 number; correct or remove it"
        )
    absent = np.isnan(values)
    bad = absent.any(1)
    if missing == "drop":
        return without(rows, {"an empty cell or NaN": bad, **unlabelled})
    if missing == "error" and bad.any():
        row = int(bad.argmax())
        column = int(absent[row].argmax())
        raise DataError(
            f"{source}: row {row} (counting from 0), column {named(columns, column)}: the cell is empty or NaN "
            f"({int(bad.sum()):,} such rows). Fill it, or pass missing='drop' to leave such rows out, missing='mean' "
            "to fill with the column's mean"
        )
    return rows


def text_rows(
    values: list[Any],
    ids: list[str],
    labels: list[str] | None,
    *,
    missing: Missing,
    source: str,
    columns: Sequence[str] = (),
    notes: tuple[str, ...] = (),
    unlabelled: Mapping[str, NDArray[np.bool_]] = MappingProxyType({}),
) -> Rows:
    """Strings that are not blank."""
    for i, value in enumerate(values):
        if value is not None and not isinstance(value, str):
            raise DataError(f"{source}: row {i} (counting from 0) is {value!r}, not a string: texts must be strings")
    rows = Rows("text", [value or "" for value in values], ids, labels, tuple(columns), source, notes)
    blank = np.array([not value or value.isspace() for value in values], bool)
    if missing == "drop":
        return without(rows, {"an empty text": blank, **unlabelled})
    if blank.any():
        row = int(blank.argmax())
        raise DataError(
            f"{source}: row {row} (counting from 0) has an empty text ({int(blank.sum()):,} such rows): fill it, or "
            "pass missing='drop' to leave such rows out"
        )
    return rows


def as_images(array: NDArray[Any], source: str) -> NDArray[np.uint8]:
    """(rows, channels, height, width) of uint8."""
    if array.ndim == 3:
        array = array[:, None]
    elif array.shape[1] not in (1, 3):
        if array.shape[-1] not in (1, 3):
            raise DataError(
                f"{source} has shape {array.shape}: images need 1 (grey) or 3 (colour) channels, as "
                "(rows, height, width, channels) or (rows, channels, height, width)"
            )
        array = np.moveaxis(array, -1, 1)
    if array.dtype != np.uint8:
        low, high = array.min(), array.max()
        if not (np.isfinite(low) and np.isfinite(high)):
            raise DataError(f"{source} holds NaN or infinity: images must have finite values")
        limit = 1 if array.dtype.kind in "bf" else 255
        if low < 0 or high > limit:
            raise DataError(
                f"{source} has type {array.dtype} and values from {low} to {high}: give images as uint8, or as floats "
                "from 0 to 1"
            )
        array = np.rint(array * np.float32(255)) if limit == 1 else array
    return np.ascontiguousarray(array, np.uint8)


def without(rows: Rows, reasons: Mapping[str, NDArray[np.bool_]]) -> Rows:
    """Leave out the rows that a mask marks, for each of several reasons, with warnings and notes."""
    marked = {why: mask for why, mask in reasons.items() if mask.any()}
    if not marked:
        return rows
    bad = np.logical_or.reduce(list(marked.values()))
    if bad.all():
        raise DataError(f"{rows.source}: every row has {' or '.join(marked)}: nothing is left")
    notes = []
    for why, mask in marked.items():
        what = f"left out {int(mask.sum()):,} rows with {why}, first row {int(mask.argmax())} (counting from 0)"
        warnings.warn(f"{rows.source}: {what}", DataWarning, stacklevel=3)
        notes.append(what)
    return replace(rows.take(~bad), notes=(*rows.notes, *notes))


def names_of(values: Any, count: int, what: str) -> list[str]:
    """One name for each row, from strings or numbers."""
    values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    mixed = isinstance(values, list | tuple) and any(isinstance(value, str) for value in values)
    array = np.asarray(values, dtype=object if mixed else None)
    if array.shape != (count,):
        raise DataError(f"{what} have shape {array.shape} for {count} rows: there must be one for each row")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    whole = array.dtype.kind == "f" and bool(np.isfinite(array).all()) and bool((np.abs(array) < 2**53).all())
    if whole and bool((array == np.rint(array)).all()):
        array = array.astype(np.int64)
    for row, value in enumerate(array.tolist()):
        infinite = isinstance(value, float) and not np.isfinite(value)
        if value is None or infinite or value != value or (isinstance(value, str) and not value.strip()):
            raise DataError(f"{what} hold {value!r} in row {row} (counting from 0): give every row a name or a number")
    return [value if isinstance(value, str) else str(value) for value in array.tolist()]


def read_npy(path: Path, label: str | None, kind: Kind | Literal["auto"], missing: Missing) -> Rows:
    """One array; ``label`` is the path of a second .npy with the labels."""
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


def read_npz(path: Path, label: str | None, ids: str | None, kind: Kind | Literal["auto"], missing: Missing) -> Rows:
    """The array of rows, of labels and of ids by their usual names; ``label`` and ``ids`` name others."""
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
    """Names in place of numbers; a name without a row is an empty category, and said."""
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
    """Arrays of an .npz file, all or the ``needed`` ones; object arrays, which could run code, are refused."""
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


def check_missing(missing: str) -> None:
    if missing not in ("error", "drop", "mean"):
        raise ValueError(f"missing={missing!r}: choose 'error', 'drop' or 'mean'")


def named(columns: Sequence[str], column: int) -> str:
    return repr(columns[column]) if columns else str(column)
