"""Tables: every format gives the same rows, as an independent reader reads them; what cannot be read says where."""

import csv
import gzip
import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from metaclust import DataError, DataWarning, Rows, fit_preparation, read_data

Table = dict[str, list[Any]]
NAMES = [
    "plain",
    'say "hi"',
    "a,b",
    "two\nlines",
    "crlf\r\nline",
    "東京",
    "🐟 and 🦆",
    "007",
    " padded ",
    "semi;colon",
    "tab\tbed",
]


def read(path: Path, **options: Any) -> Rows:
    return read_data(path, progress=False, **options)


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def csv_text(table: Table, delimiter: str = ",", quoting: Literal[0, 1, 2, 3] = csv.QUOTE_MINIMAL) -> str:
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter, quoting=quoting)
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return file.getvalue()


def jsonl_text(table: Table, *, ascii_only: bool = True) -> str:
    rows = (dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True))
    return "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows)


def write_parquet(table: Table, path: Path) -> None:
    pl.DataFrame(table).write_parquet(path)


WRITERS: dict[str, Callable[[Table, Path], object]] = {
    ".csv": lambda table, path: put(path, csv_text(table)),
    ".csv.gz": lambda table, path: put(path, gzip.compress(csv_text(table).encode())),
    ".tsv": lambda table, path: put(path, csv_text(table, "\t")),
    ".tsv.gz": lambda table, path: put(path, gzip.compress(csv_text(table, "\t").encode())),
    ".CSV": lambda table, path: put(path, csv_text(table, ";")),
    ".jsonl": lambda table, path: put(path, jsonl_text(table)),
    ".jsonl.gz": lambda table, path: put(path, gzip.compress(jsonl_text(table, ascii_only=False).encode())),
    ".ndjson": lambda table, path: pl.DataFrame(table).write_ndjson(path),
    ".parquet": write_parquet,
    ".polars.csv": lambda table, path: pl.DataFrame(table).write_csv(path),
}


def difficult_numbers() -> dict[str, list[float] | list[int]]:
    """2,000 rows of 20 columns: normal, tiny, huge, negative, whole, and whole until late in the file."""
    generator = np.random.default_rng(0)
    columns: dict[str, list[float] | list[int]] = {}
    for i in range(14):
        scale = 10.0 ** generator.integers(-44 if i % 2 else -3, 4 if i % 2 else 38, 2000)
        columns[f"real {i}"] = (generator.standard_normal(2000) * scale).tolist()
    for i in range(4):
        columns[f"whole {i}"] = generator.integers(-(10 ** (4 * i + 1)), 10 ** (4 * i + 1), 2000).tolist()
    columns["late"] = [float(i) for i in range(1998)] + [0.1, -1e-310]
    columns["extreme"] = [3.4028234e38, -3.4028234e38, 1.4e-45, -0.0, 16777217.0, 1 / 3, 2**53 + 2.0, 1e22] * 250
    return columns


NUMBERS = difficult_numbers()
MATRIX = np.array(list(NUMBERS.values()), np.float64).T
"""Columns side by side: in the other order in memory than a table's rows."""
LABELS = [NAMES[i % len(NAMES)] for i in range(2000)]


@pytest.mark.parametrize("ending", [*WRITERS, ".npz", ".npy"])
def test_the_same_numbers_are_the_same_bits_and_labels_in_every_format(ending: str, tmp_path: Path) -> None:
    path, label = tmp_path / f"rows{ending}", "label"
    if ending == ".npz":
        np.savez(path, X=MATRIX, label=np.array(LABELS))
    elif ending == ".npy":
        np.save(path, MATRIX)
        np.save(tmp_path / "labels.npy", np.array(LABELS))
        label = str(tmp_path / "labels.npy")
    else:
        WRITERS[ending]({**NUMBERS, "label": LABELS}, path)
    rows = read(path, label=label)
    assert rows.kind == "vectors"
    assert rows.labels == LABELS
    assert rows.ids == [str(i) for i in range(2000)]
    expected = torch.from_numpy(MATRIX.astype(np.float32, order="C"))
    values = torch.from_numpy(np.asarray(rows.values, order="C"))
    assert values.dtype == torch.float32
    assert torch.equal(values.view(torch.int32), expected.view(torch.int32))
    # Numbers of all magnitudes in one column would be refused: whole ones are enough here.
    some = Rows("vectors", values.numpy()[:, 14:19], rows.ids)
    in_memory = Rows("vectors", expected.numpy()[:, 14:19], rows.ids)
    for scaling in ("none", "standard"):
        prepared, again = (fit_preparation(each, scaling=scaling)[0](each) for each in (some, in_memory))
        assert isinstance(prepared, torch.Tensor)
        assert isinstance(again, torch.Tensor)
        assert torch.equal(prepared.view(torch.int32), again.view(torch.int32))


TEXTS = [
    'She said "no, thanks", and left',
    "one line\nanother line\n\nand a third",
    "windows\r\nline, and a \t tab",
    "snow ❄️ in 東京 🐟",
    "a \\ backslash and a / slash",
    "'single' and “curly” quotes; semicolons | bars",
    "next\u2028line \x85 separators \x0b of \x0c every \x1c kind",
    "123 456 789",
] * 5


@pytest.mark.parametrize("ending", [*WRITERS, ".npz"])
def test_the_same_texts_are_the_same_in_every_format(ending: str, tmp_path: Path) -> None:
    path, labels = tmp_path / f"rows{ending}", [NAMES[i % 3] for i in range(40)]
    if ending == ".npz":
        np.savez(path, texts=np.array(TEXTS), labels=np.array(labels))
    else:
        WRITERS[ending]({"text": TEXTS, "label": labels}, path)
    rows = read(path)
    assert (rows.kind, rows.values, rows.labels) == ("text", TEXTS, labels)
    words, kept = fit_preparation(rows)
    expected, _ = fit_preparation(Rows("text", TEXTS, rows.ids))
    assert words.input_shape == expected.input_shape
    assert (words(kept).array != expected(kept).array).nnz == 0  # type: ignore[union-attr]


cells = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-(2**62), 2**62)
strings = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8).filter(
    lambda text: bool(text.strip())
)
column_names = st.lists(st.text("abc ,;\"'\néß", min_size=1, max_size=5), min_size=1, max_size=4, unique=True)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    height = draw(st.integers(1, 6))
    table: Table = {f"x {name}": draw(st.lists(cells, min_size=height, max_size=height)) for name in draw(column_names)}
    return {**table, "label": draw(st.lists(strings, min_size=height, max_size=height))}


@given(tables(), st.sampled_from([",", ";", "\t"]))
def test_a_csv_holds_what_the_csv_module_reads(
    tmp_path_factory: pytest.TempPathFactory, table: Table, mark: str
) -> None:
    name = "rows.tsv" if mark == "\t" else "rows.csv"
    path = put(tmp_path_factory.mktemp("csv") / name, csv_text(table, mark, csv.QUOTE_NONNUMERIC))
    with path.open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file, delimiter=mark)
    rows = read(path, label="label")
    assert rows.columns == tuple(header[:-1])
    assert rows.labels == [line[-1] for line in lines]
    expected = np.array([[float(cell) for cell in line[:-1]] for line in lines]).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(rows.values), expected)


@given(tables(), st.booleans())
def test_a_jsonl_holds_what_the_json_module_reads(
    tmp_path_factory: pytest.TempPathFactory, table: Table, ascii_only: bool
) -> None:
    path = put(tmp_path_factory.mktemp("jsonl") / "rows.jsonl", jsonl_text(table, ascii_only=ascii_only))
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    rows = read(path)
    assert rows.labels == [line.pop("label") for line in lines]
    expected = np.array([[float(cell) for cell in line.values()] for line in lines]).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(rows.values), expected)


@given(tables())
def test_a_parquet_holds_what_was_written(tmp_path_factory: pytest.TempPathFactory, table: Table) -> None:
    path = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    pl.DataFrame(table, strict=False).write_parquet(path)
    rows = read(path)
    assert rows.labels == table.pop("label")
    expected = np.array([[float(cell) for cell in column] for column in table.values()]).T.astype(np.float32)
    np.testing.assert_array_equal(np.asarray(rows.values), expected)


def values_of(rows: Rows) -> Any:
    return rows.values if isinstance(rows.values, list) else np.asarray(rows.values).tolist()


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ("\ufeffa,label\n1,x\n3,y\n", [[1], [3]]),
        ("a,label\r\n1,x\r\n3,y", [[1], [3]]),
        ("a,label\n1,x\n3,y\n\n", [[1], [3]]),
        ("a,label\n1,x\n\n3,y\n\n\n", [[1], [3]]),
        ("a;label\n1;x\n3;y\n", [[1], [3]]),
        ("a|label\n1|x\n3|y\n", [[1], [3]]),
        ('"a, b, c";label\n1;x\n3;y\n', [[1], [3]]),
        ("a,label\n +1 ,x\n3.,y\n", [[1], [3]]),
        ("a,label\n100000000000000000000,x\n3,y\n", [[1e20], [3]]),
        ("a,label\nTrue,x\nFalse,y\n", [[1], [0]]),
        ("a,label\ntrue,x\nfalse,y\n", [[1], [0]]),
    ],
    ids=["bom", "crlf", "blank end", "blank lines", ";", "|", "marks in quotes", "spaces", "huge", "True", "true"],
)
def test_a_csv_may_be_written_in_many_ways(content: str, values: list[list[float]], tmp_path: Path) -> None:
    rows = read(put(tmp_path / "rows.csv", content))
    assert values_of(rows) == np.array(values, np.float32).tolist()
    assert rows.labels == ["x", "y"]


@pytest.mark.parametrize(
    "content",
    ['\ufeff{"a": 1}\n{"a": 3}\n', '{"a": 1}\r\n{"a": 3}', '\n{"a": 1}\n\n{"a": 3}\n\n', '{"a": 1.0}\n{"a": 3}\n'],
    ids=["bom", "crlf", "blank lines", "real and whole"],
)
def test_a_jsonl_may_be_written_in_many_ways(content: str, tmp_path: Path) -> None:
    assert values_of(read(put(tmp_path / "rows.jsonl", content))) == [[1], [3]]


def test_a_blank_line_is_not_a_row_of_means(tmp_path: Path) -> None:
    rows = read(put(tmp_path / "rows.csv", "a,b\n1,2\n\n3,4\n"), missing="mean")
    assert values_of(rows) == [[1, 2], [3, 4]]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet", ".csv.gz"])
@pytest.mark.parametrize("name", ["data[1]", "da?a", "da*a", "*"])
def test_a_name_that_looks_like_a_pattern_is_the_file_of_that_name(name: str, ending: str, tmp_path: Path) -> None:
    WRITERS[ending]({"a": [9.0]}, tmp_path / f"data{ending}")
    WRITERS[ending]({"a": [1.0, 2.0]}, tmp_path / f"{name}{ending}")
    assert values_of(read(tmp_path / f"{name}{ending}")) == [[1], [2]]


def test_a_cell_of_another_type_late_in_the_file_does_not_stop_the_reading(tmp_path: Path) -> None:
    lines = ["1,x"] * 3000
    rows = read(put(tmp_path / "late.csv", "\n".join(["a,label", *lines, "0.5,y", "NA,z", ""])), missing="mean")
    assert values_of(rows)[3000] == [0.5]
    assert math.isnan(values_of(rows)[3001][0])
    with pytest.raises(
        DataError, match=r"late.csv: row 3001 \(counting from 0\), column 'a': 'z9' is not a number \(1"
    ):
        read(put(tmp_path / "late.csv", "\n".join(["a,label", *lines, "0.5,y", "z9,z", ""])))


BROKEN: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("rows.csv", "", "rows.csv cannot be read: it is empty"),
    "blank": ("rows.csv", "\n \n", "rows.csv.*(it is empty|has no rows)"),
    "header only": ("rows.csv", "a,b\n", "rows.csv has no rows: give at least one below the header"),
    "no end of header": ("rows.csv", "a,b", "rows.csv has no rows"),
    "too wide": ("rows.csv", 'a,b\n"x\ny",2\n3,4,5\n', "rows.csv cannot be read: line 4 has 3 cells, the header 2"),
    "tsv too wide": (
        "rows.tsv",
        "a, b\tc\n1\t2\n3\t4\t5\n",
        "rows.tsv cannot be read: line 3 has 3 cells, the header 2",
    ),
    "too short": ("rows.csv", "a,b\n1,2\n3\n", r"rows.csv: row 1 \(counting from 0\), column 'b': the cell is empty"),
    "unclosed text": ("rows.csv", 'text,label\n"one,x\ntwo,y\n', "rows.csv.*quotation mark that is not closed"),
    "unclosed label": ("rows.csv", 'a,label\n1,x\n2,"y\n3,z\n', "rows.csv.*quotation mark that is not closed"),
    "lone quote": (
        "rows.csv",
        'text,label\nfine,x\n5" long,y\nok,z\n',
        "rows.csv cannot be read: line 3.*quotation mark",
    ),
    "header twice": ("rows.csv", "a,b,a\n1,2,3\n", "rows.csv: the header names 'a' more than once"),
    "quoted header twice": ("rows.csv", 'a,b,"a"\n1,2,3\n', "rows.csv: the header names 'a' more than once"),
    "latin cell": (
        "rows.csv",
        "text,label\nok,x\ncaf\xe9,x\n".encode("latin-1"),
        "not UTF-8: line 3 holds the byte 0xe9",
    ),
    "latin label": ("rows.csv", "a,label\n1,caf\xe9\n".encode("latin-1"), "rows.csv.*not UTF-8: line 2"),
    "latin header": ("rows.csv", "caf\xe9,label\n1,x\n".encode("latin-1"), "rows.csv.*not UTF-8: line 1"),
    "utf-16": ("rows.csv", "a,label\n1,x\n".encode("utf-16"), "rows.csv.*not UTF-8: line 1 holds the byte 0xff"),
    "latin json": ("rows.jsonl", '{"text": "caf\xe9"}\n'.encode("latin-1"), "rows.jsonl.*not UTF-8: line 1"),
    "no gzip": ("rows.csv.gz", "a,b\n1,2\n", "rows.csv.gz is not a gzip file, or it is cut short"),
    "cut gzip": ("rows.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 999)[:-9], "rows.csv.gz is not a gzip.*cut short"),
    "damaged gzip": ("rows.jsonl.gz", gzip.compress(b'{"a": 1}')[:-8] + b"\0" * 8, "rows.jsonl.gz is not a gzip file"),
    "empty gzip": ("rows.csv.gz", gzip.compress(b""), "rows.csv.gz cannot be read: it is empty"),
    "empty jsonl": ("rows.jsonl", "", "rows.jsonl cannot be read: it is empty"),
    "broken json": (
        "rows.jsonl",
        '{"a": 1}\n{"a": 2\n{"a": 3}\n',
        "rows.jsonl cannot be read: line 2 is not a JSON object",
    ),
    "cut json": ("rows.jsonl", '{"a": 1}\n\n{"a": 2}\n{"a":', "rows.jsonl cannot be read: line 4 is not a JSON object"),
    "json list": ("rows.jsonl", '[{"a": 1}]\n', "rows.jsonl cannot be read: line 1 is not a JSON object"),
    "json number": ("rows.jsonl", '{"a": 1}\n5\n', "rows.jsonl cannot be read: line 2 is not a JSON object"),
    "json NaN": ("rows.jsonl", '{"a": 1}\n{"a": NaN}\n', "rows.jsonl cannot be read: line 2"),
    "json separators": ("rows.jsonl", '{"text": "a\u2028b"}\n{"text": }\n', "rows.jsonl cannot be read: line 2 is not"),
    "foreign parquet": ("rows.parquet", "a,b\n1,2\n", "rows.parquet cannot be read"),
    "empty parquet": ("rows.parquet", "", "rows.parquet cannot be read"),
}


@pytest.mark.parametrize(("name", "content", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_and_the_place_named(
    name: str, content: str | bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        read(put(tmp_path / name, content))


def test_a_parquet_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    write_parquet({"a": [1.0] * 100}, tmp_path / "rows.parquet")
    content = (tmp_path / "rows.parquet").read_bytes()
    for size in (4, len(content) // 2, len(content) - 1):
        with pytest.raises(DataError, match=r"rows.parquet cannot be read"):
            read(put(tmp_path / "rows.parquet", content[:size]))


def test_a_parquet_without_rows_is_refused(tmp_path: Path) -> None:
    write_parquet({"a": []}, tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"rows.parquet has no rows"):
        read(tmp_path / "rows.parquet")


CELLS: dict[str, tuple[str, str]] = {
    "word": ("x7", "'x7' is not a number"),
    "empty": ("", "the cell is empty or NaN"),
    "NaN": ("NaN", "the cell is empty or NaN"),
    "NA": ("NA", "the cell is empty or NaN"),
    "null": (" null ", "the cell is empty or NaN"),
    "inf": ("inf", "inf is not a finite float32 number"),
    "-Infinity": ("-Infinity", "-inf is not a finite float32 number"),
    "1e39": ("1e39", "1e[+]39 is not a finite float32 number"),
    "-1e400": ("-1e400", ".*is not a finite float32 number"),
}


@pytest.mark.parametrize(("cell", "message"), CELLS.values(), ids=CELLS)
@pytest.mark.parametrize("row", [0, 2, 1500])
def test_a_cell_that_is_no_finite_number_is_named_by_file_row_and_column(
    cell: str, message: str, row: int, tmp_path: Path
) -> None:
    lines = ["1,2.5,x"] * 1600
    lines[row] = f"1,{cell},x"
    path = put(tmp_path / "rows.csv", "\n".join(["a,b c,label", *lines]))
    with pytest.raises(DataError, match=rf"rows.csv: row {row} \(counting from 0\), column 'b c': {message}"):
        read(path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39, None])
def test_a_parquet_cell_that_is_no_finite_number_is_named(value: float | None, tmp_path: Path) -> None:
    write_parquet({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, value]}, tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"rows.parquet: row 2 \(counting from 0\), column 'b': "):
        read(tmp_path / "rows.parquet")


LISTS: dict[str, tuple[Sequence[Any], str]] = {
    "shorter": ([[1.0, 2.0], [3.0]], r"row 1 \(counting from 0\), column 'e' has 1 numbers where row 0 has 2"),
    "empty": ([[], []], r"row 0 \(counting from 0\), column 'e': the cell is empty"),
    "null first": ([None, [1.0, 2.0]], r"row 0 \(counting from 0\), column 'e'"),
    "null last": ([[1.0, 2.0], None], r"row 1 \(counting from 0\), column 'e'"),
    "null inside": ([[1.0, 2.0], [1.0, None]], r"row 1 \(counting from 0\), column 'e\[1\]': the cell is empty"),
    "nan inside": ([[1.0, 2.0], [math.nan, 1.0]], r"row 1 \(counting from 0\), column 'e\[0\]': the cell is empty"),
    "too large": ([[1.0, 1e39], [1.0, 1.0]], r"row 0 \(counting from 0\), column 'e\[1\]': 1e[+]39 is not a finite"),
}


@pytest.mark.parametrize(("lists", "message"), LISTS.values(), ids=LISTS)
def test_a_list_that_is_unlike_the_others_is_named(lists: list[Any], message: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"e": lists, "label": ["x", "y"]}, {"e": pl.List(pl.Float64), "label": pl.String})
    frame.write_parquet(tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=rf"rows.parquet: {message}"):
        read(tmp_path / "rows.parquet")


@pytest.mark.parametrize("kind", [pl.List(pl.Float64), pl.Array(pl.Float32, 3), pl.List(pl.Int16)], ids=str)
@pytest.mark.parametrize("name", ["e", "^e.*$", "*", "e[0]"])
def test_lists_of_numbers_are_columns_of_their_own(kind: pl.DataType, name: str, tmp_path: Path) -> None:
    numbers: NDArray[Any] = np.arange(12).reshape(4, 3)
    frame = pl.DataFrame({name: pl.Series(numbers.tolist(), dtype=kind), "k": [5, 6, 7, 8], "label": list("abab")})
    frame.write_parquet(tmp_path / "rows.parquet")
    rows = read(tmp_path / "rows.parquet")
    assert rows.columns == (f"{name}[0]", f"{name}[1]", f"{name}[2]", "k")
    np.testing.assert_array_equal(np.asarray(rows.values), np.c_[numbers, [5, 6, 7, 8]].astype(np.float32))


@pytest.mark.parametrize("name", ["^a.*$", "*"])
def test_a_column_whose_name_looks_like_a_pattern_is_that_column(name: str, tmp_path: Path) -> None:
    assert values_of(read(put(tmp_path / "rows.csv", f"{name},abc\n1,2\nNA,3\n"), missing="mean"))[0] == [1, 2]
    texts = read(put(tmp_path / "rows.csv", f"abc,{name}\n1,it is good\n2,it is bad\n"), text=name)
    assert (texts.columns, texts.values) == ((name,), ["it is good", "it is bad"])


def test_lists_in_jsonl_may_mix_whole_and_real_numbers(tmp_path: Path) -> None:
    path = put(tmp_path / "rows.jsonl", '{"e": [1, 2], "label": 1}\n{"e": [2.5, 1], "label": 2}\n')
    rows = read(path)
    assert (values_of(rows), rows.labels, rows.columns) == ([[1, 2], [2.5, 1]], ["1", "2"], ("e[0]", "e[1]"))


MISSING = "id,a,b,label\np,1,2,x\nq,,3,y\nr,5,4,\ns,7,NA,x\nt,9,8,y\n"


def test_rows_with_something_missing_can_be_left_out_and_ids_and_labels_stay_beside_their_rows(tmp_path: Path) -> None:
    with pytest.warns(DataWarning) as said:
        rows = read(put(tmp_path / "rows.csv", MISSING), missing="drop")
    assert (rows.ids, rows.labels, values_of(rows)) == (["p", "t"], ["x", "y"], [[1, 2], [9, 8]])
    messages = [str(warning.message) for warning in said]
    assert any("left out 2 rows with an empty cell or NaN, first row 1 (counting from 0)" in text for text in messages)
    assert any("left out 1 rows with no label in column 'label', first row 2 (" in text for text in messages)
    assert sum("left out" in note for note in rows.notes) == 2


def test_texts_that_are_empty_can_be_left_out(tmp_path: Path) -> None:
    path = put(tmp_path / "rows.csv", 'text,label\none,x\n"",y\n"  ",x\nfour,y\n')
    with pytest.warns(DataWarning, match=r"rows.csv: left out 2 rows with an empty text, first row 1 \(counting"):
        rows = read(path, missing="drop")
    assert (rows.values, rows.labels, rows.ids) == (["one", "four"], ["x", "y"], ["0", "3"])
    with pytest.raises(DataError, match=r"rows.csv: row 1 \(counting from 0\) has an empty text \(2 such rows\)"):
        read(path)


@pytest.mark.parametrize("content", ["a,b,label\n,1,x\n1,,x\n", "text,label\n,x\n,y\n", "a,label\n1,\n2,\n"])
def test_leaving_out_every_row_is_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows.csv: every row has .* so none is left"):
        read(put(tmp_path / "rows.csv", content), missing="drop")


def test_a_row_without_a_label_is_named(tmp_path: Path) -> None:
    for blank in ("", '" "'):
        with pytest.raises(DataError, match=r"rows.csv: row 1 \(counting from 0\) has no label in column 'label' \(1 "):
            read(put(tmp_path / "rows.csv", f"a,label\n1,x\n2,{blank}\n"))


@pytest.mark.parametrize("blank", [None, math.nan])
def test_a_number_that_is_missing_as_a_label_is_no_category(blank: float | None, tmp_path: Path) -> None:
    write_parquet({"a": [1.0, 2.0, 3.0], "label": [1.0, blank, 2.0]}, tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"rows.parquet: row 1 \(counting from 0\) has no label in column 'label'"):
        read(tmp_path / "rows.parquet")
    with pytest.warns(DataWarning, match=r"left out 1 rows with no label in column 'label', first row 1"):
        rows = read(tmp_path / "rows.parquet", missing="drop")
    assert rows.labels == ["1", "2"]


WRITTEN = {
    "decimal comma": "a;b\n1,5;2,5\n2,5;3,5\n",
    "per cent": "a,b\n10%,1\n20 %,2\n",
    "thousands": 'a,b\n"1,000",1\n"12,500.5",2\n',
    "money": "a,b\n$5,1\n$7.50,2\n",
}


@pytest.mark.parametrize("content", WRITTEN.values(), ids=WRITTEN)
def test_numbers_as_people_write_them_are_refused_and_not_left_out(content: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows.csv: column 'a' has numbers written as .*: write them with a decimal"):
        read(put(tmp_path / "rows.csv", content))


def test_a_column_of_ids_or_an_index_is_never_a_feature(tmp_path: Path) -> None:
    repeated = read(put(tmp_path / "rows.csv", "id,a\n7,1\n7,2\n"))
    assert (values_of(repeated), repeated.ids) == ([[1], [2]], ["0", "1"])
    assert "not used: 'id'" in repeated.notes
    index = read(put(tmp_path / "rows.csv", ",a,b\n5,1,2\n6,3,4\n"))
    assert (values_of(index), index.ids) == ([[1, 2], [3, 4]], ["5", "6"])
    asked = read(put(tmp_path / "rows.csv", "id,a\n7,1\n7,2\n"), columns=["id", "a"])
    assert values_of(asked) == [[7, 1], [7, 2]]


def test_spaces_around_a_name_in_the_header_do_not_hide_it(tmp_path: Path) -> None:
    assert read(put(tmp_path / "rows.csv", "a, label\n1,x\n2,y\n")).labels == ["x", "y"]
