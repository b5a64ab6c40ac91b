"""Rows from arrays in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metaclust.data.kinds import KINDS, Kind, check_kind
from metaclust.data.labels import check_characters, with_labels, written_labels
from metaclust.data.readers.cells import Missing, Reading, text_rows, vector_rows
from metaclust.data.rows import DataError, Rows, listed, shown


def rows_from_array(
    values: Any,
    labels: Any = None,
    ids: Any = None,
    *,
    kind: Kind = "auto",
    columns: Sequence[str] = (),
    missing: Missing = "auto",
    source: str = "X",
) -> Rows:
    """Return the rows of an array, tensor, sparse matrix or list.

    Parameters
    ----------
    values : array-like
        Numbers of shape (rows, columns) are vectors; of shape (rows, height, width[, 1 or 3]) or
        (rows, 1 or 3, height, width) images; strings are text.
    labels : array-like, optional
        The category of each row.
    ids : array-like, optional
        A name for each row; by default its number.
    kind : {"auto", "vectors", "images", "text"}
        An error is raised if the values are of another kind; "auto" accepts any.
    columns : sequence of str
        The names of the columns of vectors.
    missing : {"auto", "error", "drop", "mean"}
        What happens to rows with NaN or an empty text: an error, left out with a warning, or, for numbers, filled
        with the mean of the training rows. "auto" is an error here.
    source : str
        What messages call the rows.

    >>> rows_from_array([[0.5, 2], [1, 3], [4, 5]], ["a", "b", "a"])
    <Rows of X: 3 vectors of 2, 2 categories>
    """
    return array_rows(values, labels, ids, kind, Reading(source, missing, tuple(columns)))


def array_rows(values: Any, labels: Any, ids: Any, kind: Kind, reading: Reading) -> Rows:
    check_kind(kind)
    source = reading.source
    array: Any = as_sparse(values, source) if sparse.issparse(values) else as_array(values, source)
    found = "text" if array.dtype.kind in "UO" else "vectors" if array.ndim == 2 else "images"
    if kind not in ("auto", found):
        forms = ", ".join(f"{each.plural} are {each.form}" for each in KINDS.values())
        raise DataError(
            f"{source} holds {found}, not {kind}: it has type {array.dtype} and shape {array.shape}, but {forms}"
        )
    if len(array.shape) == 0 or array.shape[0] == 0:
        raise DataError(f"{source} has no rows: give at least one")
    count = array.shape[0]
    numbers = [str(i) for i in range(count)] if ids is None else names_of(ids, count, f"the ids of {source}")
    what = f"the labels of {source}"
    read = written_labels if reading.partial else names_of
    known = None if labels is None else read(labels, count, what)
    if found == "text":
        rows = text_rows(list(array), numbers, known, reading)
    elif found == "vectors":
        rows = vector_rows(array, numbers, known, reading)
    else:
        rows = Rows("images", as_images(array, source), numbers, known, source=source, notes=reading.notes)
    return with_labels(rows, rows.labels) if reading.partial else rows


def as_sparse(values: Any, source: str) -> sparse.csr_array:
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise DataError(
            f"{source} has shape {values.shape} and type {values.dtype}: give real numbers in rows and columns"
        )
    with np.errstate(over="ignore"):
        return sparse.csr_array(values, dtype=np.float32)


def as_array(values: Any, source: str) -> NDArray[Any]:
    """Return an array of numbers, or of str objects (never of other objects)."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    mixed = isinstance(values, list | tuple) and any(isinstance(value, str) for value in values)
    try:
        # As objects, so that numpy does not turn other values among the strings into strings.
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
    if array.dtype.kind == "U":
        check_characters(array, source)
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
            f"{source} has shape {array.shape}: vectors are {KINDS['vectors'].form}, images {KINDS['images'].form}"
        )
    return array


def as_images(array: NDArray[Any], source: str) -> NDArray[np.uint8]:
    """Return uint8 (rows, channels, height, width)."""
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


def names_of(values: Any, count: int, what: str) -> list[str]:
    """Return a name for each row, from strings or numbers."""
    values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    mixed = isinstance(values, list | tuple) and any(isinstance(value, str) for value in values)
    array = np.asarray(values, dtype=object if mixed else None)
    if array.shape != (count,):
        raise DataError(f"{what} have shape {array.shape} for {count} rows: there must be one for each row")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind == "U":
        check_characters(array, what)
    whole = array.dtype.kind == "f" and bool(np.isfinite(array).all()) and bool((np.abs(array) < 2**53).all())
    if whole and bool((array == np.rint(array)).all()):
        array = array.astype(np.int64)
    for row, value in enumerate(array.tolist()):
        infinite = isinstance(value, float) and not np.isfinite(value)
        if value is None or infinite or value != value or (isinstance(value, str) and not value.strip()):
            raise DataError(
                f"{what} hold {shown(value)} in row {row} (counting from 0): give every row a name or a number"
            )
    return [value if isinstance(value, str) else str(value) for value in array.tolist()]
