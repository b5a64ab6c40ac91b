"""read_data: what the rows are is found out and said, what is asked for wins, and new files are read like the old."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from metaclust import DataError, DataWarning, Rows, fit_preparation, read_data, rows_from_array
from metaclust.data.kinds import KINDS


def read(path: Path, **options: Any) -> Rows:
    return read_data(path, progress=False, **options)


def put(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def values_of(rows: Rows) -> Any:
    return rows.values if isinstance(rows.values, list) else np.asarray(rows.values).tolist()


FOUND: dict[str, tuple[str, str, tuple[str, ...], list[str] | None, list[str]]] = {
    "numbers": ("a,b\n1,2\n3,4\n", "vectors", ("a", "b"), None, ["numbers from columns 'a', 'b'"]),
    "numbers as strings": (
        'a,b\n" 1",x\n2,y\n3,z\n',
        "vectors",
        ("a",),
        None,
        ["numbers from column 'a'", "not used: 'b'"],
    ),
    "text by name": (
        "n,Text\n1,one\n2,two\n",
        "table",
        ("n", "Text"),
        None,
        ["numbers from column 'n'", "text from column 'Text'"],
    ),
    "text by words": (
        "n,comment\n1,it is good\n2,it is very bad\n",
        "table",
        ("n", "comment"),
        None,
        ["numbers from column 'n'", "text from column 'comment'"],
    ),
    "the longest text": (
        "user,comment\nab,it is good\ncd,it is very bad\n",
        "text",
        ("comment",),
        None,
        ["text from column 'comment'", "not used: 'user'"],
    ),
    "mixed": (
        "n,colour,m\n1,red,5\n2,dark blue,6\n",
        "vectors",
        ("n", "m"),
        None,
        ["numbers from columns 'n', 'm'", "not used: 'colour'"],
    ),
    "only words": ("colour\nred\nblue\n", "text", ("colour",), None, ["text from column 'colour'"]),
    "truth values": ("a,b\ntrue,1\nfalse,2\n", "vectors", ("a", "b"), None, ["numbers from columns 'a', 'b'"]),
    "label": ("a,label\n1,007\n2,7\n", "vectors", ("a",), ["007", "7"], ["labels from column 'label'"]),
    "category": ("a,Category\n1,1.0\n2,1\n", "vectors", ("a",), ["1.0", "1"], ["labels from column 'Category'"]),
    "label and category": ("category,label,a\nx,y,1\nx,z,2\n", "vectors", ("a",), ["y", "z"], ["not used: 'category'"]),
    "text and label": ("label,body\nx,one\ny,two\n", "text", ("body",), ["x", "y"], ["labels from column 'label'"]),
}


@pytest.mark.parametrize(("content", "kind", "columns", "labels", "notes"), FOUND.values(), ids=FOUND)
def test_kind_columns_and_labels_are_found_out_and_said(
    content: str, kind: str, columns: tuple[str, ...], labels: list[str] | None, notes: list[str], tmp_path: Path
) -> None:
    rows = read(put(tmp_path / "rows.csv", content))
    assert (rows.kind, rows.columns, rows.labels) == (kind, columns, labels)
    assert set(notes) <= set(rows.notes)
    assert str(rows).startswith(f"rows.csv: {len(rows)} {KINDS[kind].plural}")


def test_ids_are_a_column_of_that_name_if_no_two_are_alike(tmp_path: Path) -> None:
    rows = read(put(tmp_path / "rows.csv", "id,a\n007,1\n7,2\n"))
    assert (rows.ids, rows.columns, rows.notes[-1]) == (["007", "7"], ("a",), "ids from column 'id'")
    rows = read(put(tmp_path / "rows.csv", "ID,a\n7,1\n7,2\n"))
    assert rows.ids == ["0", "1"]
    assert "ids from" not in str(rows)


def test_ids_that_are_asked_for_may_be_any_column(tmp_path: Path) -> None:
    path = put(tmp_path / "rows.csv", "id,name,a\n1,01,1\n2,01,2\n")
    with pytest.warns(DataWarning, match="ids in column 'name' do not tell all rows apart: there are 1 that several"):
        rows = read(path, ids="name", columns=["a"])
    assert (rows.ids, values_of(rows)) == (["01", "01"], [[1], [2]])


EVERYTHING = "id,a,b,text,comment,label,kind\n1,5,6,one,it is good,x,p\n2,7,8,two,it is bad,y,q\n"

ASKED: dict[str, tuple[dict[str, Any], str, Any, list[str] | None]] = {
    "text by kind": ({"kind": "text"}, "text", ["one", "two"], ["x", "y"]),
    "vectors": ({"kind": "vectors"}, "vectors", [[5, 6], [7, 8]], ["x", "y"]),
    "a column of text": ({"text": "comment"}, "text", ["it is good", "it is bad"], ["x", "y"]),
    "columns in order": ({"columns": ["b", "a"]}, "vectors", [[6, 5], [8, 7]], ["x", "y"]),
    "one column": ({"columns": ("b",)}, "vectors", [[6], [8]], ["x", "y"]),
    "ids as numbers": ({"columns": ["id", "b"]}, "vectors", [[1, 6], [2, 8]], ["x", "y"]),
    "another label": ({"label": "kind", "kind": "text"}, "text", ["one", "two"], ["p", "q"]),
    "a text among columns": ({"columns": ["text"]}, "text", ["one", "two"], ["x", "y"]),
    "label as text": ({"text": "label"}, "text", ["x", "y"], None),
    "a number as label": ({"label": "a", "kind": "vectors"}, "vectors", [[6], [8]], ["5", "7"]),
}


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize(("options", "kind", "values", "labels"), ASKED.values(), ids=ASKED)
def test_what_is_asked_for_wins(
    options: dict[str, Any], kind: str, values: Any, labels: list[str] | None, ending: str, tmp_path: Path
) -> None:
    frame = pl.read_csv(io.StringIO(EVERYTHING))
    write: dict[str, Callable[[Path], object]] = {
        ".csv": lambda path: put(path, EVERYTHING),
        ".jsonl": frame.write_ndjson,
        ".parquet": frame.write_parquet,
    }
    write[ending](tmp_path / f"rows{ending}")
    rows = read(tmp_path / f"rows{ending}", **options)
    assert (rows.kind, values_of(rows), rows.labels) == (kind, values, labels)


def test_text_that_is_asked_for_keeps_its_characters(tmp_path: Path) -> None:
    path = put(tmp_path / "rows.csv", "code,label\n007,x\n1.50,y\n")
    assert values_of(read(path, text="code")) == ["007", "1.50"]


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["it is good", "it is bad"])])
def test_texts_and_labels_of_a_fixed_set_are_strings(kind: Any, tmp_path: Path) -> None:
    texts = pl.Series(["it is good", "it is bad", "it is good"], dtype=kind)
    pl.DataFrame({"n": [1, 2, 3], "text": texts, "label": texts}).write_parquet(tmp_path / "rows.parquet")
    rows = read(tmp_path / "rows.parquet", text="text")
    assert (rows.kind, rows.values) == ("text", texts.to_list())
    assert rows.labels == texts.to_list()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such label": ({"label": "klass"}, r"rows.csv has no column 'klass': its columns are 'id', 'a', 'b', 'text'"),
    "no such text": ({"text": "words"}, r"rows.csv has no column 'words': its columns are 'id'"),
    "no such columns": ({"columns": ["a", "z"]}, r"rows.csv has no column 'z': its columns are 'id'"),
    "no such ids": ({"ids": "key"}, r"rows.csv has no column 'key'"),
    "words as numbers": (
        {"columns": ["a", "comment"], "kind": "vectors"},
        r"rows.csv: row 0 \(counting from 0\), column 'comment': 'it is good' is not a number \(2 such",
    ),
    "images": ({"kind": "images"}, r"rows.csv is a table, which cannot hold images"),
    "size": ({"size": 28}, r"'size': rows.csv is a file, for which this has no meaning; leave it out"),
    "channels and fit": ({"channels": 1, "fit": "pad"}, r"'channels', 'fit': rows.csv is a file, for which"),
    "on_error": ({"on_error": "skip"}, r"'on_error': rows.csv is a file, for which"),
    "no columns": ({"columns": []}, r"columns"),
    "text and columns": (
        {"text": "text", "columns": ["a"], "kind": "text"},
        r"columns=\['a'\]: rows of kind='text' have one column, text=; omit it",
    ),
    "no such treated column": ({"treat": {"z": "number"}}, r"rows.csv has no column 'z': its columns are 'id'"),
    "a treated label": ({"label": "kind", "treat": {"kind": "number"}}, r"treat=.*: 'kind' is the label; omit it"),
    "treated numbers": ({"kind": "vectors", "treat": {"a": "number"}}, r"treat=.* is for kind='table', but kind='vec"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_what_a_table_cannot_give_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read(put(tmp_path / "rows.csv", EVERYTHING), **options)


@pytest.mark.parametrize(
    ("option", "value"), [("text", "a"), ("columns", ["a"]), ("size", 3), ("channels", 1), ("fit", "pad"), ("ids", "a")]
)
def test_options_without_a_meaning_for_an_array_are_refused(option: str, value: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.eye(3))
    with pytest.raises(DataError, match=rf"'{option}'.*rows.npy is an? (array|file)"):
        read(tmp_path / "rows.npy", **{option: value})


@pytest.mark.parametrize("option", ["text", "columns", "ids", "label"])
def test_options_without_a_meaning_for_a_folder_are_refused(option: str, tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "one.png")
    with pytest.raises(DataError, match=option):
        read(tmp_path, **{option: ["a"] if option == "columns" else "a"})
    with pytest.raises(DataError, match=f"{tmp_path.name} is a folder, which is read as images or sounds, not as"):
        read(tmp_path, kind="vectors")


@pytest.mark.parametrize("name", ["rows.txt", "rows.xlsx", "rows.gz", "rows", "rows.parquet.gz", "rows.csv.zip"])
def test_an_ending_that_is_not_read_is_named(name: str, tmp_path: Path) -> None:
    ending = Path(name).suffix or "none"
    with pytest.raises(DataError, match=rf"{name} has an ending that is not read \({ending}\): give .npy, .npz, .csv"):
        read(put(tmp_path / name, "a,b\n1,2\n"))


@pytest.mark.parametrize("name", ["absent.csv", "absent"])
def test_a_path_that_there_is_not_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=rf"path='.*{name}': there is no such file or folder"):
        read(tmp_path / name)


def test_a_path_may_be_a_string_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path / "rows.csv", "a\n1\n")
    assert values_of(read_data("~/rows.csv", progress=False)) == [[1]]


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(("option", "value"), [("kind", "sound"), ("missing", "median")])
def test_a_value_that_there_is_not_is_named(option: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{option}='{value}': choose"):
        read(put(tmp_path / "rows.csv", "a\n1\n"), **{option: value})


def test_new_numbers_are_read_by_the_training_columns_in_their_order(tmp_path: Path) -> None:
    preparation, _ = fit_preparation(read(put(tmp_path / "old.csv", "a,b,c,label\n1,2,3,x\n4,5,7,y\n")))
    new = put(tmp_path / "new.csv", "c,more,text,id,a,b\n30,9,it is long,p,10,20\n31,8,it is longer,q,11,21\n")
    rows = read(new, like=preparation)
    assert (rows.kind, values_of(rows), rows.columns) == ("vectors", [[10, 20, 30], [11, 21, 31]], ("a", "b", "c"))
    assert (rows.ids, rows.labels) == (["p", "q"], None)
    assert "not used: 'more', 'text'" in rows.notes
    with pytest.raises(DataError, match=r"new.csv has no column 'b': its columns are 'c', 'a'"):
        read(put(tmp_path / "new.csv", "c,a\n1,2\n"), like=preparation)


def test_new_files_may_have_another_format(tmp_path: Path) -> None:
    preparation, _ = fit_preparation(read(put(tmp_path / "old.csv", 'a,"b ""quoted""",label\n1,2,x\n4,5,y\n')))
    lines = [{'b "quoted"': 20, "label": "x", "a": 10}, {'b "quoted"': 21, "label": "z", "a": 11}]
    put(tmp_path / "new.jsonl", "\n".join(map(json.dumps, lines)))
    (tmp_path / "new.jsonl.gz").write_bytes(gzip.compress((tmp_path / "new.jsonl").read_bytes()))
    pl.DataFrame(lines).write_parquet(tmp_path / "new.parquet")
    for name in ("new.jsonl", "new.jsonl.gz", "new.parquet"):
        rows = read(tmp_path / name, like=preparation)
        assert (values_of(rows), rows.labels) == ([[10, 20], [11, 21]], ["x", "z"])
    np.save(tmp_path / "new.npy", [[10, 20], [11, 21]])
    assert values_of(read(tmp_path / "new.npy", like=preparation)) == [[10, 20], [11, 21]]


def test_lists_of_numbers_are_read_like_those_of_training(tmp_path: Path) -> None:
    old = [{"e": [1.0, 2.0], "k": 3, "label": "x"}, {"e": [4.0, 5.0], "k": 6, "label": "y"}]
    preparation, _ = fit_preparation(read(put(tmp_path / "old.jsonl", "\n".join(map(json.dumps, old)))))
    pl.DataFrame({"k": [30, 31], "z": [0, 0], "e": [[10, 20], [11, 21]]}).write_parquet(tmp_path / "new.parquet")
    rows = read(tmp_path / "new.parquet", like=preparation)
    assert values_of(rows) == [[10, 20, 30], [11, 21, 31]]
    assert preparation(rows).shape == (2, 3)
    pl.DataFrame({"k": [30], "e": [[10, 20, 30]]}).write_parquet(tmp_path / "wide.parquet")
    with pytest.raises(DataError, match=r"wide.parquet has 4 columns, but the model was trained on 3"):
        preparation(read(tmp_path / "wide.parquet", like=preparation))


def test_new_texts_are_read_from_the_column_of_that_name_or_else_found(tmp_path: Path) -> None:
    old = put(tmp_path / "old.csv", "text,reply,label\none two,a longer reply,x\ntwo one,a longer longer reply,y\n")
    preparation, _ = fit_preparation(read(old, text="reply"))
    new = put(tmp_path / "new.csv", "text,n,reply\nnot this,1,but this\nnot this,2,or this\n")
    assert values_of(read(new, like=preparation)) == ["but this", "or this"]
    other = put(tmp_path / "other.csv", "n,remark\n1,this one\n2,this two\n")
    rows = read(other, like=preparation)
    assert values_of(rows) == ["this one", "this two"]
    assert rows.notes[0] == "text from column 'remark'"


@pytest.mark.parametrize("option", ["text", "columns", "size", "channels", "fit"])
def test_like_leaves_nothing_to_choose(option: str, tmp_path: Path) -> None:
    preparation, _ = fit_preparation(rows_from_array(np.eye(2)))
    value: dict[str, Any] = {"text": "a", "columns": ["a"], "size": 3, "channels": 1, "fit": "pad"}
    with pytest.raises(ValueError, match=rf"'{option}' cannot be given with like=: the model says"):
        read(put(tmp_path / "rows.csv", "a,b\n1,2\n"), like=preparation, **{option: value[option]})


def test_a_file_of_another_kind_than_the_model_is_refused(tmp_path: Path) -> None:
    numbers, _ = fit_preparation(read(put(tmp_path / "old.csv", "a,b\n1,2\n3,4\n")))
    texts, _ = fit_preparation(Rows("text", ["one two", "two one"], ["0", "1"]))
    images, _ = fit_preparation(rows_from_array(np.zeros((2, 4, 4), np.uint8)))
    path = put(tmp_path / "new.csv", "c,d\n1,2\n")
    with pytest.raises(DataError, match=r"kind='text', but the model was trained on vectors"):
        read(path, like=numbers, kind="text")
    with pytest.raises(DataError, match=r"new.csv has no column of text"):
        read(path, like=texts)
    with pytest.raises(DataError, match=r"new.csv is a table, which cannot hold images"):
        read(path, like=images)
    np.save(tmp_path / "new.npy", np.eye(2))
    with pytest.raises(DataError, match=r"new.npy holds vectors, not images"):
        read(tmp_path / "new.npy", like=images)
    (tmp_path / "folder").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "folder" / "one.png")
    with pytest.raises(DataError, match=r"folder is a folder, which is read as images or sounds, not as vectors"):
        read(tmp_path / "folder", like=numbers)


def test_new_images_get_the_size_and_the_channels_of_training(tmp_path: Path) -> None:
    for i, (name, mode, size) in enumerate([("a/1", "RGB", (9, 7)), ("a/2", "L", (30, 20)), ("b/3", "RGBA", (5, 5))]):
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        Image.effect_noise(size, 40 + i).convert(mode).save(path)
    preparation, _ = fit_preparation(rows_from_array(np.zeros((2, 3, 6, 8), np.uint8)))
    rows = read(tmp_path, like=preparation)
    assert np.asarray(rows.values).shape == (3, 3, 6, 8)
    assert (rows.labels, rows.ids) == (["a", "a", "b"], ["a/1.png", "a/2.png", "b/3.png"])
    assert preparation(rows).shape == (3, 3, 6, 8)


def test_small_categories_of_a_file_are_left_out_with_their_names(tmp_path: Path) -> None:
    rows = read(put(tmp_path / "rows.csv", "id,a,label\np,1,x\nq,2,y\nr,3,x\ns,4,z\nt,5,z\n"))
    with pytest.warns(DataWarning, match=r"rows.csv: left out 1 rows of 1 categories with fewer than 2 rows: 'y'"):
        kept = rows.without_small_categories()
    assert (kept.ids, kept.labels, values_of(kept)) == (["p", "r", "s", "t"], list("xxzz"), [[1], [3], [4], [5]])


def test_what_was_found_is_one_line_on_the_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"a [bold] column :fish: with a long name {i}" for i in range(5)]
    path = put(tmp_path / "rows.csv", ",".join([*names, "label"]) + "\n1,2,3,4,5,x\n1,2,3,4,5,y\n")
    rows = read_data(path)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == str(rows) + "\n"
    assert names[4] in output.err
    read_data(path, progress=False)
    assert capsys.readouterr() == ("", "")
