"""The training loop: Proto pretraining of the encoder, then the continuous ARI (Algorithm 2)."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from metaclust._util.distributed import current, dividing
from metaclust._util.prefetch import Prefetcher
from metaclust._util.progress import TrainingBar
from metaclust.data.sparse import SparseRows
from metaclust.mixture.inference import softmax_of
from metaclust.model.checkpoint import save_model
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import Preset
from metaclust.model.layers import check_norms
from metaclust.objectives.losses import Distance, LimitedGradient, continuous_ari, prototypical_loss
from metaclust.training.episodes import Batch, Task, TaskSampler
from metaclust.training.evaluation import evaluate
from metaclust.training.runs import Run, RunFolder

Loss = Callable[[ClusteringModel, Batch, "TrainingConfig"], tuple[Tensor, dict[str, float]]]
Validate = Callable[[ClusteringModel, Tensor | SparseRows, Sequence[Task], "TrainingConfig"], float]


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained. A step reads one batch of tasks."""

    seed: int = 0
    pretrain_steps: int = 1800
    """Steps of Proto before the continuous ARI; 0 is the paper's "w/o Pretrain"."""
    steps: int = 1500
    """Steps on the continuous ARI."""
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    """By how much weights shrink, times the learning rate, in a step."""
    schedule: Literal["cosine", "constant"] = "cosine"
    objective: Literal["every-step", "last-step"] = "every-step"
    """The ARI of the assignments at the start and after every step of inference, in the mean, or after the last
    alone, as printed in the paper: that one collapses into one cluster, where it has no gradient."""
    distance: Distance = "tv"
    proto_weight: float = 1.0
    """How much of the prototypical loss stays in the objective after the pretraining."""
    seeded: int = 3
    """How many starts from k-means++ seeds compete with the network's: each task is trained through the one that
    reaches the best bound, as :meth:`ClusteringModel.infer` chooses; 0 for the network's start alone."""
    task_clip: float | None = 0.1
    """The largest norm of the gradient of one task's ARI in its representations. Where a small change of z makes the
    inference end elsewhere, that gradient is large and says nothing: it may not outweigh the other tasks'."""
    clip: float | None = 1.0
    """The largest norm of the gradient of a step in all weights."""
    validate_every: int = 250
    patience: int | None = None
    """Stop after so many validations without a better one."""
    validation_starts: int = 6
    """Starts of inference at validation, see :meth:`ClusteringModel.infer`."""

    def __post_init__(self) -> None:
        for name, least in (
            ("seed", 0),
            ("pretrain_steps", 0),
            ("steps", 0),
            ("seeded", 0),
            ("validate_every", 1),
            ("validation_starts", 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name}={value!r}: it must be a whole number of {least} or more")
        if self.patience is not None and (not isinstance(self.patience, int) or self.patience < 1):
            raise ValueError(f"patience={self.patience!r}: it must be a whole number of 1 or more, or None")
        for name in ("clip", "task_clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name}={value!r}: it must be positive and finite, or None")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate={self.learning_rate!r}: it must be positive and finite")
        for name in ("proto_weight", "weight_decay"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}={getattr(self, name)!r}: it must be 0 or more, and finite")
        for name, allowed in (
            ("schedule", ("cosine", "constant")),
            ("objective", ("every-step", "last-step")),
            ("distance", ("tv", "prob")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}: choose one of {allowed}")

    @classmethod
    def preset(cls, preset: Preset, **changes: Any) -> TrainingConfig:
        """Settings that train reliably ("default") or the paper's plain objective ("paper"), with changes."""
        if preset == "paper":
            settings: dict[str, Any] = {
                "objective": "last-step",
                "schedule": "constant",
                "proto_weight": 0.0,
                "seeded": 0,
                "task_clip": None,
                "clip": None,
                "patience": 10,
            }
        elif preset == "default":
            settings = {}
        else:
            raise ValueError(f"preset={preset!r}: choose 'default' or 'paper'")
        return cls(**{**settings, **changes})


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
    """Train ``model`` in place on the sampler's tasks and leave it with the weights that validated best.

    ``validation`` are tasks over the sampler's rows, of other categories; without them the last weights are
    kept. With ``folder``, metrics.jsonl, checkpoint.safetensors and the pretrained model are kept in it; a run that was
    killed goes on from there with ``resume=True`` and ends with the weights it would have had.

    ``objective`` is what the ``steps`` after the pretraining minimise, and how weights are compared: without one, the
    continuous ARI. ``pretraining`` draws the batches of the pretraining, where they are others than those after it.

    Within :func:`process_group`, the processes that torchrun started divide the tasks of each step, and the rows of
    each step of the pretraining; the first of them writes.
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
    store = (
        RunFolder(Path(folder), run_settings(model, sampler, config, objective, pretraining))
        if folder is not None
        else None
    )
    device = model.device
    state = Run()
    optimizer = new_optimizer(model, config)
    best = snapshot(model)
    if store is not None:
        state = store.open(model, optimizer, best, resume, among)
        if not among.main:
            store = None
        elif state.step == 0:
            store.save(model, optimizer, best, state)
    total = config.pretrain_steps + config.steps
    started = time.perf_counter() - state.seconds

    def make(step: int) -> Batch:
        first = step < config.pretrain_steps
        tasks = pretraining if first and pretraining else sampler
        return tasks.batch(step) if among.world == 1 else tasks.batch(step, among, "rows" if first else "tasks")

    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        TrainingBar(total, state.step) if progress and among.main else nullcontext() as bar,
        store or nullcontext(),
        Prefetcher(make, total) as batches,
    ):
        while not state.finished:
            first = state.step < config.pretrain_steps
            if state.step == config.pretrain_steps and state.proto_start is None:
                optimizer = new_optimizer(model, config)
                if validation:
                    state.proto_start = objective.validate(model, sampler.x, validation, config)
                    keep_best(state, best, model, state.proto_start)
                    if store:
                        store.log(step=state.step, phase="proto-start", validation_ari=state.proto_start)
                if store:
                    save_model(model, store.folder / "pretrained.safetensors")
            if state.step >= total:
                state.finished = True
                break
            torch.manual_seed(step_seed(config.seed, state.step))
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config, state.step)
            model.train()
            batch = batches.take(state.step).to(device)
            with dividing(among, batch.rows, batch.tasks):
                loss, parts = (proto_loss if first else objective.loss)(model, batch, config)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            parts = among.sum_gradients(model, parts)
            norm = clip_grad_norm_(model.parameters(), math.inf if config.clip is None else config.clip)
            if not (math.isfinite(parts["loss"]) and bool(norm.isfinite())):
                raise FloatingPointError(
                    f"at step {state.step} the loss became {parts['loss']} and its gradient {norm.item()}: lower "
                    f"learning_rate={config.learning_rate}, or check the rows for extreme values"
                )
            optimizer.step()
            state.step += 1
            state.seconds = time.perf_counter() - started
            record: dict[str, Any] = {"step": state.step, "phase": "proto" if first else objective.name, **parts}
            boundary = state.step % config.validate_every == 0 or state.step == total
            if boundary and validation and not first:
                state.last = objective.validate(model, sampler.x, validation, config)
                record["validation_ari"] = state.last
                better = keep_best(state, best, model, state.last)
                state.stale = 0 if better else state.stale + 1
                state.finished = config.patience is not None and state.stale >= config.patience
            if bar:
                bar.update(state.step, record, state.last, state.best)
            if store and (boundary or state.step % 10 == 0):
                store.log(**record, seconds=round(state.seconds, 3))
            if store and boundary:
                store.save(model, optimizer, best, state)
        if store:
            store.save(model, optimizer, best, state)
    if validation and state.best_step >= 0:
        model.load_state_dict(best)
    return state


def proto_loss(
    model: ClusteringModel, batch: Batch, _: TrainingConfig | None = None
) -> tuple[Tensor, dict[str, float]]:
    """A step of the pretraining. The categories of all tasks of the batch are told apart, which is harder than each
    task by itself, and so teaches more. Over several processes, what they return adds up to the loss."""
    loss = prototypical_loss(batch.of_all(model.encode(batch.x)), batch.category) / batch.among.world
    return loss, {"loss": float(loss.detach())}


def ari_loss(model: ClusteringModel, batch: Batch, config: TrainingConfig) -> tuple[Tensor, dict[str, float]]:
    """A step of the training: minus the continuous ARI, through the inference (Algorithm 2, lines 7 and 8).

    Where all rows are in one cluster the ARI after the last step has no gradient. The ARI of the earlier steps,
    the network's own initial assignments first of all, and the prototypical loss still have one there. Over several
    processes, what they return adds up to the loss.
    """
    part = batch.tasks
    share, tasks = (1.0, len(batch.y)) if part is None else (part.share, part.total)
    encoded = model.encode(batch.x)
    limit = None if config.task_clip is None else config.task_clip / tasks
    ari = task_indices(model, encoded, batch, config, limit)
    loss = torch.rsub(ari.mean(), share, alpha=share)
    parts = {"ari": share * float(ari.detach()[-1].mean())}
    if config.proto_weight:
        proto = prototypical_loss(batch.of_all(encoded), batch.category)
        loss = torch.add(loss, proto, alpha=config.proto_weight / batch.among.world)
        parts["proto"] = float(proto.detach()) / batch.among.world
    return loss, {"loss": float(loss.detach()), **parts}


def task_indices(
    model: ClusteringModel, encoded: Float[Tensor, "m s"], batch: Batch, config: TrainingConfig, limit: float | None
) -> Float[Tensor, "steps b"]:
    """The continuous ARI of each task by the network's assignments and after each step, or after the last alone.

    Going back, the gradient of each task in its representations is scaled down to the norm ``limit``.
    """
    last = config.objective == "last-step"
    z = batch.pad(encoded)
    rows = z if limit is None else LimitedGradient.apply(z, limit)
    logits = model.initial_logits(rows, batch.mask, batch.tasks)
    own = softmax_of(logits)
    r = model.trajectory(rows, logits, batch.mask, config.seeded, batch.tasks)
    # In the layout in which the columns of r are sorted.
    r = r[-1:] if last else torch.cat((own.mT[None], r.mT[1:])).mT
    return continuous_ari(r, batch.y, batch.mask, config.distance)


def validate(model: ClusteringModel, x: Tensor | SparseRows, tasks: Sequence[Task], config: TrainingConfig) -> float:
    """The mean ARI of hard assignments over ``tasks``, which several processes divide."""
    return float(evaluate(model, x, tasks, starts=config.validation_starts, among=current()).ari.mean())


@dataclass(frozen=True)
class Objective:
    """What is minimised, and the figure of which the largest is best."""

    name: str
    loss: Loss
    validate: Validate
    divides: bool = False
    """Whether several processes may have a part of the tasks each; what their losses return then adds up."""


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


def new_optimizer(model: ClusteringModel, config: TrainingConfig) -> torch.optim.Adam:
    return torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Constant, or within each of the two phases rising for up to 100 steps, then falling along half a cosine to 1%."""
    if config.schedule == "constant":
        return config.learning_rate
    pretraining = step < config.pretrain_steps
    done, phase = (step, config.pretrain_steps) if pretraining else (step - config.pretrain_steps, config.steps)
    rise = min(1.0, (done + 1) / min(100, phase))
    return config.learning_rate * rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done / phase)))


def step_seed(seed: int, step: int) -> int:
    """Randomness of a step, from (seed, step) alone, so that a resumed run draws what it would have drawn."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)


def keep_best(state: Run, best: dict[str, Tensor], model: ClusteringModel, ari: float) -> bool:
    """Remember the weights if they validated better than any before."""
    state.validations.append((state.step, ari))
    if ari <= state.best:
        return False
    state.best, state.best_step = ari, state.step
    best.update(snapshot(model))
    return True


def snapshot(model: ClusteringModel) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
