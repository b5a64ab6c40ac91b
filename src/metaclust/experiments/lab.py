"""Fitted methods, kept on disk, so that experiments which need the same one train it once."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
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
from metaclust.experiments.methods.vade import VaDE
from metaclust.experiments.problems import Problem, load, problem_of, protocol_of
from metaclust.model.config import ModelConfig
from metaclust.training.config import TrainingConfig
from metaclust.training.evaluation import Evaluation, compare, local_tasks


@dataclass(frozen=True)
class Setting:
    """What varies within an experiment: the width of z, the steps trained through, the training categories."""

    s: int = 10
    t: int = 10
    categories: int | None = None

    def __str__(self) -> str:
        return f"s{self.s}-t{self.t}" + ("" if self.categories is None else f"-c{self.categories}")


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

    def new(self, name: str, split: int, setting: Setting) -> Method:
        """The method before it is fitted, with the seed of the split."""
        config = ModelConfig(
            self.problem(split, setting.categories).input_shape,
            representation=setting.s,
            steps=setting.t,
            filters=32,
            strided=self.budget.strided,
            dropout=self.protocol.dropout,
        )
        cls = METHODS[name]
        ours = issubclass(cls, Ours)
        training = TrainingConfig(
            seed=split,
            pretrain_steps=self.budget.pretrain_steps if ours else 0,
            steps=self.budget.steps if ours else self.budget.pretrain_steps,
            validate_every=self.budget.validate_every,
            # Through the network's own start, as in the paper: then that start is worth something by itself.
            seeded=0,
        )
        if cls is VaDE:
            training = replace(training, pretrain_steps=self.budget.vade_steps, steps=self.budget.vade_steps)
        if name == "proto-long":
            training = replace(training, steps=self.budget.pretrain_steps + self.budget.steps)
        return cls(config, training)

    def fitted(self, name: str, split: int, setting: Setting, progress: bool = False) -> Method:
        """Fitted now, or read from the folder. Other processes that want the same one wait for it."""
        if not issubclass(METHODS[name], Ours):
            # They do not train through the inference.
            setting = replace(setting, t=Setting.t)
        path = self.folder / f"split{split}" / f"{name}-{setting}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if path.exists():
                return load_method(path)
            method = self.new(name, split, setting)
            start = None
            if isinstance(method, Ours) and method.training.pretrain_steps:
                start = self.fitted("proto", split, setting, progress)
            problem = self.problem(split, setting.categories)
            run = path.with_suffix(".run")
            method.fit(problem.sampler, problem.validation, start=start, folder=run, progress=progress)
            method.save(path)
            shutil.rmtree(run, ignore_errors=True)
        return method

    def test(
        self, method: Method, split: int, categories: int | None = None, **inference: Any
    ) -> tuple[Evaluation, float]:
        """The test tasks of the split, and the seconds a task took."""
        problem = self.problem(split, categories)
        tasks = problem.test[: self.budget.vade_tasks] if isinstance(method, VaDE) else problem.test
        started = time.perf_counter()
        found = method.cluster_tasks(problem.x, tasks, **inference)
        return compare(tasks, found), (time.perf_counter() - started) / len(tasks)

    def representations(self, method: Method, split: int) -> list[NDArray[np.float32]]:
        """Of the rows of each test task."""
        problem = self.problem(split)
        if not isinstance(method, EncoderMethod):
            raise TypeError(f"{method.name} has no representations before it is given a task")
        rows, local = local_tasks(problem.test)
        z = method.transform(problem.x[rows]).numpy()
        return [z[task.rows] for task in local]
