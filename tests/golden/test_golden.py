"""What version 0.1.0 computed, in float64, is still computed; what it saved still loads and gives the same labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from metaclust import (
    Clustering,
    ClusteringModel,
    InfiniteGaussianMixture,
    MetaClusterer,
    ModelConfig,
    TaskSampler,
    TrainingConfig,
    expectation_maximization,
    soft_ari,
    variational_bayes,
)
from metaclust.inference.pipeline import Search, pipeline_for
from metaclust.training.losses import ari_loss, proto_loss
from metaclust.training.optimizer import new_optimizer

FOLDER = Path(__file__).parent / "0.1.0"
SELECTING = ("vectors", "unit", "images", "text")
"""With a learned selector, which is no longer used."""
BY_BOUND = ("paper", "full")
KINDS = (*SELECTING, *BY_BOUND)
pytestmark = pytest.mark.filterwarnings("ignore:.*no word that the model knows", "ignore:all 6 clusters are in use")


def golden(name: str) -> dict[str, NDArray[Any]]:
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays}


@pytest.mark.parametrize("components", ["spherical", "full"])
@pytest.mark.parametrize("mean_covariance", ["unit", "optimal"])
def test_variational_bayes(components: Any, mean_covariance: Any) -> None:
    known = golden("mixtures")
    rows, start = torch.from_numpy(known["z"]), torch.from_numpy(known["logits"])
    end = variational_bayes(rows, start, 12, 1.3, mean_covariance, components)
    name = f"vb-{components}-{mean_covariance}"
    assert_allclose(end.r.numpy(), known[f"{name}-r"], atol=1e-9)
    assert_allclose(end.theta.numpy(), known[f"{name}-theta"], atol=1e-9)
    assert float(end.bound) == pytest.approx(float(known[f"{name}-bound"]), rel=1e-11)


@pytest.mark.parametrize("components", ["spherical", "full"])
def test_expectation_maximization(components: Any) -> None:
    known = golden("mixtures")
    end = expectation_maximization(torch.from_numpy(known["z"]), torch.from_numpy(known["logits"]), 12, components)
    assert_allclose(end.r.numpy(), known[f"em-{components}-r"], atol=1e-8)
    assert float(end.bound) == pytest.approx(float(known[f"em-{components}-bound"]), rel=1e-10)


@pytest.mark.parametrize("components", ["spherical", "full"])
def test_the_mixture_alone(components: Any) -> None:
    known = golden("mixtures")
    mixture = InfiniteGaussianMixture(8, covariance=components, precision="float64", n_init=2).fit(known["z"])
    name = f"mixture-{components}"
    assert_array_equal(mixture.predict(known["z"]), known[f"{name}-labels"])
    assert_allclose(mixture.lower_bounds_, known[f"{name}-bounds"], rtol=1e-11)
    assert_allclose(mixture.weights_, known[f"{name}-weights"], atol=1e-10)
    assert_allclose(mixture.means_, known[f"{name}-means"], atol=1e-8)
    assert_allclose(mixture.precisions_, known[f"{name}-precisions"], rtol=1e-8)
    assert_allclose(mixture.score_samples(known["z"]), known[f"{name}-log"], rtol=1e-9)


def test_continuous_ari() -> None:
    known = golden("mixtures")
    logits = torch.from_numpy(known["logits"]).requires_grad_()
    index = soft_ari(logits.softmax(-1), torch.from_numpy(known["y"]))
    index.backward()
    assert index.item() == pytest.approx(float(known["ari"]), rel=1e-13)
    assert logits.grad is not None
    assert_allclose(logits.grad.numpy(), known["ari-gradient"], atol=1e-14)


CONFIGS = {
    "network": ModelConfig((6,), 4, 5, hidden=8, task_hidden=8, learn_prior=True),
    "residual": ModelConfig((6,), 4, 5, hidden=8, task_hidden=8, learn_prior=True, encoder="residual"),
    "full": ModelConfig((6,), 4, 5, hidden=8, task_hidden=8, components="full"),
    "images": ModelConfig((1, 9, 9), 4, 5, hidden=8, task_hidden=8, filters=3),
    "paper": ModelConfig.preset("paper", (6,), hidden=8, task_hidden=8, dropout=0.0),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_training_step_of_each_phase(name: str) -> None:
    known = golden("steps")
    start, end = (
        {key.removeprefix(prefix): torch.from_numpy(value) for key, value in known.items() if key.startswith(prefix)}
        for prefix in (f"{name}-start-", f"{name}-end-")
    )
    model = ClusteringModel(CONFIGS[name]).double()
    model.load_state_dict(start)
    rows = torch.from_numpy(known["pixels" if name == "images" else "x"])
    sampler = TaskSampler(rows, known["y"], np.arange(12), (2, 5), rows=(4, 9), imbalanced=True)
    training = TrainingConfig.preset("paper" if name == "paper" else "default")
    optimizer = new_optimizer(model, training)
    for phase, loss_of in enumerate((proto_loss, ari_loss)):
        torch.manual_seed(phase)
        loss, _ = loss_of(model, sampler.batch(phase), training)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert loss.item() == pytest.approx(float(known[f"{name}-loss-{phase}"]), rel=1e-11)
    for key, value in model.state_dict().items():
        assert_allclose(value.numpy(), end[key].numpy(), atol=1e-7, err_msg=key)


def test_candidates() -> None:
    known = golden("candidates")
    torch.manual_seed(0)
    model = ClusteringModel(ModelConfig((6,), 4, 8, hidden=8, task_hidden=8, learn_prior=True)).double().eval()
    model.set_prior(alpha=1.2, mean_precision=0.06, shape=40.0, rate=35.0)
    pipeline = pipeline_for(model, Search(7, restarts=2, effective_rows=12.0, choose="bound"))
    found = pipeline.candidates(model, pipeline.sample(known["z"]), [1, 2, 3, 4, 5, 6, 7], seed=3)
    assert_array_equal(np.stack([candidate.labels for candidate in found]), known["labels"])
    assert_allclose([candidate.bound for candidate in found], known["bounds"], rtol=1e-10)
    assert_allclose([candidate.posterior.theta.numpy().sum(0) for candidate in found], known["means"], atol=1e-8)
    assert found[0].weight == pytest.approx(float(known["weight"]))


def model_and_rows(kind: str) -> tuple[MetaClusterer, Any]:
    rows = golden(kind)["rows"]
    model = MetaClusterer.load(FOLDER / f"{kind}.model.safetensors", "cpu").set_params(progress=False)
    return model, rows.tolist() if kind == "text" else rows


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_gives_the_same_representations(kind: str) -> None:
    model, rows = model_and_rows(kind)
    assert_allclose(model.transform(rows), golden(kind)["z"], atol=1e-4)


@pytest.mark.parametrize("kind", SELECTING)
def test_the_selector_of_a_saved_model_is_left_out(kind: str) -> None:
    model, rows = model_and_rows(kind)
    assert model.model_.choice is None
    assert not model.model_.config.choice
    found = model.cluster(rows)
    assert found.about["chosen by"] == "learned choice"
    assert 1 <= found.n_clusters <= 6
    assert sum(found.k_probabilities.values()) == pytest.approx(1)


@pytest.mark.parametrize("kind", BY_BOUND)
def test_a_saved_model_gives_the_same_labels(kind: str) -> None:
    known = golden(kind)
    model, rows = model_and_rows(kind)
    found = model.cluster(rows)
    assert_array_equal(found.labels, known["labels"])
    assert_allclose(found.confidence, known["confidence"], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_clustering_loads(kind: str) -> None:
    known = golden(kind)
    found = Clustering.load(FOLDER / f"{kind}.clustering.safetensors", "cpu")
    assert_array_equal(found.labels, known["labels"])
    assert_array_equal(found.confidence, known["confidence"])
    assert found.bound == float(known["bound"])
    rows = known["rows"].tolist() if kind == "text" else known["rows"]
    found.model.set_params(progress=False)
    assert_array_equal(found.assign(rows).labels, known["labels"])
