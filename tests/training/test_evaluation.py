"""How well a model clusters tasks whose categories are known."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import nn

from metaclust import ClusteringModel, Evaluation, ModelConfig, TaskSampler, evaluate


class Counting(nn.Module):
    """The rows as they are, and how many of them passed."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.rows = 0

    def forward(self, x):
        self.rows += len(x)
        return self.scale * x


def blobs(categories=8, rows=15):
    y = np.repeat(np.arange(categories), rows)
    return 1.5 * torch.randn(categories, 3)[y] + 0.5 * torch.randn(len(y), 3), y


def clustering_model(**changes):
    settings = {"representation": 3, "max_clusters": 6, "steps": 8, "hidden": 16, **changes}
    return ClusteringModel(ModelConfig((3,), **settings), Counting())


def some_tasks(x, y):
    return TaskSampler(x, y, np.unique(y), n_categories=(2, 5), rows=(3, 15)).fixed(8)


@pytest.mark.parametrize("initial", ["network", "random"])
@pytest.mark.parametrize("starts", [1, 4])
def test_the_index_is_scikit_learns_for_the_most_likely_clusters(initial, starts):
    x, y = blobs()
    tasks = some_tasks(x, y)
    model = clustering_model(initial=initial)
    result = evaluate(model, x, tasks, starts=starts, steps=30, seed=3, block=1)
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(3)
    for task, ari, found, true in zip(tasks, result.ari, result.found, result.true, strict=True):
        z = model.transform(x[task.rows])[None]
        posterior = model.infer(z, starts=starts, steps=30, generator=generator)
        labels = posterior.r[0].argmax(-1).numpy()
        assert ari == pytest.approx(adjusted_rand_score(task.labels, labels), abs=1e-12)
        assert (found, true) == (len(np.unique(labels)), len(np.unique(y[task.rows])))
    assert len(np.unique(result.ari)) > 1


def test_separated_categories_are_found():
    y = np.repeat(np.arange(6), 12)
    x = 3 * torch.eye(6)[y, :3] - 3 * torch.eye(6)[y, 3:] + 0.1 * torch.randn(72, 3)
    tasks = TaskSampler(x, y, np.unique(y), n_categories=(2, 5)).fixed(6)
    result = evaluate(clustering_model(), x, tasks)
    assert result.ari.min() == pytest.approx(1)
    assert result.k_error == 0


def test_the_error_in_k_is_the_mean_of_the_absolute_differences():
    result = Evaluation(np.zeros(3), np.array([2, 5, 3]), np.array([4, 4, 3]))
    assert result.k_error == pytest.approx((2 + 1 + 0) / 3)


def test_each_row_is_encoded_once():
    x, y = blobs()
    tasks = some_tasks(x, y)
    model = clustering_model()
    evaluate(model, x, tasks)
    drawn = np.concatenate([task.rows for task in tasks])
    assert model.encoder.rows == len(np.unique(drawn)) < len(drawn)


@pytest.mark.parametrize("initial", ["network", "random"])
def test_the_seed_alone_decides(initial):
    x, y = blobs()
    tasks = some_tasks(x, y)
    model = clustering_model(initial=initial)
    one = evaluate(model, x, tasks, starts=3)
    torch.manual_seed(99)
    again = evaluate(model, x, tasks, starts=3)
    assert one.ari.tolist() == again.ari.tolist()
    assert one.found.tolist() == again.found.tolist()


def test_neither_the_size_of_the_blocks_nor_padding_changes_anything():
    x, y = blobs()
    tasks = some_tasks(x, y)
    model = clustering_model()
    with torch.no_grad():
        # So that the first cluster stays empty: padding must not count as a row of it.
        model.task_network.f_r[-1].bias[0] = -1e4
    whole, parts, single = (evaluate(model, x, tasks, starts=1, steps=30, block=block) for block in (64, 3, 1))
    for other in (parts, single):
        np.testing.assert_allclose(whole.ari, other.ari, atol=1e-12)
        assert whole.found.tolist() == other.found.tolist()


@pytest.mark.parametrize("training", [True, False])
def test_the_callers_random_numbers_and_mode_are_left_alone(training):
    x, y = blobs()
    model = clustering_model(initial="random").train(training)
    state = torch.get_rng_state()
    evaluate(model, x, some_tasks(x, y), starts=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training is training


def test_the_papers_way_takes_the_models_steps():
    x, y = blobs()
    tasks = some_tasks(x, y)
    model = clustering_model(steps=2)
    two, papers, many = (
        evaluate(model, x, tasks, starts=1, **options)
        for options in ({"tol": None, "steps": 2}, {"tol": None}, {"tol": 1e-8})
    )
    assert two.ari.tolist() == papers.ari.tolist()
    assert two.ari.tolist() != many.ari.tolist()
