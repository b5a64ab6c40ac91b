"""The prior of the mixture, fitted to categories that the encoder has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metaclust.inference.calibrate import Unseen, aris, calibrated_prior, draw_task, likely_numbers
from metaclust.inference.initialise import initial_assignments
from metaclust.inference.pipeline import Search, pipeline_for
from metaclust.inference.refine import common_weight
from metaclust.inference.stages import Initial, Sample
from metaclust.model.clustering_model import ClusteringModel

PRIOR_TASKS = 24
"""Tasks on which priors are compared."""
EFFECTIVE_ROWS = (5.0, 8.0, 12.0, 20.0)
"""As how many rows a cluster may count."""


def fit_prior(
    model: ClusteringModel,
    parts: Sequence[Unseen],
    effective_rows: float | Literal["auto"] | None,
    seed: int,
    advance: Callable[[], object],
) -> str:
    """Set the prior, and as how many rows a cluster counts; return what was decided, and why.

    The prior is the one that training left or that of unseen categories, whichever clusters tasks of unseen categories
    better when the bound selects. The models of all parts get it, too.
    """
    start = {name: float(value.detach().exp()) for name, value in model.prior_logs.items()}
    priors = {"of the training": start, "of unseen categories": {**start, **calibrated_prior(parts)}}
    grid = EFFECTIVE_ROWS if effective_rows == "auto" else (effective_rows,)
    tasks = [comparing_task(parts[number % len(parts)], seed, number) for number in range(PRIOR_TASKS)]
    ari = {}
    for name, prior in priors.items():
        for part in parts:
            part.model.set_prior(**prior)
        for rows, reached in zip(grid, bound_aris(tasks, grid), strict=True):
            ari[name, rows] = reached
        advance()
    name, rows = max(ari, key=lambda key: ari[key])
    for one in (model, *(part.model for part in parts)):
        one.set_prior(**priors[name])
        one.config = replace(one.config, effective_rows=rows)
    other = max(value for key, value in ari.items() if key[0] != name)
    return (
        f"The prior is that {name}, and a cluster counts as {rows or 'all its'} rows: on tasks of unseen categories "
        f"the bound then selects with an ARI of {ari[name, rows]:.3f}; with the other prior {other:.3f}."
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
    index, y = draw_task(part, np.random.default_rng([seed, 0x9810, number]), junk=0)
    sample = Sample.of(part.z[index])
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
