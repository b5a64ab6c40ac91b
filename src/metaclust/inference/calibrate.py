"""Calibration on unseen categories: the prior over their means and variances, and the learned selector.

An encoder separates the categories it was trained on better than new ones. Calibration therefore uses categories that
the encoder has not seen: a held-out set, or each fold of the categories with an encoder trained on the others.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from metaclust.inference.confidence import cluster_facts, right_rows, row_features
from metaclust.inference.features import adjusted_rand_indices, describe, evidence_of, merge_probabilities
from metaclust.inference.initialise import candidate_numbers, ward_labels
from metaclust.inference.known import Catalogue, Recognised, known_features, outlier_features, rows_of_known
from metaclust.inference.numbers import NumberExample, fit_numbers
from metaclust.inference.pipeline import learned_pipeline
from metaclust.inference.select import LearnedSelector, probability_of_one, with_single_cluster
from metaclust.inference.stages import Candidate, Sample, in_order
from metaclust.inference.train_selector import (
    Example,
    MergeExample,
    RowExample,
    fit_confidence,
    fit_merges,
    fit_rows,
    fit_scores,
)
from metaclust.mixture.components import Components
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.known import KNOWN_FEATURES, OUTLIER_FEATURES, KnownCategories
from metaclust.model.selector import FEATURES, ROW_FEATURES, TREES, FeatureNetwork, SelectorNetwork, sigmoid

FOLDS = 3
"""Parts of the tasks, where all have the same categories."""
PRIOR_ROWS = 1000
"""The expected variance counts as this many rows of a cluster: categories of one kind have similar variances, and with
many columns a mixture mistakes chance for a small variance."""
CHOICE_TASKS = 300
"""The number of tasks from which the selector is learned."""
STEPS, MANY_TASKS = (1500, 400, 800), 50
"""The steps in which merges, scores and confidence are learned; of fewer tasks they are as much fewer."""
MOST_ROWS = 1200
"""About the most rows of such a task."""
MOST_CATEGORIES = 100
LARGEST_SIZE, SMALLEST_SIZE = 300, 5
"""The limits of such a task, and of the sizes of its categories."""
LARGE, TIMES = 0.08, 3
"""The share of tasks that may have several times as many rows and categories, and as much larger categories again."""
WIDE_RANGE = 10
"""Where there are more categories than other tasks may have, such tasks have at most as many times fewer than there
are, but for those of a single category."""
ALONE = 0.2
"""The share of tasks with one category."""
EVEN, SIMILAR, UNEVEN = 0.4, 0.2, 0.2
"""The shares of tasks whose categories have equal sizes, sizes within a factor of three of each other, and sizes from
the smallest to the largest; in the others the largest is followed by ever smaller ones, as in Zipf's law."""
ALIKE = 0.3
"""The share of tasks with neighbouring categories, like the letters of one alphabet."""
JUNK, LEAST_JUNK, MOST_JUNK = 0.3, 0.01, 0.12
"""The share of tasks with rows that belong to no category of the task, and the shares of such rows."""
ENLARGED, FEW_ROWS, MOST = 0.4, 40, 0.9
"""The share of tasks whose categories may have more rows than there are of them, where most have fewer than so many."""
WITH_KNOWN = 0.35
"""The share of tasks with categories that the encoder was trained on beside unseen ones, where there are such rows."""
OTHER = 0.25
"""The share of tasks that are altered to differ from those of the known categories: see :func:`other_task`."""
NEARER, LARGER = 0.4, 0.35
"""In these tasks: the smallest factor on the distances between categories, and the standard deviation of the log
scale."""
WRONG_NUMBER, FARTHEST_OFF = 0.1, 1.5
"""What a number of clusters that is wrong by a factor of e costs, in units of the ARI; it counts up to the second."""
COMPARED_TASKS, COMPARED_ROWS = 30, 2000
"""Small tasks by which representations are compared, and the most rows of all categories at once."""
WITH_EARLIER = 0.5
"""The share of tasks in which some of the unseen categories are known by other rows."""
FEWEST_KNOWN = 3
"""The fewest categories that are known in a task."""
KNOWN_THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
"""A row may be taken for one of a known category from these probabilities on."""
THRESHOLD_TASKS, MIXED, ABOUT_AS_GOOD = 150, 0.2, 0.01
"""It is chosen by so many tasks with this share of known rows at least; ARIs that differ less are about the same."""
MIXED_WEIGHT = 2.5
"""How much a task with rows of known categories counts, where it is learned which rows are."""
FURTHER_ROWS = 60
"""Rows of a task that are assigned to clusters found without them: some of its categories, some of others."""


NONE = np.empty(0, np.int64)
EXPECTED_ARI = [FEATURES.index(f"expected ARI, {tree}") for tree in TREES]


@dataclass(frozen=True, eq=False)
class Unseen:
    """The representations of rows, by a model that was not trained on them.

    It was not trained on their categories either, except for those that are ``known``.
    """

    z: NDArray[np.float64]
    y: NDArray[np.int64]
    model: ClusteringModel
    known: NDArray[np.int64] = field(default_factory=NONE.copy)
    """Categories that the model was trained on, by other rows."""
    catalogue: Catalogue | None = None
    """What the model knows of the categories that it was trained on, by the rows that it was trained on."""
    catalogued: NDArray[np.int64] = field(default_factory=NONE.copy)
    """The categories of the catalogue, in its order."""

    @cached_property
    def new(self) -> Unseen:
        """The rows of unseen categories alone."""
        rows = ~np.isin(self.y, self.known)
        return Unseen(self.z[rows], self.y[rows], self.model)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each category."""
        return np.unique(self.y, return_counts=True)[1]

    @cached_property
    def centres(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The categories in order, and the mean of each."""
        return centres_of(self.z, self.y)

    @cached_property
    def separation(self) -> float:
        """The ARI of Ward's method given the number: of unseen categories, half in small tasks, half all at once."""
        z, y = self.new.z, self.new.y
        categories = np.unique(y)
        generator = np.random.default_rng(0)
        reached = []
        for task in range(COMPARED_TASKS + 1):
            chosen = categories
            if task:
                chosen = generator.permutation(categories)[: generator.integers(2, min(10, len(categories)) + 1)]
            rows = generator.permutation(np.flatnonzero(np.isin(y, chosen)))
            rows = rows[: COMPARED_ROWS if not task else 40 * len(chosen)]
            (found,) = ward_labels(z[rows], [len(chosen)], generator)
            reached.append(float(aris(y[rows], [found])[0]))
        return (reached[0] + float(np.mean(reached[1:]))) / 2


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
    for part in (part.new for part in parts):
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


@dataclass(frozen=True, eq=False)
class Pile:
    """A task of unseen categories."""

    part: Unseen
    sample: Sample
    y: NDArray[np.int64]
    """The category of each row; -1 for junk."""
    further: NDArray[np.float64]
    """Other rows, some of them of other categories."""
    further_y: NDArray[np.int64]
    index: NDArray[np.int64]
    """Which rows of the part these are."""
    altered: bool = False
    """Whether they were altered, so that they no longer fit what the model knows."""


def learn_selector(
    parts: Sequence[Unseen],
    *,
    tasks: int = CHOICE_TASKS,
    seed: int = 0,
    advance: Callable[[], object] = lambda: None,
    start: SelectorNetwork | None = None,
    known: KnownCategories | None = None,
) -> SelectorNetwork:
    """Train a selector on tasks of unseen categories, calling ``advance`` after each task.

    With ``known``, its networks are trained to recognise categories that are known already, and rows of none.

    The networks of ``start`` are trained further; by default new ones are trained. How sure the answer is, is learned
    from tasks whose scores come from a network that was trained on other tasks.
    """
    fresh = start is None
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        network = SelectorNetwork() if start is None else copy.deepcopy(start).cpu()
    piles = [drawn_pile(parts[number % len(parts)], seed, number) for number in range(tasks)]
    merge_steps, score_steps, row_steps = (round(steps * min(1, tasks / MANY_TASKS)) for steps in STEPS)
    fit_merges(network.merges, [merges_of(pile) for pile in piles], steps=merge_steps, seed=seed, fresh=fresh)
    compared = []
    for number, pile in enumerate(piles):
        compared.append(compared_pile(network, pile, number))
        advance()
    # The tasks of a part go together: their categories are the same.
    fold = np.arange(tasks) % (len(parts) if len(parts) > 1 else FOLDS)
    every = [one.example for one in compared]
    numbers: list[NumberExample] = []
    rows: list[RowExample] = []
    recognised: list[RowExample] = []
    outliers: list[RowExample] = []
    novel: list[RowExample] = []
    earlier: list[KnownTask] = []
    for part in np.unique(fold):
        others = [one.example for one, at in zip(compared, fold, strict=True) if at != part]
        scorer = copy.deepcopy(network)
        fit_scores(scorer.scores, others or every, steps=score_steps, seed=seed, fresh=fresh)
        own = [(pile, one) for pile, one, at in zip(piles, compared, fold, strict=True) if at == part]
        for pile, one in own:
            scores = one.scores(scorer)
            chosen = LearnedSelector(scorer).choose(one.candidates, scores)
            expected = float(one.example.features[chosen, EXPECTED_ARI].mean())
            numbers.append(NumberExample(scores, one.clusters, one.true, expected))
            judged = judged_rows(network, pile, one, scores, chosen)
            rows += judged
            if known is not None and pile.part.catalogue is not None and not pile.altered:
                labels = one.candidates[chosen].labels
                task = known_task(pile, labels, seed)
                earlier.append(task)
                recognised.append(task.example)
                junk, of_none = outlier_rows(pile, labels, judged[0].features)
                outliers.append(junk)
                novel.append(of_none)
    fit_scores(network.scores, every, steps=score_steps, seed=seed, fresh=fresh)
    network.number.copy_(torch.tensor(fit_numbers(numbers).values))
    fit_confidence(network.confidence, rows, steps=row_steps, seed=seed, fresh=fresh)
    if known is not None and recognised:
        fit_rows(known.judge, KNOWN_FEATURES, recognised, steps=row_steps, seed=seed)
        fit_rows(known.outliers, OUTLIER_FEATURES, outliers, steps=row_steps, seed=seed)
        fit_rows(known.novelty, KNOWN_FEATURES, novel, steps=row_steps, seed=seed)
        mixed = [task for task in earlier if task.of_known >= MIXED]
        known.threshold.fill_(best_threshold(known.judge, mixed[:THRESHOLD_TASKS]))
    return network.eval()


def drawn_pile(part: Unseen, seed: int, number: int) -> Pile:
    """Draw a task of unseen categories."""
    generator = np.random.default_rng([seed, 0xC401CE, number])
    index, y = draw_task(part, generator)
    sample = Sample.of(task_rows(part, index, generator))
    rest = np.setdiff1d(np.arange(len(part.y)), index)
    place = generator.choice(rest, min(len(rest), FURTHER_ROWS), replace=False)
    own = np.isin(part.y[place], np.unique(y[y >= 0]))
    # As many rows of other categories as of those of the task, where there are enough.
    few = np.concatenate([np.flatnonzero(own)[: FURTHER_ROWS // 2], np.flatnonzero(~own)[: FURTHER_ROWS // 2]])
    further, further_y = part.z[place[few]] - sample.mean, part.y[place[few]]
    altered = generator.random() < OTHER
    if altered:
        sample = Sample(other_task(sample.z, np.where(y < 0, -1 - np.arange(len(y)), y), generator), sample.mean)
        further, further_y = further[:0], further_y[:0]
    return Pile(part, sample, y, further, further_y, index, altered)


def draw_task(
    part: Unseen, generator: np.random.Generator, junk: float = JUNK, large: float = LARGE
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw a task with few or many categories of equal or different sizes, and perhaps junk.

    Return the rows and their categories, -1 for junk. Rows come up again where a category has fewer than were drawn:
    see :func:`task_rows`.
    """
    # A pile may also hold rows of categories that the encoder knows.
    scope = part if len(part.known) and generator.random() < WITH_KNOWN else part.new
    times = TIMES if generator.random() < large else 1
    many = times > 1 and len(part.sizes) > MOST_CATEGORIES
    if many:
        # Without known categories there may be too few.
        scope = part
    categories, centres = scope.centres
    most = min(len(categories), times * MOST_CATEGORIES)
    least = max(2, most // WIDE_RANGE) if many else 2
    number = 1
    if most > 1 and generator.random() > ALONE:
        # Log-uniform: as many tasks have 2 to 4 categories as 15 to 30.
        number = min(most, int(np.exp(generator.uniform(np.log(least), np.log(most + 1)))))
    chosen = categories
    if generator.random() < ALIKE:
        first = centres[generator.integers(len(categories))]
        nearest = np.argsort(np.square(centres - first).sum(1))[: max(2 * number, 3)]
        chosen = categories[nearest]
    chosen = generator.permutation(chosen)[:number]
    # Categories that have more rows get the larger sizes: what large ones are like is learned from real ones.
    chosen = chosen[np.argsort(-scope.sizes[np.searchsorted(categories, chosen)], kind="stable")]
    rows = []
    # Rows that were made up are smoother than real ones: they serve where hardly any category has many rows.
    few = np.quantile(scope.sizes, MOST) < FEW_ROWS
    enlarged = generator.random() < ENLARGED and few
    for category, size in zip(chosen, np.sort(draw_sizes(number, times, generator))[::-1], strict=True):
        members = np.flatnonzero(part.y == category)
        rows.append(generator.choice(members, min(len(members), int(size)), replace=False))
        if enlarged and len(members) > 1 and size > len(members):
            rows.append(generator.choice(members, int(size) - len(members)))
    index = np.concatenate(rows)
    y = part.y[index]
    if generator.random() < junk:
        share = np.exp(generator.uniform(np.log(LEAST_JUNK), np.log(MOST_JUNK)))
        others = generator.permutation(np.flatnonzero(~np.isin(part.y, chosen)))
        # One row of each of other categories: two would be a cluster.
        _, first_of = np.unique(part.y[others], return_index=True)
        added = others[np.sort(first_of)][: int(share * len(index))]
        index, y = np.concatenate([index, added]), np.concatenate([y, np.full(len(added), -1)])
    return index, y


def task_rows(part: Unseen, index: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.float64]:
    """Return the rows of a task; one that comes up again is replaced by a new one, as its category might have it.

    Known categories may have few rows where new ones have many. A new row differs from the mean of its category half as
    a random combination of its rows does, and half as a row of another category does from its own mean. (Not as the row
    that came up does: categories would then be clumps of similar rows.)
    """
    z = part.z[index]
    _, first = np.unique(index, return_index=True)
    again = np.setdiff1d(np.arange(len(index)), first)
    if not len(again):
        return z
    categories, centres = part.centres
    place = np.searchsorted(categories, part.y)
    size = np.bincount(place)
    rest = part.z - centres[place]
    several = np.flatnonzero(size[place] > 1)
    other = generator.choice(several, len(again))
    borrowed = rest[other] * np.sqrt(size[place[other]] / (size[place[other]] - 1))[:, None]
    own = np.empty_like(borrowed)
    of_category = place[index[again]]
    for category in np.unique(of_category):
        mine = of_category == category
        rows = rest[place == category]
        own[mine] = generator.normal(size=(int(mine.sum()), len(rows))) @ rows / np.sqrt(len(rows) - 1)
    z[again] = centres[of_category] + np.sqrt(0.5) * (own + borrowed)
    return z


def draw_sizes(number: int, times: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Draw the numbers of rows of the categories of a task, which may have ``times`` as many rows as most tasks."""
    most_rows, largest_size = times * MOST_ROWS, times**2 * LARGEST_SIZE
    largest = min(largest_size, max(SMALLEST_SIZE + 1, most_rows // number))
    log_smallest, log_largest = np.log(SMALLEST_SIZE), np.log(largest)
    kind = generator.random()
    if kind < EVEN + SIMILAR:
        factor = 1 if kind < EVEN else 3**0.5
        size = np.exp(generator.uniform(log_smallest, log_largest))
        sizes = size * factor ** generator.uniform(-1, 1, number)
    elif kind < EVEN + SIMILAR + UNEVEN:
        sizes = np.exp(generator.uniform(log_smallest, log_largest, number))
    else:
        first = np.exp(generator.uniform(np.log(6 * SMALLEST_SIZE), np.log(largest_size)))
        sizes = first / np.arange(1, number + 1) ** generator.uniform(0.5, 1.2)
    total = np.maximum(sizes, SMALLEST_SIZE).sum()
    least = SMALLEST_SIZE if number > 1 else 3 * SMALLEST_SIZE
    drawn: NDArray[np.float64] = np.maximum(sizes * min(1, 1.3 * most_rows / total), least)
    return drawn


def merges_of(pile: Pile) -> MergeExample:
    """Return the merges of a task, and the share of pairs of each that are of one category."""
    evidence = evidence_of(pile.part.model, pile.sample)
    known = pile.y >= 0
    categories = np.unique(pile.y[known])
    # Junk has labels of its own: it goes with nothing.
    labels = np.where(known, np.searchsorted(categories, pile.y), len(categories) + np.cumsum(~known) - 1)
    share = [tree.pairs_within(labels) / tree.pairs for tree in evidence.trees]
    pairs = [tree.pairs for tree in evidence.trees]
    return MergeExample(np.concatenate(evidence.merges), np.concatenate(share), np.concatenate(pairs))


@dataclass(frozen=True)
class Compared:
    """The candidates of a task, compared with its categories."""

    example: Example
    candidates: list[Candidate]
    true: int
    of_one: float
    """The probability that there is one category."""

    @property
    def clusters(self) -> list[int]:
        return [candidate.clusters for candidate in self.candidates]

    def scores(self, network: SelectorNetwork) -> NDArray[np.float64]:
        """Return the scores of the candidates by a network, as a selector has them."""
        scores = network.scores.outputs(self.example.features)
        rows = len(self.candidates[0].labels)
        return with_single_cluster(scores, np.array(self.clusters) == 1, self.of_one, rows)


def compared_pile(network: SelectorNetwork, pile: Pile, seed: int) -> Compared:
    """Return the candidates of a task with their features and ARI."""
    model, sample = pile.part.model, pile.sample
    pipeline = learned_pipeline(model, LearnedSelector(network))
    candidates = pipeline.candidates(model, sample, [len(sample)], seed)
    evidence = evidence_of(model, sample)
    probabilities = merge_probabilities(evidence, network)
    features = describe(evidence, probabilities, [each.labels for each in candidates])
    known = pile.y >= 0
    reached = aris(pile.y[known], [in_order(candidate.labels[known]) for candidate in candidates])
    true = len(np.unique(pile.y[known]))
    # Of clusterings that are as good, the one with the right number of clusters is preferred.
    off = np.abs(np.log([candidate.clusters / true for candidate in candidates]))
    worth = reached - WRONG_NUMBER * np.minimum(off, FARTHEST_OFF)
    return Compared(Example(features, worth), candidates, true, probability_of_one(probabilities))


def judged_rows(
    network: SelectorNetwork, pile: Pile, compared: Compared, scores: NDArray[np.float64], chosen: int
) -> list[RowExample]:
    """Return the rows of a task in the clusters that were selected, and further rows, right or wrong."""
    model, sample = pile.part.model, pile.sample
    components = Components.of(compared.candidates[chosen].posterior)
    evidence = evidence_of(model, sample)
    probabilities = merge_probabilities(evidence, network)
    placed = components.placed(sample.z)
    labels = [candidate.labels for candidate in compared.candidates]
    clusters = len(components.weights)
    facts = cluster_facts(evidence, probabilities, placed, clusters, labels, softmax(scores))
    right, matched = right_rows(placed.labels, pile.y, clusters)
    found = [RowExample(row_features(placed, facts, evidence.expected, False), right.astype(np.float64))]
    if len(pile.further):
        further = components.placed(pile.further)
        features = row_features(further, facts, evidence.expected, True)
        found.append(RowExample(features, (matched[further.labels] == pile.further_y).astype(np.float64)))
    return found


@dataclass(frozen=True, eq=False)
class KnownTask:
    """A task in which some categories are known, in the clusters that were selected."""

    example: RowExample
    """The rows, and whether each is of the known category that is nearest to it."""
    z: NDArray[np.float64]
    y: NDArray[np.int64]
    labels: NDArray[np.int64]
    catalogue: Catalogue
    nearest: NDArray[np.int64]
    of_known: float
    """The share of the rows that are of known categories."""

    def ari(self, judge: FeatureNetwork, threshold: float) -> float:
        """Return the ARI of all rows but junk, where they are of known categories from a probability on."""
        found = Recognised(self.nearest, sigmoid(judge.outputs(self.example.features)))
        # Whether other rows of a cluster are new is not known here.
        unsure = np.zeros(len(self.y))
        target, _ = rows_of_known(self.z, self.labels, found, self.catalogue, threshold, unsure)
        labels = np.where(target >= 0, target, len(self.catalogue) + self.labels)
        real = self.y >= 0
        _, labels = np.unique(labels[real], return_inverse=True)
        _, y = np.unique(self.y[real], return_inverse=True)
        return float(adjusted_rand_indices([labels, y])[0, 1])


def best_threshold(judge: FeatureNetwork, tasks: Sequence[KnownTask]) -> float:
    """Return the probability from which on a row is taken for one of a known category: the best of some, on tasks."""
    if not tasks:
        return KNOWN_THRESHOLDS[0]
    reached = np.mean([[task.ari(judge, threshold) for threshold in KNOWN_THRESHOLDS] for task in tasks], 0)
    # The lowest of those that are about as good: what is known gets its name.
    return KNOWN_THRESHOLDS[int(np.argmax(reached >= reached.max() - ABOUT_AS_GOOD))]


def known_task(pile: Pile, labels: NDArray[np.int64], seed: int) -> KnownTask:
    """Return a task with the categories that are known in it.

    These are the ones that the model was trained on, without some that have no rows in the task; in some tasks also
    some that it was not trained on, by other rows than these, as clusters of an earlier pile are known.
    """
    part = pile.part
    assert part.catalogue is not None  # noqa: S101 - for mypy
    generator = np.random.default_rng([seed, 0x0CA7, int(pile.index[0]), len(pile.index)])
    here = np.isin(part.catalogued, part.y[pile.index]) | (generator.random(len(part.catalogue)) < generator.random())
    if here.sum() < FEWEST_KNOWN:
        here[:] = True
    catalogue, categories = part.catalogue.take(here), part.catalogued[here]
    z = pile.sample.z + pile.sample.mean
    if generator.random() < WITH_EARLIER:
        rest = np.setdiff1d(np.arange(len(part.y)), pile.index)
        rest = generator.permutation(rest[~np.isin(part.y[rest], part.known)])
        earlier = np.unique(part.y[rest])
        earlier = generator.permutation(earlier)[: round(generator.random() * len(earlier))]
        if len(earlier):
            rows = [rest[part.y[rest] == category] for category in earlier]
            few = [each[: int(np.exp(generator.uniform(0, np.log(len(each) + 1))))] for each in rows]
            index = np.repeat(np.arange(len(earlier)), [len(each) for each in few])
            added = Catalogue.of(part.z[np.concatenate(few)], index, len(earlier), trained=False)
            if generator.random() < 0.5:
                catalogue, categories = catalogue + added, np.concatenate([categories, earlier])
            else:
                catalogue, categories = added, earlier
    features, nearest = known_features(z, labels, catalogue, part.model.expected_variance)
    of_known = float(np.isin(pile.y, categories).mean())
    right = (categories[nearest] == pile.y).astype(np.float64)
    example = RowExample(features, right, MIXED_WEIGHT if of_known else 1.0)
    return KnownTask(example, z, pile.y, labels, catalogue, nearest, of_known)


def outlier_rows(pile: Pile, labels: NDArray[np.int64], features: NDArray[np.float64]) -> tuple[RowExample, RowExample]:
    """Return the rows of a task with the ``features`` of how sure their cluster is: whether they are junk, or new."""
    part = pile.part
    assert part.catalogue is not None  # noqa: S101 - for mypy
    z = pile.sample.z + pile.sample.mean
    expected = part.model.expected_variance
    of_known, _ = known_features(z, labels, part.catalogue, expected)
    every = outlier_features(z, features[:, : len(ROW_FEATURES)], np.bincount(labels)[labels].astype(float), expected)
    new = ~np.isin(part.y[pile.index], part.catalogued)
    weight = 1.0 if new.all() else MIXED_WEIGHT
    return RowExample(every, (pile.y < 0).astype(np.float64)), RowExample(of_known, new.astype(np.float64), weight)


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


def aris(y: NDArray[np.int64], clusterings: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return the adjusted Rand index of each clustering against the categories."""
    return adjusted_rand_indices([np.unique(y, return_inverse=True)[1], *clusterings])[0, 1:]
