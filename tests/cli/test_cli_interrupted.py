"""`metaclust train` that is killed or interrupted: the command it printed resumes it, to the same weights."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from commands import run
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="without SIGKILL and SIGINT")
PRETRAIN, STEPS = 24, 8
"""A checkpoint every two steps."""
SETTINGS = [
    "--label",
    "kind",
    "--pretrain-steps",
    str(PRETRAIN),
    "--steps",
    str(STEPS),
    "--encoder",
    "network",
    "--choose",
    "bound",
]
PATIENCE = 120
"""Seconds after which a process that does not get on has failed."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Of eight categories, some validate: the best weights belong to what is resumed."""
    path = tmp_path_factory.mktemp("data of mine") / "known.csv"
    drawn = np.random.default_rng(0)
    lines = ["a,b,c,kind"]
    for category in range(8):
        rows = 2 * drawn.normal(size=3) + drawn.normal(size=(8, 3))
        lines += [f"{','.join(map(str, row.round(4)))},k{category}" for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def expected(data, tmp_path_factory):
    """The weights of a run that nobody interrupted, with the short cuts of commands in the process of the tests."""
    out = tmp_path_factory.mktemp("whole") / "whole.safetensors"
    assert run("train", data, "--out", out, *SETTINGS).code == 0
    return load_file(out)


@pytest.fixture(scope="module")
def expected_alone(data, tmp_path_factory):
    """The weights of a run that nobody interrupted, in a process of its own."""
    out = tmp_path_factory.mktemp("alone") / "whole.safetensors"
    command = [sys.executable, "-m", "metaclust", "train", str(data), "--out", str(out), *SETTINGS]
    subprocess.run(command, env=environment(), capture_output=True, check=True)  # noqa: S603
    return load_file(out)


class Training:
    """`metaclust train` in a process of its own, in ``folder``, from where paths are relative."""

    def __init__(self, folder, data):
        self.folder = folder
        self.out = folder / "my model.safetensors"
        self.kept = folder / "my model.safetensors.run"
        self.errors = folder / "errors.txt"
        arguments = ["train", str(data), "--out", self.out.name, *SETTINGS]
        # Where this process ignores Ctrl-C, as in the background of a shell, so would its child.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with self.errors.open("w") as errors:
                self.process = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-m", "metaclust", *arguments],
                    cwd=folder,
                    env=environment(),
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                )
        finally:
            signal.signal(signal.SIGINT, before)

    def stop(self, number, after):
        """Send a signal once the checkpoint has so many steps; gives back the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.steps() < after:
            assert self.process.poll() is None, self.errors.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def steps(self):
        """How many steps the checkpoint has done; -1 without one."""
        try:
            with safe_open(self.kept / "checkpoint.safetensors", framework="numpy") as file:
                return json.loads(file.metadata()["metaclust"])["run"]["step"]
        except (OSError, SafetensorError):
            return -1

    def command_after(self, before):
        """The command that follows ``before`` on standard error."""
        (line,) = [line for line in self.errors.read_text().splitlines() if before in line]
        name, *arguments = shlex.split(line.partition(before)[2])
        assert name == "metaclust"
        return arguments


@pytest.fixture
def training(data, tmp_path):
    started = Training(tmp_path, data)
    yield started
    started.process.kill()
    started.process.wait()


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def assert_same_weights(path, expected):
    found = load_file(path)
    assert found.keys() == expected.keys()
    assert all(found[name].tobytes() == expected[name].tobytes() for name in expected)


def test_a_killed_run_is_resumed_by_the_command_it_printed_to_the_same_weights(training, expected_alone):
    assert training.stop(signal.SIGKILL, after=2) == -signal.SIGKILL
    assert 2 <= training.steps() < PRETRAIN + STEPS
    assert not training.out.exists()
    arguments = training.command_after("If this is interrupted, resume with: ")
    command = [sys.executable, "-m", "metaclust", *arguments]
    done = subprocess.run(command, cwd=training.folder, env=environment(), capture_output=True, text=True)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert_same_weights(training.out, expected_alone)
    assert not training.kept.exists()
    # The command is the same after the run was resumed.
    assert f"resume with: {shlex.join(['metaclust', *arguments])}\n" in done.stderr


def test_control_c_says_how_to_resume_and_keeps_the_run(training, expected, monkeypatch):
    assert training.stop(signal.SIGINT, after=PRETRAIN + 2) == 130
    assert not training.out.exists()
    assert training.steps() >= PRETRAIN + 2
    assert "Traceback" not in training.errors.read_text()
    arguments = training.command_after("Interrupted. The last checkpoint is kept; resume with: ")
    assert arguments[-1] == "--resume"
    monkeypatch.chdir(training.folder)

    code, _, err = run(*arguments[:-1])
    assert code == 2
    assert "holds an interrupted run: add --resume to continue it or --force to restart" in err
    code, _, err = run(*arguments, "--seed", 1)
    assert code == 2
    assert "belongs to a run with other settings (pretraining.seed, tasks.seed, training.seed)" in err

    assert run(*arguments).code == 0
    assert_same_weights(training.out, expected)
    assert not training.kept.exists()


def test_with_force_an_interrupted_run_is_restarted(data, expected, tmp_path):
    kept = tmp_path / "m.safetensors.run"
    kept.mkdir()
    (kept / "checkpoint.safetensors").write_bytes(b"what is left of a run")
    assert run("train", data, "--out", tmp_path / "m.safetensors", *SETTINGS, "--force", "--quiet").code == 0
    assert_same_weights(tmp_path / "m.safetensors", expected)
    assert not kept.exists()
