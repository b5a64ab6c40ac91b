"""How a MetaClusterer learns: which encoder, how long, with which prior, and how to choose among clusterings."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util.distributed import current
from metaclust._util.progress import CountBar
from metaclust.data.sparse import SparseRows, of_unit_length
from metaclust.inference.calibrate import (
    CHOICE_TASKS,
    Unseen,
    calibrated_prior,
    draw_task,
    learn_choice,
    likely_numbers,
)
from metaclust.inference.candidates import Starts, common_weight, ends_of, find_starts, ward_starts
from metaclust.inference.selector import adjusted_rand_indices
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.model.networks import ResidualEncoder
from metaclust.training.episodes import Task, TaskSampler
from metaclust.training.evaluation import compare, local_tasks
from metaclust.training.loop import TrainingConfig, train
from metaclust.training.runs import Run

log = logging.getLogger("metaclust")

EncoderChoice = Literal["auto", "network", "residual"]
Rows = Tensor | SparseRows

RESIDUAL_WIDTH = 128
"""The columns of a residual encoder's representations, where there are so many and no other number is asked for."""
RESIDUAL_STEPS = 600
RESIDUAL_DROPOUT = 0.5
RESIDUAL_DECAY = 0.01
COMPARED_STEPS = 200
"""After which the encoders are compared."""
WIDE_ROWS = 600
"""In a batch of the pretraining."""
FEWEST_ROWS, MOST_WIDE_ROWS = 10, 30
"""Of a category in it."""
FOLDS = 3
PRIOR_TASKS = 24
"""On which priors are compared."""
EFFECTIVE_ROWS = (5.0, 8.0, 12.0, 20.0)
FEWEST_FOR_CHOICE = 6
"""With fewer unseen categories than this there is no choice to learn from."""


@dataclass(frozen=True)
class Recipe:
    """What is to be learned from, and how."""

    sampler: TaskSampler
    validation: list[Task]
    model: ModelConfig
    training: TrainingConfig
    device: torch.device
    encoder: EncoderChoice = "auto"
    representation: int | None = None
    """S of a residual encoder; None for as many columns as there are, and at most ``RESIDUAL_WIDTH``."""
    choose: Literal["auto", "learned", "bound"] = "auto"
    effective_rows: float | Literal["auto"] | None = "auto"
    choice_tasks: int = CHOICE_TASKS
    folder: str | os.PathLike[str] | None = None
    resume: bool = False
    progress: bool = True


@dataclass(frozen=True)
class Learned:
    """A trained model, how the training went, and what was decided on the way and why."""

    model: ClusteringModel
    run: Run
    decisions: list[str] = field(default_factory=list)


def learn(recipe: Recipe) -> Learned:
    """Choose an encoder, train it, set the prior by unseen categories, and learn to choose among clusterings."""
    decisions: list[str] = []

    def decide(words: str) -> None:
        decisions.append(words)
        log.info(words)

    if choose_encoder(recipe, decide) == "residual":
        model, run, parts = learn_residual(recipe, decide)
    else:
        model = new_model(recipe, recipe.model)
        run = train(
            model,
            recipe.sampler,
            recipe.validation,
            recipe.training,
            folder=recipe.folder,
            resume=recipe.resume,
            progress=recipe.progress,
            pretraining=wide_batches(recipe.sampler) if recipe.model.learn_prior else None,
        )
        held = held_out(recipe)
        parts = [unseen(model, recipe.sampler, held)] if len(held) else []
    model.eval()
    if recipe.effective_rows != "auto":
        model.config = replace(model.config, effective_rows=recipe.effective_rows)
    if model.config.learn_prior and parts:
        set_prior(model, parts, recipe, decide)
    known = sum(len(np.unique(part.y)) for part in parts)
    if recipe.choose == "bound" or not model.config.learn_prior:
        decide("Clusterings are chosen by the bound of the evidence, as was asked for.")
    elif known < FEWEST_FOR_CHOICE:
        decide(
            f"Clusterings are chosen by the bound: to learn to choose takes {FEWEST_FOR_CHOICE} categories that the "
            f"encoder has not seen, and there are {known}."
        )
    else:
        with CountBar("learning to choose", recipe.choice_tasks) if recipe.progress else nullcontext() as bar:
            choice = learn_choice(
                model,
                parts,
                effective_rows=model.config.effective_rows,
                tasks=recipe.choice_tasks,
                seed=recipe.training.seed,
                advance=bar.advance if bar else lambda: None,
            )
        model.set_choice(choice)
        decide(
            f"Clusterings are chosen as learned from {recipe.choice_tasks} tasks of {known} categories that the "
            "encoder had not seen."
        )
    return Learned(model.eval(), run, decisions)


def wide_batches(sampler: TaskSampler) -> TaskSampler:
    """Batches of many categories at once: the more there are to be told apart, the more a step of Proto teaches."""
    many = min(len(sampler.categories), WIDE_ROWS // FEWEST_ROWS)
    rows = min(WIDE_ROWS // many, MOST_WIDE_ROWS)
    return replace(sampler, n_categories=(many, many), rows=rows, imbalanced=False, tasks=1)


def held_out(recipe: Recipe) -> NDArray[np.int64]:
    """The categories of the validation tasks."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *(task.categories for task in recipe.validation)]))


def new_model(recipe: Recipe, config: ModelConfig) -> ClusteringModel:
    with torch.random.fork_rng([]):
        torch.manual_seed(recipe.training.seed)
        return ClusteringModel(config).to(recipe.device)


def residual_config(recipe: Recipe, x: Rows) -> ModelConfig:
    """The same model with a residual encoder; rows of length one are embeddings, and taken by their direction."""
    config = recipe.model
    width = min(config.input_shape[0], recipe.representation or RESIDUAL_WIDTH, len(x) - 1)
    unit = of_unit_length(x)
    return replace(config, encoder="residual", unit=unit, representation=width, dropout=RESIDUAL_DROPOUT)


def train_residual(
    recipe: Recipe, categories: NDArray[np.int64], steps: int, **keep: Any
) -> tuple[ClusteringModel, Run]:
    """A residual encoder, trained to tell ``categories`` apart."""
    sampler = recipe.sampler
    model = new_model(recipe, residual_config(recipe, sampler.x))
    encoder = model.encoder
    if isinstance(encoder, ResidualEncoder):
        encoder.fit(rows_of(sampler, categories)[0], recipe.training.seed)
    tasks = wide_batches(replace(sampler, categories=categories))
    config = replace(recipe.training, pretrain_steps=steps, steps=0, weight_decay=RESIDUAL_DECAY)
    return model, train(model, tasks, None, config, progress=recipe.progress, **keep)


def rows_of(sampler: TaskSampler, categories: NDArray[np.int64]) -> tuple[Rows, NDArray[np.int64]]:
    place = np.flatnonzero(np.isin(sampler.y, categories))
    return sampler.x[torch.from_numpy(place)], sampler.y[place]


def unseen(model: ClusteringModel, sampler: TaskSampler, categories: NDArray[np.int64]) -> Unseen:
    x, y = rows_of(sampler, categories)
    return Unseen(model.transform(x).double().cpu().numpy(), y)


def choose_encoder(recipe: Recipe, decide: Callable[[str], None]) -> Literal["network", "residual"]:
    """By how well Ward's method, told the number, finds the validation categories in either's representations."""
    if len(recipe.model.input_shape) != 1:
        if recipe.encoder == "residual":
            raise ValueError("encoder='residual': it is for vectors and texts; images need encoder='network'")
        return "network"
    if recipe.encoder != "auto":
        decide(f"The encoder is {recipe.encoder!r}, as was asked for.")
        return recipe.encoder
    if not recipe.validation:
        chosen: Literal["network", "residual"] = "residual" if of_unit_length(recipe.sampler.x) else "network"
        decide(
            f"The encoder is {chosen!r}: there are no categories to compare by, and rows "
            f"{'have the length one, as embeddings do' if chosen == 'residual' else 'have other lengths'}."
        )
        return chosen
    residual, _ = train_residual(recipe, recipe.sampler.categories, min(COMPARED_STEPS, RESIDUAL_STEPS))
    network = new_model(recipe, recipe.model)
    short = replace(recipe.training, pretrain_steps=min(recipe.training.pretrain_steps, COMPARED_STEPS), steps=0)
    wide = wide_batches(recipe.sampler)
    train(network, recipe.sampler, None, short, progress=recipe.progress, pretraining=wide)
    reached = [separation(model, recipe.sampler.x, recipe.validation) for model in (residual, network)]
    # Processes on different machines may round differently, and must decide alike.
    agreed: list[float] = current().broadcast(torch.tensor(reached, dtype=torch.float64)).tolist()
    ari = dict(zip(("residual", "network"), agreed, strict=True))
    chosen = "residual" if ari["residual"] >= ari["network"] else "network"
    decide(
        f"The encoder is {chosen!r}: on categories kept from training, Ward's method told their number reaches an ARI "
        f"of {ari['residual']:.3f} with 'residual' and {ari['network']:.3f} with 'network', after a short training."
    )
    return chosen


def separation(model: ClusteringModel, x: Rows, tasks: list[Task]) -> float:
    """The mean ARI of Ward's method that is told the number of categories."""
    generator = np.random.default_rng(0)
    rows, local = local_tasks(tasks)
    z = model.transform(x[torch.from_numpy(rows)]).double().cpu().numpy()
    found = [ward_starts(z[task.rows], [task.n_categories], generator)[0] for task in local]
    return float(compare(tasks, found).ari.mean())


def learn_residual(recipe: Recipe, decide: Callable[[str], None]) -> tuple[ClusteringModel, Run, list[Unseen]]:
    """Trained on all categories; what unseen ones look like is learned from parts, each with the others' encoder."""
    categories = np.union1d(recipe.sampler.categories, held_out(recipe))
    generator = np.random.default_rng([recipe.training.seed, 0xF01D])
    parts = []
    if len(categories) >= 2 * FOLDS:
        for part in np.array_split(generator.permutation(categories), FOLDS):
            model, _ = train_residual(recipe, np.setdiff1d(categories, part), RESIDUAL_STEPS)
            parts.append(unseen(model, recipe.sampler, part))
    model, run = train_residual(recipe, categories, RESIDUAL_STEPS, folder=recipe.folder, resume=recipe.resume)
    decide(
        f"It starts as {model.config.representation} principal components"
        f"{' of unit length' if model.config.unit else ''}, and is trained on all {len(categories)} categories for "
        f"{RESIDUAL_STEPS} steps."
    )
    return model, run, parts


def set_prior(model: ClusteringModel, parts: list[Unseen], recipe: Recipe, decide: Callable[[str], None]) -> None:
    """The prior as the training left it or that of unseen categories, and as how many rows a cluster counts.

    What is taken clusters tasks of unseen categories best when the bound chooses.
    """
    start = {name: float(value.detach().exp()) for name, value in model.prior_logs.items()}
    priors = {"of the training": start, "of unseen categories": {**start, **calibrated_prior(parts)}}
    grid = EFFECTIVE_ROWS if recipe.effective_rows == "auto" else (recipe.effective_rows,)
    tasks = []
    for number in range(PRIOR_TASKS):
        generator = np.random.default_rng([recipe.training.seed, 0x9810, number])
        z, y = draw_task(parts[number % len(parts)], generator)
        tasks.append((z, y, find_starts(z, likely_numbers(y))))
    ari = {}
    with CountBar("learning the prior", len(priors)) if recipe.progress else nullcontext() as bar:
        for name, prior in priors.items():
            model.set_prior(**prior)
            for rows, reached in zip(grid, bound_aris(model, tasks, grid), strict=True):
                ari[name, rows] = reached
            if bar:
                bar.advance()
    name, rows = max(ari, key=lambda key: ari[key])
    model.set_prior(**priors[name])
    model.config = replace(model.config, effective_rows=rows)
    other = max(value for key, value in ari.items() if key[0] != name)
    decide(
        f"The prior is that {name}, and a cluster counts as {rows or 'all its'} rows: on tasks of unseen categories "
        f"the bound then chooses with an ARI of {ari[name, rows]:.3f}; with the other prior {other:.3f}."
    )


def bound_aris(
    model: ClusteringModel, tasks: list[tuple[NDArray[Any], NDArray[Any], Starts]], grid: Sequence[float | None]
) -> list[float]:
    """The mean ARI over tasks where the bound chooses, for each number of rows as which a cluster may count."""
    found = []
    for z, y, starts in tasks:
        labels = [end.labels for end in ends_of(model, z, starts.every)]
        reached = adjusted_rand_indices([np.unique(y, return_inverse=True)[1], *labels])[0, 1:]
        found.append([reached[np.argmax(common_weight(model, z, labels, starts.limit, rows)[1])] for rows in grid])
    means: list[float] = np.mean(found, 0).tolist()
    return means
