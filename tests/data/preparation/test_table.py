"""Columns of several types side by side: what each becomes, that none drowns the others, what files may say of it."""

import copy
import json
from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest
from customer_table import customers
from hypothesis import given
from hypothesis import strategies as st

from metaclust import (
    DataError,
    DataWarning,
    MetaClusterer,
    Rows,
    describe_preparation,
    fit_preparation,
    preparation_from,
    read_data,
    rows_from_frame,
)
from metaclust.data.inputs import as_rows
from metaclust.data.preparation.base import Options
from metaclust.data.preparation.table import TablePreparation
from metaclust.data.preparation.table_columns import CategoryColumn, DateColumn
from metaclust.data.preparation.table_text import fit_text

COUNT = 60


def fitted(frame: pl.DataFrame) -> tuple[TablePreparation, Rows]:
    preparation, rows = fit_preparation(as_rows(frame))
    assert isinstance(preparation, TablePreparation)
    return preparation, rows


def prepared(preparation: Any, frame: pl.DataFrame) -> np.ndarray:
    return preparation(as_rows(frame, like=preparation)).numpy()


def test_numbers_categories_and_gaps_are_as_computed_by_hand() -> None:
    frame = pl.DataFrame({"age": [1.0, None, 3.0, 8.0] * 3, "plan": ["a", "b", "b", None] * 3})
    preparation, rows = fitted(frame)
    age = np.array([1, 4, 3, 8])
    scaled = (age - 4) / np.std([1, 3, 8])
    expected = np.c_[scaled, [1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(preparation(rows).numpy(), np.tile(expected, (3, 1)), atol=1e-6)
    # A value that is not known has no feature, and is no gap either.
    new = prepared(preparation, pl.DataFrame({"plan": ["z", "a"], "age": [4.0, 4.0]}))
    np.testing.assert_allclose(new, [[0, 0, 0, 0, 0], [0, 1, 0, 0, 0]], atol=1e-6)


def test_rows_of_two_values_are_as_far_apart_as_rows_are_in_a_number_on_average() -> None:
    generator = np.random.default_rng(0)
    frame = pl.DataFrame({"x": generator.normal(7, 3, 200), "c": ["a", "b"] * 100})
    preparation, rows = fitted(frame)
    z = preparation(rows).numpy()
    number = np.square(z[:, None, 0] - z[None, :, 0])[~np.eye(200, dtype=bool)].mean()
    assert number == pytest.approx(np.square(z[0, 1:] - z[1, 1:]).sum(), rel=0.02)


def test_the_text_weighs_as_much_as_all_other_columns() -> None:
    generator = np.random.default_rng(0)
    words = [f"word{number}" for number in range(50)]
    numbers = {f"x{number}": generator.normal(size=COUNT) for number in range(7)}
    notes = {name: [" ".join(generator.choice(words, 9)) for _ in range(COUNT)] for name in ("note", "more")}
    preparation, rows = fitted(pl.DataFrame({**numbers, **notes}))
    variance = preparation(rows).numpy().var(0)
    assert variance[:7].sum() == pytest.approx(7, rel=1e-4)
    assert variance[7:].sum() == pytest.approx(7, rel=1e-3)


def test_dates_have_a_time_and_cycles_that_close() -> None:
    days = np.arange(0.0, 1200.0, 0.25)
    column = DateColumn.fit("since", days, "year first")
    assert (column.linear, column.cycles) == (True, ("year", "week", "day"))
    features = column(days)
    np.testing.assert_allclose(np.hypot(features[:, 0::2], features[:, 1::2]), 0.5, atol=1e-6)
    np.testing.assert_allclose(features[0, 2:], features[28, 2:], atol=1e-6)
    assert DateColumn.fit("since", np.array([3.0, 3.0, np.nan]), "").width == 0
    assert DateColumn.fit("at", np.array([0.25, 0.5]), "").cycles == ("day",)
    assert not column(np.array([np.nan])).any()


def test_of_many_values_the_most_frequent_have_a_feature() -> None:
    cells = [f"v{number}" for number in range(100) for _ in range(2 if number < 40 else 1)] + [None]
    column = CategoryColumn.fit("c", cells)
    assert len(column.values) == 30
    assert set(column.values) <= {f"v{number}" for number in range(40)}
    assert column(["v99", None]).sum() == 0


def test_principal_directions_keep_what_tfidf_tells() -> None:
    generator = np.random.default_rng(0)
    topics = [[f"t{topic}w{word}" for word in range(6)] for topic in range(4)]
    texts = [" ".join(generator.choice(topics[row % 4], 6)) for row in range(80)]
    column = fit_text("note", texts, 3.0, Options())
    assert column is not None
    z = column(texts)
    assert np.square(z - z.mean(0)).sum(1).mean() == pytest.approx(3.0, rel=1e-3)
    centres = np.stack([z[topic::4].mean(0) for topic in range(4)])
    assert (np.square(z[:, None] - centres).sum(-1).argmin(1) == np.arange(80) % 4).all()
    assert not column([None]).any()
    assert fit_text("note", ["one two", "three four"], 1.0, Options()) is None


@given(st.permutations(range(40)))
def test_the_order_of_the_rows_changes_nothing_but_their_order(order: list[int]) -> None:
    frame = customers().drop("segment")
    preparation, rows = fitted(frame)
    other, again = fitted(frame[order])
    assert other.input_shape == preparation.input_shape
    np.testing.assert_allclose(other(again).numpy(), preparation(rows).numpy()[order], atol=2e-3)


@given(
    st.lists(
        st.tuples(
            st.none() | st.floats(-1e6, 1e6, width=32),
            st.none() | st.text("abc é", max_size=3),
            st.booleans() | st.none(),
        ),
        min_size=4,
        max_size=30,
    )
)
def test_descriptions_go_through_json(cells: list[tuple[Any, ...]]) -> None:
    schema = {"x": pl.Float64, "c": pl.String, "b": pl.Boolean}
    frame = pl.DataFrame([*cells, *cells, (1.0, "a", True), (2.5, "b", False)] * 2, schema, orient="row")
    preparation, rows = fitted(frame)
    again = preparation_from(json.loads(json.dumps(describe_preparation(preparation), allow_nan=False)))
    assert again == preparation
    assert (again(rows) == preparation(rows)).all()
    assert preparation(rows).isfinite().all()
    # One row at a time is as all at once: nothing is learned from rows that are prepared.
    single = prepared(again, frame[:1])
    np.testing.assert_array_equal(single[0], preparation(rows).numpy()[0])


def test_gaps_and_values_that_training_did_not_have_are_said() -> None:
    frame = customers().drop("segment", "note")
    preparation, _ = fitted(frame)
    new = frame.with_columns(business=pl.lit(None, pl.Boolean), plan=pl.lit("gold"))
    with pytest.warns(DataWarning) as said:
        z = prepared(preparation, new)
    assert np.isfinite(z).all()
    messages = " ".join(str(warning.message) for warning in said)
    assert "X: gaps in columns that had none in training are filled: 'business' (40)" in messages
    assert "column 'plan': none of its values was there in training, such as 'gold'" in messages


def test_columns_that_were_left_out_need_not_be_there_later() -> None:
    frame = customers().drop("segment")
    preparation, rows = fitted(frame)
    later = frame.drop("customer_id", "zip").select("note", "since", "business", "plan", "age")
    np.testing.assert_array_equal(prepared(preparation, later), preparation(rows).numpy())
    assert {name: usage.treatment for name, usage in preparation.usage.items() if not usage.is_used} == {
        "customer_id": "id",
        "zip": "drop",
    }


def test_a_far_cell_is_announced_as_in_tables_of_numbers() -> None:
    frame = customers().drop("segment", "note")
    preparation, _ = fitted(frame)
    with pytest.warns(DataWarning, match=r"X: row 1 .*, column 'age': 1e\+06 is .* standard deviations from the mean"):
        prepared(preparation, frame.with_columns(age=pl.Series([30.0, 1e6, *[30.0] * 38])))
    with pytest.raises(DataError, match=r"column 'age': 1e\+12 is .* correct it"):
        prepared(preparation, frame.with_columns(age=pl.Series([30.0, 1e12, *[30.0] * 38])))


def test_text_that_says_nothing_is_left_out_with_a_warning() -> None:
    frame = pl.DataFrame({"x": [1.0, 2.0] * 4, "note": [f"u{row} v{row} w{row}" for row in range(8)]})
    with pytest.warns(DataWarning, match="X: left out 'note': the cells of these columns cannot be told apart"):
        preparation, _ = fitted(frame)
    assert preparation.order == ("x",)


def description() -> dict[str, Any]:
    return json.loads(json.dumps(describe_preparation(fitted(customers().drop("segment"))[0])))


DAMAGED = {
    "order": lambda d: d["order"].append("more"),
    "no order": lambda d: d.pop("order"),
    "a gap of no column": lambda d: d["gaps"].append("zip"),
    "categories twice": lambda d: d["categories"].append(d["categories"][0]),
    "a value twice": lambda d: d["categories"][0]["values"].append("pro"),
    "many values": lambda d: d["categories"][0].update(values=[str(number) for number in range(31)]),
    "values of numbers": lambda d: d["categories"][0].update(values=[1, 2]),
    "another cycle": lambda d: d["dates"][0].update(cycles=["moon"]),
    "a cycle twice": lambda d: d["dates"][0].update(cycles=["week", "week"]),
    "dates written otherwise": lambda d: d["dates"][0].update(written="backwards"),
    "a date without its time": lambda d: d["dates"][0].update(linear=False),
    "no filling": lambda d: d["numbers"].update(fill=False),
    "no scale": lambda d: d["numbers"].update(scale=None),
    "another field": lambda d: d["numbers"].update(more=1),
    "numbers as a list": lambda d: d.update(numbers=[1]),
    "a direction less": lambda d: d["texts"][0]["directions"].pop(),
    "a long direction": lambda d: d["texts"][0]["directions"][0].__setitem__(0, 1e30),
    "a short direction": lambda d: d["texts"][0]["directions"][0].pop(),
    "a word twice": lambda d: d["texts"][0]["vocabulary"].__setitem__(0, d["texts"][0]["vocabulary"][1]),
    "no words": lambda d: d["texts"][0].update(vocabulary=[], directions=[], idf=[]),
    "idf of words": lambda d: d["texts"][0].update(idf=["a"]),
    "no mean": lambda d: d["texts"][0].pop("mean"),
    "no scale of a text": lambda d: d["texts"][0].update(scale=0),
    "a wide embedding": lambda d: d["texts"][0].update(model="m", fingerprint="f", width=2**30),
    "a treatment": lambda d: d["left_out"][0].update(treatment="keep"),
    "left out as strings": lambda d: d.update(left_out=["zip"]),
}


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_description_is_refused(damage: Any) -> None:
    changed = copy.deepcopy(description())
    assert preparation_from(copy.deepcopy(changed)).input_shape
    damage(changed)
    with pytest.raises(DataError):
        preparation_from(changed)


def test_a_model_of_a_table_is_saved_and_clusters_a_later_table_alike(tmp_path: Any) -> None:
    frame = customers(120)
    settings: dict[str, Any] = {"pretrain_steps": 3, "steps": 1, "choose": "bound", "encoder": "network"}
    model = MetaClusterer(progress=False, **settings).fit(frame.drop("segment"), frame["segment"])
    assert model.decisions_[0].startswith("X: numbers from columns 'age', 'business'; categories from column 'plan'; ")
    model.save(tmp_path / "model.safetensors")
    again = MetaClusterer.load(tmp_path / "model.safetensors", "cpu").set_params(progress=False)
    assert again.preparation_ == model.preparation_
    new = frame.drop("customer_id")
    np.testing.assert_array_equal(model.transform(new), again.transform(new[:, ::-1]))
    result = again.cluster(new)
    assert result.to_frame(keep=["plan"])["plan"].to_list() == frame["plan"].to_list()
    assert len(result.assign(new[:7])) == 7
    assert len(result.update(new[:7]).rows) == 127
    with pytest.raises(ValueError, match="encoder='tuned' trains the embedding model of texts"):
        MetaClusterer(progress=False, encoder="tuned").fit(frame.drop("segment"), frame["segment"])
    with pytest.raises(ValueError, match="text='embeddings' is for texts, but X holds table rows"):
        MetaClusterer(progress=False, text="embeddings").fit(frame.drop("segment", "note"), frame["segment"])


def test_rows_that_were_read_without_the_model_are_read_again_as_it_was_trained(tmp_path: Any) -> None:
    frame = customers().drop("segment")
    preparation, _ = fitted(frame)
    # Of few rows nobody knows which strings are categories, and which are texts.
    few = frame[:3].with_columns(age=pl.Series(["21", "22", "NA"]))
    few.write_csv(tmp_path / "few.csv")
    found = read_data(tmp_path / "few.csv", ids="customer_id", progress=False)
    assert found.usage["plan"].treatment == "drop"
    with pytest.raises(DataError, match=r"few.csv has no columns 'plan', which the model was trained on"):
        preparation(found)
    again = as_rows(found, like=preparation)
    assert again.ids == ["5000", "5001", "5002"]
    np.testing.assert_array_equal(preparation(again)[:, 2:].numpy(), prepared(preparation, few)[:, 2:])
    other = read_data(tmp_path / "few.csv", treat={"plan": "text"}, progress=False)
    with pytest.raises(DataError, match="column 'plan' was read as a text, but the model was trained on a category"):
        preparation(other)
    complete = frame.drop_nulls()
    numbers, _ = fit_preparation(rows_from_frame(complete, columns=["age", "business"]))
    assert as_rows(complete).kind == "table"
    again = as_rows(as_rows(complete), like=numbers)
    assert (again.kind, again.columns) == ("vectors", ("age", "business"))


def test_dates_that_are_all_the_same_are_left_out_with_a_warning():
    same = [date(2024, 2, 29)] * 6
    frame = pl.DataFrame({"day": same, "colour": ["red", "blue", "red"] * 2, "n": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    with pytest.warns(DataWarning, match=r"left out 'day': the cells of these columns cannot be told apart"):
        preparation, _ = fit_preparation(rows_from_frame(frame))
    assert preparation.order == ("colour", "n")
    with pytest.warns(DataWarning), pytest.raises(DataError, match="the cells of no column can be told apart"):
        fit_preparation(rows_from_frame(frame.select("day")))
    gaps, _ = fit_preparation(rows_from_frame(pl.DataFrame({"day": [*same[:5], None]})))
    assert gaps.input_shape == (1,)
