"""A stopped fit resumes; errors in rows, settings and files are reported."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import save_file

from metaclust import CheckpointError, DataError, InfiniteGaussianMixture, Prior
from metaclust.data import EncodedStream, encode_to_file, row_stream
from metaclust.mixture import FAMILIES


class Counted:
    """Rows that count how often they were gone through, and can be interrupted in the middle of a pass."""

    def __init__(self, x: np.ndarray, stop: int | None = None) -> None:
        self.x, self.stop, self.passes = x, stop, 0

    def __call__(self) -> Iterator[np.ndarray]:
        self.passes += 1
        half = len(self.x) // 2
        yield self.x[:half]
        if self.passes == self.stop:
            raise KeyboardInterrupt
        yield self.x[half:]


def overlapping(rows: int = 600) -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.normal(size=(rows, 3)) + 2 * generator.integers(0, 4, (rows, 1))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("stop", [1, 2, 3, 6, 12, 19])
@pytest.mark.parametrize("batch_rows", [None, 300])
def test_an_interrupted_fit_loses_at_most_one_pass(
    tmp_path: Path, stop: int, batch_rows: int | None, covariance: str
) -> None:
    """One to look, then for each of two starts one to begin and eight to fit: 19."""
    x = overlapping()
    common: dict[str, Any] = {"covariance": covariance, "max_iter": 8, "tol": 0, "n_init": 2, "batch_rows": batch_rows}
    straight = Counted(x)
    expected = InfiniteGaussianMixture(6, **common).fit(straight)
    assert straight.passes == 19
    state = tmp_path / "fit.safetensors"
    with pytest.raises(KeyboardInterrupt):
        InfiniteGaussianMixture(6, **common).fit(Counted(x, stop), state=state)
    again = Counted(x)
    mixture = InfiniteGaussianMixture(6, **common).fit(again, state=state, resume=True)
    assert stop + again.passes <= straight.passes + 1
    assert mixture.lower_bounds_ == expected.lower_bounds_
    assert np.array_equal(mixture.means_, expected.means_)
    assert np.array_equal(mixture.precisions_, expected.precisions_)
    assert [path.name for path in tmp_path.iterdir()] == ["fit.safetensors"]
    done = Counted(x)
    finished = InfiniteGaussianMixture(6, **common).fit(done, state=state, resume=True)
    assert done.passes == 0
    assert finished.lower_bound_ == expected.lower_bound_


def test_a_fit_does_not_go_on_with_other_rows(tmp_path: Path) -> None:
    x, state = overlapping(), tmp_path / "fit.safetensors"
    with pytest.raises(KeyboardInterrupt):
        InfiniteGaussianMixture(4).fit(Counted(x, 4), state=state)
    with pytest.raises(ValueError, match="X has 599 rows in this pass and had 600 before: it must not change"):
        InfiniteGaussianMixture(4).fit(lambda: [x[1:]], state=state, resume=True)
    with pytest.raises(DataError, match="X has rows of 2 columns, from row 0 on, where 3 are expected"):
        InfiniteGaussianMixture(4).fit(lambda: [x[:, :2]], state=state, resume=True)
    with pytest.raises(ValueError, match="the bound is not finite: X has changed since it was checked"):
        InfiniteGaussianMixture(4).fit(lambda: [x * np.nan], state=state, resume=True)


def test_a_fit_is_not_written_over_and_goes_on_only_as_it_was(tmp_path: Path) -> None:
    x, state = overlapping(), tmp_path / "fit.safetensors"
    InfiniteGaussianMixture(4).fit(x, state=state)
    with pytest.raises(FileExistsError, match="holds a fit already: pass resume=True to resume it, or another"):
        InfiniteGaussianMixture(4).fit(x, state=state)
    with pytest.raises(CheckpointError, match=r"with other settings \(alpha, max_components\): use the same settings"):
        InfiniteGaussianMixture(5, alpha=2.0).fit(x, state=state, resume=True)
    state.write_bytes(state.read_bytes()[:200])
    with pytest.raises(CheckpointError, match="is not a safetensors file, or it is cut short"):
        InfiniteGaussianMixture(4).fit(x, state=state, resume=True)
    save_file({"w": torch.zeros(1)}, state)
    with pytest.raises(CheckpointError, match="not one of metaclust's"):
        InfiniteGaussianMixture(4).fit(x, state=state, resume=True)
    with pytest.raises(CheckpointError, match=r"the folder .* is not there; create it first"):
        InfiniteGaussianMixture(4).fit(x, state=tmp_path / "nowhere" / "fit.safetensors")


GOOD = np.arange(12.0).reshape(6, 2)
BAD = GOOD.copy()
BAD[4, 1] = np.nan


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(
    ("X", "message"),
    [
        (BAD, "contains NaN"),
        (lambda: [GOOD, BAD], r"X holds NaN or infinity in row 10 \(counting from 0\): remove or impute"),
        (lambda: [GOOD, -np.inf + np.zeros((1, 2))], r"X holds NaN or infinity in row 6"),
        (np.empty((0, 2)), "Found array with 0 sample"),
        (lambda: [], "X has no rows: give at least two"),
        (lambda: [np.empty((0, 2))], "X has no rows"),
        (GOOD[:1], "Found array with 1 sample"),
        (lambda: [GOOD[:1]], r"X has 1 sample \(one row\): a mixture needs at least two"),
        (np.ones((5, 2)), "all 5 rows of X are equal: there is nothing to cluster"),
        (lambda: [GOOD, GOOD[:, :1]], "X has rows of 1 columns, from row 6 on, where 2 are expected"),
        (np.array([["a", "b"], ["c", "d"]]), "could not convert string to float"),
        (lambda: [np.array([["a"], ["b"]])], "X holds <U1 values: give real numbers"),
        (lambda: [np.zeros(3)], r"X has shape \(3,\): give rows and columns"),
        (iter([GOOD]), "can be gone through only once: pass a function that returns a new iterator"),
        (
            EncodedStream(row_stream(GOOD), lambda rows: rows[1:]),
            "encoder returned 5 rows for 6: it must return one for each",
        ),
    ],
)
def test_rows_that_cannot_be_clustered_are_told(X: Any, message: str) -> None:
    with pytest.raises(DataError if not isinstance(X, np.ndarray) else ValueError, match=message):
        InfiniteGaussianMixture().fit(X)


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"X='nowhere.npy': there is no such file"):
        InfiniteGaussianMixture().fit("nowhere.npy")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"x.csv': rows are read in blocks from .npy and .parquet files; convert it"):
        InfiniteGaussianMixture().fit(tmp_path / "x.csv")
    np.save(tmp_path / "x.npy", GOOD)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-9])
    np.save(tmp_path / "strings.npy", np.array([["a"]]))
    np.save(tmp_path / "objects.npy", np.array([[None]]), allow_pickle=True)
    for name in ("cut.npy", "objects.npy"):
        with pytest.raises(DataError, match=rf"{name} is not a .npy file of numbers, or it is cut short"):
            InfiniteGaussianMixture().fit(tmp_path / name)
    with pytest.raises(DataError, match=r"strings.npy holds <U1 values of shape \(1, 1\): give real numbers"):
        InfiniteGaussianMixture().fit(tmp_path / "strings.npy")
    pl.DataFrame({"a": [1.0, 2.0], "name": ["x", "y"]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"columns that are not numbers \('?name'?\): write the file without them"):
        InfiniteGaussianMixture().fit(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"has no column '?b'?: it has"):
        InfiniteGaussianMixture().fit(row_stream(tmp_path / "x.parquet", ["b"]))
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "x.parquet").read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cut.parquet is not a .parquet file, or it is cut short"):
        InfiniteGaussianMixture().fit(tmp_path / "cut.parquet")
    with pytest.raises(DataError, match="has no rows: give at least one"):
        encode_to_file(lambda: [], lambda rows: rows, tmp_path / "encoded.npy")
    assert not (tmp_path / "encoded.npy").exists()


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_components": 0}, "max_components=0: it must be a whole number of 1 or more"),
        ({"max_iter": 2.5}, "max_iter=2.5: it must be a whole number"),
        ({"n_init": True}, "n_init=True: it must be a whole number"),
        ({"batch_rows": -1}, "batch_rows=-1: it must be a whole number"),
        ({"alpha": 0.0}, r"alpha=0.0: it must be positive and finite"),
        ({"alpha": "1"}, r"alpha='1': it must be positive"),
        ({"tol": float("nan")}, "tol=nan: it must be 0 or more"),
        ({"covariance": "tied"}, re.escape(f"covariance='tied': choose one of {tuple(FAMILIES)}")),
        ({"precision": "float16"}, "precision='float16': choose one of"),
        ({"init": "best"}, "init='best': choose one of .* or give an array of means"),
        ({"init": np.zeros((3, 5))}, r"init has shape \(3, 5\): give finite means of 2 columns"),
        ({"prior": 1.0}, r"prior=1.0: give a metaclust.Prior, or None"),
        ({"prior": Prior(shape=-1.0)}, r"prior.shape=-1.0: it must be one positive and finite number"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InfiniteGaussianMixture(**settings).fit(GOOD)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(5), "sample_weight has 5 values for 6 rows: give one for each"),
        (np.ones(7), "sample_weight has 7 values for 6 rows"),
        (np.ones((6, 1)), r"sample_weight has shape \(6, 1\)"),
        (np.full(6, -1.0), "sample_weight holds NaN, infinity or negative numbers"),
        (np.zeros(6), "sample_weight is zero for all rows: give some a positive weight"),
    ],
)
@pytest.mark.parametrize("X", [GOOD, lambda: [GOOD]])
def test_weights_that_do_not_fit_are_told(X: Any, weights: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InfiniteGaussianMixture().fit(X, sample_weight=weights)


def test_rows_to_predict_are_checked(tmp_path: Path) -> None:
    mixture = InfiniteGaussianMixture(3).fit(overlapping())
    np.save(tmp_path / "x.npy", GOOD)
    with pytest.raises(DataError, match="X has rows of 2 columns, from row 0 on, where 3 are expected"):
        mixture.predict(tmp_path / "x.npy")
    with pytest.raises(DataError, match="X has no rows"):
        mixture.predict(lambda: [])


def test_a_progress_bar_tells_rows_per_second(capsys: pytest.CaptureFixture[str]) -> None:
    InfiniteGaussianMixture(3, progress=True).fit(overlapping())
    assert "rows/s" in capsys.readouterr().err
