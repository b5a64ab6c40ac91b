"""Small clustering tasks drawn from labelled data (Algorithm 2, lines 3 to 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from metaclust._util.checks import check_seed
from metaclust._util.distributed import ALONE, Processes
from metaclust.data.sparse import SparseRows, dense
from metaclust.training.augmentation import ImageAugmentation
from metaclust.training.batches import Batch, IntArray, Task, divided, numbered

Augment = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""A function of rows, the category of each row and a generator that returns changed rows."""


@dataclass(frozen=True)
class Split:
    """A partition of categories into training, validation and test sets.

    Attributes
    ----------
    train, validation, test : ndarray of int
        The categories of each set, in order. The sets are disjoint.
    """

    train: IntArray
    validation: IntArray
    test: IntArray


def split_categories(y: ArrayLike, seed: int, fractions: tuple[float, float, float] = (0.6, 0.2, 0.2)) -> Split:
    """Split the categories of ``y``, rather than its rows, at random.

    Parameters
    ----------
    y : array-like of int
        The category of each row.
    seed : int
        Random seed.
    fractions : tuple of three floats, default=(0.6, 0.2, 0.2)
        The shares of the categories for training, validation and test, which add up to 1.

    Returns
    -------
    Split

    Examples
    --------
    >>> split = split_categories([0, 0, 1, 2, 3, 4], seed=0)
    >>> len(split.train), len(split.validation), len(split.test)
    (3, 1, 1)
    """
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-9:
        raise ValueError(f"fractions={fractions}: pass three non-negative fractions that add up to 1")
    check_seed(seed)
    categories = np.unique(integers(y, "y"))
    order = np.random.default_rng([seed, 0x5B1]).permutation(categories)
    first = round(fractions[0] * len(order))
    second = first + round(fractions[1] * len(order))
    return Split(np.sort(order[:first]), np.sort(order[first:second]), np.sort(order[second:]))


@dataclass(frozen=True, repr=False)
class TaskSampler:
    """Draw clustering tasks from labelled rows; the tasks depend only on the seed and the step.

    Parameters
    ----------
    x : Tensor or SparseRows
        The rows.
    y : array of int
        The category of each row.
    categories : array of int
        The categories to draw from.
    n_categories : tuple of two ints, default=(2, 10)
        The range of the number of categories in a task.
    rows : int, tuple of two ints or None, default=None
        The number of rows of each category, or the range from which it is drawn once for each task; None for all rows.
    imbalanced : bool, default=False
        Draw the number of rows for each category instead, log-uniformly.
    tasks : int, default=4
        The number of tasks in a batch.
    seed : int, default=0
        Random seed.
    augment : callable, optional
        Changes the rows of each batch: ``augment(rows, categories, generator)``.
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
            raise ValueError(f"x has {len(self.x)} rows and y {len(self.y)}: pass one category for each row")
        missing = np.setdiff1d(self.categories, self.y)
        if len(missing):
            raise ValueError(f"categories {missing[:5].tolist()} have no rows in y: leave them out of `categories`")
        check_seed(self.seed)
        low, high = self.n_categories
        if not (isinstance(low, int) and isinstance(high, int) and 1 <= low <= high):
            raise ValueError(f"n_categories={self.n_categories}: pass a range (low, high) with 1 <= low <= high")
        if len(self.categories) < low:
            raise ValueError(
                f"categories has {len(self.categories)} entries, but n_categories={self.n_categories} requires "
                f"at least {low} in a task: pass more labelled categories or lower n_categories"
            )
        if self.rows is not None:
            least, most = self.rows if isinstance(self.rows, tuple) else (self.rows, self.rows)
            if not (isinstance(least, int) and isinstance(most, int) and 1 <= least <= most):
                raise ValueError(f"rows={self.rows}: pass None for all rows, a positive number, or a range of such")
        if self.imbalanced and not isinstance(self.rows, tuple):
            raise ValueError("imbalanced=True needs `rows` as a range, for example rows=(5, 50)")
        if self.tasks < 1:
            raise ValueError(f"tasks={self.tasks}: a batch needs at least one task")
        order = np.argsort(self.y, kind="stable")
        starts = np.searchsorted(self.y[order], self.categories, "left")
        ends = np.searchsorted(self.y[order], self.categories, "right")
        members = [order[start:end] for start, end in zip(starts, ends, strict=True)]
        object.__setattr__(self, "_members", members)

    def __repr__(self) -> str:
        return (
            f"TaskSampler({len(self.x)} rows, {len(self.categories)} categories, n_categories={self.n_categories}, "
            f"rows={self.rows}, imbalanced={self.imbalanced}, tasks={self.tasks}, seed={self.seed})"
        )

    def draw(self, generator: np.random.Generator) -> Task:
        """Draw one task."""
        members: list[IntArray] = self._members  # type: ignore[attr-defined]
        low, high = self.n_categories
        count = int(generator.integers(low, min(high, len(members)), endpoint=True))
        chosen = generator.choice(len(members), count, replace=False)
        sizes = self._sizes(generator, count)
        rows = []
        for category, size in zip(chosen, sizes, strict=True):
            chosen_rows = members[category]
            if size is not None and size < len(chosen_rows):
                chosen_rows = np.sort(generator.choice(chosen_rows, size, replace=False))
            rows.append(chosen_rows)
        labels = np.repeat(np.arange(count), [len(part) for part in rows])
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
        """Return the batch of a training step, or this process's part of it, divided by tasks or by rows."""
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
        """Raise an error if there are more processes than tasks in a step."""
        if self.tasks < among.world:
            raise ValueError(
                f"tasks={self.tasks}: {among.world} processes divide the tasks of a step and each needs at least one; "
                f"start at most {self.tasks} (torchrun --nproc-per-node={self.tasks}), or raise tasks"
            )

    def fixed(self, count: int) -> list[Task]:
        """Return ``count`` tasks that are the same on every call, for validation and testing."""
        generator = np.random.default_rng([self.seed, 0xF1D])
        return [self.draw(generator) for _ in range(count)]


def integers(values: ArrayLike, name: str) -> IntArray:
    """Return ``values`` as a vector of int64; anything but whole numbers is an error that names ``name``."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} has type {array.dtype} and shape {array.shape}: pass one integer for each row "
            "(np.unique(names, return_inverse=True)[1] converts names)"
        )
    return array.astype(np.int64)
