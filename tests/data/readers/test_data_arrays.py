"""Rows from arrays: vectors, images and texts in memory, .npy and .npz, and what of them is refused."""

import io
import math
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from metaclust import DataError, DataWarning, Rows, read_data, rows_from_array
from metaclust.data.rows import listed

X = np.arange(6.0).reshape(3, 2)


def read(path: Path, **options: Any) -> Rows:
    return read_data(path, progress=False, **options)


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


@given(
    hnp.arrays(
        st.sampled_from([np.dtype(name) for name in ("f2", "f4", "f8", "i1", "i8", "u2", "?", ">f4", ">i2")]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=5),
        elements=st.integers(0, 1),
    ),
    st.sampled_from(["C", "F"]),
)
def test_numbers_of_any_type_and_order_are_float32_vectors(array: Any, order: Any) -> None:
    rows = rows_from_array(np.asarray(array, order=order))
    values = np.asarray(rows.values)
    assert rows.kind == "vectors"
    assert values.dtype == np.dtype("<f4")
    assert values.flags.c_contiguous
    assert values.tolist() == array.astype(float).tolist()
    assert rows.ids == [str(i) for i in range(len(array))]


def test_lists_tensors_and_arrays_are_alike() -> None:
    for values in (X, X.tolist(), torch.from_numpy(X), torch.from_numpy(X).requires_grad_(), tuple(map(tuple, X))):
        rows = rows_from_array(values, ["a", "b", "a"], [7, 8, 9])
        assert np.asarray(rows.values).tolist() == X.tolist()
        assert (rows.labels, rows.ids) == (["a", "b", "a"], ["7", "8", "9"])


def test_the_callers_array_is_not_changed() -> None:
    array = np.array([[1.0, math.nan], [2.0, 3.0]])
    with pytest.warns(DataWarning):
        rows_from_array(array, missing="drop")
    assert np.array_equal(array, [[1.0, math.nan], [2.0, 3.0]], equal_nan=True)


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.coo_array, sparse.csc_matrix, sparse.lil_array])
def test_sparse_numbers_stay_sparse(form: Any) -> None:
    rows = rows_from_array(form(np.array([[0, 2.5], [1, 0], [0, 0]])), [1, 1, 2])
    assert isinstance(rows.values, sparse.csr_array)
    assert rows.values.dtype == np.float32
    assert rows.values.toarray().tolist() == [[0, 2.5], [1, 0], [0, 0]]
    assert rows.labels == ["1", "1", "2"]


@pytest.mark.parametrize(
    "labels",
    [
        ["1", "0", "1"],
        [1, 0, 1],
        [1.0, 0.0, 1.0],
        np.array([1, 0, 1], np.uint8),
        np.array([1, 0, 1], np.float32),
        np.array(["1", "0", "1"]),
        np.array([b"1", b"0", b"1"]),
        np.array(["1", 0, 1], object),
        torch.tensor([1, 0, 1]),
    ],
    ids=lambda labels: f"{type(labels).__name__} {getattr(labels, 'dtype', type(labels[0]).__name__)}",
)
def test_labels_are_the_same_names_whatever_their_type(labels: Any) -> None:
    assert rows_from_array(X, labels).labels == ["1", "0", "1"]


def test_labels_keep_their_characters() -> None:
    names = ["007", " a,b\n", "東京 🐟"]
    assert rows_from_array(X, names).labels == names
    assert rows_from_array(X, [0.5, 1.0, 2.0]).labels == ["0.5", "1.0", "2.0"]
    large = rows_from_array(X, np.array([1e300, 1.0, 2.0])).labels
    assert large is not None
    assert [float(name) for name in large] == [1e300, 1.0, 2.0]


NOT_LABELS: dict[str, tuple[Any, str]] = {
    "too few": ([1, 2], r"the labels of X have shape \(2,\) for 3 rows"),
    "two columns": (np.ones((3, 2)), r"the labels of X have shape \(3, 2\) for 3 rows"),
    "NaN": ([1.0, math.nan, 2.0], r"the labels of X hold nan in row 1 \(counting from 0\)"),
    "infinite": ([1.0, 2.0, math.inf], r"the labels of X hold inf in row 2 \(counting from 0\)"),
    "NaN among strings": (["a", math.nan, "b"], r"the labels of X hold nan in row 1 \(counting from 0\)"),
    "NaN object": (np.array(["a", "b", math.nan], object), r"the labels of X hold nan in row 2 \(counting from 0\)"),
    "None": (["a", None, "b"], r"the labels of X hold None in row 1 \(counting from 0\)"),
    "empty": (["a", "b", ""], r"the labels of X hold '' in row 2 \(counting from 0\)"),
    "blank": (["a", "b", " "], r"the labels of X hold ' ' in row 2 \(counting from 0\)"),
}


@pytest.mark.parametrize(("labels", "message"), NOT_LABELS.values(), ids=NOT_LABELS)
def test_labels_that_do_not_name_every_row_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rows_from_array(X, labels)


NOT_ROWS: dict[str, tuple[Any, str]] = {
    "one dimension": (np.ones(3), r"X has shape \(3,\): it needs rows and columns"),
    "a number": (5, r"X has shape \(\): it needs rows and columns"),
    "a string": ("hello", r"X holds strings or objects in shape \(\)"),
    "five dimensions": (np.ones((1, 2, 3, 4, 5)), r"X has shape \(1, 2, 3, 4, 5\)"),
    "complex": (X + 1j, "type complex128"),
    "times": (np.array([["2020-01-01"]], "datetime64[D]"), r"X has type datetime64\[D\]"),
    "strings in a table": ([["a", "b"], ["c", "d"]], r"X holds strings or objects in shape \(2, 2\)"),
    "objects": (np.array([[1, None]], object), r"X holds strings or objects in shape \(1, 2\)"),
    "different widths": ([[1, 2], [3, 4, 5]], r"X has rows of different widths \(2, 3\)"),
    "no rows": (np.ones((0, 4)), "X has no rows"),
    "nothing": ([], r"X has shape \(0,\)"),
    "no columns": (np.ones((4, 0)), r"X has shape \(4, 0\)"),
    "NaN": ([[1, 2], [3, math.nan]], r"X: row 1 \(counting from 0\), column 1: the cell is empty or NaN \(1 such rows"),
    "infinity": ([[1, -math.inf], [3, 4]], r"X: row 0 \(counting from 0\), column 1: -inf is not a finite float32"),
    "too large": ([[1, 2], [1e39, 4]], r"X: row 1 \(counting from 0\), column 0: .* is not a finite float32 number"),
    "both infinities": ([[1, math.inf], [-math.inf, 4]], r"X: row 0 \(counting from 0\), column 1: inf is not a fin"),
    "a number among texts": (np.array(["a", 3], object), r"X: row 1 \(counting from 0\) is 3, not a string"),
    "NaN among texts": (["a b", math.nan], r"X: row 1 \(counting from 0\) is nan, not a string"),
    "bytes that are not UTF-8": (np.array([b"ok", b"\xff"]), "X.*UTF-8"),
    "an empty text": (["a", "", " "], r"X: row 1 \(counting from 0\) has an empty text \(2 such rows\)"),
    "no text": (["a", None], r"X: row 1 \(counting from 0\) has an empty text"),
    "sparse NaN": (sparse.csr_array([[0, math.nan]]), "X is sparse and holds NaN or infinity"),
    "sparse too large": (sparse.csr_array([[0, 1e39]]), "X is sparse and holds NaN or infinity"),
    "sparse complex": (sparse.csr_array([[0, 1j]]), "type complex128"),
    "sparse in one dimension": (sparse.coo_array(np.ones(3)), r"X has shape \(3,\)"),
}


@pytest.mark.parametrize(("values", "message"), NOT_ROWS.values(), ids=NOT_ROWS)
def test_values_that_are_no_rows_are_refused(values: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rows_from_array(values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [(X, "images"), (X, "text"), (np.zeros((2, 3, 3)), "vectors"), (["a", "b"], "vectors"), (["a", "b"], "images")],
)
def test_a_kind_that_is_asked_for_must_be_there(values: Any, kind: Any) -> None:
    with pytest.raises(DataError, match=rf"X holds \w+, not {kind}: it has type .* and shape"):
        rows_from_array(values, kind=kind)


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(("option", "value"), [("kind", "pictures"), ("missing", "median")])
def test_an_option_that_there_is_not_is_named(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{option}='{value}': choose"):
        rows_from_array(X, **{option: value})


def test_columns_are_named_in_messages() -> None:
    with pytest.raises(DataError, match=r"weights: row 0 \(counting from 0\), column 'height': the cell is empty"):
        rows_from_array([[1, math.nan]], columns=["age", "height"], source="weights")


def test_rows_with_nan_can_be_left_out() -> None:
    values = [[1, 2], [math.nan, 3], [4, math.nan], [5, 6]]
    with pytest.warns(DataWarning, match=r"X: left out 2 rows with an empty cell or NaN, first row 1 \(counting"):
        rows = rows_from_array(values, list("abcd"), missing="drop")
    assert (np.asarray(rows.values).tolist(), rows.labels, rows.ids) == ([[1, 2], [5, 6]], ["a", "d"], ["0", "3"])
    with pytest.raises(DataError, match="every row has an empty cell or NaN, so none is left"):
        rows_from_array([[math.nan], [math.nan]], missing="drop")


@given(st.integers(1, 4), st.integers(4, 7), st.integers(4, 7), st.integers(0, 99))
def test_images_have_their_channels_first_whatever_the_layout(count: int, height: int, width: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 3, height, width), np.uint8)
    grey, colour = pixels[:, :1], pixels
    layouts = [
        (colour, colour),
        (colour.transpose(0, 2, 3, 1), colour),
        (grey, grey),
        (grey[:, 0], grey),
        (grey[:, 0, ..., None], grey),
    ]
    for given_as, expected in layouts:
        rows = rows_from_array(given_as)
        values = np.asarray(rows.values)
        assert rows.kind == "images"
        assert values.dtype == np.uint8
        assert values.flags.c_contiguous
        assert np.array_equal(values, expected)


def test_floats_truth_values_and_whole_numbers_are_the_same_pixels() -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    for values in (
        pixels.astype(np.int64),
        pixels.astype(np.int16),
        pixels.astype(np.float64) / 255,
        pixels.astype(np.float32) / np.float32(255),
        torch.from_numpy(pixels).float() / 255,
    ):
        assert np.array_equal(np.asarray(rows_from_array(values).values)[0], pixels)
    assert np.array_equal(np.asarray(rows_from_array(pixels > 99).values)[0], (pixels > 99) * np.uint8(255))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_become_the_nearest_pixel(kind: Any) -> None:
    values = np.linspace(0, 1, 999).astype(kind).reshape(1, 27, 37)
    pixels = np.asarray(rows_from_array(values).values)[0, 0].astype(np.float64)
    assert np.abs(pixels - values[0].astype(np.float64) * 255).max() <= 0.5 + 1e-4


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (256, np.int64, "X has type int64 and values from 0 to 256"),
        (-1, np.int64, "X has type int64 and values from -1 to 0"),
        (1.001, np.float32, "X has type float32 and values from 0.0 to 1.001"),
        (-0.5, np.float64, "X has type float64 and values from -0.5 to 0.0"),
        (math.nan, np.float64, "X holds NaN or infinity"),
        (math.inf, np.float32, "X holds NaN or infinity"),
    ],
)
def test_pixels_out_of_range_are_refused(value: float, kind: Any, message: str) -> None:
    images = np.zeros((2, 4, 4), kind)
    images[1, 2, 3] = value
    with pytest.raises(DataError, match=message):
        rows_from_array(images)


def test_images_need_one_or_three_channels() -> None:
    with pytest.raises(DataError, match=r"X has shape \(2, 4, 5, 2\): images need 1 \(grey\) or 3"):
        rows_from_array(np.zeros((2, 4, 5, 2), np.uint8))


@pytest.mark.parametrize(
    "names", [("X", "y"), ("x", "labels"), ("data", "target"), ("features", "category"), ("emb", "label")]
)
def test_arrays_are_found_by_their_usual_names(names: tuple[str, str], tmp_path: Path) -> None:
    rows = read(npz(tmp_path / "rows.npz", **{names[0]: X, names[1]: np.array(["a", "b", "a"]), "ids": [5, 6, 7]}))
    assert np.asarray(rows.values).tolist() == X.tolist()
    assert (rows.labels, rows.ids, rows.source) == (["a", "b", "a"], ["5", "6", "7"], "rows.npz")
    assert rows.notes == (f"rows from array {names[0]!r}", f"labels from array {names[1]!r}")


def test_named_arrays_win_over_the_usual_names(tmp_path: Path) -> None:
    path = npz(tmp_path / "rows.npz", X=X, y=[1, 2, 3], colour=["r", "g", "r"], key=["p", "q", "r"])
    rows = read(path, label="colour", ids="key")
    assert (rows.labels, rows.ids) == (["r", "g", "r"], ["p", "q", "r"])
    with pytest.raises(DataError, match=r"label='shape': rows.npz has no such array; it has 'X', 'colour', 'key', 'y'"):
        read(path, label="shape")


def test_texts_and_images_in_npz_are_found(tmp_path: Path) -> None:
    texts = read(npz(tmp_path / "texts.npz", texts=["one two", "drei, vier 🐟"], labels=["a", "b"]))
    assert (texts.kind, texts.values, texts.labels) == ("text", ["one two", "drei, vier 🐟"], ["a", "b"])
    images = read(npz(tmp_path / "images.npz", images=np.ones((2, 5, 6, 3), np.uint8), y=[3, 4]))
    assert (images.kind, np.asarray(images.values).shape, images.labels) == ("images", (2, 3, 5, 6), ["3", "4"])


@pytest.mark.parametrize("names", ["label_names", "category_names", "class_names", "categories"])
def test_numbers_are_replaced_by_their_names(names: str, tmp_path: Path) -> None:
    rows = read(npz(tmp_path / "rows.npz", X=X, y=[1, 0, 1], **{names: ["fish", "duck"]}))
    assert rows.labels == ["duck", "fish", "duck"]
    assert rows.notes[-1] == f"their names from array {names!r}"


def test_a_name_without_a_row_is_said(tmp_path: Path) -> None:
    path = npz(tmp_path / "rows.npz", X=X, y=[2, 0, 2], label_names=["fish", "duck", "goose", "swan"])
    with pytest.warns(DataWarning, match=r"rows.npz: array 'y': 2 categories have no row: 'duck', 'swan'"):
        rows = read(path)
    assert rows.labels == ["goose", "fish", "goose"]


@pytest.mark.parametrize("wrong", [-1, 2])
def test_a_number_without_a_name_is_refused(wrong: int, tmp_path: Path) -> None:
    path = npz(tmp_path / "rows.npz", X=X, y=[0, 1, wrong], label_names=["fish", "duck"])
    with pytest.raises(
        DataError, match=rf"rows.npz: array 'y' has numbers from {min(0, wrong)} to {max(1, wrong)}, but"
    ):
        read(path)


def test_npz_without_known_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows.npz has the arrays 'bar', 'foo': call the one with the rows 'X'"):
        read(npz(tmp_path / "rows.npz", foo=X, bar=X))


def test_npz_labels_of_another_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the labels of rows.npz have shape \(4,\) for 3 rows"):
        read(npz(tmp_path / "rows.npz", X=X, y=[1, 2, 3, 4]))


def test_npy_takes_its_labels_from_a_second_file(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", ["a", "b", "c"])
    assert read(tmp_path / "X.npy").labels is None
    assert read(tmp_path / "X.npy", label=str(tmp_path / "y.npy")).labels == ["a", "b", "c"]
    with pytest.raises(DataError, match=r"label='colour': a .npy file has no columns"):
        read(tmp_path / "X.npy", label="colour")


class Trap:
    """What runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("sprung"),))


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_objects_are_refused_and_run_no_code(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trap = np.array([Trap(), None], object)
    path = tmp_path / f"rows.{ending}"
    if ending == "npy":
        np.save(path, trap, allow_pickle=True)
    else:
        np.savez(path, X=trap)
    with pytest.raises(DataError, match=rf"rows.{ending} .*Object arrays cannot be loaded"):
        read(path)
    assert not (tmp_path / "sprung").exists()


def content_of(kind: str) -> bytes:
    file = io.BytesIO()
    np.save(file, X) if kind == "npy" else np.savez(file, X=X, y=[1, 2, 3])
    return file.getvalue()


def damaged() -> bytes:
    content = bytearray(content_of("npz"))
    content[150] ^= 255
    return bytes(content)


BROKEN: dict[str, tuple[str, bytes]] = {
    "empty npy": ("rows.npy", b""),
    "foreign npy": ("rows.npy", b"hello"),
    "cut npy": ("rows.npy", content_of("npy")[:-3]),
    "cut npy header": ("rows.npy", content_of("npy")[:50]),
    "npz called npy": ("rows.npy", content_of("npz")),
    "empty npz": ("rows.npz", b""),
    "foreign npz": ("rows.npz", b"hello"),
    "cut npz": ("rows.npz", content_of("npz")[:-30]),
    "damaged npz": ("rows.npz", damaged()),
    "npy called npz": ("rows.npz", content_of("npy")),
}


@pytest.mark.parametrize(("name", "content"), BROKEN.values(), ids=BROKEN)
def test_a_broken_or_foreign_file_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match=rf"{name} is not (a .npy|the .npz) file"):
            read(tmp_path / name)


@pytest.mark.parametrize("members", [["y"], ["X", "y"], ["readme.txt"], []], ids=str)
def test_a_zip_of_other_things_is_refused(members: list[str], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "rows.npz", "w") as archive:
        for member in members:
            archive.writestr(member, "hello")
    with pytest.raises(DataError, match=r"rows.npz"):
        read(tmp_path / "rows.npz")


def small(labels: list[str] | None) -> Rows:
    count = 6
    return Rows(
        "text", [f"text {i}" for i in range(count)], [f"id {i}" for i in range(count)], labels, source="rows.csv"
    )


def test_a_category_with_one_row_is_left_out_and_named() -> None:
    with pytest.warns(DataWarning, match=r"rows.csv: left out 2 rows of 2 categories with fewer than 2 rows: 'b', 'd'"):
        rows = small(["a", "b", "a", "c", "d", "c"]).without_small_categories()
    assert (rows.labels, rows.ids) == (["a", "a", "c", "c"], ["id 0", "id 2", "id 3", "id 5"])
    assert rows.values == ["text 0", "text 2", "text 3", "text 5"]
    assert rows.notes[-1].startswith("left out 2 rows of 2 categories")


def test_too_few_categories_are_refused() -> None:
    with pytest.raises(
        DataError,
        match=r"5 categories, 1 of them with 2 rows or more: .* or more rows of 'b', 'c', 'd', 'e'$",
    ):
        small(["a", "b", "a", "c", "d", "e"]).without_small_categories()
    with pytest.raises(DataError, match=r"rows.csv has no labels: read it again"):
        small(None).without_small_categories()


def test_rows_that_need_no_change_are_given_back() -> None:
    rows = small(list("aabbcc"))
    assert rows.without_small_categories() is rows
    assert rows.take(np.ones(6, bool)) is rows


@given(st.lists(st.text(max_size=3), min_size=1, max_size=20), st.data())
def test_taking_and_numbering_follow_the_loop(labels: list[str], data: st.DataObject) -> None:
    rows = Rows("vectors", np.arange(len(labels))[:, None], [f"id {i}" for i in range(len(labels))], labels)
    numbers, names = rows.numbered()
    assert [names[i] for i in numbers] == labels
    assert names == sorted(set(labels))
    chosen = data.draw(st.lists(st.integers(0, len(labels) - 1), max_size=9))
    taken = rows.take(chosen)
    assert taken.ids == [f"id {i}" for i in chosen]
    assert taken.labels == [labels[i] for i in chosen]
    assert np.asarray(taken.values)[:, 0].tolist() == chosen


def test_rows_say_what_they_are() -> None:
    rows = rows_from_array(X, ["a", "b", "a"], source="rows.npy")
    assert str(rows) == "rows.npy: 3 vectors of 2, 2 categories"
    assert listed(range(9), 3) == "0, 1, 2 and 6 more"
