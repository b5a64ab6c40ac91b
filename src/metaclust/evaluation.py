"""How well a model clusters tasks whose categories are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from metaclust.data.sparse import SparseRows
from metaclust.episodes import Task, collate
from metaclust.model import ClusteringModel
from metaclust.objectives import soft_ari


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
) -> Evaluation:
    """Cluster each task by :meth:`ClusteringModel.infer` and compare with its categories.

    Each row is encoded once, whatever tasks it is in.
    """
    if not tasks:
        raise ValueError("tasks is empty: pass at least one task (TaskSampler.fixed draws some)")
    rows, place = np.unique(np.concatenate([task.rows for task in tasks]), return_inverse=True)
    z = model.transform(x[torch.from_numpy(rows)])
    ends = np.cumsum([len(task.rows) for task in tasks])[:-1]
    local = [replace(task, rows=part) for task, part in zip(tasks, np.split(place, ends), strict=True)]
    generator = torch.Generator().manual_seed(seed)
    ari, found = [], []
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        for start in range(0, len(local), block):
            batch = collate(z.cpu(), local[start : start + block]).to(z.device)
            posterior = model.infer(
                batch.pad(batch.x), batch.mask, starts=starts, tol=tol, steps=steps, generator=generator
            )
            r = posterior.assignments
            hard = one_hot(r.argmax(-1), r.shape[-1]) * batch.mask[..., None]
            ari.append(soft_ari(hard.to(r.dtype), batch.y, batch.mask).cpu())
            found.append((hard.sum(-2) > 0).sum(-1).cpu())
    return Evaluation(torch.cat(ari).numpy(), torch.cat(found).numpy(), np.array([task.n_categories for task in tasks]))
