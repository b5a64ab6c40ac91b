"""Every method of the comparison through the same checks: fit, transform, cluster, save, load."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from metaclust._util.tensors import CheckpointError
from metaclust.data.sparse import SparseRows
from metaclust.experiments.methods import METHODS, EncoderMethod, base, load_method
from metaclust.experiments.methods.base import choose_frame
from metaclust.experiments.methods.ours import Ours
from metaclust.experiments.methods.proto import Proto
from metaclust.experiments.methods.vade import VaDE, VaDENetwork
from metaclust.model.checkpoint import save_model
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.training.augmentation import ImageAugmentation
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import Task, TaskSampler
from metaclust.training.evaluation import compare


@pytest.fixture(autouse=True)
def _few_frames(request, monkeypatch):
    """Three frames are tried instead of six; the one test that is about frames tries all."""
    if "frame" not in request.node.name:
        monkeypatch.setattr(base, "SPREADS", (2.0, 8.0))


SHORT = TrainingConfig(pretrain_steps=3, steps=3, validate_every=2, validation_starts=2)


def blobs(categories: int = 12, rows: int = 8, width: int = 6, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    """Well separated categories."""
    generator = np.random.default_rng(seed)
    y = np.repeat(np.arange(categories), rows)
    x = 4 * generator.normal(size=(categories, width))[y] + 0.3 * generator.normal(size=(len(y), width))
    return torch.from_numpy(x.astype(np.float32)), y


def problem(kind: str) -> tuple[TaskSampler, list[Task], ModelConfig]:
    """Training tasks of eight categories, validation tasks of four others, the settings of a small model."""
    x, y = blobs()
    augment = None
    shape: tuple[int, ...] = (6,)
    rows: torch.Tensor | SparseRows = x
    if kind == "images":
        # An image of noise that differs by category.
        patterns = np.random.default_rng(0).integers(0, 200, (12, 1, 9, 9))[y]
        rows = torch.from_numpy(
            np.clip(patterns + np.arange(len(y))[:, None, None, None] % 40, 0, 255).astype(np.uint8)
        )
        shape, augment = (1, 9, 9), ImageAugmentation(turn_categories=True)
    elif kind == "sparse":
        rows = SparseRows(sparse.csr_array(np.maximum(x.numpy(), 0)))
    sampler = TaskSampler(rows, y, np.arange(8), (2, 4), tasks=2, augment=augment)
    validation = replace(sampler, categories=np.arange(8, 12), augment=None).fixed(2)
    config = ModelConfig(shape, representation=3, max_clusters=5, steps=2, hidden=16, filters=4)
    return sampler, validation, config


@pytest.mark.parametrize("kind", ["vectors", "images", "sparse"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_fits_transforms_clusters_saves_and_loads(name, kind, tmp_path):
    sampler, validation, config = problem(kind)
    method = METHODS[name](config, SHORT)
    assert method.fit(sampler, validation) is method
    assert method.seconds > 0
    new = sampler.x[torch.arange(64, 96)]
    labels = method.cluster(new)
    assert labels.shape == (32,)
    assert labels.dtype == np.int64
    assert 0 <= labels.min() <= labels.max() < 5
    z = method.transform(new)
    assert z.shape == (32, 3)
    assert z.isfinite().all()
    path = tmp_path / "method.safetensors"
    method.save(path)
    again = load_method(path)
    assert type(again) is type(method)
    assert again.config == method.config
    assert again.training == method.training
    torch.testing.assert_close(again.transform(new), z, rtol=0, atol=0)
    np.testing.assert_array_equal(again.cluster(new), labels)


@pytest.mark.parametrize("name", METHODS)
def test_tasks_are_clustered_as_each_by_itself_would_be_and_labels_are_not_looked_at(name):
    sampler, validation, config = problem("vectors")
    method = METHODS[name](config, SHORT).fit(sampler, validation)
    tasks = validation[:2]
    blind = [replace(task, labels=np.zeros_like(task.labels)) for task in tasks]
    found = method.cluster_tasks(sampler.x, tasks)
    assert [len(labels) for labels in found] == [len(task.rows) for task in tasks]
    for labels, other in zip(found, method.cluster_tasks(sampler.x, blind), strict=True):
        np.testing.assert_array_equal(labels, other)


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize("name", sorted(set(METHODS) - {"vade"}))
def test_the_same_seed_gives_the_same_weights_and_another_gives_others(name):
    sampler, validation, config = problem("vectors")

    def representations(seed: int) -> torch.Tensor:
        method = METHODS[name](config, replace(SHORT, seed=seed))
        return method.fit(sampler, validation).transform(sampler.x)

    torch.testing.assert_close(representations(0), representations(0), rtol=0, atol=0)
    if name not in ("pca", "flda"):
        assert not torch.equal(representations(0), representations(1))


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


@pytest.mark.parametrize("name", METHODS)
def test_settings_adapted_twice_are_adapted_once(name):
    """For a file holds the adapted ones."""
    _, _, config = problem("vectors")
    if name == "without-pretraining":
        assert METHODS[name](config, SHORT).training.steps == 6
    once = METHODS[name](config, SHORT)
    twice = METHODS[name](once.config, once.training)
    assert (twice.config, twice.training) == (once.config, once.training)


def test_each_ablation_changes_what_its_name_says():
    _, _, config = problem("vectors")

    def settings(name):
        method = METHODS[name](config, SHORT)
        return method.config, method.training

    assert settings("ours") == (config, SHORT)
    assert settings("without-f_r") == (replace(config, initial="random"), SHORT)
    assert settings("with-em") == (replace(config, inference="em"), SHORT)
    assert settings("with-prob") == (config, replace(SHORT, distance="prob"))
    assert settings("full-covariance") == (replace(config, components="full"), SHORT)
    assert settings("unit-mean-covariance") == (replace(config, mean_covariance="unit"), SHORT)
    assert settings("optimal-mean-covariance") == (config, SHORT)
    paper, recipe = settings("paper-recipe")
    assert (paper.steps, paper.mean_covariance) == (10, "unit")
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


def test_encoder_methods_share_the_encoder():
    _, _, config = problem("images")
    shapes = {
        name: [tuple(weight.shape) for weight in METHODS[name](config, SHORT).model.encoder.parameters()]
        for name in METHODS
        if issubclass(METHODS[name], EncoderMethod) and name not in ("pca", "flda")
    }
    assert len({tuple(shape) for shape in shapes.values()}) == 1
