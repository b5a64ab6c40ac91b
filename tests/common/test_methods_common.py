"""Every registered method through the same checks: fit, transform, cluster, save and load, labels, seeds."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from method_tasks import SHORT, problem

from metaclust.experiments.methods import METHODS, EncoderMethod, Method, base, load_method

LINEAR = ("pca", "flda")


@pytest.fixture(autouse=True)
def _few_frames(monkeypatch):
    """Three frames are tried instead of six."""
    monkeypatch.setattr(base, "SPREADS", (2.0, 8.0))


@cache
def fitted(name: str) -> Method:
    """The method, fitted to vectors once for all tests."""
    sampler, validation, config = problem("vectors")
    return METHODS[name](config, SHORT).fit(sampler, validation)


@pytest.mark.parametrize("kind", ["vectors", "images", "sparse"])
@pytest.mark.parametrize("name", METHODS)
def test_fit_transform_cluster_save_and_load(name, kind, tmp_path):
    sampler, validation, config = problem(kind)
    method = fitted(name)
    if kind != "vectors":
        method = METHODS[name](config, SHORT)
        assert method.fit(sampler, validation) is method
    assert method.name == name
    assert method.seconds > 0
    new = sampler.x[torch.arange(64, 96)]
    labels = method.cluster(new)
    assert labels.shape == (32,)
    assert labels.dtype == np.int64
    assert 0 <= labels.min() <= labels.max() < config.max_clusters
    z = method.transform(new)
    assert z.shape == (32, config.representation)
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
def test_the_labels_of_tasks_are_not_used(name):
    """Neither which rows share a category, nor how many categories there are."""
    sampler, validation, _ = problem("vectors")
    method = fitted(name)
    found = method.cluster_tasks(sampler.x, validation)
    assert [len(labels) for labels in found] == [len(task.rows) for task in validation]
    assert max(len(np.unique(labels)) for labels in found) > 1
    shuffle = np.random.default_rng(0).permutation
    for other in (
        [replace(task, labels=shuffle(task.labels)) for task in validation],
        [replace(task, labels=np.zeros_like(task.labels), categories=task.categories[:1]) for task in validation],
    ):
        for labels, blind in zip(found, method.cluster_tasks(sampler.x, other), strict=True):
            np.testing.assert_array_equal(labels, blind)


NETWORK_STARTED = [
    name
    for name, method in METHODS.items()
    if issubclass(method, EncoderMethod) and method.adapt(problem("vectors")[2], SHORT)[0].initial == "network"
]


@pytest.mark.parametrize("name", NETWORK_STARTED)
def test_tasks_are_clustered_as_each_by_itself(name):
    """From the network's own start; further starts are drawn for all tasks together."""
    sampler, validation, _ = problem("vectors")
    method = fitted(name)
    together = method.cluster_tasks(sampler.x, validation, starts=1)
    for task, labels in zip(validation, together, strict=True):
        (alone,) = method.cluster_tasks(sampler.x, [task], starts=1)
        np.testing.assert_array_equal(labels, alone)


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_weights_and_another_gives_others(name):
    sampler, validation, config = problem("vectors")

    def representations(seed: int) -> torch.Tensor:
        method = METHODS[name](config, replace(SHORT, seed=seed))
        return method.fit(sampler, validation).transform(sampler.x)

    # VaDE has the networks of the task that it was last given.
    first = representations(0) if name == "vade" else fitted(name).transform(sampler.x)
    torch.testing.assert_close(representations(0), first, rtol=0, atol=0)
    if name not in LINEAR:
        assert not torch.equal(representations(1), first)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_clusters(name):
    x = problem("vectors")[0].x
    first = fitted(name).cluster(x, seed=3)
    # Nor does it matter what was drawn in between.
    torch.rand(5)
    np.testing.assert_array_equal(fitted(name).cluster(x, seed=3), first)


@pytest.mark.parametrize("name", METHODS)
def test_settings_adapted_twice_are_adapted_once(name):
    """A file holds the adapted settings, which loading adapts again."""
    _, _, config = problem("vectors")
    once = METHODS[name](config, SHORT)
    twice = METHODS[name](once.config, once.training)
    assert (twice.config, twice.training) == (once.config, once.training)


def test_encoder_methods_share_the_encoder():
    _, _, config = problem("images")
    shapes = {
        name: [tuple(weight.shape) for weight in METHODS[name](config, SHORT).model.encoder.parameters()]
        for name in METHODS
        if issubclass(METHODS[name], EncoderMethod) and name not in LINEAR
    }
    assert len(shapes) > 10
    assert len({tuple(shape) for shape in shapes.values()}) == 1
