"""Remedies in messages name arguments that the call has, or say what to do with the data."""

import re

import numpy as np
import polars as pl
import pytest
from PIL import Image

from metaclust import DataError, MetaClusterer, WordRules, fit_preparation, load_dataset, read_data, rows_from_array
from metaclust.data import Dataset, SparseRows, row_stream
from metaclust.data.readers.decoding import MAX_PIXELS
from metaclust.data.streams import ArrayStream

ARGUMENTS = re.compile(r"(\w+)=(?!\w*\))|(--[\w-]+)")
"""What a message offers: arguments of functions, options of the command line."""


def refusal(call) -> str:
    with pytest.raises((DataError, ValueError, FileNotFoundError)) as caught:
        call()
    return str(caught.value)


def clusterer() -> MetaClusterer:
    return MetaClusterer(progress=False)


TABLE = pl.DataFrame({"text": ["a b c", "", "d e f"]})
GAPS = pl.DataFrame({"a": ["1.5", "2", ""], "b": ["1", "2", "3"]})
WRITTEN = pl.DataFrame({"a": ["1,5", "2,5", "3,5"]})
MIXED = pl.DataFrame({"a": ["1", "2", "three", "4", "5"], "b": [1, 2, 3, 4, 5]})


@pytest.mark.parametrize(
    ("x", "y", "remedy"),
    [
        (TABLE, [0, 1, 0], r"row 1 .* empty text \(1 such rows\)\. Fill it, or leave such rows out$"),
        (GAPS, [0, 1, 0], r"row 2 .* column 'a': the cell is empty .*\. Fill it, or leave such rows out$"),
        (WRITTEN, [0, 1, 0], r"written as '1,5': write them with a decimal point and nothing else$"),
        (MIXED, [0, 1, 0, 1, 0], r"column 'a': 'three' is not a number \(1 such cells\)\. Correct it$"),
        (["one", "two", "three", "four"], [0, 1, 0, 1], r"no word is in 2 of the 4 texts or more: give more or longer"),
        (np.eye(4), [0, 1, 2, 3], r"4 categories, 0 of them .* more categories, or more rows of '0', '1', '2', '3'$"),
    ],
    ids=["empty text", "empty cell", "written numbers", "not a number", "rare words", "small categories"],
)
def test_the_estimator_offers_no_argument_that_it_lacks(x, y, remedy):
    message = refusal(lambda: clusterer().fit(x, y))
    assert re.search(remedy, message)
    offered = {first or second for first, second in ARGUMENTS.findall(message)}
    assert offered <= set(clusterer().get_params())


def test_readers_of_files_offer_their_own_arguments(tmp_path):
    (tmp_path / "gap.csv").write_text("a,b\n1,2\n,3\n")
    message = refusal(lambda: read_data(tmp_path / "gap.csv", progress=False))
    assert "missing='drop' (--missing drop)" in message
    assert "missing='mean' (--missing mean)" in message
    with pytest.warns(UserWarning, match="left out 1 rows"):
        assert len(read_data(tmp_path / "gap.csv", missing="drop", progress=False)) == 1
    (tmp_path / "mixed.csv").write_text("a,b\n1,2\n2,3\n3,4\nfour,5\n")
    message = refusal(lambda: read_data(tmp_path / "mixed.csv", progress=False))
    columns = "or choose columns with columns= (--columns), or how they are read with treat= (--treat)"
    assert message.endswith(f"Correct it, {columns}")
    assert read_data(tmp_path / "mixed.csv", treat={"a": "drop"}, progress=False).columns == ("b",)
    assert read_data(tmp_path / "mixed.csv", columns=["b"], progress=False).columns == ("b",)
    numbers, _ = fit_preparation(rows_from_array(np.eye(3)[:, :2], columns=["a", "b"]))
    message = refusal(lambda: read_data(tmp_path / "mixed.csv", like=numbers, progress=False))
    assert message.endswith("Correct it")


def test_a_broken_image_can_be_skipped_where_the_hint_says_so(tmp_path):
    folder = tmp_path / "caltech101" / "cat"
    folder.mkdir(parents=True)
    Image.new("L", (9, 9)).save(folder / "good.png")
    (folder / "bad.png").write_bytes(b"")
    message = refusal(lambda: read_data(folder.parent, progress=False))
    assert message.endswith("take it out. on_error='skip' (--skip-broken) leaves out images that cannot be read")
    with pytest.warns(UserWarning, match="left out 1 of 2"):
        assert len(read_data(folder.parent, on_error="skip", progress=False)) == 1
    assert refusal(lambda: load_dataset("caltech101", tmp_path, progress=False)).endswith("take it out")


def test_an_image_that_is_too_large_can_only_be_made_smaller(tmp_path):
    side = int(MAX_PIXELS**0.5) + 1
    Image.new("1", (side, side)).save(tmp_path / "large.png")
    assert "make it smaller, or take it out" in refusal(lambda: read_data(tmp_path, progress=False))


def test_rules_are_lowered_only_where_they_were_given():
    rows = rows_from_array(["one two", "three", "four"])
    assert "rules" not in refusal(lambda: fit_preparation(rows))
    message = refusal(lambda: fit_preparation(rows, rules=WordRules(min_documents=2)))
    assert message.endswith("or lower min_documents of the rules")
    assert fit_preparation(rows, rules=WordRules(min_documents=1))[0].input_shape == (4,)


def test_columns_that_are_not_numbers_can_be_left_out_of_a_stream(tmp_path):
    pl.DataFrame({"a": [1.0, 2.0], "name": ["x", "y"]}).write_parquet(tmp_path / "rows.parquet")
    message = refusal(lambda: list(row_stream(tmp_path / "rows.parquet").arrays()))
    assert message.endswith("has columns that are not numbers ('name'): write the file without them")
    (block,) = row_stream(tmp_path / "rows.parquet", columns=["a"]).arrays()
    assert block.tolist() == [[1.0], [2.0]]


def test_reprs_of_data_sets_and_streams_are_short():
    icons = load_dataset("icons")
    assert repr(icons) == "<Dataset icons: 11,499 images, 419 categories>"
    assert isinstance(icons, Dataset)
    assert repr(icons.rows()) == "<Rows of icons: 11,499 images of 1x32x32, 419 categories>"
    assert repr(SparseRows(np.eye(300))) == "SparseRows(shape=(300, 300), nonzero=300)"
    assert repr(ArrayStream(np.zeros((1000, 50)))) == "ArrayStream(name='X')"
