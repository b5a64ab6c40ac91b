"""How well a model clusters tasks whose categories are known."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import nn

from metaclust import ClusteringModel, Evaluation, ModelConfig, TaskSampler, evaluate
from metaclust.inference.cluster import cluster_in_order
from metaclust.inference.pipeline import Search, paper_pipeline


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
def test_the_index_is_scikit_learns_for_the_selected_clusters(initial, starts):
    x, y = blobs()
    tasks = some_tasks(x, y)
    model = clustering_model(initial=initial)
    pipeline = paper_pipeline(starts, steps=30)
    result = evaluate(model, x, tasks, pipeline=pipeline, seed=3)
    for task, ari, found, true in zip(tasks, result.ari, result.found, result.true, strict=True):
        torch.manual_seed(3)
        z = model.transform(x[task.rows]).numpy()
        labels = pipeline(model, pipeline.sample(z), 6, 3).best.labels
        assert ari == pytest.approx(adjusted_rand_score(task.labels, labels), abs=1e-12)
        assert (found, true) == (len(np.unique(labels)), len(np.unique(y[task.rows])))
    assert len(np.unique(result.ari)) > 1


def test_by_default_tasks_are_clustered_as_the_estimator_does():
    x, y = blobs()
    tasks = some_tasks(x, y)
    model = clustering_model(learn_prior=True)
    result = evaluate(model, x, tasks)
    for task, ari in zip(tasks, result.ari, strict=True):
        z = model.transform(x[task.rows]).numpy()
        labels = cluster_in_order(model, z, Search(6, choose="bound")).components.assigned(z)[0]
        assert ari == pytest.approx(adjusted_rand_score(task.labels, labels), abs=1e-12)


@pytest.mark.parametrize("inference", ["vb", "em"])
@pytest.mark.parametrize("tol", [None, 1e-5])
def test_more_starts_never_lower_the_bound_of_any_task(inference, tol):
    x, y = blobs()
    model = clustering_model(inference=inference)
    better = []
    for task in some_tasks(x, y):
        z = model.transform(x[task.rows]).numpy()
        ends = [paper_pipeline(starts, tol, 40) for starts in (1, 5, 10)]
        one, more, most = (end(model, end.sample(z), 6).best.bound for end in ends)
        assert min(more, most) >= one
        better.append(most > one)
    assert any(better)


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
    one = evaluate(model, x, tasks, pipeline=paper_pipeline(3))
    torch.manual_seed(99)
    again = evaluate(model, x, tasks, pipeline=paper_pipeline(3))
    assert one.ari.tolist() == again.ari.tolist()
    assert one.found.tolist() == again.found.tolist()


@pytest.mark.parametrize("training", [True, False])
def test_the_callers_random_numbers_and_mode_are_left_alone(training):
    x, y = blobs()
    model = clustering_model(initial="random").train(training)
    state = torch.get_rng_state()
    evaluate(model, x, some_tasks(x, y), pipeline=paper_pipeline(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training is training


def test_the_papers_way_takes_the_steps_it_is_given_from_the_models_own_start():
    x, y = blobs()
    tasks = some_tasks(x, y)
    model = clustering_model(steps=2)
    two, many = (evaluate(model, x, tasks, pipeline=paper_pipeline(1, None, steps)) for steps in (2, 50))
    for task, ari in zip(tasks, two.ari, strict=True):
        labels = model.infer(model.transform(x[task.rows])).r.argmax(-1).numpy()
        assert ari == pytest.approx(adjusted_rand_score(task.labels, labels), abs=1e-12)
    assert two.ari.tolist() != many.ari.tolist()


@pytest.mark.parametrize("arguments", [{"starts": 0}, {"steps": 0}], ids=str)
def test_a_wrong_argument_of_the_pipeline_is_named(arguments):
    name = next(iter(arguments))
    with pytest.raises(ValueError, match=f"{name}=0"):
        paper_pipeline(**arguments)
