"""Evaluation of a model on tasks with known categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from metaclust._util.distributed import ALONE, Processes
from metaclust.data.sparse import SparseRows
from metaclust.inference.cluster import cluster_in_order
from metaclust.inference.pipeline import Pipeline, Search
from metaclust.model.clustering_model import ClusteringModel
from metaclust.training.batches import Task


def mean_error(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean and its standard error, which is NaN for a single value."""
    array = np.asarray(values, np.float64)
    return float(array.mean()), float(array.std(ddof=1) / np.sqrt(len(array))) if len(array) > 1 else float("nan")


def mean_error_text(values: Sequence[float] | NDArray[np.float64]) -> str:
    """Format the mean and its standard error, if there is one.

    >>> mean_error_text([0.9, 0.8]), mean_error_text([0.5])
    ('0.850 ± 0.050', '0.500')
    """
    mean, error = mean_error(values)
    return f"{mean:.3f}" + (f" ± {error:.3f}" if np.isfinite(error) else "")


@dataclass(frozen=True)
class Evaluation:
    """The scores of a model on a sequence of tasks.

    Attributes
    ----------
    ari : ndarray of shape (tasks,)
        The adjusted Rand index of each task.
    found : ndarray of shape (tasks,)
        The number of clusters found.
    true : ndarray of shape (tasks,)
        The number of categories.
    """

    ari: NDArray[np.float64]
    found: NDArray[np.int64]
    true: NDArray[np.int64]

    @property
    def k_error(self) -> float:
        """The mean absolute difference between the numbers of clusters and of categories."""
        return float(np.abs(self.found - self.true).mean())

    def summary(self) -> dict[str, Any]:
        """Return the means over the tasks, rounded for a results file."""
        mean, error = mean_error(self.ari)
        return {
            "ari": round(mean, 5),
            "ari_error": round(error, 5) if len(self.ari) > 1 else None,
            "k_error": round(self.k_error, 4),
            "tasks": len(self.ari),
        }


def evaluate(
    model: ClusteringModel,
    x: Tensor | SparseRows,
    tasks: Sequence[Task],
    *,
    pipeline: Pipeline | None = None,
    seed: int = 0,
    among: Processes = ALONE,
) -> Evaluation:
    """Cluster each task and compare the clusters with its categories.

    Parameters
    ----------
    model : ClusteringModel
        The trained model.
    x : Tensor or SparseRows
        The rows that the tasks were drawn from. Each row is encoded once, even if several tasks contain it.
    tasks : sequence of Task
        The tasks to cluster.
    pipeline : Pipeline, optional
        How to cluster each task; by default as :meth:`MetaClusterer.cluster` does.
    seed : int, default=0
        Random seed.
    among : Processes
        The processes that share the tasks. The result does not depend on their number.

    Returns
    -------
    Evaluation
    """
    own = among.part(len(tasks))
    scores = np.zeros((len(tasks), 3))
    own_tasks = tasks[own.slice]
    if own_tasks or not tasks:
        rows, local = local_tasks(own_tasks)
        z = model.transform(x[torch.from_numpy(rows)])
        part = compare(own_tasks, cluster_tasks(model, z, local, pipeline=pipeline, seed=seed))
        scores[own.slice] = np.stack((part.ari, part.found, part.true), 1)
    ari, found, true = among.sum(torch.from_numpy(scores)).numpy().T
    return Evaluation(ari, found.astype(np.int64), true.astype(np.int64))


def local_tasks(tasks: Sequence[Task]) -> tuple[NDArray[np.int64], list[Task]]:
    """Return the distinct rows of the tasks, and the tasks with indices into those rows."""
    if not tasks:
        raise ValueError("tasks is empty: pass at least one task (TaskSampler.fixed draws some)")
    rows, index = np.unique(np.concatenate([task.rows for task in tasks]), return_inverse=True)
    ends = np.cumsum([len(task.rows) for task in tasks])[:-1]
    return rows, [replace(task, rows=part) for task, part in zip(tasks, np.split(index, ends), strict=True)]


def cluster_tasks(
    model: ClusteringModel,
    z: Float[Tensor, "rows s"],
    tasks: Sequence[Task],
    *,
    pipeline: Pipeline | None = None,
    seed: int = 0,
) -> list[NDArray[np.int64]]:
    """Return the cluster of each row of each task, from the representations of all rows.

    Without a ``pipeline``, cluster as :meth:`MetaClusterer.cluster` does; with one, at most as many clusters are found
    as there may be in training.
    """
    search = Search.of(model, seed)
    values = z.float().cpu().numpy()
    found = []
    with torch.random.fork_rng([]):
        for task in tasks:
            # A model without a task network starts at random.
            torch.manual_seed(seed)
            rows = values[task.rows]
            if pipeline is None:
                # In the order of the task: sorting by the rows would depend on the last bit of a representation.
                found.append(cluster_in_order(model, rows, search).components.assigned(rows)[0])
            else:
                limit = model.config.max_clusters
                found.append(pipeline(model, pipeline.sample(rows), limit, seed).best.labels)
    return found


def compare(tasks: Sequence[Task], found: Sequence[NDArray[np.int64]]) -> Evaluation:
    """Compare the labels found with the categories of each task."""
    return Evaluation(
        np.array([adjusted_rand_score(task.labels, labels) for task, labels in zip(tasks, found, strict=True)]),
        np.array([len(np.unique(labels)) for labels in found]),
        np.array([task.n_categories for task in tasks]),
    )
