"""Categories that are known already: which rows of a pile are of them, and which are of new ones.

A row may be of the known category that is nearest to it, or of a new category, as its cluster is. Which of both is more
probable is learned from held-out categories, by features of the row and of its cluster: known categories on which the
encoder was trained look tighter than new ones, and the nearest of many is near by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from metaclust.inference.stages import Floats, Labels
from metaclust.model.known import KNOWN_FEATURES, OUTLIER_FEATURES, KnownCategories
from metaclust.model.selector import FeatureNetwork, sigmoid

PRIOR_ROWS = 10.0
"""As how many rows the expected variance counts in that of a category or a cluster."""
BLOCK = 1 << 24
"""Distances that are in memory at a time."""
MOSTLY = 0.5
"""Where a larger share of a cluster is of known categories, the others of its rows are taken for such, too."""
NOVEL = 0.5
"""Unless these are of no category of the training with a higher probability."""
NEIGHBOUR_ROWS = 4000
"""The most rows among which those nearest to a row are looked for."""
MOST = 8.0
"""Logarithms are cut off here."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Categories whose rows were seen before: by the encoder in its training, or afterwards."""

    means: Floats
    """(categories, S)"""
    counts: Floats
    """The number of rows of each."""
    squares: Floats
    """The mean squared distance of these from their mean."""
    trained: NDArray[np.bool_]
    """Whether the encoder was trained on it."""

    def __len__(self) -> int:
        return len(self.means)

    @classmethod
    def of(cls, z: NDArray[np.floating], index: Labels, categories: int, trained: bool) -> Catalogue:
        """Describe categories by their rows; each has one at least."""
        counts = np.bincount(index, minlength=categories).astype(np.float64)
        means = np.zeros((categories, z.shape[1]))
        np.add.at(means, index, z.astype(np.float64))
        means /= counts[:, None]
        apart = np.square(z - means[index]).sum(1)
        return cls(means, counts, np.bincount(index, apart, categories) / counts, np.full(categories, trained))

    @classmethod
    def held(cls, known: KnownCategories) -> Catalogue:
        """Return the categories that a model was trained on."""
        means, counts, squares = (value.double().cpu().numpy() for value in (known.means, known.counts, known.squares))
        return cls(means, counts, squares, np.ones(len(means), bool))

    @classmethod
    def none(cls, width: int) -> Catalogue:
        """Return that of no categories."""
        return cls(np.empty((0, width)), np.empty(0), np.empty(0), np.empty(0, bool))

    def kept(self, category: Labels) -> KnownCategories:
        """Return what a model keeps of these categories, by their numbers, with networks that are yet to be trained."""
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            known = KnownCategories(*self.means.shape)
        known.category.copy_(torch.from_numpy(category))
        for name in ("means", "counts", "squares"):
            getattr(known, name).copy_(torch.from_numpy(getattr(self, name)))
        return known

    def __add__(self, other: Catalogue) -> Catalogue:
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("means", "counts", "squares", "trained"))
        return Catalogue(*(np.concatenate(pair) for pair in pairs))

    def with_rows_of(self, others: Catalogue, place: Labels) -> Catalogue:
        """Return the categories with the rows of others added, each to the one at its place, all different."""
        means, counts, squares = self.means.copy(), self.counts.copy(), self.squares.copy()
        total = counts[place] + others.counts
        apart = np.square(means[place] - others.means).sum(1) * counts[place] * others.counts / total
        squares[place] = (counts[place] * squares[place] + others.counts * others.squares + apart) / total
        means[place] += (others.means - means[place]) * (others.counts / total)[:, None]
        counts[place] = total
        return Catalogue(means, counts, squares, self.trained)

    def take(self, place: Labels | NDArray[np.bool_]) -> Catalogue:
        """Return some of the categories."""
        return Catalogue(self.means[place], self.counts[place], self.squares[place], self.trained[place])

    def variances(self, expected: float) -> Floats:
        """Return the variance of each, summed over the columns; that of few rows is near the expected one."""
        found: Floats = (self.counts * self.squares + PRIOR_ROWS * expected) / (
            np.maximum(self.counts - 1, 0) + PRIOR_ROWS
        )
        return found


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest and the second nearest category of each point."""

    first: Labels
    distance: Floats
    """Squared; the mean of few rows is farther from its rows by chance, which is divided out."""
    second: Floats


def nearest_categories(z: NDArray[np.floating], catalogue: Catalogue) -> Nearest:
    """Return the categories that are nearest to each row."""
    first, distance, second = np.empty(len(z), np.int64), np.empty(len(z)), np.empty(len(z))
    factor = 1 / (1 + 1 / catalogue.counts)
    block = max(16, BLOCK // len(catalogue))
    for start in range(0, len(z), block):
        rows = slice(start, start + block)
        apart = cdist(z[rows].astype(np.float64), catalogue.means, "sqeuclidean") * factor
        own = apart.argmin(1)
        first[rows], distance[rows] = own, apart[np.arange(len(own)), own]
        apart[np.arange(len(own)), own] = np.inf
        second[rows] = apart.min(1)
    return Nearest(first, distance, second)


def log_ratio(one: Floats, other: Floats | np.floating | float, tiny: float) -> Floats:
    """Return the logarithm of a ratio of squared distances, which may be zero or infinite."""
    with np.errstate(invalid="ignore"):
        ratio = (one + tiny) / (other + tiny)
    found: Floats = np.clip(np.log(np.nan_to_num(ratio, nan=1.0, posinf=np.exp(MOST))), -MOST, MOST)
    return found


def known_features(
    z: NDArray[np.floating], labels: Labels, catalogue: Catalogue, expected: float
) -> tuple[Floats, Labels]:
    """Return (rows, features) in the order of :data:`KNOWN_FEATURES`, and the nearest category of each row.

    ``labels`` are the clusters of the rows, found without knowing any category; each has a row at least.
    """
    clusters = int(labels.max()) + 1
    tiny = 1e-9 * expected
    own = Catalogue.of(z, labels, clusters, trained=False)
    variances, sizes = own.variances(expected), own.counts
    near = nearest_categories(z, catalogue)
    spread = catalogue.variances(expected)
    category = near.first
    # Without itself, a row is as far from the mean of its cluster as a new one would be.
    apart = np.square(z - own.means[labels]).sum(1)
    others = np.maximum(sizes[labels] - 1, 1)
    apart = apart * sizes[labels] / others
    alone = sizes[labels] == 1
    apart = np.where(alone, 2 * expected, apart)
    # Squared distances between means, without what chance adds to them.
    between = cdist(own.means, catalogue.means, "sqeuclidean")
    chance = variances[:, None] / sizes[:, None] + spread / catalogue.counts
    between = np.maximum(between - chance, tiny)
    order = np.argsort(between, 1)
    best = order[:, 0]
    second = between[np.arange(clusters), order[:, 1]] if len(catalogue) > 1 else np.full(clusters, np.inf)
    means_apart = cdist(own.means, own.means, "sqeuclidean")
    np.fill_diagonal(means_apart, np.inf)
    next_cluster = means_apart.min(1)
    to_category = between[labels, category]
    next_category = np.where(best[labels] == category, second[labels], between[labels, best[labels]])
    pairs = np.zeros((clusters, len(catalogue)))
    np.add.at(pairs, (labels, category), 1)
    distance = log_ratio(near.distance, expected, tiny)
    features = np.column_stack(
        [
            distance,
            log_ratio(near.second, near.distance, tiny),
            log_ratio(near.distance, spread[category], tiny),
            log_ratio(near.distance, apart, tiny),
            np.log(np.minimum(catalogue.counts[category], 100)),
            catalogue.trained[category].astype(np.float64),
            pairs[labels, category] / sizes[labels],
            log_ratio(to_category, expected, tiny),
            log_ratio(next_cluster[labels], to_category, tiny),
            log_ratio(next_category, to_category, tiny),
            (best[labels] == category).astype(np.float64),
            np.log(sizes[labels]),
            log_ratio(variances[labels], expected, tiny),
            (np.bincount(labels, distance) / sizes)[labels],
            np.full(len(z), distance.mean()),
            np.full(len(z), np.log(clusters)),
            np.full(len(z), np.log(len(catalogue))),
        ]
    )
    if features.shape[1] != len(KNOWN_FEATURES):
        raise AssertionError(f"{features.shape[1]} features, but {len(KNOWN_FEATURES)} names")
    return features, category


def outlier_features(z: NDArray[np.floating], rows: Floats, sizes: Floats, expected: float) -> Floats:
    """Return (rows, features) in the order of :data:`OUTLIER_FEATURES`.

    ``rows`` are the features of each row in its cluster, ``sizes`` the number of rows of that cluster.
    """
    tiny = 1e-9 * expected
    found = [rows, np.log(sizes)[:, None]]
    nearest = neighbour_distances(z)
    found += [log_ratio(nearest, expected, tiny), log_ratio(nearest, np.median(nearest, 0), tiny)]
    features = np.concatenate(found, 1)
    if features.shape[1] != len(OUTLIER_FEATURES):
        raise AssertionError(f"{features.shape[1]} features, but {len(OUTLIER_FEATURES)} names")
    return features


def neighbour_distances(z: NDArray[np.floating], most: int = NEIGHBOUR_ROWS) -> Floats:
    """Return (rows, 2), the squared distances to the nearest and the fifth nearest other row.

    Of more rows than ``most``, they are among so many of them; of fewer rows than six, the farthest stands for it.
    """
    if len(z) == 1:
        return np.zeros((1, 2))
    rows = z.astype(np.float64)
    some = np.arange(len(z))
    if len(z) > most:
        some = np.sort(np.random.default_rng(0).choice(len(z), most, replace=False))
    tree_rows, place = rows[some], np.full(len(z), -1)
    place[some] = np.arange(len(some))
    found = np.empty((len(z), 2))
    block = max(16, BLOCK // len(some))
    fifth = min(5, len(some) - 1)
    for start in range(0, len(z), block):
        part = slice(start, start + block)
        apart = cdist(rows[part], tree_rows, "sqeuclidean")
        own = np.flatnonzero(place[part] >= 0)
        apart[own, place[part][own]] = np.inf
        apart.partition((0, fifth - 1), 1)
        found[part] = apart[:, [0, fifth - 1]]
    return found


@dataclass(frozen=True, eq=False)
class Recognised:
    """Which rows are of categories that are known."""

    category: Labels
    """The nearest category of each row."""
    probability: Floats
    """The probability that the row is of this category."""


def recognised(
    z: NDArray[np.floating], labels: Labels, catalogue: Catalogue, judge: FeatureNetwork, expected: float
) -> Recognised:
    """Return for each row the known category that it may be of, and how probable that is."""
    features, category = known_features(z, labels, catalogue, expected)
    return Recognised(category, sigmoid(judge.outputs(features)))


def rows_of_known(
    z: NDArray[np.floating],
    labels: Labels,
    found: Recognised,
    catalogue: Catalogue,
    threshold: float,
    novelty: Floats,
    labelled: Labels | None = None,
    there: int = 0,
) -> tuple[Labels, NDArray[np.bool_]]:
    """Return the known category of each row, -1 for new ones; and which rows are recognised by themselves.

    Others are in clusters most of whose rows are recognised: they are of the nearest category that is there, unless
    that is one of the training, and they are rather of none of these. ``labelled`` is the category of rows that are
    labelled, and -1 for others. The first categories, as many as ``there`` says, are there in any case.
    """
    target = np.where(found.probability >= threshold, found.category, -1)
    if labelled is not None:
        target = np.where(labelled >= 0, labelled, target)
    known = target >= 0
    rest = np.flatnonzero(~known & (np.bincount(labels, known) > MOSTLY * np.bincount(labels))[labels])
    present = np.union1d(target[known & (target < len(catalogue))], np.arange(there))
    if len(present) and len(rest):
        near = present[nearest_categories(z[rest], catalogue.take(present)).first]
        target[rest] = np.where(catalogue.trained[near] & (novelty[rest] > NOVEL), -1, near)
    return target, known
