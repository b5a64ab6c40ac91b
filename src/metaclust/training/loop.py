"""The training loop: prototypical pretraining of the encoder, then the continuous ARI (Algorithm 2)."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from metaclust._util.distributed import Processes, current, dividing
from metaclust._util.prefetch import Prefetcher
from metaclust._util.progress import TrainingBar
from metaclust.data.sparse import SparseRows
from metaclust.model.checkpoint import save_model
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.layers import check_norms
from metaclust.training.batches import Batch, Task
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import TaskSampler
from metaclust.training.evaluation import evaluate
from metaclust.training.losses import ari_loss, proto_loss
from metaclust.training.optimizer import learning_rate, new_optimizer, seed_generators, step_seed
from metaclust.training.runs import Run, RunFolder

Loss = Callable[[ClusteringModel, Batch, TrainingConfig], tuple[Tensor, dict[str, float]]]
Validate = Callable[[ClusteringModel, Tensor | SparseRows, Sequence[Task], TrainingConfig], float]


def validate(model: ClusteringModel, x: Tensor | SparseRows, tasks: Sequence[Task], config: TrainingConfig) -> float:
    """Return the mean ARI over ``tasks``, where the bound selects (see ``Search.of``); processes share the tasks."""
    return float(evaluate(model, x, tasks, seed=config.seed, among=current()).ari.mean())


@dataclass(frozen=True)
class Objective:
    """What is minimised, and the score by which weights are compared: the larger, the better."""

    name: str
    loss: Loss
    validate: Validate
    divides: bool = False
    """Whether processes may share the tasks of a step; what their losses return then adds up."""


def train(
    model: ClusteringModel,
    sampler: TaskSampler,
    validation: Sequence[Task] | None = None,
    config: TrainingConfig | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = True,
    objective: Objective | None = None,
    pretraining: TaskSampler | None = None,
) -> Run:
    """Train a model in place on tasks of labelled rows, and leave it with the weights that validated best.

    Within :func:`process_group`, the processes that torchrun started share the tasks of each step, and the rows of each
    step of the pretraining; the first of them writes.

    Parameters
    ----------
    model : ClusteringModel
    sampler : TaskSampler
        Draws the tasks of each step.
    validation : sequence of Task, optional
        Tasks over the sampler's rows, of other categories; without them the last weights are kept.
    config : TrainingConfig, optional
    folder : path, optional
        Where metrics.jsonl, checkpoint.safetensors and the pretrained model are kept.
    resume : bool
        Continue an interrupted run in ``folder``; it ends with the weights it would have had.
    progress : bool
        Show a progress bar.
    objective : Objective, optional
        What the ``steps`` after the pretraining minimise, and how weights are compared; by default the continuous ARI.
    pretraining : TaskSampler, optional
        Draws the batches of the pretraining, where they differ from those after it.

    Returns
    -------
    Run
        How the training went.
    """
    config = config or TrainingConfig()
    objective = objective or Objective("ari", ari_loss, validate, divides=True)
    among = current()
    if config.steps and not objective.divides and among.world > 1:
        raise ValueError(f"objective={objective.name!r} cannot be divided over {among.world} processes: start one")
    if config.steps:
        sampler.check_divides(among)
    check_norms(model, among)
    among.broadcast_weights(model)
    settings = run_settings(model, sampler, config, objective, pretraining)
    store = None if folder is None else RunFolder(Path(folder), settings)
    training = Training(model, sampler, validation or (), config, objective, pretraining, among, store)
    return training.run(resume, progress)


@dataclass
class Training:
    """A training under way: its arguments, its optimizer, the best weights so far, and how far it has come."""

    model: ClusteringModel
    sampler: TaskSampler
    validation: Sequence[Task]
    config: TrainingConfig
    objective: Objective
    pretraining: TaskSampler | None
    among: Processes
    store: RunFolder | None
    state: Run = field(default_factory=Run)

    def __post_init__(self) -> None:
        self.optimizer = new_optimizer(self.model, self.config)
        self.best = snapshot(self.model)
        self.total = self.config.pretrain_steps + self.config.steps
        # Walking through all layers takes about as long as a multiplication of a small step.
        self.weights = list(self.model.parameters())
        self.device = self.model.device

    def run(self, resume: bool, progress: bool) -> Run:
        """Take all steps that are left."""
        if self.store is not None:
            self.state = self.store.open(self.model, self.optimizer, self.best, resume, self.among)
            if not self.among.main:
                self.store = None
        started = time.perf_counter() - self.state.seconds
        self.model.train()
        device = self.model.device
        with (
            torch.random.fork_rng([device] if device.type == "cuda" else []),
            TrainingBar(self.total, self.state.step) if progress and self.among.main else nullcontext() as bar,
            self.store or nullcontext(),
            Prefetcher(self.batch, self.total) as batches,
        ):
            if self.state.step == 0:
                self.save()
            while not self.state.finished:
                if self.state.step == self.config.pretrain_steps and self.state.proto_start is None:
                    self.start_second_phase()
                if self.state.step >= self.total:
                    self.state.finished = True
                    break
                record = self.step(batches.take(self.state.step).to(device))
                self.state.seconds = time.perf_counter() - started
                self.after_step(record, bar)
            self.save()
        if self.validation and self.state.best_step >= 0:
            self.model.load_state_dict(self.best)
            self.start_learned(self.state.best_step)
        else:
            self.start_learned(self.state.step)
        return self.state

    @property
    def first_phase(self) -> bool:
        return self.state.step < self.config.pretrain_steps

    def batch(self, step: int) -> Batch:
        """Draw the batch of a step; of several processes, this one's part of it."""
        first = step < self.config.pretrain_steps
        tasks = self.pretraining if first and self.pretraining else self.sampler
        if self.among.world == 1:
            return tasks.batch(step)
        return tasks.batch(step, self.among, "rows" if first else "tasks")

    def step(self, batch: Batch) -> dict[str, Any]:
        """Take one step of the optimizer; return what is logged of it."""
        config, state, first = self.config, self.state, self.first_phase
        seed_generators(step_seed(config.seed, state.step), self.device)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, state.step)
        if not self.model.training:
            self.model.train()
        with dividing(self.among, batch.rows, batch.tasks):
            loss, parts = (proto_loss if first else self.objective.loss)(self.model, batch, config)
        for weight in self.weights:
            weight.grad = None
        loss.backward()
        parts = self.among.sum_gradients(self.model, parts)
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        norm = get_total_norm(gradients)
        if config.clip is not None:
            clip_grads_with_norm_(self.weights, config.clip, norm)
        if not (math.isfinite(parts["loss"]) and bool(norm.isfinite())):
            raise FloatingPointError(
                f"at step {state.step} the loss became {parts['loss']} and its gradient {norm.item()}: lower "
                f"learning_rate={config.learning_rate}, or check the rows for extreme values"
            )
        self.optimizer.step()
        state.step += 1
        return {"step": state.step, "phase": "proto" if first else self.objective.name, **parts}

    def after_step(self, record: dict[str, Any], bar: TrainingBar | None) -> None:
        """Validate, show, log and save what is due."""
        state, config = self.state, self.config
        boundary = state.step % config.validate_every == 0 or state.step == self.total
        if boundary and self.validation and state.step > config.pretrain_steps:
            state.last = self.validated()
            record["validation_ari"] = state.last
            better = self.keep_best(state.last)
            state.stale = 0 if better else state.stale + 1
            state.finished = config.patience is not None and state.stale >= config.patience
        if bar:
            bar.update(state.step, record, state.last, state.best)
        if self.store and (boundary or state.step % 10 == 0):
            self.store.log(**record, seconds=round(state.seconds, 3))
        if boundary:
            self.save()

    def start_second_phase(self) -> None:
        """Validate and keep the pretrained model, and start the optimizer anew."""
        self.optimizer = new_optimizer(self.model, self.config)
        if self.validation:
            self.state.proto_start = self.validated()
            self.keep_best(self.state.proto_start)
            if self.store:
                self.store.log(step=self.state.step, phase="proto-start", validation_ari=self.state.proto_start)
        if self.store:
            save_model(self.model, self.store.folder / "pretrained.safetensors")

    def start_learned(self, step: int) -> None:
        """Let the task network of the weights of a step propose a start, if it was trained on the continuous ARI."""
        through = self.objective.loss is ari_loss and self.config.objective != "candidates"
        trained = step > self.config.pretrain_steps and through
        learned = trained and self.model.task_network is not None
        self.model.config = replace(self.model.config, learned_start=learned)

    def validated(self) -> float:
        self.start_learned(self.state.step)
        return self.objective.validate(self.model, self.sampler.x, self.validation, self.config)

    def keep_best(self, ari: float) -> bool:
        """Keep the weights if they validated better than any before."""
        self.state.validations.append((self.state.step, ari))
        if ari <= self.state.best:
            return False
        self.state.best, self.state.best_step = ari, self.state.step
        self.best.update(snapshot(self.model))
        return True

    def save(self) -> None:
        if self.store:
            self.store.save(self.model, self.optimizer, self.best, self.state)


def run_settings(
    model: ClusteringModel,
    sampler: TaskSampler,
    config: TrainingConfig,
    objective: Objective,
    pretraining: TaskSampler | None = None,
) -> dict[str, Any]:
    """What must be the same when a run is resumed."""
    return {
        "objective": {"name": objective.name},
        "model": model.config.to_dict(),
        "training": asdict(config),
        "tasks": task_settings(sampler),
        **({} if pretraining is None else {"pretraining": task_settings(pretraining)}),
    }


def task_settings(sampler: TaskSampler) -> dict[str, Any]:
    return {
        "rows": len(sampler.x),
        "categories": len(sampler.categories),
        "n_categories": list(sampler.n_categories),
        "rows_per_category": sampler.rows,
        "imbalanced": sampler.imbalanced,
        "tasks": sampler.tasks,
        "seed": sampler.seed,
        "augment": None if sampler.augment is None else repr(sampler.augment),
    }


def snapshot(model: ClusteringModel) -> dict[str, Tensor]:
    """Return a copy of the weights."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
