"""Fitted methods on disk, so that experiments that need the same one train it once."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from metaclust.data.datasets.named import Dataset
from metaclust.experiments.budgets import Budget
from metaclust.experiments.methods import METHODS, EncoderMethod, Method, load_method
from metaclust.experiments.methods.ours import Ours
from metaclust.experiments.methods.proto import LongProto
from metaclust.experiments.methods.vade import VaDE
from metaclust.experiments.problems import Problem, load, problem_of, protocol_of
from metaclust.experiments.settings import Variant, model_config, training_config
from metaclust.training.evaluation import Evaluation, compare, local_tasks


class Lab:
    """One data set, its splits, and the methods fitted on them."""

    def __init__(
        self, dataset: str, budget: Budget, folder: str | os.PathLike[str], root: str | os.PathLike[str] | None = None
    ) -> None:
        self.protocol = protocol_of(dataset)
        self.budget = budget
        self.folder = Path(folder) / f"{self.protocol.name}-{budget.name}"
        self.root = root
        self._problems: dict[tuple[int, int | None], Problem] = {}

    @cached_property
    def data(self) -> Dataset:
        return load(self.protocol.name, self.root)

    def problem(self, split: int, categories: int | None = None) -> Problem:
        key = (split, categories)
        if key not in self._problems:
            if len(self._problems) > 3:
                self._problems.clear()
            self._problems[key] = problem_of(self.data, split, self.budget, categories)
        return self._problems[key]

    def new(self, name: str, split: int, variant: Variant) -> Method:
        """Return the method before it is fitted, with the seed of the split."""
        shape = self.problem(split, variant.categories).input_shape
        budget, cls = self.budget, METHODS[name]
        config = model_config(shape, variant, strided=budget.strided, dropout=self.protocol.dropout)
        pretrain_steps, steps = 0, budget.pretrain_steps
        if issubclass(cls, Ours):
            pretrain_steps, steps = budget.pretrain_steps, budget.steps
        elif cls is VaDE:
            pretrain_steps = steps = budget.vade_steps
        elif cls is LongProto:
            steps = budget.pretrain_steps + budget.steps
        return cls(config, training_config(split, pretrain_steps, steps, budget.validate_every))

    def fitted(self, name: str, split: int, variant: Variant, progress: bool = False) -> Method:
        """Return the method, read from the folder or fitted now; other processes that need the same one wait for it."""
        if not issubclass(METHODS[name], Ours):
            # They do not train through the inference.
            variant = replace(variant, t=Variant.t)
        path = self.folder / f"split{split}" / f"{name}-{variant}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if path.exists():
                return load_method(path)
            method = self.new(name, split, variant)
            start = None
            if isinstance(method, Ours) and method.training.pretrain_steps:
                start = self.fitted("proto", split, variant, progress)
            problem = self.problem(split, variant.categories)
            run = path.with_suffix(".run")
            method.fit(problem.sampler, problem.validation, start=start, folder=run, progress=progress)
            method.save(path)
            shutil.rmtree(run, ignore_errors=True)
        return method

    def test(
        self, method: Method, split: int, categories: int | None = None, **inference: Any
    ) -> tuple[Evaluation, float]:
        """Return the results on the test tasks of the split, and the seconds per task."""
        problem = self.problem(split, categories)
        tasks = problem.test[: self.budget.vade_tasks] if isinstance(method, VaDE) else problem.test
        started = time.perf_counter()
        found = method.cluster_tasks(problem.x, tasks, **inference)
        return compare(tasks, found), (time.perf_counter() - started) / len(tasks)

    def representations(self, method: Method, split: int) -> list[NDArray[np.float32]]:
        """Return the representations of the rows of each test task."""
        problem = self.problem(split)
        if not isinstance(method, EncoderMethod):
            raise TypeError(f"{method.name} has no representations before it is given a task")
        rows, local = local_tasks(problem.test)
        z = method.transform(problem.x[rows]).numpy()
        return [z[task.rows] for task in local]
