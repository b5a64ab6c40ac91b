"""What is learned of categories besides their representations: how wide they are, how far apart, how to select.

An encoder separates the categories it was trained on better than new ones. So all of this is learned from categories
that the encoder has not seen: those that were held out, or each fold of them with an encoder trained on the others.
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
"""As how many rows of a cluster the expected width counts: categories of one kind are about equally wide, and a mixture
of many columns takes chance for narrowness."""
CHOICE_TASKS = 250
MOST_ROWS = 1200
MOST_CATEGORIES = 60
"""Of a task from which the choice is learned."""
EVEN, UNEVEN = 0.6, 0.2
"""The shares of tasks whose categories have the same size, and similar sizes; in the others one may have forty times as
many rows as another. Of the even ones more is to be learned: in the others a few large categories decide the ARI."""
ALIKE = 0.3
"""The share of tasks whose categories are neighbours of each other, as the letters of one alphabet are."""
OTHER = 0.25
"""The share of tasks that are made unlike those of the known categories, see :func:`other_task`."""
NEARER, LARGER = 0.4, 0.35
"""In these: to what share of their distance, at the least, categories move together; and by how much, in the logarithm,
all of it grows or shrinks."""


@dataclass(frozen=True, eq=False)
class Unseen:
    """Rows of categories, represented by a model that has not seen these categories."""

    z: NDArray[np.float64]
    y: NDArray[np.int64]
    model: ClusteringModel

    @cached_property
    def centres(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The categories, and the mean of each."""
        return centres_of(self.z, self.y)


def centres_of(z: NDArray[np.float64], y: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the categories in order, and the mean of each."""
    categories, place = np.unique(y, return_inverse=True)
    order = np.argsort(place, kind="stable")
    sums = np.add.reduceat(z[order], np.searchsorted(place[order], np.arange(len(categories))))
    return categories, sums / np.bincount(place)[:, None]


def calibrated_prior(parts: Sequence[Unseen], prior_rows: float = PRIOR_ROWS) -> dict[str, float]:
    """Precision of the means, shape and rate of the components' precisions, by the moments of categories."""
    within, between = [], []
    for part in parts:
        categories, centres = part.centres
        between.append(np.square(centres - centres.mean(0)).mean())
        for category in categories:
            rows = part.z[part.y == category]
            if len(rows) > 1:
                within.append(rows.var(0, ddof=1).mean())
    width = parts[0].z.shape[1]
    shape = prior_rows * width / 2
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
    """Learn to select among candidates from tasks of unseen categories; ``advance`` is called after each task."""
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
    """Draw a task of any kind: few or many categories and rows, of the same size or not."""
    categories, centres = part.centres
    most = min(len(categories), MOST_CATEGORIES)
    number = 1
    if most > 1 and generator.random() > 0.03:
        # Half of them uniform in the logarithm: as many tasks of 2 to 4 categories as of 15 to 30.
        few = int(np.exp(generator.uniform(np.log(2), np.log(most + 1))))
        number = few if generator.random() < 0.5 else int(generator.integers(2, most, endpoint=True))
    largest = min(200, max(6, MOST_ROWS // number))
    kind = generator.random()
    if kind < EVEN + UNEVEN:
        # One size for all, or sizes within a factor of three of each other.
        factor = 1 if kind < EVEN else 3**0.5
        middle = generator.uniform(np.log(5), np.log(largest))
        size = np.exp(middle + generator.uniform(-np.log(factor), np.log(factor), number)).clip(5)
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
    """The rows of categories that lie nearer together, and of another scale.

    New categories may be more alike, wider or narrower than any of the known ones; a choice that has seen only these
    takes many alike categories for one.
    """
    categories, centres = centres_of(z, y)
    towards = 1 - generator.uniform(NEARER, 1)
    nearer = z - towards * centres[np.searchsorted(categories, y)]
    changed: NDArray[np.float64] = nearer * np.exp(LARGER * generator.normal())
    return changed


def likely_numbers(y: NDArray[np.int64]) -> list[int]:
    """Return the numbers of clusters that are tried in a task: more than there are categories may be asked for."""
    return candidate_numbers(min(len(y), max(10, round(1.5 * len(np.unique(y))) + 2)))


def example_of(
    model: ClusteringModel, sample: Sample, y: NDArray[np.int64], effective_rows: float | None, seed: int
) -> Example:
    """Return the features of a task's candidates, and the ARI of each."""
    numbers = likely_numbers(y)
    pipeline = pipeline_for(model, Search(numbers[-1], effective_rows=effective_rows, choose="bound"))
    candidates = pipeline.candidates(model, sample, numbers, seed)
    return Example(features_of(model, sample, candidates), aris(y, [candidate.labels for candidate in candidates]))


def aris(y: NDArray[np.int64], clusterings: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return the adjusted Rand index of each clustering with the categories."""
    return adjusted_rand_indices([np.unique(y, return_inverse=True)[1], *clusterings])[0, 1:]
