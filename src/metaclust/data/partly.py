"""Labels of which some are missing: None, NaN, blank strings, or -1 among whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class PartLabels:
    """The labels of rows of which some have none."""

    codes: NDArray[np.int64]
    """The category of each row, from 0 in the order of the names, and -1 where there is none."""
    names: list[str]

    @property
    def filled(self) -> list[str]:
        """A name for each row, so that what reads labels accepts them; those of unlabelled rows mean nothing."""
        return [self.names[code] for code in np.maximum(self.codes, 0)]


def part_labels(y: Any) -> PartLabels | None:
    """Return the labels of rows of which some have none; None where all have one, or none has.

    >>> part_labels(["tea", None, "coffee", ""]).codes
    array([ 1, -1,  0, -1])
    >>> part_labels([4, -1, 4]).names
    ['4']
    >>> part_labels(["tea", "coffee"]) is None
    True
    """
    if y is None or isinstance(y, str | bytes) or np.ndim(y) != 1:
        return None
    values = y.tolist() if hasattr(y, "tolist") else list(y)
    missing = [is_missing(value) for value in values]
    present = [value for value, gone in zip(values, missing, strict=True) if not gone]
    if present and all(is_whole(value) for value in present):
        missing = [gone or int(value) == -1 for value, gone in zip(values, missing, strict=True)]
        values = [None if gone else int(value) for value, gone in zip(values, missing, strict=True)]
    if not any(missing) or all(missing):
        return None
    names = sorted({str(value) for value, gone in zip(values, missing, strict=True) if not gone})
    number = {name: code for code, name in enumerate(names)}
    codes = [-1 if gone else number[str(value)] for value, gone in zip(values, missing, strict=True)]
    return PartLabels(np.array(codes, np.int64), names)


def is_missing(value: Any) -> bool:
    """Return whether a label says that there is none."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def is_whole(value: Any) -> bool:
    """Return whether a label is a whole number."""
    if isinstance(value, bool | np.bool_):
        return False
    return isinstance(value, int | np.integer) or (isinstance(value, float | np.floating) and float(value).is_integer())
