"""Tables of several types: what each column is used as, what is left out and why, and what later files must hold."""

import io
import json
import math
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from customer_table import COUNT, DAY, customers
from hypothesis import given
from hypothesis import strategies as st

from metaclust import DataError, DataWarning, Rows, fit_preparation, read_data
from metaclust.data.inputs import as_rows, is_numeric_matrix
from metaclust.data.mixed_table import as_treatment
from metaclust.data.readers.dates import points, read_dates, way_of
from metaclust.data.readers.described import column_lines
from metaclust.data.readers.usage import words_of


def read(path: Path, **options: Any) -> Rows:
    return read_data(path, progress=False, **options)


def written(frame: pl.DataFrame, path: Path) -> Path:
    writers = {".csv": frame.write_csv, ".jsonl": frame.write_ndjson, ".parquet": frame.write_parquet}
    if path.suffix == ".tsv":
        frame.write_csv(path, separator="\t")
    else:
        writers[path.suffix](path)
    return path


def treatments(rows: Rows) -> dict[str, str]:
    return {name: usage.treatment for name, usage in rows.usage.items()}


FOUND = {
    "customer_id": "id",
    "zip": "drop",
    "age": "number",
    "plan": "category",
    "business": "number",
    "since": "date",
    "note": "text",
}


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_columns_are_used_alike_in_every_format_and_said(ending: str, tmp_path: Path) -> None:
    rows = read(written(customers(), tmp_path / f"rows{ending}"), label="segment")
    assert rows.kind == "table"
    assert treatments(rows) == FOUND
    assert rows.columns == ("age", "plan", "business", "since", "note")
    assert rows.notes[:5] == (
        "numbers from columns 'age', 'business'",
        "categories from column 'plan'",
        "dates from column 'since'",
        "text from column 'note'",
        "labels from column 'segment'",
    )
    assert rows.notes[5] == "gaps are filled and marked: 'age' (8), 'plan' (6)"
    assert rows.notes[6].startswith("left out: 'customer_id' (an id), 'zip' (40 codes in 40 rows); treat= (--treat")
    assert rows.values.days("since").tolist() == [(DAY - date(1970, 1, 1)).days + 17 * row for row in range(COUNT)]


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_data_frames_are_read_as_files_are(library: str, tmp_path: Path) -> None:
    frame = customers()
    x: Any = frame
    if library == "pandas":
        pd = pytest.importorskip("pandas")
        x = pd.DataFrame({column.name: column.to_list() for column in frame})
        x["since"] = pd.to_datetime(x["since"])
    rows = as_rows(x, frame["segment"])
    expected = read(written(frame, tmp_path / "rows.parquet"))
    # The column of the labels is one more category here: a data frame brings them beside itself.
    assert treatments(rows) == treatments(expected)
    for name in rows.columns:
        assert rows.values.frame[name].to_list() == expected.values.frame[name].to_list()


def test_a_column_is_used_as_a_person_says(tmp_path: Path) -> None:
    path = written(customers(), tmp_path / "rows.csv")
    asked = {"zip": "category", "business": "category", "note": "drop", "customer_id": "number"}
    rows = read(path, label="segment", treat=asked)
    assert treatments(rows) == FOUND | asked
    assert rows.values.strings("business")[:2] == ["false", "true"]
    assert read(path, label="segment", columns=["age", "customer_id"], missing="mean").kind == "vectors"
    some = read(path, label="segment", columns=["age", "plan"])
    assert (some.kind, some.columns) == ("table", ("age", "plan"))
    assert read(path, label="segment", text="note").kind == "text"
    both = read(path, label="segment", text="note", columns=["age"])
    assert (both.kind, both.columns) == ("table", ("age", "note"))


@pytest.mark.usefixtures("_without_type_checks")
def test_a_treatment_that_there_is_not_is_named() -> None:
    wrong: Any = "nominal"
    with pytest.raises(
        ValueError, match=r"^treat={'a': 'nominal'}: choose one of number, category, date, text, id, dr"
    ):
        as_treatment("a", wrong)


def test_the_columns_of_a_table_are_described(tmp_path: Path) -> None:
    lines = {
        line.column: line for line in column_lines(read(written(customers(), tmp_path / "a.csv"), label="segment"))
    }
    assert {name: line.treatment for name, line in lines.items()} == {**FOUND, "segment": "label"}
    assert (lines["age"].distinct, lines["age"].gaps, lines["age"].example) == (24, 8, "21")
    assert (lines["plan"].type, lines["plan"].distinct, lines["plan"].gaps) == ("String", 3, 6)
    assert lines["zip"].why == "40 codes in 40 rows"


NUMERIC = {
    "without codes": ({"age": [1, 2, 3], "height": [1.5, 2.5, 0.5]}, ("age", "height"), True),
    "an id": ({"customer_id": [11, 12, 13], "age": [1, 2, 3]}, ("age",), False),
    "an id in one word": ({"userId": [11, 12, 13], "age": [1, 2, 3]}, ("age",), False),
    "zip codes": ({"zip_code": [10115, 10117, 20095], "age": [1, 2, 3]}, ("age",), False),
    "a measure": ({"fluid": [11, 12, 13], "paid": [1, 2, 3]}, ("fluid", "paid"), True),
    "parts of a whole": ({"acid id": [0.5, 0.25, 0.3], "age": [1, 2, 3]}, ("acid id", "age"), True),
}


@pytest.mark.parametrize(("cells", "used", "plain"), NUMERIC.values(), ids=NUMERIC)
def test_ids_and_codes_are_no_magnitudes_in_tables_of_numbers(
    cells: dict[str, list[Any]], used: tuple[str, ...], plain: bool, tmp_path: Path
) -> None:
    frame = pl.DataFrame(cells)
    assert is_numeric_matrix(frame) is plain
    rows = read(written(frame, tmp_path / "rows.csv"))
    assert (rows.kind, rows.columns) == ("vectors", used)
    assert any(note.startswith("left out: ") for note in rows.notes) is not plain
    asked = read(tmp_path / "rows.csv", columns=list(cells))
    assert np.asarray(asked.values).tolist() == frame.to_numpy().astype(np.float32).tolist()


def test_codes_that_repeat_are_categories_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("plz,age\n" + "01067,5\n10115,6\n" * 5)
    rows = read(tmp_path / "rows.csv")
    assert treatments(rows) == {"plz": "category", "age": "number"}
    assert rows.values.strings("plz")[:2] == ["01067", "10115"]


STRAY = {
    "a word among numbers": ({"age": ["1", "2", "three", "4"] * 5}, r"row 2 .*, column 'age': 'three' is not a number"),
    "a word among dates": (
        {"since": ["2024-01-01", *["2024-02-03"] * 18, "soon"]},
        r"row 19 \(counting from 0\), column 'since': 'soon' is not a date \(1 such cells\). Write it as 2024-12-31",
    ),
    "a day that there is not": (
        {"since": ["2024-01-01", *["2024-02-03"] * 18, "2024-02-30"]},
        r"row 19 .*, column 'since': '2024-02-30' is not a date",
    ),
    "written numbers": ({"price": ["€ 5", "€ 7"] * 10}, r"column 'price' has numbers written as '€ 5'"),
    "infinity": ({"age": [1.0, math.inf] * 10}, r"row 1 .*, column 'age': inf is not a finite float32 number"),
}


@pytest.mark.parametrize(("cells", "message"), STRAY.values(), ids=STRAY)
def test_a_cell_that_does_not_fit_its_column_is_named(
    cells: dict[str, list[Any]], message: str, tmp_path: Path
) -> None:
    frame = pl.DataFrame({**cells, "plan": ["free", "pro"] * 10})
    with pytest.raises(DataError, match=f"rows.parquet: {message}"):
        read(written(frame, tmp_path / "rows.parquet"))


def test_gaps_are_marked_left_out_or_refused(tmp_path: Path) -> None:
    path = written(customers(), tmp_path / "rows.csv")
    assert len(read(path, label="segment")) == COUNT
    with pytest.warns(DataWarning, match="left out 12 rows with an empty cell, first row 0"):
        assert len(read(path, label="segment", missing="drop")) == COUNT - 12
    with pytest.raises(
        DataError, match=r"row 0 .*, column 'age': the cell is empty \(12 such rows\). Fill it, or choo"
    ):
        read(path, label="segment", missing="error")


def test_numbers_alone_with_gaps_are_still_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n,3\n")
    with pytest.raises(DataError, match=r"row 1 .*, column 'a': the cell is empty or NaN"):
        read(tmp_path / "rows.csv")
    rows = read(tmp_path / "rows.csv", kind="table")
    assert rows.values.gaps("a").tolist() == [False, True]


def test_how_people_write_that_a_value_is_missing_is_a_gap(tmp_path: Path) -> None:
    lines = "".join(
        f"{plan},{day},{row}\n" for row, (plan, day) in enumerate([("pro", "2024-01-05")] * 9 + [("free", "")])
    )
    (tmp_path / "rows.csv").write_text("plan,since,age\n" + lines * 2 + "N/A,NULL,?\n \t,-,nan\n")
    rows = read(tmp_path / "rows.csv")
    assert treatments(rows) == {"plan": "category", "since": "date", "age": "number"}
    for name in rows.columns:
        assert rows.values.gaps(name)[-2:].all()


LATER = {
    "a column less": (lambda f: f.drop("age", "note"), "has no columns 'age', 'note', which the model was trained on"),
    "words for numbers": (
        lambda f: f.with_columns(age=pl.lit("old")),
        r"row 0 \(counting from 0\), column 'age': 'old' is not a number \(40 such cells\). Correct it$",
    ),
    "dates for numbers": (
        lambda f: f.with_columns(age=f["since"]),
        "column 'age' holds Date, such as '2023-11-20', not numbers: turn it into numbers$",
    ),
    "numbers for dates": (
        lambda f: f.with_columns(since=f["age"]),
        "column 'since' holds Int64, such as 21, not dates: write them as 2024-12-31$",
    ),
    "parts for categories": (
        lambda f: f.with_columns(plan=pl.lit(0.5)),
        "column 'plan' holds Float64, such as 0.5, not a category: give strings, whole numbers or truth values$",
    ),
    "numbers for text": (
        lambda f: f.with_columns(note=f["age"]),
        "column 'note' holds Int64, such as 21, not text: give strings$",
    ),
}


@pytest.mark.parametrize(("change", "message"), LATER.values(), ids=LATER)
def test_a_later_file_with_another_type_is_refused_with_column_and_value(
    change: Any, message: str, tmp_path: Path
) -> None:
    frame = customers()
    preparation, _ = fit_preparation(as_rows(frame, frame["segment"]))
    with pytest.raises(DataError, match=f"new.parquet.*{message}"):
        read(written(change(frame), tmp_path / "new.parquet"), like=preparation)
    with pytest.raises(DataError, match=f"X.*{message}"):
        as_rows(change(frame), like=preparation)


def test_a_table_is_not_clustered_by_arrays() -> None:
    frame = customers()
    preparation, _ = fit_preparation(as_rows(frame, frame["segment"]))
    with pytest.raises(DataError, match="X is ndarray, but the model was trained on a table with the columns 'age'"):
        as_rows(np.ones((3, 5)), like=preparation)
    with pytest.raises(ValueError, match="'treat' cannot be given with like="):
        read(Path(__file__), like=preparation, treat={"age": "drop"})


@given(st.datetimes(datetime(1000, 1, 1), datetime(9000, 1, 1)), st.sampled_from(["day first", "month first"]))
def test_dates_are_read_as_they_were_written(moment: datetime, way: str) -> None:
    moment = moment.replace(microsecond=0)
    short = "%d/%m/%Y" if way == "day first" else "%m/%d/%Y"
    cells = [moment.isoformat(), moment.isoformat(" ", "minutes"), moment.date().isoformat(), f"{moment}+00:00"]
    start = datetime(moment.year, moment.month, moment.day)
    expected = [moment, moment.replace(second=0), start, moment]
    assert points(pl.Series(cells), "year first").to_list() == expected
    assert points(pl.Series([moment.strftime(short).zfill(10)]), way).to_list() == [start] or moment.year < 1000


WAYS = {
    "year first": ["2024-03-04", "2024-12-31 10:30", "NA", ""],
    "day first": ["31/12/2024", "01/02/2024"],
    "month first": ["12/31/2024", "01/02/2024"],
    "ambiguous": ["01/02/2024", "03/04/2024"],
    "": ["1/2", "a", "2024-01-01"],
}


@pytest.mark.parametrize(("way", "cells"), WAYS.items())
def test_the_order_of_day_and_month_is_found_or_said_to_be_ambiguous(way: str, cells: list[str]) -> None:
    assert way_of(pl.Series(cells)) == way


def test_dates_that_may_be_read_in_two_ways_are_left_out_or_refused(tmp_path: Path) -> None:
    frame = pl.DataFrame({"since": ["01/02/2024", "03/04/2024"] * 4, "age": range(8)})
    rows = read(written(frame, tmp_path / "rows.csv"))
    assert "not used: 'since'" in rows.notes
    assert rows.usage["since"].why == "dates such as '01/02/2024' may begin with the day or the month"
    with pytest.raises(
        DataError, match=r"column 'since' has dates such as '01/02/2024', of which day and month cannot"
    ):
        read(tmp_path / "rows.csv", treat={"since": "date"})


@pytest.mark.parametrize("kind", [pl.Date, pl.Datetime("ms")])
@pytest.mark.parametrize("sign", [-1, 1])
def test_dates_beyond_the_calendar_are_refused(kind: Any, sign: int) -> None:
    far = pl.Series([0, sign * 2**31 if kind == pl.Date else sign * 2**60])
    far = far.clip(-(2**31), 2**31 - 1).cast(pl.Int32).cast(kind) if kind == pl.Date else far.cast(kind)
    with pytest.raises(DataError, match=r"x: row 1 .*, column 'at': the date is not in the years 1 to 9999"):
        read_dates(far, "at", "", "x", "")
    edges = pl.Series([date(1, 1, 1), date(9999, 12, 31)])
    assert read_dates(edges, "at", "", "x", "").dt.date().to_list() == edges.to_list()


def test_times_and_zones_are_read_by_the_clock() -> None:
    clock = read_dates(pl.Series([time(6, 30), None]), "at", "", "x", "")
    assert clock.to_list() == [datetime(1970, 1, 1, 6, 30), None]
    zoned = pl.Series([datetime(2024, 5, 1, 12)]).dt.replace_time_zone("Europe/Berlin")
    assert read_dates(zoned, "at", "", "x", "").to_list() == [datetime(2024, 5, 1, 12)]


@given(st.permutations(range(COUNT)))
def test_the_order_of_the_rows_does_not_decide_what_columns_are_used_as(order: list[int]) -> None:
    frame = customers()
    assert treatments(as_rows(frame[order])) == treatments(as_rows(frame))


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("pattern", ["^x$", "^.*$", "*"])
def test_columns_whose_names_look_like_patterns_are_those_columns(pattern: str, ending: str, tmp_path: Path) -> None:
    frame = customers().select("age", "plan", "since", "note", "business")
    for name in frame.columns:
        named = frame.rename({name: pattern})
        rows = read(written(named, tmp_path / f"rows{ending}"))
        assert [rows.usage[each].treatment for each in rows.columns] == ["number", "category", "date", "text", "number"]
        preparation, _ = fit_preparation(rows)
        expected = as_rows(frame)
        np.testing.assert_array_equal(preparation(rows).numpy(), fit_preparation(expected)[0](expected).numpy())
        assert [line.gaps for line in column_lines(rows)] == [8, 6, 0, 0, 0]


def test_words_of_names() -> None:
    assert words_of("customerID") == {"customer", "id"}
    assert words_of("paid") == {"paid"}


def test_lines_of_json_with_other_types_in_a_column_are_read_or_refused(tmp_path: Path) -> None:
    lines = [{"plan": "free", "age": 3, "more": {"a": 1}}, {"plan": "pro", "age": None, "more": None}] * 5
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rows = read(tmp_path / "rows.jsonl")
    assert treatments(rows) == {"plan": "category", "age": "number", "more": "drop"}
    assert "'more' (it holds Struct" in rows.notes[-1]
    assert io.StringIO(str(rows)).readline().startswith("rows.jsonl: 10 table rows of 2; ")
