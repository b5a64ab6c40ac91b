"""Two processes train the model that one trains, and a run goes on with another number of them."""

import json
import os
import subprocess
import sys

import distributed_run
import numpy as np
import pytest
import torch
from commands import run, write_numbers
from distributed_run import CASES, RESUMED, StoppedError
from safetensors.torch import load_file
from torch import nn

from metaclust import MetaClusterer, cli
from metaclust._util.distributed import ALONE, Part, Processes, current, launch_command, own_device, process_group
from metaclust.model.layers import SharedBatchNorm2d

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}
"""Of weights after all steps. Sums over processes are rounded otherwise than in one, and each step goes on from there:
measured are 1e-6 and 1e-10."""


def together(*arguments):
    """Run Python with the arguments in two processes, as torchrun does."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", *launch, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folder of what two processes made of everything in `distributed_run`, and how they ended."""
    place = tmp_path_factory.mktemp("processes")
    with pytest.raises(StoppedError):
        distributed_run.run(RESUMED, place / "begun with one", stop=True)
    done = together(distributed_run.__file__, place)
    assert (place / "kept.json").exists(), done.stderr
    return place, done


@pytest.fixture(scope="module")
def folder(pair):
    return pair[0]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same training in one process, done once for each case: the folder of the run and its state."""
    place, done = tmp_path_factory.mktemp("alone"), {}

    def run(case):
        if case not in done:
            done[case] = distributed_run.run(case, place / case)[0]
        return place / case, done[case]

    return run


def weights(run):
    """The weights after the last step, and those that validated best."""
    tensors = load_file(run / "checkpoint.safetensors")
    return {name: value for name, value in tensors.items() if name.startswith(("model.", "best."))}


def assert_same(one, other, tolerance):
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(
            other[name], value, rtol=tolerance, atol=tolerance, msg=lambda words, name=name: f"{name}: {words}"
        )


@pytest.mark.parametrize("case", CASES)
def test_two_processes_give_the_weights_and_the_validation_of_one(folder, alone, case):
    one, state = alone(case)
    start = distributed_run.problem(case)[0].state_dict()
    trained = weights(one)
    assert any((trained[f"model.{name}"] - value).abs().max() > 0.01 for name, value in start.items())
    assert_same(trained, weights(folder / case), TOLERANCE[CASES[case][3]])
    validations = json.loads((folder / "kept.json").read_text())[case]
    assert [step for step, _ in validations] == [step for step, _ in state.validations]
    np.testing.assert_allclose([ari for _, ari in validations], [ari for _, ari in state.validations], atol=1e-12)
    assert max(ari for _, ari in validations) > min(ari for _, ari in validations)


@pytest.mark.parametrize("case", CASES)
def test_both_processes_end_with_the_same_bits(folder, case):
    main, other = (load_file(folder / f"{which} {case}") for which in ("main", "other"))
    assert all(torch.equal(value, other[name]) for name, value in main.items())


def test_the_figures_of_a_step_are_those_of_all_tasks(folder, alone):
    case = "vectors, both phases"
    one, two = (
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (alone(case)[0], folder / case)
    )
    for a, b in zip(one, two, strict=True):
        assert a.keys() == b.keys()
        for name in a.keys() - {"seconds", "phase"}:
            assert b[name] == pytest.approx(a[name], rel=1e-5), name


def test_one_process_writes_one_run(folder):
    assert sorted(path.name for path in (folder / "vectors").iterdir()) == [
        "checkpoint.safetensors",
        "metrics.jsonl",
        "pretrained.safetensors",
    ]


def test_a_run_goes_on_with_another_number_of_processes(folder, alone):
    whole = weights(alone(RESUMED)[0])
    assert_same(whole, weights(folder / "begun with one"), TOLERANCE[torch.float64])
    assert json.loads((folder / "kept.json").read_text())["stopped"] == distributed_run.STOP
    distributed_run.run(RESUMED, folder / "begun with two", resume=True)
    assert_same(whole, weights(folder / "begun with two"), TOLERANCE[torch.float64])


def test_layers_that_look_at_all_rows_are_those_of_one_process(folder):
    """Values, gradients and running statistics of an encoder with batch normalisation and dropout."""
    expected = distributed_run.normalisation(ALONE)
    found = load_file(folder / "normalisation")
    assert_same({name: value.contiguous() for name, value in expected.items()}, found, 1e-10)


def test_what_cannot_be_divided_is_refused_with_a_remedy(folder):
    words = json.loads((folder / "kept.json").read_text())["refusals"]
    assert "tasks=1: 2 processes divide the tasks" in words["tasks"]
    assert "--nproc-per-node=1" in words["tasks"]
    assert words["objective"] == "objective='siamese' cannot be divided over 2 processes: start one"
    assert words["norm"].startswith("encoder.1 normalises over the rows of one of 2 processes: use SharedBatchNorm2d")
    assert "start fewer" in words["rows"]


def test_a_process_that_fails_does_not_leave_the_other_waiting(pair):
    _, done = pair
    assert done.returncode != 0
    assert "this one fails" in done.stderr


def test_the_command_line_in_two_processes_writes_the_model_of_one(tmp_path):
    data = write_numbers(tmp_path / "known.csv", range(7))
    command = ["train", str(data), "--label", "kind", "--encoder", "network", "--device", "cpu", "--json"]
    # The pretraining does not depend on where all representations are: of what rounding leaves of that gradient Adam
    # makes full steps, in single precision. Both phases are compared above, in double precision.
    command += ["--pretrain-steps", "0", "--steps", "6", "--out"]
    done = together("-m", "metaclust", *command, tmp_path / "two.safetensors")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["categories"] == 7
    assert done.stderr.count("resume with: torchrun --nproc-per-node=2 -m metaclust train") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["known.csv", "two.safetensors"]
    run(*command, tmp_path / "one.safetensors", "--quiet")
    one, two = (MetaClusterer.load(tmp_path / f"{name}.safetensors", device="cpu") for name in ("one", "two"))
    assert one.get_params() == {**two.get_params(), "progress": False}
    assert_same(one.model_.state_dict(), two.model_.state_dict(), TOLERANCE[torch.float32])


def test_a_process_names_itself_when_it_fails(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(sys, "argv", ["metaclust", "evaluate", "nothing.safetensors", "nothing.csv"])
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err.startswith("metaclust (process 1): ")


def test_without_torchrun_nothing_is_started(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    with process_group() as among:
        assert among is ALONE
        assert not torch.distributed.is_initialized()
    assert current() is ALONE
    assert launch_command() == ["metaclust"]


def test_one_process_of_torchrun_is_alone(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    with process_group() as among:
        assert among is ALONE


@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("total", [0, 1, 5, 64])
def test_parts_are_about_equal_and_all_there_is(world, total):
    parts = [Processes(rank, world).part(total) for rank in range(world)]
    assert [i for part in parts for i in range(part.first, part.last)] == list(range(total))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_device_that_processes_cannot_share_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="device='mps': 2 processes cannot share it"):
        own_device("mps", 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ValueError, match=r"there are 1 GPUs for .* start at most 1"):
        own_device("auto", 2)


def test_alone_batch_norm_is_torchs():
    x = torch.randn(6, 3, 4, 5)
    ours, theirs = SharedBatchNorm2d(3), nn.BatchNorm2d(3)
    assert torch.equal(ours(x), theirs(x))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert len(Part(2, 5, 9)) == 3
