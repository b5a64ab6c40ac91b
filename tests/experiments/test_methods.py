"""What is particular to each method; what they share is checked in tests/common."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from method_tasks import SHORT, blobs, problem
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from metaclust._util.tensors import CheckpointError, read_tensors, write_tensors
from metaclust.experiments.methods import METHODS, base, load_method
from metaclust.experiments.methods.base import choose_frame
from metaclust.experiments.methods.ours import Ours
from metaclust.experiments.methods.proto import Proto
from metaclust.experiments.methods.vade import VaDE, VaDENetwork
from metaclust.model.checkpoint import save_model
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import TaskSampler
from metaclust.training.evaluation import compare


@pytest.fixture(autouse=True)
def _few_frames(request, monkeypatch):
    """Three frames are tried instead of six; the one test that is about frames tries all."""
    if "frame" not in request.node.name:
        monkeypatch.setattr(base, "SPREADS", (2.0, 8.0))


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize("name", ["ours", "proto", "siamese", "triplet", "nn", "flda"])
def test_methods_that_use_labels_cluster_unseen_separated_categories(name):
    """Among many columns of noise, in which no unsupervised method finds them."""
    x, y = blobs(categories=70, rows=10, width=4, seed=1)
    noise = 6 * torch.from_numpy(np.random.default_rng(2).normal(size=(len(y), 4)).astype(np.float32))
    rows = torch.cat((x, noise), 1) / 4
    sampler = TaskSampler(rows, y, np.arange(60), (2, 5), tasks=4)
    validation, test = (replace(sampler, categories=np.arange(first, first + 5)).fixed(6) for first in (60, 65))
    config = ModelConfig((8,), representation=4, max_clusters=6, steps=3, hidden=64)
    training = TrainingConfig(pretrain_steps=300, steps=30 if name == "ours" else 300, validate_every=300)

    def ari(method: str) -> float:
        fitted = METHODS[method](config, training).fit(sampler, validation)
        return float(compare(test, fitted.cluster_tasks(rows, test)).ari.mean())

    assert ari("pca") < 0.1
    assert ari(name) > 0.4


def test_pca_and_flda_are_scikit_learns():
    sampler, _, config = problem("vectors")
    train = sampler.y < 8
    x, y = sampler.x.numpy()[train], sampler.y[train]
    pca = METHODS["pca"](config, SHORT).fit(sampler)
    np.testing.assert_allclose(pca.transform(sampler.x), PCA(3).fit(x).transform(sampler.x.numpy()), atol=1e-4)
    flda = METHODS["flda"](config, SHORT).fit(sampler).transform(sampler.x).numpy()
    # Fisher's directions are unique up to their signs.
    expected = LinearDiscriminantAnalysis(n_components=3).fit(x, y).transform(sampler.x.numpy())
    np.testing.assert_allclose(np.abs(flda), np.abs(expected), rtol=1e-3, atol=1e-3)


def test_a_linear_map_with_fewer_directions_than_asked_for_is_filled_with_zeros():
    x, y = blobs(categories=5)
    sampler = TaskSampler(x, y, np.arange(3), (2, 3))
    config = ModelConfig((6,), representation=4, max_clusters=3, hidden=8)
    z = METHODS["flda"](config, SHORT).fit(sampler).transform(x)
    assert (z[:, 2:] == 0).all()
    assert z[:, :2].std() > 0


def test_ours_begins_with_the_proto_it_is_given_and_does_not_pretrain_again():
    sampler, validation, config = problem("vectors")
    proto = Proto(config, SHORT).fit(sampler, validation)
    ours = Ours(config, replace(SHORT, steps=0)).fit(sampler, validation, start=proto)
    torch.testing.assert_close(ours.transform(sampler.x), proto.transform(sampler.x), rtol=0, atol=0)
    alone = Ours(config, replace(SHORT, steps=0)).fit(sampler, validation)
    assert not torch.equal(alone.transform(sampler.x), proto.transform(sampler.x))


def test_each_ablation_changes_what_its_name_says():
    _, _, config = problem("vectors")

    def settings(name):
        method = METHODS[name](config, SHORT)
        return method.config, method.training

    assert settings("ours") == (config, SHORT)
    assert settings("without-f_r") == (replace(config, initial="random"), SHORT)
    alone = replace(SHORT, pretrain_steps=0, steps=6, proto_weight=0.0)
    assert settings("without-pretraining") == (config, alone)
    assert settings("with-em") == (replace(config, inference="em"), SHORT)
    assert settings("with-prob") == (config, replace(SHORT, distance="prob"))
    assert settings("full-covariance") == (replace(config, components="full"), SHORT)
    assert settings("unit-mean-covariance") == (replace(config, mean_covariance="unit"), SHORT)
    assert settings("optimal-mean-covariance") == (config, SHORT)
    paper, recipe = settings("paper-recipe")
    assert (paper.steps, paper.mean_covariance, paper.dropout) == (10, "unit", 0.1)
    assert (recipe.objective, recipe.seeded, recipe.proto_weight) == ("last-step", 0, 0.0)


def test_the_frame_makes_up_for_a_scale_that_the_prior_does_not_expect():
    x, y = blobs(categories=6)
    tasks = TaskSampler(x, y, np.arange(6), (3, 5)).fixed(5)

    class Shrunk(torch.nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return rows * 1e-4 + 100

    model = ClusteringModel(ModelConfig((6,), representation=6, initial="random"), Shrunk())
    frame, ari = choose_frame(model, x.double(), tasks)
    assert frame.scale > 1e3
    assert ari > 0.9


@pytest.mark.parametrize("clusters", [1, 3])
def test_vade_bound_is_below_the_likelihood_that_sampling_estimates(clusters):
    """log p(x) >= bound, by importance sampling of the same network; with one cluster the bound is exact in c."""
    torch.manual_seed(0)
    draws = 3000
    network = VaDENetwork(ModelConfig((3,), representation=2, hidden=8), clusters).double().eval()
    with torch.no_grad():
        network.means.copy_(torch.randn(clusters, 2))
        x = torch.randn(5, 3, dtype=torch.float64)
        bound = network.bound(x.repeat(draws, 1)).reshape(draws, 5).mean(0)
        mean, log_variance = network.encode(x)
        normal = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
        z = normal.sample((draws,))
        flat = z.reshape(-1, 2)
        # Without the constant of the Gaussian, as in reconstruction_loss.
        likelihood = -0.5 * (network.decoder(flat).reshape(draws, 5, 3) - x).square().sum(-1)
        prior = network.log_joint(flat).logsumexp(-1).reshape(draws, 5)
        weight = likelihood + prior - normal.log_prob(z).sum(-1)
        log_p = weight.logsumexp(0) - np.log(draws)
    if clusters == 1:
        torch.testing.assert_close(bound, weight.mean(0), rtol=0, atol=0.1)
    assert (bound < log_p + 0.02).all()
    assert (bound > log_p - 5).all()


def test_vade_starts_anew_for_each_task():
    sampler, validation, config = problem("vectors")
    method = VaDE(config, SHORT).fit(sampler)
    together = method.cluster_tasks(sampler.x, validation)
    for task, labels in zip(validation, together, strict=True):
        np.testing.assert_array_equal(method.cluster(sampler.x[torch.from_numpy(task.rows)]), labels)


def test_files_of_other_methods_and_other_kinds_are_refused(tmp_path):
    sampler, _, config = problem("vectors")
    path = tmp_path / "pca.safetensors"
    METHODS["pca"](config, SHORT).fit(sampler).save(path)
    with pytest.raises(CheckpointError, match="holds the method 'pca', not 'proto'"):
        Proto.load(path)
    model = tmp_path / "model.safetensors"
    save_model(ClusteringModel(config), model)
    with pytest.raises(CheckpointError, match="is a model file, not a method file"):
        load_method(model)
    with pytest.raises(CheckpointError, match="there is no such file"):
        load_method(tmp_path / "absent.safetensors")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"method": ["pca"]}, r"holds the method \['pca'\]: this version knows ours, "),
        ({"seconds": "long"}, "seconds='long': it must be a finite number from 0 to inf"),
        ({"training": [1]}, "training=.*: it must be an object with named fields"),
        ({"training": {"patience": "yes"}}, "training.patience='yes': it must be"),
        ({"training": {"learning_rate": True}}, "training.learning_rate=True: it must be a finite number"),
        ({"config": {"input_shape": [6], "representation": 10**7}}, "size mismatch for "),
    ],
)
def test_damaged_files_of_methods_are_refused_with_the_field(changes, reason, tmp_path):
    sampler, _, config = problem("vectors")
    path = tmp_path / "pca.safetensors"
    METHODS["pca"](config, SHORT).fit(sampler).save(path)
    tensors, header = read_tensors(path, "method")
    write_tensors(path, tensors, {**header, **changes})
    with pytest.raises(CheckpointError, match=rf"{path} .*{reason}"):
        load_method(path)


@pytest.mark.parametrize("name", ["frame.scale", "frame.shift", "model.encoder.weight"])
def test_numbers_of_methods_that_are_not_finite_are_refused(name, tmp_path):
    sampler, _, config = problem("vectors")
    path = tmp_path / "pca.safetensors"
    METHODS["pca"](config, SHORT).fit(sampler).save(path)
    tensors, header = read_tensors(path, "method")
    write_tensors(path, {**tensors, name: torch.full_like(tensors[name], torch.inf)}, header)
    with pytest.raises(CheckpointError, match=rf"{path} .*{name} holds NaN or infinity"):
        load_method(path)


def test_an_interrupted_fit_goes_on_in_its_folder(tmp_path, monkeypatch):
    sampler, validation, config = problem("vectors")
    training = replace(SHORT, steps=6)
    whole = Proto(config, training).fit(sampler, validation)
    draw, drawn = TaskSampler.batch, []

    def interrupted(self, step):
        drawn.append(step)
        if len(drawn) == 5:
            raise KeyboardInterrupt
        return draw(self, step)

    monkeypatch.setattr(TaskSampler, "batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Proto(config, training).fit(sampler, validation, folder=tmp_path / "run")
    resumed = Proto(config, training).fit(sampler, validation, folder=tmp_path / "run")
    assert drawn == [0, 1, 2, 3, 4, 4, 5]
    torch.testing.assert_close(resumed.transform(sampler.x), whole.transform(sampler.x), rtol=0, atol=0)
