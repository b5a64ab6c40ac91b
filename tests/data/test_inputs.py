"""What may be passed as X, and what each thing is taken for."""

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from scipy import sparse

from metaclust import DataError, Dataset, Rows
from metaclust.data.inputs import as_rows, is_image_list, is_numeric_matrix, is_table, stack_images
from metaclust.data.preparation.images import ImagePreparation
from metaclust.data.preparation.words import WordPreparation

NUMBERS = np.arange(12, dtype=np.float32).reshape(4, 3)
TEXTS = ["one two", "three", "four five", "six"]
PICTURES = (np.arange(4 * 5 * 6).reshape(4, 5, 6) * 2).astype(np.uint8)
COLOURS = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3)).astype(np.uint8)


class Frame:
    """As little of a data frame as other libraries may have: named columns."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return self._columns[name]


@pytest.mark.parametrize(
    ("x", "numeric"),
    [
        (NUMBERS, True),
        (NUMBERS.tolist(), True),
        (NUMBERS.astype(int), True),
        (NUMBERS.astype(object), True),
        (NUMBERS[:, 0], True),
        (pl.DataFrame(NUMBERS), True),
        (pl.DataFrame({"a": [1, None], "b": [True, False]}), True),
        (pl.DataFrame({"a": [1, 2], "b": ["x", "y"]}), False),
        (pl.DataFrame({"text": TEXTS}), False),
        (Frame({"a": [1.0, 2.0], 7: [1, 2]}), True),
        (Frame({"a": [1.0, 2.0], "b": ["x", "y"]}), False),
        (sparse.csr_array(NUMBERS), True),
        (sparse.coo_matrix(NUMBERS), True),
        (torch.from_numpy(NUMBERS), False),
        (TEXTS, False),
        (tuple(TEXTS), False),
        (np.array(TEXTS), False),
        (np.array(TEXTS, dtype=object), False),
        (pl.Series(TEXTS), False),
        ("one text", False),
        (PICTURES, False),
        (list(PICTURES), False),
        (COLOURS, False),
        ([Image.fromarray(PICTURES[0])], False),
        ([], True),
    ],
)
def test_numbers_in_rows_and_columns_are_told_from_all_else(x, numeric):
    assert is_numeric_matrix(x) is numeric


def test_rows_and_data_sets_are_neither_matrices_nor_tables():
    rows = Rows("vectors", NUMBERS, list("abcd"), columns=("a", "b", "c"))
    data = Dataset("digits", PICTURES[:, None], np.arange(4), list("abcd"))
    for each in (rows, data):
        assert not is_numeric_matrix(each)
        assert not is_table(each)


@pytest.mark.parametrize(
    "x",
    [
        NUMBERS,
        NUMBERS.astype(np.float64),
        NUMBERS.astype(np.int16),
        NUMBERS.tolist(),
        np.asfortranarray(NUMBERS),
        torch.from_numpy(NUMBERS),
        torch.from_numpy(NUMBERS).requires_grad_(),
    ],
    ids=["float32", "float64", "int16", "lists", "fortran", "tensor", "gradient"],
)
def test_numbers_become_the_same_vectors(x):
    rows = as_rows(x, [1, 2, 1, 2])
    assert rows.kind == "vectors"
    assert np.asarray(rows.values).dtype == np.float32
    assert np.array_equal(rows.values, NUMBERS)
    assert rows.labels == ["1", "2", "1", "2"]
    assert rows.ids == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    "make", [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix, sparse.csc_matrix]
)
def test_sparse_rows_stay_sparse(make):
    rows = as_rows(make(NUMBERS))
    assert sparse.issparse(rows.values)
    assert np.array_equal(rows.values.toarray(), NUMBERS)


@pytest.mark.parametrize(
    "x",
    [
        TEXTS,
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        pl.Series(TEXTS),
        pl.DataFrame({"text": TEXTS}),
        pl.DataFrame({"what it says": TEXTS}),
        Frame({"what it says": TEXTS}),
    ],
    ids=["list", "tuple", "array", "objects", "series", "frame", "another name", "another frame"],
)
def test_strings_become_the_same_texts(x):
    rows = as_rows(x, list("aabb"))
    assert rows.kind == "text"
    assert rows.values == TEXTS
    assert rows.labels == list("aabb")


def test_a_table_gives_the_column_that_the_model_was_trained_on():
    frame = pl.DataFrame({"headline": TEXTS, "body": [text[::-1] for text in TEXTS]})
    for name in frame.columns:
        like = WordPreparation(("one",), None, (name,))
        assert as_rows(frame, None, like).values == frame[name].to_list()


def test_labels_in_a_table_are_not_taken_for_categories_unless_passed():
    frame = pl.DataFrame({"text": TEXTS, "label": list("aabb")})
    assert as_rows(frame).labels is None
    assert as_rows(frame, frame["label"]).labels == list("aabb")


def test_rows_and_data_sets_keep_their_labels_unless_others_are_given():
    rows = Rows("text", TEXTS, list("wxyz"), list("aabb"), source="file.csv")
    assert as_rows(rows) is rows
    assert as_rows(rows, [1, 2, 3, 4]).labels == ["1", "2", "3", "4"]
    data = Dataset("digits", PICTURES[:, None], np.array([1, 0, 1, 0]), ["zero", "one"])
    given = as_rows(data)
    assert given.labels == ["one", "zero", "one", "zero"]
    assert given.kind == "images"
    assert np.array_equal(given.values, PICTURES[:, None])


@pytest.mark.parametrize(
    "x",
    [
        PICTURES,
        PICTURES[..., None],
        PICTURES[:, None],
        list(PICTURES),
        tuple(PICTURES),
        PICTURES.tolist(),
        [image[..., None] for image in PICTURES],
        [image[None] for image in PICTURES],
        [Image.fromarray(image) for image in PICTURES],
        [Image.fromarray(PICTURES[0]), *PICTURES[1:]],
        [torch.from_numpy(image) for image in PICTURES],
        torch.from_numpy(PICTURES),
        PICTURES / 255,
        list(PICTURES / 255),
        (PICTURES / 255).astype(np.float32),
    ],
    ids=[
        *("rows", "channel last", "channel first", "list", "tuple", "nested", "list last", "list first", "PIL"),
        *("mixed", "tensors", "tensor", "floats", "list of floats", "float32"),
    ],
)
def test_grey_pictures_become_the_same_images(x):
    rows = as_rows(x)
    assert rows.kind == "images"
    assert rows.values.dtype == np.uint8
    assert np.array_equal(rows.values, PICTURES[:, None])


@pytest.mark.parametrize(
    "x",
    [
        COLOURS,
        np.moveaxis(COLOURS, -1, 1),
        list(COLOURS),
        [np.moveaxis(image, -1, 0) for image in COLOURS],
        [Image.fromarray(image) for image in COLOURS],
        [torch.from_numpy(image) for image in COLOURS],
    ],
    ids=["last", "first", "list last", "list first", "PIL", "tensors"],
)
def test_colour_pictures_become_the_same_images(x):
    assert np.array_equal(as_rows(x).values, np.moveaxis(COLOURS, -1, 1))


def test_pictures_of_different_sizes_are_resized_to_one():
    small, large = Image.new("L", (10, 20), 50), Image.new("L", (64, 30), 200)
    values = stack_images([small, large], None)
    assert values.shape[0] == 2
    assert values.ndim == 3
    assert set(np.unique(values[0])) == {50}
    assert set(np.unique(values[1])) == {200}


def test_one_colour_picture_makes_all_of_them_colour():
    values = as_rows([Image.new("L", (6, 5), 7), Image.new("RGB", (6, 5), (1, 2, 3))]).values
    assert values.shape == (2, 3, 5, 6)
    assert values[:, :, 0, 0].tolist() == [[7, 7, 7], [1, 2, 3]]


def test_pictures_are_resized_to_the_size_and_the_channels_of_the_model():
    like = ImagePreparation(1, 8, 9)
    pictures = [Image.new("RGB", (30, 20), (255, 255, 255)), Image.new("L", (9, 8), 3)]
    assert stack_images(pictures, like).shape == (2, 8, 9)
    rows = as_rows(pictures, None, like)
    assert rows.values.shape == (2, 1, 8, 9)
    assert rows.values[:, 0, 4, 4].tolist() == [255, 3]
    assert stack_images(pictures, ImagePreparation(3, 4, 5)).shape == (2, 4, 5, 3)


def test_a_resized_picture_is_that_of_pillow():
    picture = Image.fromarray(COLOURS[0])
    expected = np.asarray(picture.resize((12, 7), Image.Resampling.BILINEAR))
    assert np.array_equal(stack_images([picture], ImagePreparation(3, 7, 12))[0], expected)


@pytest.mark.parametrize(
    ("x", "images"),
    [(list(PICTURES), True), (PICTURES, False), (TEXTS, False), (NUMBERS.tolist(), False), ([], False)],
)
def test_lists_of_pictures_are_told_from_other_lists(x, images):
    assert is_image_list(x) is images


@pytest.mark.parametrize(
    "x",
    [
        [Image.new("L", (4, 4)), "not a picture"],
        [Image.new("L", (4, 4)), None],
        [np.zeros((4, 4)), np.zeros(4)],
        [np.zeros((4, 4)), 7.0],
        [np.zeros((4, 4)), np.zeros((2, 3, 4, 5))],
        [np.zeros((4, 4)), np.zeros((5, 5, 2))],
    ],
    ids=["string", "None", "one axis", "number", "four axes", "two channels"],
)
def test_what_is_no_picture_among_pictures_is_named(x):
    with pytest.raises(DataError, match=r"X\[1\]"):
        as_rows(x)


def test_pictures_with_values_that_are_none_are_named():
    with pytest.raises(DataError, match=r"^X\[1\] has type float64 and values from 0.0 to 300.0: give images as uint8"):
        as_rows([np.zeros((4, 4)), np.diag([0.0, 300.0])])
    with pytest.raises(DataError, match=r"^X\[0\] holds NaN or infinity"):
        as_rows([np.full((4, 4), np.nan)])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (TEXTS, ["a"], r"shape \(1,\) for 4 rows: there must be one for each row"),
        (PICTURES, [1, 2, None, 4], r"hold None in row 2 \(counting from 0\)"),
        (["a b", 3], None, r"row 1 \(counting from 0\) is 3, not a string"),
        (["a b", "  "], None, r"row 1 \(counting from 0\) has an empty text"),
        (pl.Series([1.0, 2.0]), None, r"X has shape \(2,\): it needs rows and columns"),
        (torch.zeros(3), None, r"X has shape \(3,\): it needs rows and columns"),
        (torch.zeros(2, 2, 2, 2, 2), None, r"X has shape \(2, 2, 2, 2, 2\)"),
        (torch.full((2, 2), float("nan")), None, r"row 0 \(counting from 0\), column 0: the cell is empty or NaN"),
        (torch.full((2, 2), float("inf")), None, r"row 0 \(counting from 0\), column 0: inf is not a finite"),
        ("one text", None, r"X holds strings or objects in shape \(\)"),
        (pl.DataFrame({"text": []}, schema={"text": pl.String}), None, r"X has no rows"),
    ],
)
def test_what_cannot_be_rows_is_refused(x, y, message):
    with pytest.raises(DataError, match=message):
        as_rows(x, y)
