"""What cannot be is refused before anything is started; the command line does the same."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from commands import run
from scale_rows import blobs

from metaclust import DataError, InfiniteGaussianMixture, MetaClusterer
from metaclust.scale import cluster_shards, open_engine


@pytest.fixture
def some(tmp_path: Path) -> Path:
    (tmp_path / "some").mkdir()
    for place in range(3):
        np.save(tmp_path / "some" / f"{place}.npy", blobs(40, seed=place))
    return tmp_path / "some"


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"workers": 0}, ValueError, "workers=0: it must be a whole number of 1 or more"),
        ({"workers": "two"}, ValueError, "workers='two': it must be a whole number"),
        ({"engine": "spark"}, ValueError, r"engine='spark': choose one of \('dask', 'local'\)"),
        ({"engine": "local", "workers": 2}, ValueError, "engine='local' is this process alone"),
        ({"workers": 2, "address": "tcp://a:1"}, ValueError, "workers=2: the cluster at address='tcp://a:1' has its"),
        ({"on_bad_shard": "ignore"}, ValueError, "on_bad_shard='ignore': choose 'stop' or 'skip'"),
        ({"max_clusters": 3}, ValueError, "max_clusters=3 applies to models: a mixture has max_components"),
        ({"ids": "a"}, ValueError, "ids='a': .npy shards have no column names; omit it"),
        ({"columns": "a"}, TypeError, "columns='a': give a list of names"),
        (
            {"estimator": InfiniteGaussianMixture(batch_rows=9)},
            ValueError,
            "batch_rows=9: every pass reads",
        ),
        ({"estimator": InfiniteGaussianMixture(0)}, ValueError, "max_components=0: it must be a whole number"),
        ({"estimator": np.mean}, TypeError, "give a fitted MetaClusterer or an InfiniteGaussianMixture"),
        ({"estimator": MetaClusterer()}, ValueError, "not fitted yet"),
        ({"shards": "nowhere"}, NotADirectoryError, "shards='nowhere' does not exist: give a folder of .npy or"),
        ({"shards": 3}, TypeError, "shards is int: give a folder of .npy or .parquet files"),
        ({"shards": []}, DataError, "shards is an empty list: give the paths"),
        ({"shards": ["a.csv"]}, DataError, "shards has 'a.csv': shards are .npy or .parquet files"),
        ({"shards": ["a.npy", "a.parquet"]}, DataError, "give shards of one kind"),
        ({"shards": ["a/x.npy", "b/x.npy"]}, DataError, "several shards are called 'x'"),
    ],
)
def test_arguments_are_named(
    some: Path, tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {"estimator": InfiniteGaussianMixture(3), "shards": some, **options}
    if "engine" not in options and not {"workers", "address"} & set(options):
        given["engine"] = "local"
    with pytest.raises(error, match=message):
        cluster_shards(given.pop("estimator"), given.pop("shards"), tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_shards_that_hold_nothing_to_cluster_are_told(some: Path, tmp_path: Path) -> None:
    mixture, out = InfiniteGaussianMixture(3), tmp_path / "out"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty' holds no .npy or .parquet file: give a folder of shards"):
        cluster_shards(mixture, tmp_path / "empty", out, engine="local")
    np.save(tmp_path / "empty" / "0.npy", np.empty((0, 3)))
    with pytest.raises(DataError, match="empty has no rows: give at least two"):
        cluster_shards(mixture, tmp_path / "empty", out, engine="local")
    assert not out.exists()
    np.save(some / "1.npy", np.array([["a", "b"]]))
    with pytest.raises(DataError, match=r"1.npy holds <U1 values of shape \(1, 2\): give real numbers"):
        cluster_shards(mixture, some, out, engine="local")
    (tmp_path / "words").mkdir()
    pl.DataFrame({"a": [1.0, 2.0, 4.0], "w": ["x", "y", "z"]}).write_parquet(tmp_path / "words" / "0.parquet")
    with pytest.raises(DataError, match="columns that are not numbers"):
        cluster_shards(mixture, tmp_path / "words", out, engine="local")
    assert not out.exists()
    with pytest.raises(DataError, match="has no column 'id'"):
        cluster_shards(mixture, tmp_path / "words", out, engine="local", columns=["a"], ids="id")
    assert not out.exists()
    cluster_shards(mixture, tmp_path / "words", out, engine="local", columns=["a"], ids="w")


def test_a_folder_of_other_files_is_never_written_over(some: Path, tmp_path: Path) -> None:
    mixture, out = InfiniteGaussianMixture(3), tmp_path / "out"
    out.mkdir()
    (out / "mine.parquet").write_text("precious")
    with pytest.raises(FileExistsError, match="holds other files: give an empty or a new folder"):
        cluster_shards(mixture, some, out, engine="local", force=True)
    with pytest.raises(ValueError, match="is the folder of the shards: choose another one for the labels"):
        cluster_shards(mixture, some, some, engine="local", force=True)
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist; create it first"):
        cluster_shards(mixture, some, tmp_path / "nowhere" / "out", engine="local")
    with pytest.raises(NotADirectoryError, match=r"mine.parquet' is a file: give a folder for the labels"):
        cluster_shards(mixture, some, out / "mine.parquet", engine="local")
    assert (out / "mine.parquet").read_text() == "precious"


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "metaclust.scale.dask_engine", raising=False)
    with pytest.raises(ImportError, match=r"engine='dask' needs Dask: pip install 'metaclust\[scale\]'"):
        open_engine("dask", 2)


@pytest.fixture
def model_file(model: MetaClusterer, tmp_path: Path) -> Path:
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_the_command_clusters_a_folder_of_shards(model_file: Path, some: Path, tmp_path: Path) -> None:
    command = ("cluster", model_file, some, "--engine", "dask", "--workers", "2", "--out", tmp_path / "labels")
    code, out, err = run(*command, "--json", "--probabilities")
    assert code == 0, err
    facts = json.loads(out)
    assert (facts["rows"], facts["skipped shards"]) == (120, [])
    found = pl.read_parquet(tmp_path / "labels" / "*.parquet")
    assert found["cluster"].value_counts().sort("cluster")["count"].to_list() == facts["sizes"]
    expected = MetaClusterer.load(model_file).cluster(np.concatenate([np.load(p) for p in sorted(some.iterdir())]))
    assert found["cluster"].to_list() == expected.labels.tolist()
    assert "rows/s" in err
    code, _, err = run(*command)
    assert code == 2
    assert "labels holds a finished clustering: restart with --force" in err


def test_the_command_goes_on_without_bad_shards(model_file: Path, some: Path, tmp_path: Path) -> None:
    (some / "1.npy").write_bytes(b"nothing")
    command = ("cluster", model_file, some, "--engine", "local", "--out", tmp_path / "labels", "--quiet", "--json")
    code, _, err = run(*command)
    assert code == 2
    assert "1.npy is not a .npy file of rows" in err
    assert "--skip-bad-shards" in err
    code, out, _ = run(*command, "--skip-bad-shards")
    assert code == 0
    assert json.loads(out)["skipped shards"] == ["1.npy"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "2"), "--workers applies to shards only: add --engine"),
        (("--resume",), "--resume applies to shards only: add --engine"),
        (("--skip-bad-shards",), "--skip-bad-shards applies to shards only"),
        (("--engine", "dask"), "--engine writes labels to a folder: name it with --out"),
        (("--engine", "spark", "--out", "o"), "engine='spark': choose one of ('dask', 'local')"),
        (("--engine", "dask", "--workers", "0", "--out", "o"), "workers=0: it must be a whole number of 1 or more"),
        (
            ("--engine", "local", "--out", "o", "--report", "r.html"),
            "--report does not apply to shards: omit it, or --engine",
        ),
        (
            ("--engine", "local", "--out", "o", "--missing", "drop"),
            "--missing does not apply to shards: omit it, or --engine",
        ),
    ],
)
def test_options_that_do_not_go_together_are_told(
    model_file: Path, some: Path, options: tuple[str, ...], message: str
) -> None:
    code, out, err = run("cluster", model_file, some, *options)
    assert (code, out) == (2, "")
    assert message in err
