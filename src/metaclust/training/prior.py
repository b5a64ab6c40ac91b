"""The prior of the mixture, fitted to categories that the encoder has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metaclust.inference.calibrate import Unseen, aris, calibrated_prior, draw_task, likely_numbers, task_rows
from metaclust.inference.features import evidence_of
from metaclust.inference.initialise import initial_assignments
from metaclust.inference.pipeline import COMPARED_STEPS, Search, pipeline_for
from metaclust.inference.refine import AdaptiveRefinement, common_weight
from metaclust.inference.stages import Initial, Sample, in_order
from metaclust.model.clustering_model import ClusteringModel

PRIOR_TASKS = 24
"""Tasks on which priors are compared."""
ROWS_TASKS = 8
"""Tasks by which it is found as how many rows a cluster counts, where the bound selects only on request."""
EFFECTIVE_ROWS = (5.0, 8.0, 12.0, 20.0)
"""As how many rows a cluster may count."""


def fit_prior(
    model: ClusteringModel,
    parts: Sequence[Unseen],
    effective_rows: float | Literal["auto"] | None,
    by_bound: bool,
    seed: int,
    advance: Callable[[], object],
) -> str:
    """Set the prior, and as how many rows a cluster counts; return what was decided, and why.

    The prior is the one that training left or that of unseen categories, whichever clusters tasks of unseen categories
    better: where the bound selects, or where trees are cut at the true number of categories and then refined. The
    models of all parts get it, too.
    """
    start = {name: float(value.detach().exp()) for name, value in model.prior_logs.items()}
    priors = {"of the training": start, "of unseen categories": {**start, **calibrated_prior(parts)}}
    grid = EFFECTIVE_ROWS if effective_rows == "auto" else (effective_rows,)
    tasks = [comparing_task(parts[number % len(parts)], seed, number) for number in range(PRIOR_TASKS)]
    reached: dict[str, float] = {}
    for name, prior in priors.items():
        for part in parts:
            part.model.set_prior(**prior)
        reached[name] = max(bound_aris(tasks, grid)) if by_bound else refined_ari(tasks)
        advance()
    name = max(reached, key=lambda key: reached[key])
    models = (model, *(part.model for part in parts))
    for one in models:
        one.set_prior(**priors[name])
    few = tasks if by_bound else tasks[:ROWS_TASKS]
    rows = grid[int(np.argmax(bound_aris(few, grid)))] if len(grid) > 1 else grid[0]
    for one in models:
        one.config = replace(one.config, effective_rows=rows)
    (other,) = (value for key, value in reached.items() if key != name)
    judge = "the bound then selects with" if by_bound else "trees cut at the true number, and refined, have"
    return (
        f"The prior is that {name}: on tasks of unseen categories {judge} an ARI of {reached[name]:.3f}; with the "
        f"other prior {other:.3f}. In the bound a cluster counts as {rows or 'all its'} rows."
    )


@dataclass(frozen=True)
class ComparingTask:
    """A task of unseen categories ``y``, with the assignments that all priors start from, of at most ``limit``."""

    model: ClusteringModel
    sample: Sample
    y: NDArray[np.int64]
    initial: list[Initial]
    limit: int


def comparing_task(part: Unseen, seed: int, number: int) -> ComparingTask:
    """Draw a task of unseen categories, with the assignments that all priors start from."""
    generator = np.random.default_rng([seed, 0x9810, number])
    index, y = draw_task(part, generator, junk=0, large=0)
    sample = Sample.of(task_rows(part, index, generator))
    numbers = likely_numbers(y)
    pipeline = pipeline_for(part.model, Search(numbers[-1], choose="bound"))
    initial = initial_assignments(pipeline.initialise, part.model, sample, numbers, 0)
    return ComparingTask(part.model, sample, y, initial, numbers[-1])


def bound_aris(tasks: Sequence[ComparingTask], grid: Sequence[float | None]) -> list[float]:
    """Return the mean ARI over tasks where the bound selects, for each number of rows as which a cluster may count."""
    found = []
    for task in tasks:
        refine = pipeline_for(task.model, Search(task.limit, choose="bound")).refine
        labels = [candidate.labels for candidate in refine(task.model, task.sample, task.initial)]
        reached = aris(task.y, labels)
        bounds = [common_weight(refine, task.model, task.sample, labels, task.limit, rows)[1] for rows in grid]
        found.append([reached[np.argmax(each)] for each in bounds])
    means: list[float] = np.mean(found, 0).tolist()
    return means


def refined_ari(tasks: Sequence[ComparingTask]) -> float:
    """Return the mean ARI over tasks of trees cut at the true number of categories and refined, the better of two."""
    found = []
    for task in tasks:
        trees = evidence_of(task.model, task.sample).trees
        cuts = [Initial(in_order(tree.cut(len(np.unique(task.y))))) for tree in trees]
        refined = AdaptiveRefinement(COMPARED_STEPS)(task.model, task.sample, cuts)
        found.append(aris(task.y, [candidate.labels for candidate in refined]).max())
    return float(np.mean(found))
