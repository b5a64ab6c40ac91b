"""How well a model clusters tasks whose categories are known."""

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
from metaclust.training.episodes import Task


def mean_error(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """The mean and its standard error; a single value has none (NaN)."""
    array = np.asarray(values, np.float64)
    return float(array.mean()), float(array.std(ddof=1) / np.sqrt(len(array))) if len(array) > 1 else float("nan")


def mean_error_text(values: Sequence[float] | NDArray[np.float64]) -> str:
    """The mean and its standard error, where there is one.

    >>> mean_error_text([0.9, 0.8]), mean_error_text([0.5])
    ('0.850 ± 0.050', '0.500')
    """
    mean, error = mean_error(values)
    return f"{mean:.3f}" + (f" ± {error:.3f}" if np.isfinite(error) else "")


@dataclass(frozen=True)
class Evaluation:
    """One entry for each task."""

    ari: NDArray[np.float64]
    found: NDArray[np.int64]
    true: NDArray[np.int64]

    @property
    def k_error(self) -> float:
        """The mean of |K found - K|."""
        return float(np.abs(self.found - self.true).mean())

    def summary(self) -> dict[str, Any]:
        """For a results file: means over the tasks."""
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
    x : tensor or SparseRows
        The rows that the tasks are drawn from. Each row is encoded once, whatever tasks it is in.
    tasks : sequence of Task
    pipeline : Pipeline, optional
        How tasks are clustered; by default as :meth:`MetaClusterer.cluster` does with this model.
    seed : int
        Random seed.
    among : Processes
        Several processes share the tasks; together they find what one would find.

    Returns
    -------
    Evaluation
    """
    own = among.part(len(tasks))
    scores = np.zeros((len(tasks), 3))
    chosen = tasks[own.slice]
    if chosen or not tasks:
        rows, local = local_tasks(chosen)
        z = model.transform(x[torch.from_numpy(rows)])
        part = compare(chosen, cluster_tasks(model, z, local, pipeline=pipeline, seed=seed))
        scores[own.slice] = np.stack((part.ari, part.found, part.true), 1)
    ari, clusters, true = among.sum(torch.from_numpy(scores)).numpy().T
    return Evaluation(ari, clusters.astype(np.int64), true.astype(np.int64))


def local_tasks(tasks: Sequence[Task]) -> tuple[NDArray[np.int64], list[Task]]:
    """The rows that are in any of the tasks, each once, and the tasks over those rows."""
    if not tasks:
        raise ValueError("tasks is empty: pass at least one task (TaskSampler.fixed draws some)")
    rows, place = np.unique(np.concatenate([task.rows for task in tasks]), return_inverse=True)
    ends = np.cumsum([len(task.rows) for task in tasks])[:-1]
    return rows, [replace(task, rows=part) for task, part in zip(tasks, np.split(place, ends), strict=True)]


def cluster_tasks(
    model: ClusteringModel,
    z: Float[Tensor, "rows s"],
    tasks: Sequence[Task],
    *,
    pipeline: Pipeline | None = None,
    seed: int = 0,
) -> list[NDArray[np.int64]]:
    """Return the cluster of each row of each task, from the representations of all rows.

    Without a ``pipeline``, as :meth:`MetaClusterer.cluster` finds them.
    """
    limit = model.config.max_clusters
    search = Search(limit, effective_rows=model.config.effective_rows, seed=seed)
    values = z.float().cpu().numpy()
    found = []
    with torch.random.fork_rng([]):
        for task in tasks:
            # A model without a task network draws its start.
            torch.manual_seed(seed)
            rows = values[task.rows]
            if pipeline is None:
                # In the order of the task: one by the rows would change with the last bit of a representation.
                found.append(cluster_in_order(model, rows, search).components.assigned(rows)[0])
            else:
                found.append(pipeline(model, pipeline.sample(rows), limit, seed).best.labels)
    return found


def compare(tasks: Sequence[Task], found: Sequence[NDArray[np.int64]]) -> Evaluation:
    """Found labels against the categories of each task."""
    return Evaluation(
        np.array([adjusted_rand_score(task.labels, labels) for task, labels in zip(tasks, found, strict=True)]),
        np.array([len(np.unique(labels)) for labels in found]),
        np.array([task.n_categories for task in tasks]),
    )
