"""Clusterings as data frames: the columns of the result beside those of the table that came in."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from metaclust.data.input_table import STRINGS, Index, InputTable
from metaclust.data.rows import listed

if TYPE_CHECKING:
    from metaclust.inference.result import Clustering

Library = Literal["auto", "pandas", "polars"]


def table_of_rows(clustering: Clustering) -> InputTable | None:
    """Return the table that the rows of a clustering came from, if it is in memory."""
    rows = clustering.rows
    return None if rows is None or len(rows) != len(clustering) else rows.table


def kept_places(table: InputTable | None, keep: Sequence[Any] | None, updated: bool = False) -> list[int]:
    """Return where the columns to keep are, in the order in which they are asked for.

    ``updated`` is whether there are rows of an update, for messages.
    """
    if isinstance(keep, str):
        raise TypeError(f"keep={keep!r}: give a list of names")
    if table is None:
        if keep and updated:
            raise ValueError(
                f"keep={list(keep)!r}: after update there are columns only where all rows came as tables of the same "
                "columns, and none of a clustering from a file; omit it"
            )
        if keep:
            raise ValueError(f"keep={list(keep)!r}: these rows did not come with a table that has columns; omit it")
        return []
    if keep is None:
        return list(range(len(table.names)))
    unknown = [name for name in keep if not table.place(name)]
    if unknown:
        raise ValueError(f"keep has {listed(unknown, 20)}: the columns of the input are {listed(table.names, 20)}")
    return list(dict.fromkeys(place for name in keep for place in table.place(name)))


def id_values(ids: Sequence[str], index: Index) -> list[str] | NDArray[np.int64]:
    """Return the ids of rows as what they were: whole numbers or strings."""
    return np.array([int(name) for name in ids], np.int64) if index.whole else list(ids)


def polars_frame(clustering: Clustering, keep: Sequence[Any] | None = None) -> pl.DataFrame:
    """Return the ids, the columns of the result and those of the input as a polars data frame."""
    table = table_of_rows(clustering)
    places = kept_places(table, keep, bool(clustering.about.get("updates")))
    index = clustering.index or STRINGS
    columns: dict[str, Any] = {"id": id_values(clustering.ids, index), **clustering.columns()}
    # Objects are strings: polars makes strings of a list of them, and objects of an array.
    frame = pl.DataFrame({name: v.tolist() if is_object(v) else v for name, v in columns.items()})
    if table is None or not places:
        return frame
    return frame.hstack(table.polars(table.shown_as(columns, places)))


def pandas_frame(clustering: Clustering, keep: Sequence[Any] | None = None) -> Any:
    """Return the columns of the result and those of the input as a pandas data frame, with the input's index.

    Rows that had none have a column of ids.
    """
    import pandas as pd

    table = table_of_rows(clustering)
    places = kept_places(table, keep, bool(clustering.about.get("updates")))
    index = clustering.index or STRINGS
    columns: dict[str, Any] = dict(clustering.columns())
    labels: Any = None
    if table is not None and table.is_pandas:
        labels = table.frame.index if table.rows is None else table.frame.index[table.rows]
    elif index.pandas:
        labels = pd.Index(id_values(clustering.ids, index), name=index.name)
    else:
        columns = {"id": id_values(clustering.ids, index), **columns}
    frame = pd.DataFrame({name: v.tolist() if is_object(v) else v for name, v in columns.items()}, index=labels)
    if table is None or not places:
        return frame
    carried = table.pandas(table.shown_as(columns, places))
    carried.index = frame.index
    return pd.concat([frame, carried], axis=1)


def result_frame(clustering: Clustering, library: Library = "auto", keep: Sequence[Any] | None = None) -> Any:
    """Return a clustering as a data frame; with "auto" of pandas if the rows were one, otherwise of polars."""
    if library not in ("auto", "pandas", "polars"):
        raise ValueError(f"library={library!r}: choose 'auto', 'pandas' or 'polars'")
    has_pandas = find_spec("pandas") is not None
    if library == "pandas" and not has_pandas:
        raise ImportError("library='pandas': the package pandas is not installed: pip install pandas, or omit it")
    table = table_of_rows(clustering)
    was_pandas = clustering.index is not None and clustering.index.pandas if table is None else table.is_pandas
    if library == "pandas" or (library == "auto" and was_pandas and has_pandas):
        return pandas_frame(clustering, keep)
    return polars_frame(clustering, keep)


def is_object(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype == object
