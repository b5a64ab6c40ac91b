"""Training with rows of which some have no label: it is training without them, and says so."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import sparse

from metaclust import DataError, MetaClusterer, read_data, rows_from_array

QUICK = {"pretrain_steps": 2, "steps": 1, "encoder": "network", "choose": "bound", "progress": False}
Y = np.repeat(np.arange(8), 6)
X = 9 * np.random.default_rng(0).normal(size=(8, 3))[Y] + np.random.default_rng(1).normal(size=(48, 3))
GONE = np.arange(48) % 4 == 1
NAMES = np.array([f"k{i}" for i in Y], dtype=object)
TEXTS = [f"{'abcdefgh'[i]}{'abcdefgh'[i]} word{i} number{row}" for row, i in enumerate(Y)]


def marked(values: Any, mark: Any) -> list[Any]:
    return [mark if gone else value for value, gone in zip(values, GONE, strict=True)]


Y_FORMS: dict[str, Callable[[], Any]] = {
    "None among names": lambda: marked(NAMES, None),
    "NaN among names": lambda: marked(NAMES, float("nan")),
    "blank names": lambda: marked(NAMES, ""),
    "array of objects": lambda: np.array(marked(NAMES, None), object),
    "array of strings": lambda: np.array(marked(NAMES, "")),
    "series": lambda: pl.Series(marked(NAMES, None)),
    "categorical": lambda: pl.Series(marked(NAMES, None), dtype=pl.Categorical),
}
NUMBER_FORMS: dict[str, Callable[[], Any]] = {
    "-1": lambda: np.array(marked(Y, -1)),
    "NaN": lambda: np.array(marked(Y.astype(float), np.nan)),
    "None": lambda: marked(Y.tolist(), None),
    "series of numbers": lambda: pl.Series(marked(Y.tolist(), None)),
    "masked": lambda: np.ma.masked_array(Y, GONE),
}
X_FORMS: dict[str, Any] = {
    "array": X,
    "sparse": sparse.csr_array(X),
    "frame": pl.DataFrame(X, ["a", "b", "c"]),
    "rows": rows_from_array(X),
}


def weights(model: MetaClusterer) -> dict[str, Any]:
    return model.model_.state_dict()


def same(one: MetaClusterer, other: MetaClusterer) -> bool:
    mine, others = weights(one), weights(other)
    return mine.keys() == others.keys() and all(bool((mine[name] == others[name]).all()) for name in mine)


@pytest.fixture(scope="module", params=["names", "numbers"])
def expected(request: pytest.FixtureRequest) -> tuple[dict[str, Callable[[], Any]], MetaClusterer]:
    y, forms = (NAMES, Y_FORMS) if request.param == "names" else (Y, NUMBER_FORMS)
    return forms, MetaClusterer(**QUICK).fit(X[~GONE], y[~GONE])


def test_training_is_that_of_the_labelled_rows(expected: tuple[dict[str, Callable[[], Any]], MetaClusterer]) -> None:
    forms, without = expected
    for form in forms.values():
        model = MetaClusterer(**QUICK).fit(X, form())
        assert same(model, without)
        assert model.categories_ == without.categories_
        remark = "12 of 48 rows have no label and were left out of the training"
        assert model.decisions_ == [remark, *without.decisions_]


@pytest.mark.parametrize("name", X_FORMS)
def test_whatever_holds_the_rows(name: str) -> None:
    x = X_FORMS[name]
    complete = rows_from_array(X[~GONE]) if name == "rows" else x.filter(~GONE) if name == "frame" else x[~GONE]
    model, without = (
        MetaClusterer(**QUICK).fit(x, marked(Y.tolist(), None)),
        MetaClusterer(**QUICK).fit(complete, Y[~GONE]),
    )
    assert same(model, without)
    assert model.n_features_in_ == without.n_features_in_ == 3


def test_texts_without_a_label_do_not_make_the_vocabulary() -> None:
    model = MetaClusterer(**QUICK).fit(TEXTS, marked(NAMES, None))
    left = [text for text, gone in zip(TEXTS, GONE, strict=True) if not gone]
    assert same(model, MetaClusterer(**QUICK).fit(left, NAMES[~GONE]))


def test_labels_of_pandas_train_as_others_do() -> None:
    pd = pytest.importorskip("pandas", reason="no pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=np.arange(48)[::-1])
    without = MetaClusterer(**QUICK).fit(frame[~GONE], Y[~GONE])
    for y in (
        pd.Series(marked(Y.tolist(), None), index=frame.index, dtype="Int64"),
        pd.Series(marked(Y.tolist(), None), index=frame.index),
    ):
        assert same(MetaClusterer(**QUICK).fit(frame, y), without)


def test_a_file_gives_its_unlabelled_rows_where_they_are_asked_for(tmp_path: Any) -> None:
    frame = pl.DataFrame(X, ["a", "b", "c"]).with_columns(kind=pl.Series(marked(NAMES, None)))
    frame.write_csv(tmp_path / "rows.csv")
    with pytest.raises(DataError, match=r"row 1 \(counting from 0\) has no label in column 'kind' \(12 such rows\)"):
        read_data(tmp_path / "rows.csv", label="kind", progress=False)
    rows = read_data(tmp_path / "rows.csv", label="kind", partial=True, progress=False)
    model = MetaClusterer(**QUICK).fit(rows)
    assert model.decisions_[0].startswith("12 of 48 rows have no label")
    np.savez(tmp_path / "rows.npz", X=X, y=np.array(marked(Y, -1)), label_names=np.array([f"k{i}" for i in range(8)]))
    rows = read_data(tmp_path / "rows.npz", partial=True, progress=False)
    assert rows.partial == marked(NAMES, "")
    assert same(MetaClusterer(**QUICK).fit(rows), model)


def test_the_remark_is_in_the_file_of_the_model(tmp_path: Any) -> None:
    model = MetaClusterer(**QUICK).fit(X, np.array(marked(Y, -1)))
    model.save(tmp_path / "model")
    assert MetaClusterer.load(tmp_path / "model").decisions_ == model.decisions_
    assert "12 of 48 rows have no label" in model.decisions_[0]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([None] * 48, "none of 48 rows has a label: label rows of several categories"),
        (
            np.where(Y == 3, 3, -1),
            "has 1 categories, 1 of them with 2 rows or more: learning to cluster needs at least 2",
        ),
        (marked(Y.tolist(), [1]), r"y holds \[1\] in row 1 \(counting from 0\): give one name or number"),
        (Y[:5], r"inconsistent numbers of samples: \[48, 5\]"),
    ],
)
def test_labels_that_do_not_do_are_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MetaClusterer(**QUICK).fit(X, y)
