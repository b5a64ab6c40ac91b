"""Calibration on unseen categories: the prior over their means and variances, and the learned selector.

An encoder separates the categories it was trained on better than new ones. Calibration therefore uses categories that
the encoder has not seen: a held-out set, or each fold of the categories with an encoder trained on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metaclust.inference.features import adjusted_rand_indices
from metaclust.inference.initialise import candidate_numbers
from metaclust.inference.pipeline import Search, pipeline_for
from metaclust.inference.select import features_of
from metaclust.inference.stages import Sample
from metaclust.inference.train_selector import Example, fit_selector
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.selector import SelectorNetwork

PRIOR_ROWS = 100
"""The expected variance counts as this many rows of a cluster: categories of one kind have similar variances, and with
many columns a mixture mistakes chance for a small variance."""
CHOICE_TASKS = 250
"""The number of tasks from which the selector is learned."""
MOST_ROWS = 1200
MOST_CATEGORIES = 60
"""The limits of such a task."""
EVEN, UNEVEN = 0.6, 0.2
"""The shares of tasks whose categories have equal sizes, and similar sizes; in the others one may have forty times as
many rows as another. Even tasks teach more: in the others a few large categories determine the ARI."""
ALIKE = 0.3
"""The share of tasks with neighbouring categories, like the letters of one alphabet."""
OTHER = 0.25
"""The share of tasks that are altered to differ from those of the known categories: see :func:`other_task`."""
NEARER, LARGER = 0.4, 0.35
"""In these tasks: the smallest factor on the distances between categories, and the standard deviation of the log
scale."""


@dataclass(frozen=True, eq=False)
class Unseen:
    """The representations of rows, by a model that was not trained on their categories."""

    z: NDArray[np.float64]
    y: NDArray[np.int64]
    model: ClusteringModel

    @cached_property
    def centres(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The categories in order, and the mean of each."""
        return centres_of(self.z, self.y)


def centres_of(z: NDArray[np.float64], y: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the categories in order, and the mean of each."""
    categories, index = np.unique(y, return_inverse=True)
    order = np.argsort(index, kind="stable")
    sums = np.add.reduceat(z[order], np.searchsorted(index[order], np.arange(len(categories))))
    return categories, sums / np.bincount(index)[:, None]


def calibrated_prior(parts: Sequence[Unseen], prior_rows: float = PRIOR_ROWS) -> dict[str, float]:
    """Return the prior that matches the moments of the categories.

    It is the precision of the means, and the shape and rate of the precisions of the components.
    """
    within, between = [], []
    for part in parts:
        categories, centres = part.centres
        between.append(np.square(centres - centres.mean(0)).mean())
        for category in categories:
            rows = part.z[part.y == category]
            if len(rows) > 1:
                within.append(rows.var(0, ddof=1).mean())
    columns = parts[0].z.shape[1]
    shape = prior_rows * columns / 2
    variance = max(float(np.mean(within)), 1e-12) if within else 1.0
    return {"mean_precision": 1 / max(float(np.mean(between)), 1e-12), "shape": shape, "rate": shape * variance}


def learn_selector(
    parts: Sequence[Unseen],
    *,
    effective_rows: float | None,
    tasks: int = CHOICE_TASKS,
    seed: int = 0,
    advance: Callable[[], object] = lambda: None,
) -> SelectorNetwork:
    """Train a selector on tasks of unseen categories, calling ``advance`` after each task."""
    examples = []
    for number in range(tasks):
        generator = np.random.default_rng([seed, 0xC401CE, number])
        part = parts[number % len(parts)]
        sample, y = draw_task(part, generator)
        if generator.random() < OTHER:
            sample = Sample(other_task(sample.z, y, generator), sample.mean)
        examples.append(example_of(part.model, sample, y, effective_rows, number))
        advance()
    return fit_selector(examples, seed=seed)


def draw_task(part: Unseen, generator: np.random.Generator) -> tuple[Sample, NDArray[np.int64]]:
    """Draw a task with few or many categories of equal or different sizes; return its rows and their categories."""
    categories, centres = part.centres
    most = min(len(categories), MOST_CATEGORIES)
    number = 1
    if most > 1 and generator.random() > 0.03:
        # Half are log-uniform: as many tasks have 2 to 4 categories as 15 to 30.
        log_uniform = int(np.exp(generator.uniform(np.log(2), np.log(most + 1))))
        number = log_uniform if generator.random() < 0.5 else int(generator.integers(2, most, endpoint=True))
    largest = min(200, max(6, MOST_ROWS // number))
    kind = generator.random()
    if kind < EVEN + UNEVEN:
        # Equal sizes, or sizes within a factor of three of each other.
        factor = 1 if kind < EVEN else 3**0.5
        log_size = generator.uniform(np.log(5), np.log(largest))
        size = np.exp(log_size + generator.uniform(-np.log(factor), np.log(factor), number)).clip(5)
    else:
        size = np.exp(generator.uniform(np.log(5), np.log(largest), number))
    if generator.random() < ALIKE:
        first = centres[generator.integers(len(categories))]
        nearest = np.argsort(np.square(centres - first).sum(1))[: 2 * number]
        categories = categories[nearest]
    chosen = []
    for category, rows in zip(generator.permutation(categories)[:number], size, strict=True):
        members = np.flatnonzero(part.y == category)
        chosen.append(generator.choice(members, min(len(members), int(rows)), replace=False))
    index = np.concatenate(chosen)
    return Sample.of(part.z[index]), part.y[index]


def other_task(z: NDArray[np.float64], y: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.float64]:
    """Return the rows with their categories moved closer together, and with another scale.

    New categories may be more alike than the known ones, and vary more or less. A selector trained only on the known
    ones mistakes many similar categories for one.
    """
    categories, centres = centres_of(z, y)
    shrinkage = 1 - generator.uniform(NEARER, 1)
    closer = z - shrinkage * centres[np.searchsorted(categories, y)]
    scaled: NDArray[np.float64] = closer * np.exp(LARGER * generator.normal())
    return scaled


def likely_numbers(y: NDArray[np.int64]) -> list[int]:
    """Return the numbers of clusters to try in a task, which may exceed its number of categories."""
    return candidate_numbers(min(len(y), max(10, round(1.5 * len(np.unique(y))) + 2)))


def example_of(
    model: ClusteringModel, sample: Sample, y: NDArray[np.int64], effective_rows: float | None, seed: int
) -> Example:
    """Return the features and the ARI of each candidate of a task."""
    numbers = likely_numbers(y)
    pipeline = pipeline_for(model, Search(numbers[-1], effective_rows=effective_rows, choose="bound"))
    candidates = pipeline.candidates(model, sample, numbers, seed)
    return Example(features_of(model, sample, candidates), aris(y, [candidate.labels for candidate in candidates]))


def aris(y: NDArray[np.int64], clusterings: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return the adjusted Rand index of each clustering against the categories."""
    return adjusted_rand_indices([np.unique(y, return_inverse=True)[1], *clusterings])[0, 1:]
