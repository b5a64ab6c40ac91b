"""A data set by the paper's protocol: its categories split 60/20/20, and tasks of two to ten categories."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from metaclust.data import load_dataset
from metaclust.data.datasets.named import Dataset
from metaclust.data.preparation.prepare import fit_preparation
from metaclust.data.rows import DataWarning
from metaclust.data.sparse import SparseRows
from metaclust.experiments.budgets import Budget
from metaclust.training.augmentation import ImageAugmentation
from metaclust.training.batches import Task
from metaclust.training.episodes import TaskSampler, split_categories


@dataclass(frozen=True)
class Protocol:
    """The settings of a data set."""

    name: str
    paper: str | None = None
    """The paper's data set that it is, or stands in for."""
    rows: int | None = None
    """The largest number of rows of a category in a task; None for all, as in the paper."""
    augment: ImageAugmentation | None = None
    dropout: float = 0.0


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("omniglot", "Omniglot", augment=ImageAugmentation(turn_categories=True)),
        Protocol("web-directory", "Dmoz", rows=30, dropout=0.1),
        Protocol("patents-ipc", "Patent", rows=30, dropout=0.1),
        Protocol("caltech101", "Mini-imagenet", rows=15, augment=ImageAugmentation()),
        Protocol("mini-imagenet", "Mini-imagenet", augment=ImageAugmentation()),
        Protocol("patent", "Patent", dropout=0.1),
        Protocol("dmoz", "Dmoz", dropout=0.1),
        Protocol("icons", rows=20, augment=ImageAugmentation()),
        Protocol("digits", rows=20),
        Protocol("clinc150", rows=40, dropout=0.1),
        Protocol("banking77", rows=40, dropout=0.1),
        Protocol("wordnet", rows=40, dropout=0.1),
    )
}


@dataclass(frozen=True)
class Problem:
    """Training tasks, and fixed tasks of other categories for validation and testing."""

    sampler: TaskSampler
    validation: list[Task]
    test: list[Task]
    names: list[str]
    """The names of the categories."""

    @property
    def x(self) -> Tensor | SparseRows:
        return self.sampler.x

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])


def protocol_of(dataset: str) -> Protocol:
    """Return the protocol of a data set by name; an underscore is read as a hyphen."""
    name = dataset.replace("_", "-")
    name = {"patents": "patents-ipc"}.get(name, name)
    if name not in PROTOCOLS:
        raise ValueError(f"--dataset {dataset}: choose one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


def load(dataset: str, root: str | os.PathLike[str] | None = None) -> Dataset:
    return load_dataset(protocol_of(dataset).name, root, progress=False)


def problem_of(data: Dataset, split: int, budget: Budget, categories: int | None = None) -> Problem:
    """Return the tasks of a split; with ``categories``, training uses only that many, and smaller sets are nested."""
    protocol = protocol_of(data.name)
    parts = split_categories(data.y, split)
    train = parts.train
    if categories is not None:
        if not 2 <= categories <= len(train):
            raise ValueError(f"categories={categories}: {data.name} has {len(train)} for training; give 2 to that many")
        train = np.sort(np.random.default_rng([split, 0xCA7]).permutation(train)[:categories])
    sampler = TaskSampler(
        prepared(data, train),
        data.y,
        train,
        (2, min(10, len(train))),
        protocol.rows,
        tasks=budget.tasks,
        seed=split,
        augment=protocol.augment,
    )
    fixed = replace(sampler, augment=None)
    validation, test = (
        replace(fixed, categories=part, n_categories=(2, min(10, len(part)))) for part in (parts.validation, parts.test)
    )
    return Problem(sampler, validation.fixed(budget.validation_tasks), test.fixed(budget.test_tasks), data.categories)


def prepared(data: Dataset, train: np.ndarray) -> Tensor | SparseRows:
    """Return all rows as the encoder takes them; vocabulary and scaling are fitted on the training categories."""
    if data.kind == "images":
        return torch.from_numpy(data.X)
    rows = data.rows()
    preparation, _ = fit_preparation(rows.take(np.isin(data.y, train)))
    with warnings.catch_warnings():
        # Texts that share no word with the training categories stay, as they would for a user.
        warnings.simplefilter("ignore", DataWarning)
        return preparation(rows)
