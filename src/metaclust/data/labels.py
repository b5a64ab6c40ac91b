"""Labels as people give them: names or numbers, with None, NaN, blanks or -1 for rows that have none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaclust.data.rows import DataError, Rows, shown

UNLABELLED = -1
"""The code of a row without a label; among whole numbers also what is given for it, as in scikit-learn."""
LARGEST_EXACT = 2**53
"""Floats below it can be whole numbers without doubt."""
ABSENT_TYPES = ("NAType", "NaTType")
"""The types of what pandas writes for missing values: neither equal to anything nor usable in conditions."""


def read_labels(y: Any, count: int | None = None, what: str = "y") -> tuple[NDArray[np.int64], list[str]]:
    """Return the category of each row as a number, -1 where there is none, and the names of the categories.

    Parameters
    ----------
    y : array-like of shape (rows,)
        Strings or numbers: a list, an array, a tensor, or a series of pandas or polars. None, NaN, pandas' NA and blank
        strings mean that a row is unlabelled, and so does -1 if all labels are whole numbers.
    count : int, optional
        The number of rows that there must be.
    what : str, default="y"
        What messages call the labels.

    Returns
    -------
    codes : ndarray of shape (rows,)
        Numbers from 0, in the order of the names, and -1 for unlabelled rows.
    names : list of str
        The names of the categories, sorted.

    >>> read_labels(["tea", None, "coffee", "", "tea"])
    (array([ 1, -1,  0, -1,  1]), ['coffee', 'tea'])
    >>> read_labels([7, -1, 7])
    (array([ 0, -1,  0]), ['7'])
    """
    written = written_labels(y, count, what)
    names = sorted({name for name in written if name})
    numbers = {"": UNLABELLED} | {name: number for number, name in enumerate(names)}
    return np.array([numbers[name] for name in written], np.int64), names


def written_labels(y: Any, count: int | None = None, what: str = "y") -> list[str]:
    """Return labels as strings, "" for unlabelled rows; see :func:`read_labels`."""
    values = label_values(y, what)
    if count is not None and len(values) != count:
        raise DataError(f"{what} has {len(values)} labels for {count} rows: give one for each row, None where unknown")
    values = [plain(value) for value in values]
    known = [None if is_absent(value) else value for value in values]
    for row, value in enumerate(known):
        check_label(value, row, what)
    present = [value for value in known if value is not None]
    if present and all(is_whole(value) for value in present):
        return ["" if value is None or value == UNLABELLED else str(int(value)) for value in known]
    return ["" if value is None else str(value) for value in known]


def label_values(y: Any, what: str) -> list[Any]:
    """Return what is given for each row, as a list of Python's own values as far as possible."""
    if hasattr(y, "detach"):
        y = y.detach().cpu().numpy()
    # An array of a list would turn a number or NaN among strings into a string.
    if isinstance(y, list | tuple):
        return list(y)
    if hasattr(y, "to_list") and not isinstance(y, np.ndarray):
        return list(y.to_list())
    if isinstance(y, str | bytes | dict | set | frozenset):
        raise DataError(f"{what}={shown(y)}: give one label for each row, as a list or an array")
    # A masked array gives None for what is masked, other arrays would lose the mask.
    array: NDArray[Any] = y if isinstance(y, np.ndarray) else np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{what} has shape {array.shape}: give one label for each row, of shape (rows,)")
    if array.dtype.kind == "U":
        check_characters(array, what)
    if array.dtype.kind in "mM":
        # As Python's own values they would be numbers of nanoseconds.
        return [None if np.isnat(value) else str(value) for value in array]
    return list(array.tolist())


def plain(value: Any) -> Any:
    """Return a value of NumPy as Python's own, and bytes as a string."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return None if np.isnat(value) else str(value)
    if isinstance(value, np.generic) or hasattr(value, "detach"):
        value = value.item()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def is_absent(value: Any) -> bool:
    """Return whether a value says that there is no label: None, NaN, pandas' NA or NaT, a blank string."""
    if value is None or type(value).__name__ in ABSENT_TYPES:
        return True
    if isinstance(value, str):
        return not value or value.isspace()
    return isinstance(value, float) and math.isnan(value)


def is_whole(value: Any) -> bool:
    """Return whether a label is a whole number, be it of a type for other numbers."""
    if isinstance(value, float):
        return value.is_integer() and abs(value) < LARGEST_EXACT
    return isinstance(value, int) and not isinstance(value, bool)


def check_label(value: Any, row: int, what: str) -> None:
    """Raise DataError for what is no label."""
    where = f"{what} holds {shown(value)} in row {row} (counting from 0)"
    if isinstance(value, float) and math.isinf(value):
        raise DataError(f"{where}: give a name or a number, or None where it is unknown")
    if isinstance(value, list | tuple | dict | set | np.ndarray):
        raise DataError(f"{where}: give one name or number for each row")
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise DataError(f"{where}, which is not valid Unicode: decode it from its own encoding")


def check_characters(array: NDArray[Any], what: str) -> None:
    """Raise DataError for strings of numbers that are not characters, such as those of a damaged file."""
    codes = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False)).reshape(-1).view(np.uint32)
    if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
        raise DataError(f"{what}: strings hold values that are not characters: save them as text again")


def with_labels(rows: Rows, written: Sequence[str] | None) -> Rows:
    """Return rows with labels of which some may be "", which makes them the partial labels of the rows."""
    if written is None:
        return replace(rows, labels=None, partial=None)
    complete = all(written)
    return replace(rows, labels=list(written) if complete else None, partial=None if complete else list(written))


def without_labels(rows: Rows) -> tuple[Rows, list[str | None] | None]:
    """Return the rows without their labels, and the labels as ``y``, None for unlabelled rows.

    >>> rows = Rows("text", ["a", "b"], ["0", "1"], partial=["tea", ""])
    >>> without_labels(rows)[1]
    ['tea', None]
    """
    written = rows.labels if rows.partial is None else rows.partial
    return with_labels(rows, None), None if written is None else [name or None for name in written]


def labelled_rows(rows: Rows) -> tuple[Rows, list[str]]:
    """Return the rows that have a label, and remarks on those that were left out."""
    if rows.partial is None:
        return rows, []
    known = np.array([bool(name) for name in rows.partial])
    if not known.any():
        raise DataError(f"{rows.source}: none of {len(rows):,} rows has a label: label rows of several categories")
    kept = rows.take(known)
    labels = [name for name in rows.partial if name]
    left_out = len(rows) - len(kept)
    return replace(kept, labels=labels, partial=None), [
        f"{left_out:,} of {len(rows):,} rows have no label and were left out of the training"
    ]


def marked_whole_numbers(written: Iterable[str]) -> list[str]:
    """Return labels of a column of a file, where -1 means unlabelled if all of them are whole numbers.

    >>> marked_whole_numbers(["3", "-1", ""]), marked_whole_numbers(["3", "-1", "a"])
    (['3', '', ''], ['3', '-1', 'a'])
    """
    names = ["" if name.isspace() else name for name in written]
    numbers = all(name.removeprefix("-").isdecimal() for name in names if name)
    return ["" if numbers and name == str(UNLABELLED) else name for name in names]
