"""Clustering tasks, padded and masked into batches, and the part of a batch that one of several processes holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util.distributed import ALONE, AllRows, Part, Processes
from metaclust.data.sparse import SparseRows, dense

IntArray = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Task:
    """A clustering task: some rows of a data set and their categories.

    Attributes
    ----------
    rows : ndarray of int
        The indices of the rows in the data set.
    labels : ndarray of int
        The category of each row, numbered from 0 within the task.
    categories : ndarray of int
        The category in the data set that each label stands for.
    """

    rows: IntArray
    labels: IntArray
    categories: IntArray

    @property
    def n_categories(self) -> int:
        """The number of categories in the task."""
        return int(self.labels.max()) + 1

    def __repr__(self) -> str:
        return f"Task({len(self.rows)} rows, {len(self.categories)} categories)"


@dataclass(frozen=True, repr=False)
class Batch:
    """Several tasks, padded to the same number of rows.

    When a batch is divided among processes, ``x`` holds the rows of this process, ``y``, ``mask`` and ``index`` its
    tasks (none if the batch is divided by rows), and ``category`` still covers all rows.

    Attributes
    ----------
    x : Tensor of shape (m, ...)
        The rows of all tasks, without padding.
    category : Tensor of shape (m,)
        The category of each row in the data set.
    y : Tensor of shape (tasks, rows)
        The category of each row, numbered from 0 within its task; -1 for padding.
    mask : Tensor of shape (tasks, rows)
        False for padding.
    index : Tensor of shape (tasks, rows)
        The position in ``x`` of each row.
    rows, tasks : Part or None
        The rows and tasks of the whole batch that this process holds; None if the batch is not divided.
    among : Processes
        The processes that share the batch.
    """

    x: Tensor
    category: Int[Tensor, " m"]
    y: Int[Tensor, "b n"]
    mask: Bool[Tensor, "b n"]
    index: Int[Tensor, "b n"]
    rows: Part | None = None
    tasks: Part | None = None
    among: Processes = ALONE

    def __repr__(self) -> str:
        divided = "" if self.among.world == 1 else f", process {self.among.rank} of {self.among.world}"
        return f"Batch({len(self.y)} tasks, x of shape {tuple(self.x.shape)}{divided})"

    def pad(self, z: Float[Tensor, "m s"]) -> Float[Tensor, "b n s"]:
        """Arrange the values of each row by task, with zeros for padding."""
        padded = z.index_select(0, self.index.flatten()).reshape(*self.index.shape, -1)
        return padded.masked_fill(~self.mask[..., None], 0)

    def to(self, device: torch.device) -> Batch:
        """Return the batch with its tensors on ``device``."""
        values: dict[str, Any] = {name: v for name, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **{name: value.to(device, non_blocking=True) for name, value in values.items()})

    def of_all(self, z: Float[Tensor, "m s"]) -> Float[Tensor, "all s"]:
        """Gather the values of the rows of all processes; gradients flow back to each."""
        if self.rows is None:
            return z
        gathered: Tensor = AllRows.apply(z, self.rows, self.among)
        return gathered


def collate(x: Tensor | SparseRows, tasks: Sequence[Task], longest: int = 1) -> Batch:
    """Collect tasks of different sizes into one padded batch.

    Parameters
    ----------
    x : Tensor or SparseRows
        The rows that the tasks were drawn from.
    tasks : sequence of Task
        The tasks of the batch.
    longest : int, default=1
        Pad to at least this many rows.

    Returns
    -------
    Batch
    """
    rows, batch = numbered(tasks, longest)
    return replace(batch, x=dense(x[rows]))


def numbered(tasks: Sequence[Task], longest: int = 1) -> tuple[Int[Tensor, " m"], Batch]:
    """Return the indices of the rows of all tasks, and their padded batch with ``x`` still empty."""
    longest = max(longest, *(len(task.rows) for task in tasks))
    y = torch.full((len(tasks), longest), -1)
    index = torch.zeros((len(tasks), longest), dtype=torch.int64)
    start = 0
    for i, task in enumerate(tasks):
        size = len(task.rows)
        y[i, :size] = torch.from_numpy(task.labels)
        index[i, :size] = torch.arange(start, start + size)
        start += size
    rows = torch.from_numpy(np.concatenate([task.rows for task in tasks]))
    category = torch.from_numpy(np.concatenate([task.categories[task.labels] for task in tasks]))
    return rows, Batch(torch.empty(0), category, y, y >= 0, index)


def divided(batch: Batch, sizes: Sequence[int], among: Processes, by: Literal["tasks", "rows"]) -> Batch:
    """Return this process's part of a batch; ``sizes`` are the numbers of rows of its tasks."""
    tasks, rows = among.part(len(sizes)), among.part(sum(sizes))
    if by == "tasks":
        rows = Part(sum(sizes[: tasks.first]), sum(sizes[: tasks.last]), rows.total)
    else:
        tasks = Part(0, 0, len(sizes))
    if not len(rows):
        raise ValueError(
            f"{among.world} processes are too many for a batch of {len(sizes)} tasks and {rows.total} rows: "
            "start fewer, or draw larger batches"
        )
    y, mask, index = (value[tasks.slice] for value in (batch.y, batch.mask, batch.index))
    index = (index - rows.first).masked_fill(~mask, 0)
    return replace(batch, y=y, mask=mask, index=index, rows=rows, tasks=tasks, among=among)
