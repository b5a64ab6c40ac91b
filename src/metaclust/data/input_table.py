"""The table that rows come from, of which results carry the columns beside their own."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

SUFFIX = "_input"
"""What the name of a column of the input ends with where a result has a column of that name."""


@dataclass(frozen=True)
class Index:
    """What the ids of rows were before they were written as strings."""

    whole: bool = False
    """Whether they were whole numbers."""
    pandas: bool = False
    """Whether they were the index of a pandas data frame."""
    name: str | None = None
    """The name of that index."""


STRINGS = Index()


@dataclass(frozen=True, eq=False)
class InputTable:
    """A table with a row for each row that was read from it; nothing of it is copied.

    Parameters
    ----------
    frame : data frame of polars or pandas
        The columns that results carry.
    index : Index
        What the ids of its rows are.
    ids, label : str, optional
        The columns that ids and labels were read from.
    rows : ndarray, optional
        The rows of the frame that were read, by number; by default all of them.
    """

    frame: Any
    index: Index = STRINGS
    ids: str | None = None
    label: str | None = None
    rows: NDArray[np.int64] | None = None

    def take(self, rows: NDArray[np.int64]) -> InputTable:
        """Return the table of some of the rows."""
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    def without(self, names: Sequence[str]) -> InputTable:
        """Return the table without some of its columns."""
        left = [name for name in self.names if name not in names]
        return replace(self, frame=self.frame[left] if self.is_pandas else self.frame.select(self.frame[left]))

    def followed_by(self, other: InputTable) -> InputTable | None:
        """Return this table and the rows of another one after them, if they have the same columns; otherwise None."""
        alike = self.is_pandas == other.is_pandas and self.names == other.names
        if not alike or (self.ids, self.label) != (other.ids, other.label):
            return None
        frames = [table.frame if table.rows is None else table.of_rows() for table in (self, other)]
        index = self.index if self.index == other.index else STRINGS
        if self.is_pandas:
            import pandas as pd

            return InputTable(pd.concat(frames), index, self.ids, self.label)
        try:
            # Nothing is copied.
            frame = pl.concat(frames, how="vertical_relaxed", rechunk=False)
        except pl.exceptions.PolarsError:
            return None
        return InputTable(frame, index, self.ids, self.label)

    def of_rows(self) -> Any:
        """Return the rows of the frame that were read, as a frame."""
        return self.frame.iloc[self.rows] if self.is_pandas else self.frame[self.rows]

    def numbered(self, numbers: Sequence[int]) -> InputTable:
        """Return the table with other numbers of its rows, where these are the index of pandas."""
        if not self.is_pandas:
            return self
        import pandas as pd

        frame = (self.frame if self.rows is None else self.of_rows()).copy(deep=False)
        frame.index = pd.Index(numbers, name=frame.index.name)
        return replace(self, frame=frame, rows=None)

    @property
    def is_pandas(self) -> bool:
        return not isinstance(self.frame, pl.DataFrame)

    @property
    def names(self) -> list[Any]:
        """The names of the columns: strings, or whatever pandas was given as names."""
        return list(self.frame.columns)

    @property
    def bytes(self) -> int:
        """The size of the columns in memory, about."""
        return 0 if self.is_pandas else int(self.frame.estimated_size())

    def place(self, name: Hashable) -> list[int]:
        """Return where the columns of a name are; pandas may have several of one name."""
        return [place for place, other in enumerate(self.names) if other == name]

    def shown_as(self, results: Iterable[str], places: Sequence[int]) -> dict[int, Any]:
        """Return the name of each of some columns beside the columns of a result; those that it holds are left out.

        Those are the ids, where they come from a column called id or from one without a name, such as the index that
        pandas writes, and the labels, where they come from one called category.
        """
        taken: set[Any] = set(results)
        names = self.names
        held = {name for name in (self.ids,) if name is not None and "id" in taken and is_unnamed(name)}
        held |= {name for name in (self.label,) if name == "category" and "category" in taken}
        left = [place for place in places if names[place] not in held]
        free = {names[place] for place in left if names[place] not in taken}
        shown: dict[int, Any] = {}
        for place in left:
            name = names[place]
            if name in taken:
                name = unused(f"{name}{SUFFIX}", taken | free | set(shown.values()))
            shown[place] = name
        return shown

    def polars(self, places: dict[int, Any]) -> list[pl.Series]:
        """Return columns under the names given."""
        taken = {str(name) for name in places.values()}
        found: list[pl.Series] = []
        for place, name in places.items():
            column = plain_series(self.frame.iloc[:, place]) if self.is_pandas else self.frame.to_series(place)
            # Of pandas, 1 and "1" may both be names.
            shown = str(name)
            if any(other.name == shown for other in found):
                shown = unused(shown, taken | {other.name for other in found})
            found.append((column if self.rows is None else column[self.rows]).alias(shown))
        return found

    def pandas(self, places: dict[int, Any]) -> Any:
        """Return columns under the names given, with the index of the frame or a new one."""
        import pandas as pd

        if self.is_pandas:
            columns = self.frame.iloc[:, list(places)]
            if self.rows is not None:
                columns = columns.iloc[self.rows]
            columns = columns.copy(deep=False)
            columns.columns = list(places.values())
            return columns
        return pd.DataFrame({column.name: pandas_values(column) for column in self.polars(places)})


def is_unnamed(name: str) -> bool:
    """Return whether a column of ids has no name of its own; the last two are what pandas calls its index in a csv."""
    return name == "id" or name.strip().lower() in ("", "unnamed: 0")


def unused(name: str, taken: Iterable[Any]) -> str:
    """Return a name that is not taken yet.

    >>> unused("cluster", {"cluster", "cluster_2"})
    'cluster_3'
    """
    taken, number, found = set(taken), 2, name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def is_pandas(x: Any, kind: str = "DataFrame") -> bool:
    """Return whether ``x`` is a data frame of pandas, or a series; pandas is not imported for that."""
    return any(each.__name__ == kind and each.__module__.partition(".")[0] == "pandas" for each in type(x).__mro__)


def table_of(x: Any, ids: str | None = None, label: str | None = None) -> InputTable | None:
    """Return the table that ``x`` is, a data frame of polars or pandas or a series of pandas; otherwise None."""
    if isinstance(x, pl.DataFrame):
        whole = ids is not None and is_whole(x[ids])
        return InputTable(x, Index(whole), ids, label)
    if is_pandas(x, "Series"):
        x = x.to_frame()
    if not is_pandas(x):
        return None
    # Columns that are added to the frame later, or rows that are dropped from it, do not change what came in.
    return InputTable(x.copy(deep=False), pandas_index(x.index), ids, label)


def pandas_index(index: Any) -> Index:
    """Return what the index of a pandas data frame is."""
    whole = is_int64(index.dtype)
    # Of other types, such as times, only strings would be left in a file.
    if not whole and not all(isinstance(value, str) for value in index):
        return STRINGS
    return Index(whole, True, index.name if isinstance(index.name, str) else None)


def is_int64(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "iu" and dtype != np.uint64


def is_whole(column: pl.Series) -> bool:
    """Return whether a column holds whole numbers of 64 bits in every row."""
    return column.dtype.is_integer() and column.null_count() == 0 and column.dtype not in (pl.UInt64, pl.Int128)


def ids_of(table: InputTable) -> list[str] | None:
    """Return the index of a pandas data frame as strings; None for other frames, which have no index."""
    return [str(value) for value in table.frame.index] if table.is_pandas else None


def plain_series(column: Any) -> pl.Series:
    """Return a column of pandas as one of polars, without pyarrow."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        # Polars knows no seconds.
        return pl.Series(column.to_numpy().astype(f"{dtype.kind}8[us]"))
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return pl.Series(column.to_numpy())
    absent = column.isna().to_numpy()
    values = [None if gone else value for value, gone in zip(column.tolist(), absent, strict=True)]
    return pl.Series(values, strict=False)


def pandas_values(column: pl.Series) -> Any:
    """Return a column of polars as what pandas makes a column of, without pyarrow."""
    plain = column.dtype.is_numeric() or column.dtype == pl.Boolean or column.dtype.is_temporal()
    return column.to_numpy() if plain and column.dtype != pl.Int128 and not column.has_nulls() else column.to_list()
