"""The values of rows of a table whose columns are of several types, and what each column is used as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

Treatment = Literal["number", "category", "date", "text", "id", "drop"]
TREATMENTS: tuple[Treatment, ...] = get_args(Treatment)
USED: tuple[Treatment, ...] = ("number", "category", "date", "text")
"""The treatments of columns that rows are made of; columns of the others are left out."""


@dataclass(frozen=True)
class Usage:
    """What a column of a table is used as.

    Parameters
    ----------
    treatment : {"number", "category", "date", "text", "id", "drop"}
        Columns of the last two are left out.
    why : str
        Why a column is left out.
    written : str
        How dates are written: a key of ``metaclust.data.readers.dates.WRITTEN``.
    """

    treatment: Treatment
    why: str = ""
    written: str = ""

    @property
    def is_used(self) -> bool:
        return self.treatment in USED


@dataclass(frozen=True, eq=False)
class MixedTable:
    """Columns side by side, each of the type of its treatment; null is a gap.

    Parameters
    ----------
    frame : polars.DataFrame
        The columns that are used.
    usage : mapping
        What each column is used as, by name, also of those that are left out.
    """

    frame: pl.DataFrame
    usage: Mapping[str, Usage]

    def __len__(self) -> int:
        return self.frame.height

    def __getitem__(self, rows: NDArray[np.int64]) -> MixedTable:
        return replace(self, frame=self.frame[rows])

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        return self.frame.shape

    def names(self, treatment: Treatment) -> list[str]:
        """Return the names of the columns with a treatment, in their order."""
        return [name for name, usage in self.usage.items() if usage.treatment == treatment]

    def followed_by(self, others: MixedTable) -> MixedTable:
        """Return these rows and others with the same columns after them."""
        further = pl.DataFrame([others.frame[name] for name in self.frame.columns])
        return replace(self, frame=pl.concat([self.frame, further]))

    def column(self, name: str) -> pl.Series:
        """Return a column without its name, which may look like a pattern to polars."""
        return self.frame[name].alias("")

    def gaps(self, name: str) -> NDArray[np.bool_]:
        """Return which rows have no value in a column."""
        return self.column(name).is_null().to_numpy()

    def numbers(self, name: str) -> NDArray[np.float32]:
        """Return a column of numbers, NaN for gaps."""
        return self.column(name).cast(pl.Float32).fill_null(float("nan")).to_numpy()

    def strings(self, name: str) -> list[str | None]:
        """Return a column of categories or texts, None for gaps."""
        return self.column(name).to_list()

    def days(self, name: str) -> NDArray[np.float64]:
        """Return a column of dates in days since 1970, NaN for gaps."""
        microseconds = self.column(name).dt.epoch("us").cast(pl.Float64) / 86_400e6
        return cast("NDArray[np.float64]", microseconds.fill_null(float("nan")).to_numpy())


def as_treatment(name: str, value: Any) -> Treatment:
    """Return what a person wants a column to be used as; anything else is a ValueError."""
    if value not in TREATMENTS:
        raise ValueError(f"treat={{{name!r}: {value!r}}}: choose one of {', '.join(TREATMENTS)}")
    return cast("Treatment", value)
