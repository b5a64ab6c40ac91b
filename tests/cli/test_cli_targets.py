"""Two commands do not write the same files, and what cannot be written is said before any work."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from commands import run, write_numbers
from safetensors.numpy import load_file

from metaclust import InfiniteGaussianMixture, MetaClusterer
from metaclust._util.locks import InUseError, writing
from metaclust.scale import cluster_shards
from metaclust.training.runs import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SHORT = ("--label", "kind", "--pretrain-steps", "2", "--steps", "0", "--encoder", "network", "--choose", "bound")
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    known = write_numbers(folder / "known.csv", range(6))
    assert run("train", known, "--out", folder / "m.safetensors", *SHORT, "-q").code == 0
    return folder


@pytest.fixture
def _no_work(monkeypatch):
    monkeypatch.setattr("metaclust.cli.commands.read_data", lambda *_, **__: pytest.fail("data were read"))
    monkeypatch.setattr("metaclust.cli.demo.load_dataset", lambda name: pytest.fail("the demo was started"))
    monkeypatch.setattr(MetaClusterer, "load", lambda *_, **__: pytest.fail("the model was read"))


CLUSTER = ("cluster", "m.safetensors", "known.csv")
OUTPUTS = {
    "model": ("train", "known.csv", *SHORT, "--out"),
    "table": (*CLUSTER, "--out"),
    "report": (*CLUSTER, "--report"),
    "clustering": (*CLUSTER, "--save"),
    "demo": ("demo", "--out"),
}
ENDINGS = {"table": "x.csv", "report": "x.html", "demo": "x.html"}


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_another_process_writes_is_refused_before_any_work(name, folder):
    target = ENDINGS.get(name, "x.safetensors")
    with writing(target):
        code, _, err = run(*OUTPUTS[name], target, "--force", "--quiet")
    assert code == 2
    assert err == f"metaclust: {target} is being written by {err.partition(' by ')[2]}"
    assert f"process {os.getpid()} on " in err


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize(
    ("name", "read"),
    [
        (name, read)
        for name in ("model", "table", "report", "clustering")
        for read in ("known.csv", "link.csv", "m.safetensors")
        if (name, read) != ("model", "m.safetensors")
    ],
)
def test_what_is_read_is_not_overwritten_even_with_force(name, read, folder):
    Path("link.csv").symlink_to("known.csv")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code, _, err = run(*OUTPUTS[name], read, "--force", "--quiet")
    assert code == 2
    assert f"{read} is read as " in err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize("name", [name for name in OUTPUTS if name != "demo"])
def test_a_full_disk_is_said_before_any_work(name, folder, monkeypatch):
    monkeypatch.setattr("metaclust._util.targets.shutil.disk_usage", lambda _: Usage(9e9, 9e9, 1000))
    code, _, err = run(*OUTPUTS[name], ENDINGS.get(name, "x.safetensors"), "--quiet")
    assert code == 2
    assert "MB are free: make room or choose another folder" in err


def test_a_disk_without_room_for_the_result_is_said_before_clustering(folder, monkeypatch):
    monkeypatch.setattr("metaclust._util.targets.SPARE", 0)
    monkeypatch.setattr("metaclust._util.targets.shutil.disk_usage", lambda _: Usage(9e9, 9e9, 1000))
    monkeypatch.setattr(MetaClusterer, "cluster", lambda *_, **__: pytest.fail("it was clustered"))
    for name in ("table", "clustering"):
        code, _, err = run(*OUTPUTS[name], ENDINGS.get(name, "x.safetensors"), "--quiet")
        assert code == 2
        assert "MB are free" in err


@pytest.mark.parametrize("option", ["--out", "--runs"])
def test_the_folders_of_an_experiment_are_tried_first(option, folder):
    code, _, err = run("experiment", "table1", option, "known.csv/results", "--quiet")
    assert code == 2
    assert err == "metaclust: cannot write to the folder known.csv/results: known.csv is a file; choose another\n"


def test_a_folder_beside_the_model_that_is_no_run_is_never_removed(folder):
    other = folder / "x.safetensors.run"
    other.mkdir()
    (other / "thesis.tex").write_text("mine")
    code, _, err = run(*OUTPUTS["model"], "x.safetensors", "--force", "--quiet")
    assert (code, "holds other files than a training run: choose another --out" in err) == (2, True)
    (other / "checkpoint.safetensors").write_text("")
    shutil.copy("known.csv", other)
    command = ("train", other / "known.csv", *SHORT, "--out", "x.safetensors", "--force", "--quiet")
    code, _, err = run(*command)
    assert (code, "which is removed in the end: choose another --out" in err) == (2, True)
    assert (other / "thesis.tex").read_text() == "mine"
    other.rename(folder / "moved")
    other.write_text("a file")
    code, _, err = run(*OUTPUTS["model"], "x.safetensors", "--force", "--quiet")
    assert (code, "is a file, where the folder of the run would be" in err) == (2, True)


def test_data_that_cannot_be_read_do_not_cost_an_interrupted_run(folder):
    kept = folder / "x.safetensors.run"
    kept.mkdir()
    (kept / "checkpoint.safetensors").write_bytes(b"hours of work")
    Path("broken.csv").write_text("a,kind\n1,x\n1,2,3,y\n")
    assert run("train", "broken.csv", *SHORT, "--out", "x.safetensors", "--force", "--quiet").code == 2
    assert (kept / "checkpoint.safetensors").read_bytes() == b"hours of work"


@pytest.mark.skipif(sys.platform == "win32", reason="without SIGSTOP")
def test_a_second_training_into_the_same_folder_leaves_the_first_alone(folder):
    """The first is stopped in the middle of its run, and goes on after the second was refused."""
    program = [sys.executable, "-m", "metaclust", "train", "known.csv", "--label", "kind", "--out", "x.safetensors"]
    program += ["--pretrain-steps", "60", "--steps", "0", "--encoder", "network", "--choose", "bound", "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(program, env=environment)  # noqa: S603
    try:
        limit = time.monotonic() + 300
        while not Path("x.safetensors.run/checkpoint.safetensors").exists():
            assert first.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.005)
        first.send_signal(signal.SIGSTOP)
        for more in (("--force",), ("--resume",)):
            code, _, err = run(*program[3:], *more)
            assert code == 2
            assert f"x.safetensors is being written by process {first.pid} on " in err
        x, y = np.random.default_rng(0).normal(size=(30, 2)), np.repeat(np.arange(3), 10)
        short = MetaClusterer(pretrain_steps=1, steps=0, encoder="network", choose="bound", progress=False)
        with pytest.raises(InUseError, match=rf"x\.safetensors\.run is being written by process {first.pid} on "):
            short.fit(x, y, folder="x.safetensors.run", resume=True)
        first.send_signal(signal.SIGCONT)
        assert first.wait(300) == 0
    finally:
        first.kill()
        first.wait()
    assert load_file("x.safetensors")
    assert not Path("x.safetensors.run").exists()


def in_use(path):
    """Whether this process has a file open or mapped."""
    opened = {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}
    return str(path) in opened or f" {path}\n" in Path("/proc/self/maps").read_text()


@pytest.fixture
def open_files(monkeypatch):
    """Replace and remove only files that this process has not open, as Windows does; return the others."""
    refused = []

    def checked(function):
        def call(*paths, dir_fd=None, **options):
            named = [path for path in paths if isinstance(path, str | os.PathLike)]
            folder = Path.cwd() if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").resolve()
            for path in [Path(os.path.realpath(folder / path)) for path in named]:
                # Locks are removed while they are held, except on Windows.
                if path.is_file() and not path.name.endswith(".lock") and in_use(path):
                    refused.append(path.name)
                    raise PermissionError(errno.EACCES, "Access is denied", str(path))
            return function(*paths, **options) if dir_fd is None else function(*paths, dir_fd=dir_fd, **options)

        return call

    for name in ("replace", "rename", "unlink", "remove"):
        monkeypatch.setattr(os, name, checked(getattr(os, name)))
    return refused


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="open files are not listed")
def test_no_file_is_replaced_or_removed_while_it_is_open(folder, open_files, monkeypatch):
    with Path("known.csv").open() as file, pytest.raises(PermissionError):
        Path("known.csv").replace("moved.csv")
    assert (open_files.pop(), file.closed, open_files) == ("known.csv", True, [])
    command = ("train", "known.csv", *SHORT[:2], "--pretrain-steps", "6", "--steps", "0", *SHORT[6:], "--quiet")
    save = RunFolder.save

    def interrupted(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    for more in ((), ("--resume",), ("--force",)):
        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "save", interrupted)
            assert run(*command, "--out", "x.safetensors", *more).code == 130
        assert Path("x.safetensors.run/checkpoint.safetensors").exists()
    for more in (("--resume",), ("--force",), ("--force",)):
        assert run(*command, "--out", "x.safetensors", *more).code == 0
        assert not Path("x.safetensors.run").exists()
    for name in ("table", "report", "clustering"):
        target = ENDINGS.get(name, "c.safetensors")
        for _ in range(2):
            assert run(*OUTPUTS[name], target, "--force", "--quiet").code == 0
    assert open_files == []


@pytest.mark.filterwarnings("default:x.safetensors is written")
def test_a_run_that_cannot_be_removed_does_not_cost_the_model(folder, monkeypatch):
    remove = shutil.rmtree

    def refuse(path, **options):
        if path.name == "x.safetensors.run":
            raise PermissionError(errno.EACCES, "Access is denied", str(path))
        remove(path, **options)

    monkeypatch.setattr("metaclust._util.files.shutil.rmtree", refuse)
    code, _, err = run(*OUTPUTS["model"], "x.safetensors")
    assert code == 0
    assert "x.safetensors is written, but x.safetensors.run cannot be removed (Access is denied): remove it" in err
    assert load_file("x.safetensors")


def test_a_folder_of_labels_that_another_process_writes_is_refused(folder):
    Path("shards").mkdir()
    np.save("shards/a.npy", np.random.default_rng(0).normal(size=(50, 3)))
    refused = []

    class Second:
        def phase(self, name):
            if name == "pass 1":
                with pytest.raises(InUseError) as caught:
                    cluster_shards(InfiniteGaussianMixture(2), "shards", "labels", engine="local", force=True)
                refused.append(str(caught.value))

        def advance(self, rows):
            pass

    mixture = InfiniteGaussianMixture(2, max_iter=2)
    result = cluster_shards(mixture, "shards", "labels", engine="local", report=Second())
    assert refused == [f"{folder / 'labels'} is being written by {refused[0].partition(' by ')[2]}"]
    assert f"process {os.getpid()} on " in refused[0]
    assert result.labels().collect().height == 50
    assert sorted(path.name for path in (folder / "labels").iterdir()) == ["_result.json", "a.parquet"]


def test_shards_that_do_not_fit_on_the_disk_once_encoded_are_refused_first(folder, monkeypatch):
    Path("shards").mkdir()
    np.save("shards/a.npy", np.random.default_rng(0).normal(size=(50, 4)))
    monkeypatch.setattr("metaclust._util.targets.SPARE", 0)
    monkeypatch.setattr("metaclust._util.targets.shutil.disk_usage", lambda _: Usage(9e9, 9e9, 50 * 8 + 100))
    with pytest.raises(OSError, match=r"clustering 50 rows in .*labels needs about"):
        cluster_shards(MetaClusterer.load("m.safetensors"), "shards", "labels", engine="local")
    assert not Path("labels").exists()
    # A mixture encodes nothing.
    cluster_shards(InfiniteGaussianMixture(2, max_iter=1), "shards", "labels", engine="local")
