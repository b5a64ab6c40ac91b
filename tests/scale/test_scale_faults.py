"""Workers and drivers that are killed, shards that cannot be read: the answer is the same, or it is said."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scale_rows import blobs

from metaclust import CheckpointError, DataError, InfiniteGaussianMixture, MetaClusterer
from metaclust.scale import DaskEngine, LocalEngine, cluster_shards

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SETTINGS: dict[str, Any] = {"max_components": 8, "max_iter": 7, "tol": 0}


class Recorder:
    """Remembers what was done, and interferes when the first shard of some phases is done, others being under way."""

    def __init__(self, interfere: Any = None, phases: tuple[str, ...] = ()) -> None:
        self.interfere, self.left, self.phases = interfere, set(phases), []

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def advance(self, rows: int) -> None:
        if self.phases[-1] in self.left:
            self.left.remove(self.phases[-1])
            self.interfere()


def kill_a_worker(engine: DaskEngine) -> None:
    nannies = [nanny for nanny in engine.cluster.workers.values() if nanny.pid]
    os.kill(nannies[0].pid, signal.SIGKILL)


@pytest.fixture
def expected(shards: Path, tmp_path: Path) -> Any:
    result = cluster_shards(InfiniteGaussianMixture(**SETTINGS), shards, tmp_path / "expected", engine=LocalEngine())
    return result, result.labels().collect()


def test_killed_workers_change_nothing(shards: Path, tmp_path: Path, engine: DaskEngine, expected: Any) -> None:
    report = Recorder(lambda: kill_a_worker(engine), ("pass 2", "pass 4", "pass 7"))
    result = cluster_shards(InfiniteGaussianMixture(**SETTINGS), shards, tmp_path / "out", engine=engine, report=report)
    assert not report.left
    assert report.phases == ["survey", "start", *(f"pass {i}" for i in range(1, 8)), "labels"]
    assert result.bound == expected[0].bound
    assert result.labels().collect().equals(expected[1])


def test_a_worker_killed_while_labels_are_written_leaves_nothing_behind(
    shards: Path, tmp_path: Path, engine: DaskEngine, expected: Any
) -> None:
    report = Recorder(lambda: kill_a_worker(engine), ("labels",))
    result = cluster_shards(InfiniteGaussianMixture(**SETTINGS), shards, tmp_path / "out", engine=engine, report=report)
    assert result.labels().collect().equals(expected[1])
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["_result.json", *(f"s{i:02d}.parquet" for i in range(11))]


DRIVER = """
import os, signal, sys, warnings
from metaclust import InfiniteGaussianMixture
from metaclust.scale import cluster_shards

class Recorder:
    phases = []
    def phase(self, name):
        self.phases.append(name)
    def advance(self, rows):
        if self.phases[-1] == "pass 5":
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    mixture = InfiniteGaussianMixture(max_components=8, max_iter=7, tol=0)
    cluster_shards(mixture, sys.argv[1], sys.argv[2], engine="dask", workers=2, report=Recorder())
"""


def test_a_killed_driver_goes_on_from_the_last_finished_pass(
    shards: Path, tmp_path: Path, engine: DaskEngine, expected: Any
) -> None:
    (tmp_path / "driver.py").write_text(DRIVER)
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, tmp_path / "driver.py", shards, out], check=False)  # noqa: S603
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(FileExistsError, match=r"holds an interrupted run: continue it with --resume \(resume=True\)"):
        cluster_shards(InfiniteGaussianMixture(**SETTINGS), shards, out, engine=engine)
    with pytest.raises(CheckpointError, match=r"belongs to a fit with other settings \(max_components\)"):
        cluster_shards(InfiniteGaussianMixture(9, max_iter=7, tol=0), shards, out, engine=engine, resume=True)
    report = Recorder()
    result = cluster_shards(InfiniteGaussianMixture(**SETTINGS), shards, out, engine=engine, resume=True, report=report)
    assert report.phases == ["pass 5", "pass 6", "pass 7", "labels"]
    assert result.bound == expected[0].bound
    assert result.labels().collect().equals(expected[1])
    with pytest.raises(FileExistsError, match="holds a finished clustering: restart with --force"):
        cluster_shards(InfiniteGaussianMixture(**SETTINGS), shards, out, engine=engine, resume=True)


def test_a_run_with_a_model_goes_on_and_encodes_nothing_twice(
    model: MetaClusterer, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metaclust.inference.cluster.SAMPLE_ROWS", 400)
    whole = cluster_shards(model, shards, tmp_path / "whole", engine="local")

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster_shards(model, shards, tmp_path / "out", engine="local", report=Recorder(stop, ("pass 3",)))
    assert len(list((tmp_path / "out" / "_run" / "encoded").iterdir())) == 11
    monkeypatch.setattr(MetaClusterer, "represent", None)
    report = Recorder()
    result = cluster_shards(model, shards, tmp_path / "out", engine="local", resume=True, report=report)
    assert report.phases == ["select", *(f"pass {i}" for i in range(3, 21)), "sizes", "labels"]
    assert result.labels().collect().equals(whole.labels().collect())
    assert not (tmp_path / "out" / "_run").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Expecting property name"),
        ("[" * 100_000, "recursion"),
        ("[]", r"the file=\[\]: it must be an object with named fields"),
        ('{"shards": []}', "the file.skipped is missing"),
        ('{"shards": [["a.npy"]], "skipped": []}', "a list of 2 values, not of 1"),
        ('{"shards": [["a.npy", -1]], "skipped": []}', "shards.rows=-1: it must be a whole number"),
        ('{"shards": [["a.npy", 1e400]], "skipped": []}', "not finite"),
        ('{"shards": [[7, 1]], "skipped": []}', "shards.name=7: it must be a string"),
        ('{"shards": [["a.npy", 1], ["a.npy", 2]], "skipped": []}', "a shard is in it twice"),
        ('{"shards": [], "skipped": [{"shard": "a.npy"}]}', "skipped.why is missing"),
        ('{"shards": [], "skipped": [{"shard": "a.npy", "why": null}]}', "skipped.why=None: it must be a string"),
    ],
)
def test_a_damaged_list_of_shards_is_refused_with_what_is_wrong(
    content: str, reason: str, shards: Path, tmp_path: Path
) -> None:
    about = tmp_path / "out" / "_run" / "shards.json"
    about.parent.mkdir(parents=True)
    about.write_text(content)
    mixture = InfiniteGaussianMixture(**SETTINGS)
    with pytest.raises(CheckpointError, match=rf"shards.json is broken \(.*{reason}.*\): restart with --force"):
        cluster_shards(mixture, shards, tmp_path / "out", engine="local", resume=True)
    assert about.read_text() == content


def test_a_run_does_not_go_on_with_other_shards(shards: Path, tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    mixture = InfiniteGaussianMixture(**SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        cluster_shards(mixture, shards, tmp_path / "out", engine="local", report=Recorder(stop, ("pass 2",)))
    np.save(shards / "s03.npy", blobs(5))
    (shards / "s07.npy").unlink()
    with pytest.raises(CheckpointError, match=r"is a run over different shards \('s03.npy', 's07.npy'\)"):
        cluster_shards(mixture, shards, tmp_path / "out", engine="local", resume=True)
    result = cluster_shards(mixture, shards, tmp_path / "out", engine="local", force=True)
    assert result.labels().collect()["shard"].n_unique() == 10


def spoil(kind: str, path: Path) -> str:
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:-50])
        return "s04.npy is not a .npy file of numbers, or it is cut short"
    if kind == "wide":
        np.save(path, blobs(50, 7))
        return "s04.npy has rows of 7 columns, from row 0 on, where 4 are expected"
    x = np.load(path)
    x[17, 2] = np.nan
    np.save(path, x)
    return r"s04.npy holds NaN or infinity in row 17 \(counting from 0\)"


@pytest.mark.parametrize("kind", ["cut", "wide", "nan"])
def test_a_bad_shard_is_named_or_left_out(shards: Path, tmp_path: Path, engine: DaskEngine, kind: str) -> None:
    (tmp_path / "others").mkdir()
    for path in shards.iterdir():
        if path.name != "s04.npy":
            shutil.copy(path, tmp_path / "others")
    expected = cluster_shards(InfiniteGaussianMixture(**SETTINGS), tmp_path / "others", tmp_path / "a", engine="local")
    message = spoil(kind, shards / "s04.npy")
    mixture, out = InfiniteGaussianMixture(**SETTINGS), tmp_path / "out"
    with pytest.raises(DataError, match=message + r".*Repair or remove it, or skip it with on_bad_shard='skip'"):
        cluster_shards(mixture, shards, out, engine=engine)
    result = cluster_shards(mixture, shards, out, engine=engine, on_bad_shard="skip", force=True)
    assert [bad.shard for bad in result.skipped] == ["s04.npy"]
    assert "1 bad shards skipped" in repr(result)
    assert json.loads((out / "_result.json").read_text())["skipped shards"][0]["shard"] == "s04.npy"
    assert result.bound == expected.bound
    assert result.labels().collect().equals(expected.labels().collect())
    assert not (out / "s04.parquet").exists()


def test_a_shard_a_model_cannot_read_is_named(
    model: MetaClusterer, shards: Path, tmp_path: Path, engine: DaskEngine
) -> None:
    np.save(shards / "s02.npy", blobs(50, 7))
    with pytest.raises(DataError, match=r"s02.npy has 7 columns, but the model was trained on 4"):
        cluster_shards(model, shards, tmp_path / "out", engine=engine)


def test_a_shard_that_goes_bad_in_the_middle_is_named(shards: Path, tmp_path: Path, engine: DaskEngine) -> None:
    report = Recorder(lambda: (shards / "s10.npy").write_bytes(b"nothing"), ("pass 2",))
    mixture, out = InfiniteGaussianMixture(**SETTINGS), tmp_path / "out"
    kept = (shards / "s10.npy").read_bytes()
    with pytest.raises(DataError, match=r"s10.npy is not a .npy file of numbers"):
        cluster_shards(mixture, shards, out, engine=engine, report=report)
    (shards / "s10.npy").write_bytes(kept)
    again = Recorder()
    cluster_shards(mixture, shards, out, engine=engine, resume=True, report=again)
    assert again.phases[0] in ("pass 2", "pass 3")
