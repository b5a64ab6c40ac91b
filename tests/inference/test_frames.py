"""Clusterings as data frames beside what came in, and arrays that nobody else can change."""

import json
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from metaclust import CheckpointError, MetaClusterer, Rows
from metaclust.data.input_table import Index, InputTable, table_of
from metaclust.inference.frames import result_frame
from metaclust.inference.result import Clustering, Start
from metaclust.mixture.components import Components

RESULT = ["cluster", "name", "new", "confidence", "unsure", "novelty", "outlier"]
LABELS = [0, 1, 0, 0]


def clustering_of(rows: Rows, labels: Any = LABELS, **changes: Any) -> Clustering:
    mixture = Components(np.ones(2), np.zeros((2, 3)), np.ones(2), np.zeros(2))
    settings = {
        "labels": np.array(labels, np.int64),
        "confidence": np.linspace(0.25, 1, len(labels)),
        "representations": np.zeros((len(labels), 3), np.float32),
        "components": mixture,
        "bound": -1.5,
        "starts": (Start(2, -1.5),),
        "ids": rows.ids,
        "rows": rows,
        "threshold": 0.5,
    }
    return Clustering(**{**settings, **changes})


def text_rows(table: InputTable | None, ids: list[str] | None = None, **settings: Any) -> Rows:
    return Rows("text", list("abcd"), ids or list("0123"), table=table, **settings)


@pytest.fixture(scope="module")
def model() -> MetaClusterer:
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 10)
    x = 9 * generator.normal(size=(8, 3))[y] + generator.normal(size=(80, 3))
    frame = pl.DataFrame(x, ["a", "b", "c"])
    settings = {"pretrain_steps": 3, "steps": 1, "encoder": "network", "choose": "bound", "progress": False}
    return MetaClusterer(**settings).fit(frame, y)


@pytest.fixture(scope="module")
def texts() -> MetaClusterer:
    words = ["cat purr milk", "dog bark bone", "car road fuel", "sun sky warm"]
    settings = {"pretrain_steps": 2, "steps": 1, "choose": "bound", "progress": False}
    return MetaClusterer(**settings).fit([f"{text} {i}" for text in words for i in range(5)], np.repeat(range(4), 5))


def test_a_polars_frame_comes_back_with_every_column(model: MetaClusterer) -> None:
    frame = pl.DataFrame(np.random.default_rng(1).normal(size=(30, 3)), ["a", "b", "c"])
    found = model.cluster(frame)
    result = found.to_frame()
    assert result.columns == ["id", *RESULT, "a", "b", "c"]
    assert result.select("a", "b", "c").equals(frame)
    assert result["cluster"].to_list() == found.labels.tolist()
    assert found.to_frame(keep=[]).columns == ["id", *RESULT]
    assert found.to_frame(keep=["c", "a", "c"]).columns == ["id", *RESULT, "c", "a"]
    further = found.assign(frame[:7].reverse())
    assert further.to_frame().select("a", "b", "c").equals(frame[:7].reverse())


def test_a_text_frame_comes_back_with_columns_that_were_not_used(texts: MetaClusterer) -> None:
    said = ["cat milk", "dog bone", "car fuel"]
    frame = pl.DataFrame({"id": [30, 10, 20], "text": said, "price": [1.5, None, 2.0], "cluster": ["x", "y", "z"]})
    found = texts.cluster(frame)
    result = found.to_frame()
    # The column of ids is that of the result; the clash has a suffix.
    assert result.columns == ["id", *RESULT, "text", "price", "cluster_input"]
    assert result["id"].dtype == pl.Int64
    joined = frame.join(result.select("id", number="cluster"), on="id", validate="1:1", maintain_order="left")
    assert joined["number"].to_list() == found.labels.tolist()
    assert result["cluster_input"].to_list() == ["x", "y", "z"]


def test_a_pandas_frame_comes_back_with_its_index(model: MetaClusterer, texts: MetaClusterer) -> None:
    pd = pytest.importorskip("pandas", reason="no pandas")
    values = np.random.default_rng(1).normal(size=(6, 3))
    for index in (
        pd.RangeIndex(6),
        pd.Index([9, 7, 5, 3, 1, 9], name="key"),
        pd.Index(list("uvwxyz")),
        pd.date_range("2026-01-01", periods=6),
        pd.MultiIndex.from_product([["a", "b"], [1, 2, 3]]),
    ):
        frame = pd.DataFrame(values, columns=["a", "b", "c"], index=index)
        found = model.cluster(frame)
        result = found.to_frame()
        assert list(result.columns) == [*RESULT, "a", "b", "c"]
        pd.testing.assert_index_equal(result.index, index)
        pd.testing.assert_frame_equal(result[["a", "b", "c"]], frame)
        assert found.ids == [str(value) for value in index]
        assert result["cluster"].tolist() == found.labels.tolist()
    frame = pd.DataFrame({"text": ["cat milk", "dog bone"], "note": ["x", None], "day": pd.NaT}, index=["p", "q"])
    result = texts.cluster(frame).to_frame()
    pd.testing.assert_frame_equal(result[["text", "note", "day"]], frame)
    pd.testing.assert_frame_equal(frame.join(result["cluster"]), pd.concat([frame, result["cluster"]], axis=1))
    series = frame["text"]
    pd.testing.assert_series_equal(texts.cluster(series).to_frame()["text"], series)


def test_the_index_of_pandas_is_saved_but_not_its_columns(model: MetaClusterer, tmp_path: Any) -> None:
    pd = pytest.importorskip("pandas", reason="no pandas")
    values = np.random.default_rng(1).normal(size=(3, 3))
    for index in (pd.Index([9, -7, 5], name="key"), pd.Index(list("uvw"), name="name"), pd.RangeIndex(3)):
        frame = pd.DataFrame(values, columns=["a", "b", "c"], index=index)
        found = model.cluster(frame)
        found.save(tmp_path / "found")
        loaded = Clustering.load(tmp_path / "found").to_frame()
        pd.testing.assert_frame_equal(loaded, found.to_frame(keep=[]), check_index_type=False)
        pd.testing.assert_frame_equal(frame.join(loaded)[RESULT], found.to_frame()[RESULT])
    # An index of times is not: ids are strings, in a column.
    found = model.cluster(frame.set_index(pd.date_range("2026-01-01", periods=3)))
    found.save(tmp_path / "found")
    loaded = Clustering.load(tmp_path / "found").to_frame()
    assert isinstance(loaded, pl.DataFrame)
    assert loaded["id"].to_list() == found.ids


def test_what_changes_a_pandas_frame_later_does_not_change_its_shape(model: MetaClusterer) -> None:
    pd = pytest.importorskip("pandas", reason="no pandas")
    frame = pd.DataFrame(np.random.default_rng(1).normal(size=(6, 3)), columns=["a", "b", "c"])
    before = frame.copy()
    found = model.cluster(frame)
    frame["d"] = 1
    frame.loc[99] = 7
    del frame["a"]
    pd.testing.assert_frame_equal(found.to_frame()[["a", "b", "c"]], before)


def test_each_library_gives_the_same_whatever_came_in() -> None:
    pd = pytest.importorskip("pandas", reason="no pandas")
    cells = {"n": [1, 2, 3, 4], "x": [0.5, None, 1.0, 2.0], "s": ["a", None, "", "d"], "b": [True, False, True, True]}
    came = {"polars": pl.DataFrame(cells), "pandas": pd.DataFrame(cells)}
    frames = {}
    for name, frame in came.items():
        found = clustering_of(text_rows(table_of(frame)))
        one, other = found.to_frame("pandas"), found.to_frame("polars")
        assert isinstance(one, pd.DataFrame)
        assert isinstance(other, pl.DataFrame)
        assert other.columns == ["id", *RESULT, *cells]
        for column in ("cluster", "n", "s", "b"):
            here = [None if value is None or value != value else value for value in one[column].tolist()]
            assert here == other[column].to_list()
        frames[name] = other
    # The index of pandas is of whole numbers.
    assert frames["polars"].drop("x", "id").equals(frames["pandas"].drop("x", "id"))
    assert frames["pandas"]["id"].dtype == pl.Int64
    assert found.to_frame().columns.tolist() == [*RESULT, *cells]


def test_odd_names_of_pandas_are_kept() -> None:
    pd = pytest.importorskip("pandas", reason="no pandas")
    frame = pd.DataFrame([[1, 2, 3, 4]] * 4, columns=["a", "a", 1, "cluster"])
    found = clustering_of(text_rows(table_of(frame)))
    assert list(found.to_frame().columns) == [*RESULT, "a", "a", 1, "cluster_input"]
    assert found.to_frame("polars").columns == ["id", *RESULT, "a", "a_2", "1", "cluster_input"]
    assert list(found.to_frame(keep=["a", 1]).columns) == [*RESULT, "a", "a", 1]


@given(st.lists(st.sampled_from(["cluster", "cluster_input", "cluster_input_2", "id", "unsure", "x"]), unique=True))
def test_no_name_is_there_twice_and_nothing_is_lost(names: list[str]) -> None:
    frame = pl.DataFrame({name: [f"{name} {i}" for i in range(4)] for name in names})
    found = clustering_of(text_rows(InputTable(frame)))
    result = found.to_frame()
    own = 1 + len(RESULT)
    assert result.columns[:own] == ["id", *RESULT]
    assert [result.to_series(own + i).to_list() for i in range(len(names))] == [frame[name].to_list() for name in names]
    for name, shown in zip(names, result.columns[own:], strict=True):
        assert shown == name or (name in ("id", *RESULT) and shown.startswith(f"{name}_input"))


def test_rows_that_were_taken_bring_their_own_lines_of_the_table() -> None:
    frame = pl.DataFrame({"n": range(10)})
    rows = Rows("text", list("abcdefghij"), [str(i) for i in range(10)], table=InputTable(frame))
    some = rows.take([9, 3, 3, 0, 5]).take(np.array([True, False, True, True, True]))
    assert clustering_of(some).to_frame()["n"].to_list() == [9, 3, 0, 5]
    assert rows.table is not None
    assert some.table is not None
    assert some.table.frame is frame


def test_columns_of_the_result_are_in_frames_and_not_repeated() -> None:
    frame = pl.DataFrame({"category": list("ABCD"), "id": list("wxyz")})
    table = InputTable(frame, ids="id", label="category")
    found = clustering_of(text_rows(table, list("wxyz")), categories=list("ABCD"))
    assert list(found.columns()) == [*RESULT, "category"]
    assert found.to_frame().columns == ["id", *RESULT, "category"]
    assert found.to_frame()["category"].to_list() == list("ABCD")
    # Without known categories the column is the input's.
    assert replace(found, categories=None).to_frame().columns == ["id", *RESULT, "category"]
    for name, values in found.columns().items():
        assert found.to_frame()[name].to_list() == values.tolist()


@pytest.mark.usefixtures("_without_type_checks")
def test_what_cannot_be_kept_is_named() -> None:
    found = clustering_of(text_rows(InputTable(pl.DataFrame({"a": [1, 2, 3, 4]}))))
    with pytest.raises(ValueError, match=r"^keep has 'z': the columns of the input are 'a'$"):
        found.to_frame(keep=["a", "z"])
    with pytest.raises(TypeError, match=r"^keep='a': give a list of names$"):
        found.to_frame(keep="a")
    with pytest.raises(ValueError, match="these rows did not come with a table"):
        replace(found, rows=None).to_frame(keep=["a"])
    with pytest.raises(ValueError, match=r"^library='arrow': choose 'auto', 'pandas' or 'polars'$"):
        result_frame(found, cast("Any", "arrow"))


def test_without_pandas_a_clustering_of_its_frames_is_one_of_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(clustering_of(text_rows(None, list("3120"))), rows=None, index=Index(True, True, "key"))
    monkeypatch.setattr("metaclust.inference.frames.find_spec", lambda name: None)
    assert found.to_frame()["id"].to_list() == [3, 1, 2, 0]
    with pytest.raises(ImportError, match="library='pandas': the package pandas is not installed: pip install pandas"):
        found.to_frame("pandas")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"whole": True, "pandas": False, "name": None}, "ids has 'one': it must be a whole number of 64 bits"),
        ({"whole": 1, "pandas": False, "name": None}, "index.whole=1: it must be true or false"),
        ({"whole": True, "pandas": False}, "index.name is missing"),
        ({"whole": False, "pandas": False, "name": 3}, "index.name=3: it must be a string, or null"),
        ([1], r"index=\[1\]: it must be an object with named fields"),
    ],
)
def test_a_file_whose_index_is_damaged_is_refused(index: Any, message: str, tmp_path: Any) -> None:
    path = tmp_path / "found"
    clustering_of(text_rows(None, ["one", "2", "3", "4"])).save(path)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["metaclust"])
    save_file(load_file(path), path, {"metaclust": json.dumps({**header, "index": index})})
    with pytest.raises(CheckpointError, match=message):
        Clustering.load(path)


def arrays_in(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    if is_dataclass(value) and not isinstance(value, Rows | type):
        return [array for field in fields(value) for array in arrays_in(getattr(value, field.name))]
    return []


def test_nothing_that_was_passed_can_change_a_clustering(tmp_path: Any) -> None:
    mixture = Components(np.ones(2), np.zeros((2, 3)), np.ones(2), np.zeros(2))
    given: dict[str, Any] = {
        "labels": np.array(LABELS),
        "confidence": np.full(4, 0.5),
        "representations": np.zeros((4, 3), np.float32),
        "components": mixture,
        "ids": list("wxyz"),
        "categories": list("abca"),
    }
    found = clustering_of(text_rows(None), **given)
    before = found.to_frame()
    for array in [*arrays_in(mixture), given["labels"], given["confidence"], given["representations"]]:
        array[...] = 1
    given["ids"].reverse()
    given["categories"].reverse()
    assert found.to_frame().equals(before)
    assert not found.means.any()
    assert not found.representations.any()
    found.save(tmp_path / "found")
    loaded = Clustering.load(tmp_path / "found")
    for one in (found, loaded, replace(found, threshold=1.0)):
        arrays = arrays_in(one)
        assert len(arrays) >= 7
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 1
            assert array.flags.owndata


def test_a_clustering_of_another_threshold_has_the_same_arrays(model: MetaClusterer) -> None:
    frame = pl.DataFrame(np.random.default_rng(1).normal(size=(20, 3)), ["a", "b", "c"])
    found = model.cluster(frame)
    again = replace(found, threshold=0.9)
    assert all(one is other for one, other in zip(arrays_in(found), arrays_in(again), strict=True))
    assert len(arrays_in(found)) >= 7
    assert all(not array.flags.writeable for array in arrays_in(found))
    z = model.transform(frame)
    assert z.flags.writeable


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_columns_of_the_input_are_there_after_an_update(model: MetaClusterer, library: str) -> None:
    values = np.random.default_rng(1).normal(size=(40, 3))
    frame: Any = pl.DataFrame(values, ["a", "b", "c"])
    if library == "pandas":
        frame = pytest.importorskip("pandas", reason="no pandas").DataFrame(values, columns=["a", "b", "c"])
    further = frame[30:] if library == "polars" else frame[30:].reset_index(drop=True)
    more = model.cluster(frame[:30]).update(further)
    result = more.to_frame()
    assert list(result.columns)[-3:] == ["a", "b", "c"]
    np.testing.assert_array_equal(result[["a", "b", "c"]].to_numpy(), values)
    assert more.ids == [str(row) for row in range(40)]
    assert list(more.to_frame(keep=["b"]).columns)[-1] == "b"
    if library == "pandas":
        assert list(result.index) == list(range(40))
    # Tables that are not alike have no columns in common, which is said.
    other = pytest.importorskip("pandas", reason="no pandas").DataFrame if library == "polars" else pl.DataFrame
    mixed = more.update(other(dict(zip("abc", values[:4].T, strict=True))))
    assert "a" not in mixed.to_frame().columns
    with pytest.raises(ValueError, match=r"^keep=\['a'\]: after update there are columns only where all rows came as"):
        mixed.to_frame(keep=["a"])
