"""Rows of what is passed as X: arrays, tables, sparse matrices, tensors, lists of strings or of images, or rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from PIL import Image
from scipy import sparse
from torch import Tensor

from metaclust.data.datasets.named import Dataset
from metaclust.data.input_table import ids_of, table_of
from metaclust.data.kinds import Kind, check_kind
from metaclust.data.labels import is_absent, with_labels, written_labels
from metaclust.data.mixed_table import Treatment, as_treatment
from metaclust.data.preparation.base import Preparation
from metaclust.data.readers.arrays import array_rows, names_of, rows_from_array
from metaclust.data.readers.cells import Missing, Reading
from metaclust.data.readers.choice import Columns
from metaclust.data.readers.columns import rows_from_table
from metaclust.data.readers.decoding import USUAL_SIDE
from metaclust.data.readers.usage import is_code
from metaclust.data.rows import DataError, Rows, listed
from metaclust.data.sparse import SparseRows

GREY = ("1", "L", "LA")
READING = Reading(source="X", has_missing=False)


def is_table(x: Any) -> bool:
    """Return whether ``x`` is a data frame of pandas, polars or another library: it has named columns."""
    return hasattr(x, "columns") and hasattr(x, "__getitem__") and not isinstance(x, Rows | Dataset)


def is_numeric_matrix(x: Any) -> bool:
    """Return whether ``x`` is for scikit-learn's own validation: numbers in rows and columns, or what should be.

    A data frame with a column of ids or codes is not: they are no magnitudes.
    """
    if sparse.issparse(x):
        return True
    if isinstance(x, Rows | Dataset | Tensor | str):
        return False
    if is_table(x):
        cells = {name: np.asarray(x[name]) for name in x.columns}
        numeric = all(column.dtype.kind in "biufc" for column in cells.values())
        return numeric and not any(is_code(str(name)) and are_whole(column) for name, column in cells.items())
    if isinstance(x, np.ndarray):
        return x.ndim <= 2 and not (x.ndim == 1 and x.dtype.kind in "UO" and all(isinstance(row, str) for row in x))
    if isinstance(x, Sequence) and len(x) and (isinstance(x[0], str | Image.Image) or np.ndim(x[0]) > 1):
        return False
    return not hasattr(x, "str")


def are_whole(column: NDArray[Any]) -> bool:
    """Return whether numbers are whole, but for those that are missing."""
    return column.dtype.kind in "iu" or (column.dtype.kind == "f" and bool((column % 1 == 0)[~np.isnan(column)].all()))


def as_rows(x: Any, y: Any = None, like: Preparation | None = None, partial: bool = False) -> Rows:
    """Return the rows of ``x``, with the categories ``y``; ``like`` is the preparation of the model they are for.

    With ``partial``, ``y`` may lack the category of some rows, see :func:`metaclust.data.labels.read_labels`.
    """
    if partial and y is not None:
        rows = as_rows(x, None, like)
        return with_labels(rows, written_labels(y, len(rows)))
    if isinstance(x, Dataset):
        x = x.rows()
    if isinstance(x, Rows):
        given: Rows = x if like is None else read_like(x, like)
        return given if y is None else replace(given, labels=names_of(y, len(given), "y"), partial=None)
    of_table = like is not None and like.kind == "table"
    if of_table and not is_table(x):
        columns = listed(like.reading()["usage"], 10) if like is not None else ""
        raise DataError(
            f"X is {type(x).__name__}, but the model was trained on a table with the columns {columns}: pass "
            "a data frame, or what read_data returns"
        )
    if is_table(x) and (of_table or not is_numeric_matrix(x)):
        kind = "auto" if like is None or like.kind == "images" else like.kind
        rows = rows_from_table(polars_of(x), columns_like(like), kind, READING)
        rows = replace(rows, labels=None if y is None else names_of(y, len(rows), "y"))
        ids = None if rows.table is None else rows.table.ids
        return with_table(rows, x, ids)
    if is_image_list(x):
        pictures = pictures_of(list(x))
        values = stack_images(pictures, like)
        rows = array_rows(values, y, None, "auto", READING)
        if all(picture.size == (values.shape[2], values.shape[1]) for picture in pictures):
            return rows
        return replace(rows, originals=[pixels_of(picture) for picture in pictures])
    if hasattr(x, "to_list") and not isinstance(x, np.ndarray):
        return with_table(array_rows(x.to_list(), y, None, "auto", READING), x)
    return array_rows(x, y, None, "auto", READING)


def columns_like(like: Preparation | None) -> Columns:
    """Return the columns to read of a table for a model."""
    trained = {} if like is None else like.reading()
    return Columns(
        vector=trained.get("columns"),
        usage=trained.get("usage"),
        usual_text=trained.get("usual_text"),
        has_options=False,
    )


def read_like(rows: Rows, like: Preparation) -> Rows:
    """Return rows of a table, read as those of the training were.

    What its columns are used as was found from these rows alone, and few rows may look otherwise.
    """
    table, trained = rows.table, columns_like(like)
    if table is None or table.is_pandas or like.kind not in ("vectors", "text", "table"):
        return rows
    treatments = {name: each.treatment for name, each in (trained.usage or {}).items() if each.is_used}
    alike = all(name in rows.usage and rows.usage[name].treatment == wanted for name, wanted in treatments.items())
    wanted_columns = trained.vector or list(treatments) or [name for name in (trained.usual_text,) if name is not None]
    if (rows.kind == like.kind and alike) or not wanted_columns or not set(wanted_columns) <= set(table.names):
        return rows
    frame = pl.DataFrame(table.polars(dict(enumerate(table.names))))
    found = rows_from_table(frame, trained, like.kind, Reading(rows.source, has_missing=False))
    return replace(found, ids=rows.ids, labels=rows.labels, partial=rows.partial, table=table)


def rows_from_frame(
    frame: Any,
    labels: Any = None,
    *,
    kind: Kind = "auto",
    text: str | None = None,
    columns: Sequence[str] | None = None,
    treat: Mapping[str, Treatment] | None = None,
    missing: Missing = "auto",
) -> Rows:
    """Return the rows of a data frame of pandas, polars or another library, read as a file of the same columns is.

    ``MetaClusterer.fit(frame, y)`` does the same with the defaults.

    Parameters
    ----------
    frame : data frame
        Columns of numbers, strings, dates, truth values.
    labels : array-like, optional
        The category of each row.
    kind, text, columns, treat, missing
        As in :func:`read_data`.

    >>> frame = pl.DataFrame({"zip": [10115, 10117] * 4, "age": [20, 30, 40, 50] * 2})
    >>> rows_from_frame(frame).columns, rows_from_frame(frame, treat={"zip": "drop"}).columns
    (('zip', 'age'), ('age',))
    """
    if not is_table(frame):
        raise TypeError(f"frame is {type(frame).__name__}: pass a data frame, or an array to rows_from_array")
    check_kind(kind)
    treated = {name: as_treatment(name, value) for name, value in (treat or {}).items()}
    chosen = Columns(text=text, vector=columns, treat=treated)
    rows = rows_from_table(polars_of(frame), chosen, kind, Reading("X", missing))
    ids = None if rows.table is None else rows.table.ids
    rows = with_table(with_labels(rows, None), frame, ids)
    return rows if labels is None else replace(rows, labels=names_of(labels, len(rows), "labels"))


def polars_of(x: Any) -> pl.DataFrame:
    """Return a data frame of any library as one of polars."""
    if isinstance(x, pl.DataFrame):
        return x
    table = table_of(x)
    if table is None:
        cells = {str(name): [None if is_absent(value) else value for value in x[name]] for name in x.columns}
        return pl.DataFrame({name: pl.Series(values, strict=False) for name, values in cells.items()})
    return pl.DataFrame({column.name: column for column in table.polars(dict(enumerate(table.names)))})


def with_table(rows: Rows, x: Any, ids: str | None = None) -> Rows:
    """Return rows with the table that they came as, if it is one; ``ids`` is the column that their ids are from.

    The rows of a pandas data frame are called by its index, unless they have ids of their own.
    """
    table = table_of(x, ids)
    if table is None:
        return rows
    index = ids_of(table) if ids is None else None
    return replace(rows, ids=rows.ids if index is None else index, table=table)


def is_image_list(x: Any) -> bool:
    return isinstance(x, list | tuple) and len(x) > 0 and (isinstance(x[0], Image.Image) or np.ndim(x[0]) in (2, 3))


def pictures_of(images: list[Any]) -> list[Image.Image]:
    """Return images of Pillow for arrays, tensors and images of Pillow, of any sizes."""
    pictures = []
    for i, image in enumerate(images):
        if not isinstance(image, Image.Image):
            array = np.asarray(image.detach().cpu() if isinstance(image, Tensor) else image)
            if array.ndim not in (2, 3) or array.dtype.kind not in "biuf":
                raise DataError(
                    f"X[{i}] has type {array.dtype} and shape {array.shape}, but X[0] is an image: give (height, "
                    "width) or (height, width, 1 or 3) of numbers, or an image of Pillow"
                )
            if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[-1] not in (1, 3):
                array = np.moveaxis(array, 0, -1)
            grey = array.ndim == 2 or array.shape[-1] == 1
            rows = rows_from_array(array.reshape(1, *array.shape[:2]) if grey else array[None], source=f"X[{i}]")
            image = Image.fromarray(np.moveaxis(np.asarray(rows.values)[0], 0, -1).squeeze())
        pictures.append(image)
    return pictures


def pixels_of(picture: Image.Image) -> NDArray[np.uint8]:
    """Return (1 or 3, height, width)."""
    grey = picture.mode in GREY
    pixels = np.asarray(picture.convert("L" if grey else "RGB"))
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def stack_images(images: list[Any], like: Preparation | None) -> NDArray[np.uint8]:
    """Return images of any sizes, resized to one: that of the model, or as for files."""
    pictures = pictures_of(images)
    if like is not None and like.kind == "images":
        reading = like.reading()
        (height, width), channels = reading["size"], reading["channels"]
    else:
        sizes = {picture.size for picture in pictures}
        channels = 1 if all(picture.mode in GREY for picture in pictures) else 3
        width, height = sizes.pop() if len(sizes) == 1 else (USUAL_SIDE, USUAL_SIDE)
    mode = "L" if channels == 1 else "RGB"
    fitted = [
        np.asarray(picture.convert(mode).resize((width, height), Image.Resampling.BILINEAR)) for picture in pictures
    ]
    return np.stack(fitted)


def canonical_order(x: Tensor | SparseRows | NDArray[Any]) -> NDArray[np.int64]:
    """Return an order of rows that depends on the rows only, and not on the order they are passed in."""
    if isinstance(x, SparseRows):
        sorted_rows = x.array.sorted_indices()
        parts = np.split(np.arange(sorted_rows.nnz), sorted_rows.indptr[1:-1])
        keys = [sorted_rows.indices[part].tobytes() + sorted_rows.data[part].tobytes() for part in parts]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    flat = np.ascontiguousarray(x if isinstance(x, np.ndarray) else x.numpy()).reshape(len(x), -1)
    return np.argsort(flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1])))[:, 0], kind="stable")
