"""Preparations: against numpy, through JSON, and in a new process that has only the model file and new rows."""

import csv
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from PIL import Image
from scipy import sparse

from metaclust import (
    ClusteringModel,
    DataError,
    DataWarning,
    ModelConfig,
    Preparation,
    Rows,
    TaskSampler,
    TrainingConfig,
    describe_preparation,
    fit_preparation,
    load_model,
    preparation_from,
    read_data,
    rows_from_array,
    save_model,
    train,
)
from metaclust.data import SparseRows
from metaclust.data.preparation import embeddings
from metaclust.data.sparse import dense, of_unit_length


def prepared(preparation: Preparation, rows: Rows) -> NDArray[Any]:
    return dense(preparation(rows)).numpy()


@given(
    hnp.arrays(np.float64, (7, 3), elements=st.floats(-1e4, 1e4, width=32)),
    st.sampled_from([1.0, 1e-6, 1e6]),
    st.sampled_from([0.0, 1.0, -1e3]),
)
def test_standard_scaling_is_numpys_in_float64(values: NDArray[np.float64], scale: float, offset: float) -> None:
    values = (values * scale + offset).astype(np.float32).astype(np.float64)
    rows = rows_from_array(values)
    preparation, kept = fit_preparation(rows)
    assert kept is rows
    spread = values.std(0)
    # A column is constant if its spread is no more than what rounding makes of equal numbers.
    constant = spread <= 1e-7 * np.abs(values).max(0)
    expected = (values - values.mean(0)) / np.where(constant, 1, spread)
    result = prepared(preparation, rows)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result[:, ~constant], expected[:, ~constant], rtol=1e-4, atol=1e-5)
    assert np.isfinite(result).all()


def test_a_column_far_from_zero_keeps_its_digits() -> None:
    column = 1e6 + np.arange(5000) / 16
    preparation, _ = fit_preparation(rows_from_array(column[:, None]))
    expected = (column - column.mean()) / column.std()
    np.testing.assert_allclose(prepared(preparation, rows_from_array(column[:, None]))[:, 0], expected, atol=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e30, 1e-40])
def test_a_constant_column_becomes_zero(value: float) -> None:
    rows = rows_from_array(np.c_[np.full(100, value), np.arange(100)])
    result = prepared(fit_preparation(rows)[0], rows)
    assert not result[:, 0].any()
    assert result[:, 1].std() == pytest.approx(1)


def test_numbers_as_large_as_float32_holds_are_scaled_without_a_warning() -> None:
    values = np.array([[3e38, 1], [-3e38, 2], [3e38, 3], [3e38, 4], [-3e38, 5]])
    result = prepared(fit_preparation(rows_from_array(values))[0], rows_from_array(values))
    np.testing.assert_allclose(result, (values - values.mean(0)) / values.std(0), rtol=1e-5)


def test_rows_of_unit_length_are_not_scaled_unless_asked_for() -> None:
    values = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    unit = Rows("vectors", values / np.linalg.norm(values, axis=1, keepdims=True), [str(i) for i in range(9)])
    assert fit_preparation(unit)[0].scale is None  # type: ignore[attr-defined]
    assert fit_preparation(unit, scaling="standard")[0].scale is not None  # type: ignore[attr-defined]
    other = Rows("vectors", values, unit.ids)
    assert fit_preparation(other)[0].scale is not None  # type: ignore[attr-defined]


def test_without_scaling_numbers_stay_as_they_are() -> None:
    rows = rows_from_array(np.random.default_rng(0).standard_normal((50, 4)))
    preparation, _ = fit_preparation(rows, scaling="none")
    assert np.array_equal(prepared(preparation, rows), np.asarray(rows.values))


@pytest.mark.parametrize("scaling", ["standard", "none"])
def test_missing_numbers_become_the_training_mean(scaling: Any) -> None:
    values = np.random.default_rng(0).normal(5, 2, (200, 3)).astype(np.float32)
    values[::7, 0] = values[3::11, 2] = math.nan
    rows = rows_from_array(values, missing="mean")
    preparation, _ = fit_preparation(rows, scaling=scaling)
    exact = values.astype(np.float64)
    mean, spread = np.nanmean(exact, 0), np.nanstd(exact, 0)
    new = np.array([[math.nan, 1, 2], [3, math.nan, math.nan], [1, 2, 3]])
    for data in (exact, new):
        filled = np.where(np.isnan(data), mean, data)
        expected = (filled - mean) / spread if scaling == "standard" else filled
        result = prepared(preparation, rows_from_array(data, missing="mean"))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_a_gap_where_training_had_none_is_refused() -> None:
    preparation, _ = fit_preparation(rows_from_array(np.eye(3)))
    new = rows_from_array([[1, 2, 3], [1, math.nan, 3]], missing="mean", source="new.csv")
    with pytest.raises(
        DataError, match=r"new.csv: row 1 \(counting from 0\) has an empty cell or NaN, but there was none"
    ):
        preparation(new)


def test_a_column_without_a_number_is_refused() -> None:
    rows = rows_from_array([[1, math.nan], [2, math.nan]], columns=["a", "b"], missing="mean", source="rows.csv")
    with pytest.raises(DataError, match=r"rows.csv: column 'b' has no number at all: leave it out"):
        fit_preparation(rows)


def test_sparse_numbers_are_prepared_as_they_are() -> None:
    array = sparse.csr_array(np.eye(4) * 3)
    rows = rows_from_array(array)
    preparation, _ = fit_preparation(rows)
    result = preparation(rows)
    assert isinstance(result, SparseRows)
    assert result.array.toarray().tolist() == array.toarray().tolist()
    scaled, _ = fit_preparation(rows_from_array(np.random.default_rng(0).random((5, 4))))
    with pytest.raises(DataError, match="X is sparse, but the model was trained on dense rows"):
        scaled(rows)


@pytest.mark.parametrize("scaling", ["standard", "none"])
@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 4)])
def test_an_array_that_may_not_be_written_is_prepared_without_a_warning(shape: tuple[int, ...], scaling: Any) -> None:
    array = np.random.default_rng(0).integers(0, 255, shape).astype(np.float32 if len(shape) == 2 else np.uint8)
    array.setflags(write=False)
    rows = rows_from_array(array)
    preparation, _ = fit_preparation(rows, scaling=scaling)
    # Otherwise torch warns of such an array once in a process.
    torch.set_warn_always(True)
    try:
        result = prepared(preparation, rows)
    finally:
        torch.set_warn_always(False)
    assert np.array_equal(result, prepared(preparation, rows_from_array(array.copy())))


VECTORS = rows_from_array(np.random.default_rng(0).random((6, 3)), columns=["a", "b", "c"], source="numbers.csv")
IMAGES = rows_from_array(np.random.default_rng(0).integers(0, 255, (4, 5, 6), np.uint8), source="images.npz")
TEXTS = Rows("text", ["fish duck", "duck fish swan", "swan"], ["0", "1", "2"], None, ("body",), "texts.csv")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Rows("vectors", np.ones((2, 4), np.float32), ["0", "1"], source="new"), "new has 4 columns, .* trained on 3"),
        (
            Rows("vectors", np.ones((2, 3), np.float32), ["0", "1"], None, ("a", "c", "b"), "new"),
            "new has the columns 'a', 'c', 'b', but the model was trained on 'a', 'b', 'c'",
        ),
        (IMAGES, r"images.npz holds images, but the model was trained on vectors"),
        (TEXTS, r"texts.csv holds text, but the model was trained on vectors"),
    ],
    ids=["width", "names", "images", "texts"],
)
def test_rows_unlike_the_training_vectors_are_refused(rows: Rows, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fit_preparation(VECTORS)[0](rows)


def test_rows_without_names_of_columns_fit_by_their_number() -> None:
    assert prepared(fit_preparation(VECTORS)[0], rows_from_array(np.ones((2, 3)))).shape == (2, 3)


def test_rows_unlike_the_training_images_or_texts_are_refused() -> None:
    images, _ = fit_preparation(IMAGES)
    assert images.input_shape == (1, 5, 6)
    other = rows_from_array(np.ones((2, 6, 5), np.uint8), source="new.npz")
    with pytest.raises(
        DataError, match=r"new.npz has images of .* \(1, 6, 5\), but the model was trained on \(1, 5, 6\)"
    ):
        images(other)
    with pytest.raises(DataError, match=r"numbers.csv holds vectors, but the model was trained on images"):
        images(VECTORS)
    with pytest.raises(DataError, match=r"images.npz holds images, but the model was trained on text"):
        fit_preparation(TEXTS)[0](IMAGES)


@pytest.mark.usefixtures("_without_type_checks")
def test_options_that_there_are_not_are_named() -> None:
    wrong: Any = "minmax"
    with pytest.raises(ValueError, match="scaling='minmax': choose 'auto', 'standard' or 'none'"):
        fit_preparation(VECTORS, scaling=wrong)
    with pytest.raises(ValueError, match="text='embeddings' needs embedding_model"):
        fit_preparation(TEXTS, text="embeddings")


class Stub:
    """In place of a sentence-transformers model: the direction of a text's length and number of letters e."""

    fingerprint = "abc" * 20
    width = 2

    def __init__(self, model: str, **_: object) -> None:
        self.model = model

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        counts = np.array([[len(text), text.count("e")] for text in texts], np.float32)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def with_gaps() -> Rows:
    return rows_from_array([[1, math.nan], [2, 3], [4, 7]], columns=["a", "b"], missing="mean")


MADE: dict[str, Callable[[], tuple[Preparation, Rows]]] = {
    "standard": lambda: (fit_preparation(VECTORS)[0], VECTORS),
    "no scaling": lambda: (fit_preparation(VECTORS, scaling="none")[0], VECTORS),
    "filled": lambda: (fit_preparation(with_gaps())[0], with_gaps()),
    "filled, no scaling": lambda: (fit_preparation(with_gaps(), scaling="none")[0], with_gaps()),
    "images": lambda: (fit_preparation(IMAGES, fit="pad")[0], IMAGES),
    "tfidf": lambda: (fit_preparation(TEXTS)[0], TEXTS),
    "counts": lambda: (fit_preparation(TEXTS, text="counts")[0], TEXTS),
    "embeddings": lambda: (fit_preparation(TEXTS, text="embeddings", embedding_model="stub")[0], TEXTS),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_every_preparation_goes_through_json(
    make: Callable[[], tuple[Preparation, Rows]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "SentenceEmbedder", Stub)
    preparation, rows = make()
    again = preparation_from(json.loads(json.dumps(describe_preparation(preparation), allow_nan=False)))
    assert type(again) is type(preparation)
    assert again == preparation
    assert again.input_shape == preparation.input_shape == prepared(preparation, rows).shape[1:]
    assert np.array_equal(prepared(again, rows), prepared(preparation, rows))


def test_another_embedding_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "SentenceEmbedder", Stub)
    preparation, _ = fit_preparation(TEXTS, text="embeddings", embedding_model="stub")
    monkeypatch.setattr(Stub, "fingerprint", "def" * 20)
    with pytest.raises(
        DataError, match=r"the embedding model 'stub' is not the one .* \(defdefdefdef, not abcabcabcabc\)"
    ):
        preparation(TEXTS)


def test_texts_and_arrays_of_their_embeddings_give_equal_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "SentenceEmbedder", Stub)
    preparation, _ = fit_preparation(TEXTS, text="embeddings", embedding_model="stub")
    vectors = rows_from_array(Stub("stub").embed(list(TEXTS.values)))
    as_array = fit_preparation(vectors)[0](vectors)
    assert torch.equal(as_array, preparation(TEXTS))  # type: ignore[arg-type]
    assert of_unit_length(preparation(TEXTS))
    assert describe_preparation(preparation)["scaled"] is False


def test_embeddings_of_files_of_0_1_0_are_still_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "SentenceEmbedder", Stub)
    old = {"preparation": "embeddings", "model": "stub", "fingerprint": Stub.fingerprint, "width": 2, "columns": []}
    expected = Stub("stub").embed(list(TEXTS.values)) * np.float32(math.sqrt(2))
    preparation = preparation_from(old)
    assert np.array_equal(prepared(preparation, TEXTS), expected)
    again = preparation_from(json.loads(json.dumps(describe_preparation(preparation))))
    assert np.array_equal(prepared(again, TEXTS), expected)


FOREIGN: dict[str, Any] = {
    "nothing": {},
    "no name": {"width": 3},
    "another name": {"preparation": "spectrogram", "width": 3},
    "a list as name": {"preparation": ["vectors"], "width": 3},
    "cut vectors": {"preparation": "vectors"},
    "cut images": {"preparation": "images", "channels": 1},
    "cut words": {"preparation": "words", "idf": [1.0]},
    "cut embeddings": {"preparation": "embeddings", "model": "stub"},
    "scaled by what": {"preparation": "embeddings", "model": "stub", "fingerprint": "", "width": 2, "scaled": 3.0},
    "newer": {"preparation": "vectors", "width": 2, "whitened": True},
    "no words": {"preparation": "words", "vocabulary": []},
    "other idf": {"preparation": "words", "vocabulary": ["fish", "duck"], "idf": [1.0]},
    "a word twice": {"preparation": "words", "vocabulary": ["fish", "fish"]},
    "a string of words": {"preparation": "words", "vocabulary": "fish"},
    "a string as width": {"preparation": "vectors", "width": "3"},
    "no width": {"preparation": "vectors", "width": 0},
    "other mean": {"preparation": "vectors", "width": 3, "mean": [1.0], "scale": [1.0, 1.0, 1.0]},
    "other scale": {"preparation": "vectors", "width": 3, "mean": [1.0, 1.0, 1.0], "scale": [1.0]},
    "scale without mean": {"preparation": "vectors", "width": 1, "scale": [1.0]},
    "fill without mean": {"preparation": "vectors", "width": 1, "fill": True},
    "other columns": {"preparation": "vectors", "width": 3, "columns": ["a", "b"]},
    "seven channels": {"preparation": "images", "channels": 7, "height": 5, "width": 5},
    "no height": {"preparation": "images", "channels": 1, "height": 0, "width": 5},
    "another fit": {"preparation": "images", "channels": 1, "height": 5, "width": 5, "fit": "melt"},
}


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize("description", FOREIGN.values(), ids=FOREIGN)
def test_a_description_that_is_foreign_cut_or_newer_is_refused(description: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        preparation_from(description)


def test_a_refused_description_says_what_is_wrong() -> None:
    with pytest.raises(DataError, match=r"does not say how its rows were prepared \(preparation='spectrogram'\)"):
        preparation_from(FOREIGN["another name"])
    with pytest.raises(
        DataError, match=r"unknown settings \['whitened'\] of preparation 'vectors': .* newer metaclust"
    ):
        preparation_from(FOREIGN["newer"])
    with pytest.raises(DataError, match=r"the description of preparation 'vectors' is incomplete: .*width"):
        preparation_from(FOREIGN["cut vectors"])


SCRIPT = """
import json, sys, torch
from metaclust import load_model, preparation_from, read_data
torch.set_num_threads(1)
model, description = load_model(sys.argv[1], device="cpu")
preparation = preparation_from(description.input)
rows = read_data(sys.argv[2], like=preparation, progress=False)
posterior = model.infer(model.transform(preparation(rows)))
print(json.dumps([rows.ids, posterior.assignments.argmax(-1).tolist()]))
"""


def write_csv(path: Path, header: list[str], lines: list[list[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *lines])
    return path


def text_files(folder: Path) -> tuple[Path, Path]:
    """Five topics of six words; new texts, in another order of columns, under another name, without labels."""
    generator = np.random.default_rng(0)

    def text(topic: int) -> str:
        words = [f"topic{topic}word{word}" for word in generator.integers(0, 6, 8)]
        return "The, " + " ".join([*words, *(f"noise{word}" for word in generator.integers(0, 9, 3))])

    lines: list[list[object]] = [[text(i % 5), f"topic {i % 5}"] for i in range(60)]
    new: list[list[object]] = [[i, text(i % 3), f"n{i}"] for i in range(24)]
    return write_csv(folder / "train.csv", ["text", "label"], lines), write_csv(
        folder / "new.csv", ["stars", "review", "id"], new
    )


def number_files(folder: Path) -> tuple[Path, Path]:
    """Columns of different sizes, with gaps; new rows have them in another order, beside others."""
    generator = np.random.default_rng(0)
    centres = generator.normal(0, 4, (5, 3)) * [1, 1000, 0.001] + [5, -2000, 0.1]
    lines: list[list[object]] = []
    for i in range(60):
        row = (centres[i % 5] + generator.normal(0, 0.3, 3) * [1, 1000, 0.001]).tolist()
        lines.append(["" if i == 17 else row[0], row[1], f"group {i % 5}", row[2]])
    new: list[list[object]] = []
    for i in range(24):
        row = (centres[i % 3] + generator.normal(0, 0.3, 3) * [1, 1000, 0.001]).tolist()
        new.append([row[2], "much" if i % 2 else "little", row[1], f"n{i}", 100 * i, "NA" if i == 4 else row[0]])
    return write_csv(folder / "train.csv", ["a", "b", "label", "c"], lines), write_csv(
        folder / "new.csv", ["c", "amount", "b", "id", "more", "a"], new
    )


def image_files(folder: Path) -> tuple[Path, Path]:
    """Colour squares of five sizes; new images are larger, and of other shapes."""
    generator = np.random.default_rng(0)

    def image(category: int, path: Path, height: int, width: int) -> None:
        pixels = generator.integers(0, 60, (height, width, 3), np.uint8)
        pixels[: height * (category + 1) // 6, : width * (category + 1) // 6, category % 3] += 150
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)

    for i in range(40):
        image(i % 5, folder / "train" / f"square {i % 5}" / f"{i}.png", 12, 10)
    for i in range(18):
        image(i % 3, folder / "new" / f"{i:02d}.png", 12 + 2 * i, 25)
    return folder / "train", folder / "new"


CASES: dict[str, tuple[Callable[[Path], tuple[Path, Path]], dict[str, Any]]] = {
    "text": (text_files, {}),
    "numbers": (number_files, {"missing": "mean"}),
    "images": (image_files, {"size": (12, 10)}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_new_process_clusters_new_rows_with_nothing_but_the_model_file(case: str, tmp_path: Path) -> None:
    files, options = CASES[case]
    training, new = files(tmp_path)
    preparation, rows = fit_preparation(read_data(training, progress=False, **options))
    y, names = rows.numbered()
    x = preparation(rows)
    torch.manual_seed(0)
    settings: dict[str, Any] = {"representation": 3, "max_clusters": 5, "steps": 3, "hidden": 16, "filters": 4}
    model = ClusteringModel(ModelConfig(preparation.input_shape, **settings))
    sampler = TaskSampler(x, y, np.arange(len(names)), n_categories=(2, 4), tasks=2)
    config = TrainingConfig(pretrain_steps=80, steps=2, learning_rate=0.01)
    train(model, sampler, config=config, progress=False)
    save_model(model, tmp_path / "model.safetensors", names, describe_preparation(preparation))
    new_rows = read_data(new, like=preparation, progress=False)
    posterior = model.infer(model.transform(preparation(new_rows)))
    labels = posterior.assignments.argmax(-1).tolist()
    assert len(set(labels)) > 1
    finished = subprocess.run(  # noqa: S603 - our own interpreter and script
        [sys.executable, "-c", SCRIPT, str(tmp_path / "model.safetensors"), str(new)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == [new_rows.ids, labels]
    assert load_model(tmp_path / "model.safetensors", device="cpu")[1].categories == names


def test_new_numbers_are_read_by_their_names_and_filled_with_the_training_mean(tmp_path: Path) -> None:
    training, new = number_files(tmp_path)
    preparation, rows = fit_preparation(read_data(training, missing="mean", progress=False))
    with training.open(newline="") as file:
        table = [[float(line[name] or "nan") for name in "abc"] for line in csv.DictReader(file)]
    with new.open(newline="") as file:
        more = [[float(line[name].replace("NA", "nan")) for name in "abc"] for line in csv.DictReader(file)]
    mean, spread = np.nanmean(table, 0), np.nanstd(table, 0)
    for data, read in ((table, rows), (more, read_data(new, like=preparation, progress=False))):
        expected = (np.where(np.isnan(data), mean, data) - mean) / spread
        assert np.isnan(data).sum() == 1
        np.testing.assert_allclose(prepared(preparation, read), expected, rtol=1e-4, atol=1e-5)


def test_new_rows_with_gaps_can_be_left_out_instead(tmp_path: Path) -> None:
    training, new = number_files(tmp_path)
    preparation, _ = fit_preparation(read_data(training, missing="mean", progress=False))
    with pytest.warns(DataWarning, match=r"new.csv: left out 1 rows with an empty cell or NaN, first row 4"):
        rows = read_data(new, like=preparation, missing="drop", progress=False)
    assert rows.ids == [f"n{i}" for i in range(24) if i != 4]
