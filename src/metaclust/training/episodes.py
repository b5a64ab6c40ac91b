"""Small clustering tasks drawn from labelled data, padded and masked into batches (Algorithm 2, lines 3 to 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from metaclust._util.checks import check_seed
from metaclust._util.distributed import ALONE, AllRows, Part, Processes
from metaclust.data.sparse import SparseRows, dense
from metaclust.training.augmentation import ImageAugmentation

IntArray = NDArray[np.int64]
Augment = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""(rows, the category of each row, generator) -> rows."""


@dataclass(frozen=True)
class Split:
    """Categories for training, for validation and for testing; none is in two of them."""

    train: IntArray
    validation: IntArray
    test: IntArray


def split_categories(y: ArrayLike, seed: int, fractions: tuple[float, float, float] = (0.6, 0.2, 0.2)) -> Split:
    """Divide the categories of ``y``, not its rows, at random by ``seed``.

    >>> split = split_categories([0, 0, 1, 2, 3, 4], seed=0)
    >>> len(split.train), len(split.validation), len(split.test)
    (3, 1, 1)
    """
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-9:
        raise ValueError(f"fractions={fractions}: give three shares of 0 or more that add up to 1")
    check_seed(seed)
    categories = np.unique(integers(y, "y"))
    order = np.random.default_rng([seed, 0x5B1]).permutation(categories)
    first = round(fractions[0] * len(order))
    second = first + round(fractions[1] * len(order))
    return Split(np.sort(order[:first]), np.sort(order[first:second]), np.sort(order[second:]))


@dataclass(frozen=True)
class Task:
    """Rows of the data set and their categories, numbered from 0 in the task."""

    rows: IntArray
    labels: IntArray
    categories: IntArray
    """The category in the data set that each number stands for."""

    @property
    def n_categories(self) -> int:
        return int(self.labels.max()) + 1


@dataclass(frozen=True)
class Batch:
    """Tasks side by side. ``x`` holds the real rows only; ``index`` places them in the padded (tasks, rows).

    Divided over processes, ``x`` are the own rows, and ``y``, ``mask`` and ``index`` are of the own tasks, of which a
    batch that is divided by rows has none; ``category`` is that of all rows.
    """

    x: Tensor
    category: Int[Tensor, " m"]
    """The category of each real row in the data set, where ``y`` numbers them within the task."""
    y: Int[Tensor, "b n"]
    mask: Bool[Tensor, "b n"]
    index: Int[Tensor, "b n"]
    rows: Part | None = None
    """Which rows of the whole batch ``x`` is, where it is divided."""
    tasks: Part | None = None
    among: Processes = ALONE

    def pad(self, z: Float[Tensor, "m s"]) -> Float[Tensor, "b n s"]:
        """Put what was computed for each real row in its place; padding is zero."""
        padded = z.index_select(0, self.index.flatten()).reshape(*self.index.shape, -1)
        return padded.masked_fill(~self.mask[..., None], 0)

    def to(self, device: torch.device) -> Batch:
        values: dict[str, Any] = {name: v for name, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **{name: value.to(device, non_blocking=True) for name, value in values.items()})

    def of_all(self, z: Float[Tensor, "m s"]) -> Float[Tensor, "all s"]:
        """What was computed for the own rows, and for those of all other processes; the gradient finds its way back."""
        if self.rows is None:
            return z
        every: Tensor = AllRows.apply(z, self.rows, self.among)
        return every


def collate(x: Tensor | SparseRows, tasks: Sequence[Task], longest: int = 1) -> Batch:
    """Gather the rows of several tasks of different sizes, padded to the longest of them, or to ``longest``."""
    rows, batch = numbered(tasks, longest)
    return replace(batch, x=dense(x[rows]))


def numbered(tasks: Sequence[Task], longest: int = 1) -> tuple[Int[Tensor, " m"], Batch]:
    """The rows of several tasks of different sizes, and the batch but for what is in these rows."""
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


@dataclass(frozen=True)
class TaskSampler:
    """Draws tasks from the rows of ``categories``; what it draws depends on (seed, step) alone.

    ``n_categories`` is the range from which the number of categories is drawn. ``rows`` is the number of rows of
    each category: None for all of them, a number, or a range; from a range, one number is drawn for a task, or,
    if ``imbalanced``, one for each category, uniformly in its logarithm. ``tasks`` tasks make a batch.
    """

    x: Tensor | SparseRows
    y: IntArray
    categories: IntArray
    n_categories: tuple[int, int] = (2, 10)
    rows: int | tuple[int, int] | None = None
    imbalanced: bool = False
    tasks: int = 4
    seed: int = 0
    augment: Augment | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.x, Tensor | SparseRows):
            raise TypeError(f"x is {type(self.x).__name__}: pass a tensor of numbers (torch.as_tensor(array))")
        if len(self.x.shape) < 2:
            raise ValueError(
                f"x has shape {tuple(self.x.shape)}: it needs rows and columns (x[:, None] for one column)"
            )
        if isinstance(self.x, SparseRows) or self.x.is_floating_point():
            finite = self.x.finite() if isinstance(self.x, SparseRows) else self.x.flatten(1).isfinite().all(1)
            if not bool(finite.all()):
                row = int((~finite).nonzero()[0])
                raise ValueError(f"x holds NaN or infinity, first in row {row}: remove or impute such rows")
        object.__setattr__(self, "y", integers(self.y, "y"))
        object.__setattr__(self, "categories", np.unique(integers(self.categories, "categories")))
        if len(self.x) != len(self.y):
            raise ValueError(f"x has {len(self.x)} rows and y {len(self.y)}: there must be one category for each row")
        missing = np.setdiff1d(self.categories, self.y)
        if len(missing):
            raise ValueError(f"categories {missing[:5].tolist()} have no rows in y: leave them out of `categories`")
        check_seed(self.seed)
        low, high = self.n_categories
        if not (isinstance(low, int) and isinstance(high, int) and 1 <= low <= high):
            raise ValueError(f"n_categories={self.n_categories}: give a range (low, high) with 1 <= low <= high")
        if len(self.categories) < low:
            raise ValueError(
                f"categories has {len(self.categories)} entries, but n_categories={self.n_categories} asks for at "
                f"least {low} in a task: give more labelled categories or lower n_categories"
            )
        if self.rows is not None:
            least, most = self.rows if isinstance(self.rows, tuple) else (self.rows, self.rows)
            if not (isinstance(least, int) and isinstance(most, int) and 1 <= least <= most):
                raise ValueError(f"rows={self.rows}: give None for all rows, a number of 1 or more, or such a range")
        if self.imbalanced and not isinstance(self.rows, tuple):
            raise ValueError("imbalanced=True needs `rows` as a range, for example rows=(5, 50)")
        if self.tasks < 1:
            raise ValueError(f"tasks={self.tasks}: there must be one task or more in a batch")
        order = np.argsort(self.y, kind="stable")
        starts = np.searchsorted(self.y[order], self.categories, "left")
        ends = np.searchsorted(self.y[order], self.categories, "right")
        members = [order[start:end] for start, end in zip(starts, ends, strict=True)]
        object.__setattr__(self, "_members", members)

    def draw(self, generator: np.random.Generator) -> Task:
        """One task."""
        members: list[IntArray] = self._members  # type: ignore[attr-defined]
        low, high = self.n_categories
        many = int(generator.integers(low, min(high, len(members)), endpoint=True))
        chosen = generator.choice(len(members), many, replace=False)
        sizes = self._sizes(generator, many)
        rows = []
        for category, size in zip(chosen, sizes, strict=True):
            row = members[category]
            if size is not None and size < len(row):
                row = np.sort(generator.choice(row, size, replace=False))
            rows.append(row)
        labels = np.repeat(np.arange(many), [len(row) for row in rows])
        return Task(np.concatenate(rows), labels, self.categories[chosen])

    def _sizes(self, generator: np.random.Generator, many: int) -> Sequence[int | None]:
        if self.rows is None:
            return [None] * many
        low, high = self.rows if isinstance(self.rows, tuple) else (self.rows, self.rows)
        if self.imbalanced:
            drawn = np.exp(generator.uniform(np.log(low), np.log(high + 1), many))
            return [int(size) for size in np.clip(drawn, low, high)]
        return [int(generator.integers(low, high, endpoint=True))] * many

    def batch(self, step: int, among: Processes = ALONE, by: Literal["tasks", "rows"] = "tasks") -> Batch:
        """The batch of a training step; of several processes, this one's of its tasks or of its rows."""
        generator = np.random.default_rng([self.seed, 0x7A5, step])
        tasks = [self.draw(generator) for _ in range(self.tasks)]
        rows, batch = numbered(tasks)
        if among.world > 1:
            batch = divided(batch, [len(task.rows) for task in tasks], among, by)
        own = slice(None) if batch.rows is None else batch.rows.slice
        if self.augment is None:
            return replace(batch, x=dense(self.x[rows[own]]))
        torch_generator = torch.Generator().manual_seed(int(generator.integers(2**62)))
        if isinstance(self.augment, ImageAugmentation):
            x = self.augment(dense(self.x[rows[own]]), batch.category, torch_generator, batch.rows)
        else:
            x = self.augment(dense(self.x[rows]), batch.category, torch_generator)[own]
        return replace(batch, x=x)

    def check_divides(self, among: Processes) -> None:
        """More processes than tasks in a step are an error."""
        if self.tasks < among.world:
            raise ValueError(
                f"tasks={self.tasks}: {among.world} processes divide the tasks of a step, of which there must be as "
                f"many or more; start at most {self.tasks} (torchrun --nproc-per-node={self.tasks}), or raise tasks"
            )

    def fixed(self, count: int) -> list[Task]:
        """``count`` tasks that are always the same: for validation and for testing."""
        generator = np.random.default_rng([self.seed, 0xF1D])
        return [self.draw(generator) for _ in range(count)]


def divided(batch: Batch, sizes: Sequence[int], among: Processes, by: Literal["tasks", "rows"]) -> Batch:
    """What of a batch is this process's; ``sizes`` are the numbers of rows of its tasks."""
    tasks, rows = among.part(len(sizes)), among.part(sum(sizes))
    if by == "tasks":
        rows = Part(sum(sizes[: tasks.first]), sum(sizes[: tasks.last]), rows.total)
    else:
        tasks = Part(0, 0, len(sizes))
    if not len(rows):
        raise ValueError(
            f"there are {among.world} processes for {len(sizes)} tasks of {rows.total} rows in a batch: start fewer, "
            "or draw larger batches"
        )
    y, mask, index = (value[tasks.slice] for value in (batch.y, batch.mask, batch.index))
    index = (index - rows.first).masked_fill(~mask, 0)
    return replace(batch, y=y, mask=mask, index=index, rows=rows, tasks=tasks, among=among)


def integers(values: ArrayLike, name: str) -> IntArray:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} has type {array.dtype} and shape {array.shape}: pass one whole number for each row "
            "(np.unique(labels, return_inverse=True) numbers names)"
        )
    return array.astype(np.int64)
