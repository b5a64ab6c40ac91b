"""A run that was stopped, wherever it was, ends with the weights it would have had."""

import json
import multiprocessing
import random
import signal
import sys
import time
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from metaclust import (
    ClusteringModel,
    ImageAugmentation,
    ModelConfig,
    TaskSampler,
    TrainingConfig,
    train,
)
from metaclust._util import tensors as checkpoint
from metaclust.training import loop as training

PRETRAIN, STEPS, EVERY = 20, 18, 6


class Crash(Exception):  # noqa: N818
    """What stops a run in these tests."""


def problem(kind):
    """A new model, tasks to train on and tasks to validate on: the same at each call."""
    torch.manual_seed(0)
    y = np.repeat(np.arange(16), 6)
    shape = (3, 8, 8) if kind == "images" else (5,)
    x = 2 * torch.randn(16, *shape)[y] + 0.3 * torch.randn(len(y), *shape)
    initial = "random" if kind == "random start" else "network"
    settings = {"representation": 3, "max_clusters": 5, "steps": 3, "hidden": 16, "filters": 4}
    model = ClusteringModel(ModelConfig(shape, **settings, initial=initial))
    augment = ImageAugmentation() if kind == "images" else None
    sampler = TaskSampler(x, y, np.arange(12), n_categories=(2, 4), tasks=2, augment=augment)
    return model, sampler, TaskSampler(x, y, np.arange(12, 16), n_categories=(2, 4)).fixed(4)


def run(folder, kind, pretrain_steps=PRETRAIN, steps=STEPS, resume=True):
    config = TrainingConfig(
        pretrain_steps=pretrain_steps,
        steps=steps,
        learning_rate=0.01,
        seeded=2,
        validate_every=EVERY,
    )
    model, sampler, validation = problem(kind)
    state = train(model, sampler, validation, config, folder=folder, resume=resume, progress=False)
    return model, {**asdict(state), "seconds": 0}


def test_a_first_checkpoint_that_cannot_be_written_leaves_the_folder_free(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("metaclust.training.runs.write_tensors", full)
        with pytest.raises(OSError, match="No space left"):
            run(tmp_path / "run", "vectors", 1, 0)
    assert list((tmp_path / "run").iterdir()) == []
    _, state = run(tmp_path / "run", "vectors", 1, 0)
    assert state["finished"]


def crash_after(monkeypatch, name, step):
    """Let a function that the training calls at every step, or at every validation, stop the run at ``step``."""
    owner = training if name == "learning_rate" else training.Training
    original = getattr(owner, name)

    def crashing(*arguments):
        result = original(*arguments)
        if (arguments[1] if name == "learning_rate" else arguments[0].state.step) == step:
            raise Crash
        return result

    monkeypatch.setattr(owner, name, crashing)


def metrics(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def same_tensors(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def assert_same_files(one, other):
    """The same last weights, best weights, moments of the optimizer and metrics."""
    assert same_tensors(*(load_file(folder / "checkpoint.safetensors") for folder in (one, other)))
    assert metrics(one) == metrics(other)


def assert_same_end(one, other):
    """The same state and the same weights of the model."""
    assert one[1] == other[1]
    assert same_tensors(one[0].state_dict(), other[0].state_dict())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The folder and the end of a run of each kind that was not stopped."""

    @cache
    def of(kind):
        folder = tmp_path_factory.mktemp("whole")
        return folder, run(folder, kind, resume=False)

    return of


@pytest.mark.parametrize("kind", ["vectors", "images", "random start"])
def test_a_run_stopped_six_times_ends_with_the_same_weights_and_metrics(kind, uninterrupted, tmp_path, monkeypatch):
    whole, expected = uninterrupted(kind)
    draw = random.Random(kind)  # noqa: S311
    crashes = [
        ("learning_rate", draw.randrange(1, EVERY)),
        ("learning_rate", draw.randrange(EVERY, PRETRAIN)),
        ("keep_best", PRETRAIN),
        ("learning_rate", PRETRAIN),
        ("keep_best", PRETRAIN + 4),
        ("learning_rate", draw.randrange(PRETRAIN + 5, PRETRAIN + STEPS)),
    ]
    for name, step in crashes:
        with monkeypatch.context() as patch:
            crash_after(patch, name, step)
            with pytest.raises(Crash):
                run(tmp_path, kind)
    assert_same_end(run(tmp_path, kind), expected)
    assert_same_files(tmp_path, whole)
    steps = [(record["step"], record["phase"]) for record in metrics(tmp_path)]
    assert len(set(steps)) == len(steps)
    assert [step for step, _ in steps] == sorted(step for step, _ in steps)


def test_a_run_stopped_between_the_phases_repeats_no_metrics(tmp_path, monkeypatch):
    pretrain = 2 * EVERY  # so that there is a checkpoint just before the Proto start is validated
    expected = run(tmp_path / "whole", "vectors", pretrain)
    with monkeypatch.context() as patch:
        crash_after(patch, "learning_rate", pretrain)
        with pytest.raises(Crash):
            run(tmp_path / "stopped", "vectors", pretrain)
    assert_same_end(run(tmp_path / "stopped", "vectors", pretrain), expected)
    assert_same_files(tmp_path / "stopped", tmp_path / "whole")


def test_a_run_stopped_in_the_middle_of_writing_goes_on_from_the_checkpoint_before(
    uninterrupted, tmp_path, monkeypatch
):
    whole, expected = uninterrupted("vectors")
    written = []

    def half_written(tensors, name, metadata):
        written.append(name)
        if len(written) == 5:
            Path(name).write_bytes(b"half")
            raise Crash
        checkpoint_writer(tensors, name, metadata)

    checkpoint_writer = checkpoint.save_file
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", half_written)
        with pytest.raises(Crash):
            run(tmp_path, "vectors")
    assert_same_end(run(tmp_path, "vectors"), expected)
    assert_same_files(tmp_path, whole)


def test_a_line_of_metrics_that_was_cut_short_is_dropped(uninterrupted, tmp_path, monkeypatch):
    whole, _ = uninterrupted("vectors")
    with monkeypatch.context() as patch:
        crash_after(patch, "learning_rate", PRETRAIN + 15)
        with pytest.raises(Crash):
            run(tmp_path, "vectors")
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1')
    run(tmp_path, "vectors")
    assert_same_files(tmp_path, whole)


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    expected = run(tmp_path, "vectors")
    before = metrics(tmp_path)
    assert_same_end(run(tmp_path, "vectors"), expected)
    assert metrics(tmp_path) == before


def test_resuming_in_an_empty_folder_starts_anew(uninterrupted, tmp_path):
    assert_same_end(run(tmp_path / "new", "vectors"), uninterrupted("vectors")[1])


LONG = 90


def long_run(folder):
    torch.set_num_threads(1)
    run(folder, "vectors", steps=LONG)


@pytest.fixture(scope="module")
def start():
    """Start a process that trains; all are forked from one that has imported torch, and nothing that other tests have
    loaded, which may round otherwise.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])

    def started(folder):
        process = context.Process(target=long_run, args=(folder,), daemon=True)
        process.start()
        return process

    return started


def exit_code(process):
    """How it ended; the time limit is for machines that hang."""
    process.join(300)
    return process.exitcode


def last_step(folder):
    try:
        complete = (folder / "metrics.jsonl").read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return 0
    return json.loads(complete[-1])["step"] if complete else 0


def wait_for(process, folder, step):
    """Until the metrics have come to ``step``; the time limit is for machines that hang."""
    limit = time.monotonic() + 300
    while last_step(folder) < step:
        assert process.exitcode is None
        assert time.monotonic() < limit
        time.sleep(0.005)


@pytest.mark.skipif(sys.platform == "win32", reason="without fork")
def test_a_process_killed_five_times_ends_with_the_same_weights(start, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert exit_code(start(whole)) == 0
    draw = random.Random(0)  # noqa: S311
    for moment in sorted(draw.sample(range(5, PRETRAIN + LONG - 30), 5)):
        process = start(killed)
        wait_for(process, killed, moment)
        time.sleep(draw.uniform(0, 0.02))  # so that it is anywhere within a step, or in a checkpoint's write
        process.kill()
        assert exit_code(process) == -signal.SIGKILL
    assert last_step(killed) < PRETRAIN + LONG
    assert exit_code(start(killed)) == 0
    assert_same_files(killed, whole)
