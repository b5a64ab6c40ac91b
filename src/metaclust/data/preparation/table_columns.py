"""Categories and the cycles of dates as columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaclust._util import schema
from metaclust.data.mixed_table import MixedTable
from metaclust.data.readers.dates import WRITTEN
from metaclust.data.readers.usage import MOST_VALUES

CYCLES: dict[str, float] = {"year": 365.2425, "week": 7.0, "day": 1.0}
"""The cycles of dates, in days."""
SPANS = {"year": 60.0, "week": 7.0}
"""The range of dates, in days, from which a cycle is told."""
CYCLE_WEIGHT = 0.5
"""The weight of the sine and the cosine of a cycle: three cycles and the time count about as much as two numbers."""


@dataclass(frozen=True)
class CategoryColumn:
    """A feature for each value, which is 1 in rows that have it. Gaps and values that are not known have none."""

    name: str
    values: tuple[str, ...]

    @classmethod
    def fit(cls, name: str, cells: Sequence[str | None]) -> CategoryColumn:
        """Take the most frequent values, in alphabetical order; of equally frequent ones the first."""
        found, counts = np.unique(
            np.array([cell for cell in cells if cell is not None], dtype=object), return_counts=True
        )
        order = np.argsort(-counts, kind="stable")[:MOST_VALUES]
        return cls(name, tuple(sorted(str(found[place]) for place in order)))

    @property
    def width(self) -> int:
        return len(self.values)

    def __call__(self, cells: Sequence[str | None]) -> NDArray[np.float32]:
        """Return (rows, values)."""
        place = {value: number for number, value in enumerate(self.values)}
        features = np.zeros((len(cells), self.width), np.float32)
        for row, cell in enumerate(cells):
            if cell in place:
                features[row, place[cell]] = 1
        return features

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "values": list(self.values)}

    @classmethod
    def from_description(cls, described: Any) -> CategoryColumn:
        """Return the column that a file describes; ValueError for what cannot be one."""
        schema.fields(described, {"name": schema.text, "values": schema.list_of(schema.text)}, name="categories")
        values = described["values"]
        if not len(set(values)) == len(values) <= MOST_VALUES:
            raise ValueError(f"categories.values must hold up to {MOST_VALUES} values, no two alike")
        return cls(described["name"], tuple(values))


@dataclass(frozen=True)
class DateColumn:
    """The sine and the cosine of the cycles of dates; the time itself is beside the numbers, if ``linear``."""

    name: str
    written: str
    linear: bool
    cycles: tuple[str, ...]

    @classmethod
    def fit(cls, name: str, days: NDArray[np.float64], written: str) -> DateColumn:
        """Take the cycles that the dates, in days since 1970, go through."""
        given = days[~np.isnan(days)]
        span = float(np.ptp(given)) if len(given) else 0.0
        clock = given % 1
        several = bool(len(clock) and np.ptp(clock) > 0)
        cycles = [cycle for cycle in CYCLES if (several if cycle == "day" else span >= SPANS[cycle])]
        return cls(name, written, span >= 1, tuple(cycles))

    @property
    def width(self) -> int:
        return 2 * len(self.cycles)

    def __call__(self, days: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return (rows, 2 cycles), zero where there is no date."""
        angles = [2 * np.pi * (days % CYCLES[cycle]) / CYCLES[cycle] for cycle in self.cycles]
        features = [CYCLE_WEIGHT * part(angle) for angle in angles for part in (np.sin, np.cos)]
        if not features:
            return np.zeros((len(days), 0), np.float32)
        return np.nan_to_num(np.stack(features, 1)).astype(np.float32)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "written": self.written, "linear": self.linear, "cycles": list(self.cycles)}

    @classmethod
    def from_description(cls, described: Any) -> DateColumn:
        """Return the column that a file describes; ValueError for what cannot be one."""
        wanted = {
            "name": schema.text,
            "written": schema.one_of("", *WRITTEN),
            "linear": schema.flag,
            "cycles": schema.list_of(schema.one_of(*CYCLES)),
        }
        schema.fields(described, wanted, name="dates")
        cycles = described["cycles"]
        if len(set(cycles)) != len(cycles):
            raise ValueError("dates.cycles holds a cycle twice")
        return cls(described["name"], described["written"], described["linear"], tuple(cycles))


def linear_days(values: MixedTable, name: str) -> NDArray[np.float32]:
    """Return a column of dates as numbers of days, NaN for gaps."""
    return values.days(name).astype(np.float32)
