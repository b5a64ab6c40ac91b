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
from metaclust.model.clustering_model import ClusteringModel
from metaclust.training.episodes import Task, collate


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
    starts: int = 10,
    tol: float | None = 1e-5,
    steps: int | None = None,
    seed: int = 0,
    block: int = 64,
    among: Processes = ALONE,
) -> Evaluation:
    """Cluster each task by :meth:`ClusteringModel.infer` and compare with its categories.

    Each row is encoded once, whatever tasks it is in. Several processes have a part of each block of tasks each, and
    what they find is what one would find.
    """
    block = max(block, among.world)
    own = [start + i for start in range(0, len(tasks), block) for i in part_of(among, tasks[start : start + block])]
    figures = np.zeros((len(tasks), 3))
    if own or not tasks:
        chosen = [tasks[i] for i in own]
        rows, local = local_tasks(chosen)
        z = model.transform(x[torch.from_numpy(rows)])
        inference = {"starts": starts, "tol": tol, "steps": steps, "seed": seed, "block": block}
        sizes = [len(task.rows) for task in tasks]
        found = cluster_tasks(model, z, local, **inference, among=among, sizes=sizes)  # type: ignore[arg-type]
        part = compare(chosen, found)
        figures[own] = np.stack((part.ari, part.found, part.true), 1)
    ari, clusters, true = among.sum(torch.from_numpy(figures)).numpy().T
    return Evaluation(ari, clusters.astype(np.int64), true.astype(np.int64))


def part_of(among: Processes, tasks: Sequence[Task]) -> range:
    part = among.part(len(tasks))
    return range(part.first, part.last)


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
    starts: int = 10,
    tol: float | None = 1e-5,
    steps: int | None = None,
    seed: int = 0,
    block: int = 64,
    among: Processes = ALONE,
    sizes: Sequence[int] | None = None,
) -> list[NDArray[np.int64]]:
    """The cluster of each row of each task, from the representations of all rows; many tasks at a time.

    Of several processes, ``tasks`` are this one's parts of the blocks of tasks of ``sizes`` rows.
    """
    generator = torch.Generator().manual_seed(seed)
    found: list[NDArray[np.int64]] = []
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        sizes = [len(task.rows) for task in tasks] if sizes is None else sizes
        for start in range(0, len(sizes), block):
            every = sizes[start : start + block]
            part = among.part(len(every))
            some = tasks[len(found) : len(found) + len(part)]
            if not some:
                # In the last block alone, after which nothing is drawn.
                break
            batch = collate(z.cpu(), some, max(every)).to(z.device)
            posterior = model.infer(
                batch.pad(batch.x), batch.mask, starts=starts, tol=tol, steps=steps, generator=generator, part=part
            )
            hard = posterior.assignments.argmax(-1).cpu().numpy()
            found += [row[present] for row, present in zip(hard, batch.mask.cpu().numpy(), strict=True)]
    return found


def compare(tasks: Sequence[Task], found: Sequence[NDArray[np.int64]]) -> Evaluation:
    """Found labels against the categories of each task."""
    return Evaluation(
        np.array([adjusted_rand_score(task.labels, labels) for task, labels in zip(tasks, found, strict=True)]),
        np.array([len(np.unique(labels)) for labels in found]),
        np.array([task.n_categories for task in tasks]),
    )
