"""Wrong uses whose error must name the argument, the value and the remedy; see also the table in each test file."""

import numpy as np
import pytest
import torch

from metaclust import (
    CheckpointError,
    ClusteringModel,
    ModelConfig,
    TaskSampler,
    TrainingConfig,
    evaluate,
    load_model,
    save_model,
    split_categories,
    train,
)

pytestmark = pytest.mark.usefixtures("_without_type_checks")

Y = np.repeat(np.arange(4), 5)
X = torch.randn(20, 3)
SMALL = {"representation": 2, "max_clusters": 3, "hidden": 8}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: split_categories(Y, -1), ValueError, r"seed=-1: .*0 or more"),
        (lambda: TaskSampler(X, Y, np.arange(4), seed=-1), ValueError, r"seed=-1"),
        (lambda: TaskSampler(X, Y, np.arange(4), rows=[2, 5]), ValueError, r"rows=\[2, 5\]: pass None"),
        (lambda: TaskSampler(X, Y, np.arange(4), n_categories=(2.5, 3)), ValueError, r"n_categories=\(2.5, 3\)"),
        (lambda: TaskSampler(X.numpy(), Y, np.arange(4)), TypeError, r"x is ndarray: pass a tensor"),
        (lambda: TaskSampler(X[:, 0], Y, np.arange(4)), ValueError, r"x has shape \(20,\)"),
        (lambda: TaskSampler(X.where(X[7] != X, np.nan), Y, np.arange(4)), ValueError, r"x holds NaN.*row 7"),
        (lambda: evaluate(ClusteringModel(ModelConfig((3,))), X, []), ValueError, r"tasks is empty"),
        (lambda: ClusteringModel(ModelConfig((4,))).encode(X), ValueError, r"rows of shape \(3,\).*input_shape=\(4,\)"),
        (lambda: ClusteringModel(ModelConfig((3,))).encode(X.int()), TypeError, r"x is torch.int32"),
    ],
)
def test_wrong_uses_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_model_is_not_written_over_a_folder(tmp_path):
    with pytest.raises(CheckpointError, match="it is a folder"):
        save_model(ClusteringModel(ModelConfig((3,), **SMALL)), tmp_path)


def test_a_model_in_double_precision_stays_one(tmp_path):
    model = ClusteringModel(ModelConfig((3,), **SMALL)).double().eval()
    save_model(model, tmp_path / "model.safetensors")
    loaded, _ = load_model(tmp_path / "model.safetensors", device="cpu")
    assert torch.equal(loaded.transform(X.double()), model.transform(X.double()))


def test_a_gradient_that_is_not_finite_stops_the_training():
    model = ClusteringModel(ModelConfig((3,), **SMALL))
    next(model.encoder.parameters()).register_hook(lambda gradient: gradient * float("nan"))
    sampler = TaskSampler(X, Y, np.arange(4), n_categories=(2, 3))
    with pytest.raises(FloatingPointError, match=r"at step 0 .*lower learning_rate=0.001"):
        train(model, sampler, config=TrainingConfig(pretrain_steps=2, steps=0), progress=False)


def test_a_checkpoint_that_was_half_written_is_cleared_away(tmp_path):
    (tmp_path / ".checkpoint.safetensors.abc").write_bytes(b"half")
    model = ClusteringModel(ModelConfig((3,), **SMALL))
    sampler = TaskSampler(X, Y, np.arange(4), n_categories=(2, 3))
    train(model, sampler, config=TrainingConfig(pretrain_steps=1, steps=1), folder=tmp_path, progress=False)
    assert [path.name for path in tmp_path.glob(".*")] == []
