"""Labels as people give them, some of them missing."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metaclust.data.labels import labelled_rows, read_labels, with_labels, without_labels, written_labels
from metaclust.data.readers.arrays import names_of
from metaclust.data.rows import DataError, Rows

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(lambda text: not text.isspace())
ABSENT = st.sampled_from([None, math.nan, "", "  ", np.nan, np.float32("nan"), np.datetime64("NaT")])


@given(st.lists(st.one_of(NAMES, ABSENT), min_size=1))
def test_names_are_kept_and_all_else_is_unlabelled(given: list[Any]) -> None:
    expected = [value if isinstance(value, str) and value.strip() else None for value in given]
    codes, names = read_labels(given)
    assert codes.dtype == np.int64
    assert [None if code == -1 else names[code] for code in codes.tolist()] == expected
    assert names == sorted({name for name in expected if name is not None})
    array = np.empty(len(given), object)
    array[:] = given
    for other in (array, tuple(given)):
        again, same = read_labels(other)
        assert (again.tolist(), same) == (codes.tolist(), names)


@given(st.lists(st.integers(-3, 5), min_size=1), st.data())
def test_whole_numbers_of_every_type_are_the_same_labels(numbers: list[int], data: st.DataObject) -> None:
    expected = [None if number == -1 else str(number) for number in numbers]
    gone = data.draw(st.lists(st.booleans(), min_size=len(numbers), max_size=len(numbers)))
    forms = [numbers, np.array(numbers), np.array(numbers, np.int8), np.array(numbers, float), torch.tensor(numbers)]
    forms += [pl.Series(numbers), [float(number) for number in numbers], np.array(numbers, object)]
    for y in forms:
        codes, names = read_labels(y)
        assert [None if code == -1 else names[code] for code in codes] == expected
    with_gaps = [None if absent else number for number, absent in zip(numbers, gone, strict=True)]
    floats = [math.nan if number is None else float(number) for number in with_gaps]
    expected = [None if number in (None, -1) else str(number) for number in with_gaps]
    masked = np.ma.masked_array(numbers, gone)
    forms = [with_gaps, pl.Series(with_gaps, dtype=pl.Int64), masked, np.array(floats), floats, torch.tensor(floats)]
    for y in forms:
        codes, names = read_labels(y)
        assert [None if code == -1 else names[code] for code in codes] == expected


COMPLETE = st.one_of(
    st.lists(NAMES, min_size=1),
    st.lists(st.integers(0, 2**60), min_size=1),
    st.lists(st.integers(-50, -2), min_size=1),
    st.lists(st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x != -1), min_size=1),
    st.lists(st.booleans(), min_size=1),
)


@given(COMPLETE)
def test_complete_labels_are_those_of_the_reader_of_categories(y: list[Any]) -> None:
    """A float may be whole beside one that is not, or too large to be."""
    assert written_labels(np.array(y)) == names_of(np.array(y), len(y), "y")


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (["-1", "3"], ["-1", "3"]),
        (["a", -1, None], ["a", "-1", ""]),
        ([0.5, -1.0], ["0.5", "-1.0"]),
        ([True, False, None], ["True", "False", ""]),
        ([b"tea", b""], ["tea", ""]),
        (np.array([b"tea", b""]), ["tea", ""]),
        (np.array([["a"], ["b"]]), ["a", "b"]),
        (np.array(["2020-01-01", "NaT"], "datetime64[ns]"), ["2020-01-01T00:00:00.000000000", ""]),
        (pl.Series(["a", None], dtype=pl.Categorical), ["a", ""]),
        ([None, None], ["", ""]),
        ([], []),
        ([torch.tensor(3), torch.tensor(-1)], ["3", ""]),
    ],
)
def test_what_labels_are(y: Any, expected: list[str]) -> None:
    assert written_labels(y) == expected


def test_labels_of_pandas() -> None:
    pd = pytest.importorskip("pandas", reason="no pandas")
    text, numbers = ["b", None, "a"], [4, None, -1]
    for y in (
        pd.Series(text),
        pd.Series(text, dtype="string"),
        pd.Series(text, dtype=object, index=[7, 8, 9]),
        pd.Series(text, dtype="category"),
        pd.Categorical(text),
        pd.Index(text),
        pd.Series(["b", pd.NA, "a"], dtype=object),
        ["b", pd.NA, "a"],
        np.array(["b", pd.NaT, "a"], object),
    ):
        codes, names = read_labels(y)
        assert (codes.tolist(), names) == ([1, -1, 0], ["a", "b"])
    for y in (pd.Series(numbers), pd.Series(numbers, dtype="Int64"), pd.array(numbers, dtype="Int16")):
        codes, names = read_labels(y)
        assert (codes.tolist(), names) == ([0, -1, -1], ["4"])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ("tea", "y='tea': give one label for each row"),
        ({"a": 1}, "y={'a': 1}: give one label for each row"),
        (np.zeros((2, 2)), r"y has shape \(2, 2\): give one label for each row"),
        (3, r"y has shape \(\): give one label"),
        ([1.0, math.inf], r"y holds inf in row 1 \(counting from 0\): give a name or a number, or None"),
        ([[1], [2]], r"y holds \[1\] in row 0 \(counting from 0\): give one name or number"),
        (["a", "\ud800"], r"in row 1 \(counting from 0\), which is not valid Unicode"),
        (["a"], "y has 1 labels for 2 rows: give one for each row, None where unknown"),
    ],
)
def test_what_cannot_be_labels_is_refused(y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_labels(y, 2)


def test_labelled_rows_are_those_with_a_label() -> None:
    rows = with_labels(Rows("text", list("abcd"), list("wxyz")), ["tea", "", "tea", ""])
    assert (rows.labels, rows.partial) == (None, ["tea", "", "tea", ""])
    assert repr(rows) == "<Rows of the rows: 4 texts, 1 categories in 2 labelled rows>"
    kept, remarks = labelled_rows(rows)
    assert (kept.values, kept.ids, kept.labels, kept.partial) == (["a", "c"], ["w", "y"], ["tea", "tea"], None)
    assert remarks == ["2 of 4 rows have no label and were left out of the training"]
    assert rows.take([3, 0]).partial == ["", "tea"]
    bare, y = without_labels(rows)
    assert (bare.labels, bare.partial, y) == (None, None, ["tea", None, "tea", None])
    complete = with_labels(rows, list("abcd"))
    assert (complete.labels, complete.partial) == (list("abcd"), None)
    assert labelled_rows(complete) == (complete, [])
    with pytest.raises(DataError, match="none of 4 rows has a label: label rows of several categories"):
        labelled_rows(with_labels(rows, [""] * 4))
