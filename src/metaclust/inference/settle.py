"""What becomes of the clusters of a pile by what is known: categories of the training, labels of some rows, links.

Clusters are found in all rows first, whatever is known. Then each row may be of a known category instead
(:mod:`metaclust.inference.known`); where most rows of a cluster are, so are the others. Labels and links hold in
any case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from metaclust.inference.confidence import ClusterFacts, Confidence, row_features
from metaclust.inference.initialise import nearest
from metaclust.inference.known import Catalogue, known_features, outlier_features, recognised, rows_of_known
from metaclust.inference.links import Links, centres_of
from metaclust.inference.refine import own_variance_factors
from metaclust.inference.stages import Floats, Labels
from metaclust.inference.tally import Tally
from metaclust.mixture.components import Components, Placement
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.selector import ROW_FEATURES, FeatureNetwork, sigmoid

NO_ROWS: Labels = np.empty(0, np.int64)
NEAR = 0.5
"""Where a model has not learned to recognise categories, a cluster is of one whose mean is nearer than this, in
expected variances."""
ROUNDS = 5
"""How often at most rows find their cluster again after links have moved some."""
NEW = "new"
"""What clusters are called that are of no known category, with a number."""


@runtime_checkable
class Clusters(Protocol):
    """Clusters as they were found."""

    @property
    def components(self) -> Components: ...
    @property
    def confidence(self) -> Confidence | None: ...
    @property
    def describe(self) -> Callable[[Components], Confidence | None]: ...


@dataclass(frozen=True, eq=False)
class Known:
    """Categories that are known by name, and what recognises them."""

    names: list[str]
    catalogue: Catalogue
    """Of the first of these categories; further ones are only where rows are labelled, and not looked for."""
    trained: frozenset[str]
    """The categories of the training, whether they are looked for or not."""
    taken: frozenset[str] = frozenset()
    """Further names that no new cluster gets."""
    judge: FeatureNetwork | None = None
    """Says how probable it is that a row is of the category that is nearest; None where that was not learned."""
    threshold: float = 0.5
    """From this probability on it is taken for one."""
    there: int = 0
    """So many of the first categories are clusters that there are already."""

    @classmethod
    def of(cls, model: ClusteringModel, names: Sequence[str], use: bool = True) -> Known:
        """Return the categories that a model was trained on, or none of them if not ``use``."""
        held = model.known
        if held is None or not names:
            return cls([], Catalogue.none(model.config.representation), frozenset(names))
        every = Catalogue.held(held)
        own = [names[place] for place in held.category.tolist()] if use else []
        every = every if use else Catalogue.none(every.means.shape[1])
        return cls(own, every, frozenset(names), judge=held.judge, threshold=float(held.threshold))

    def without(self, names: Collection[str]) -> Known:
        """Return all but some of the categories."""
        kept = np.array([name not in names for name in self.names], bool)
        left = [name for name in self.names if name not in names]
        return replace(self, names=left, catalogue=self.catalogue.take(kept[: len(self.catalogue)]))

    @property
    def looks_for_trained(self) -> bool:
        """Whether rows may be of categories of the training without a label that says so."""
        return self.judge is not None and bool(self.catalogue.trained.any())

    def joined(self, names: Sequence[str], catalogue: Catalogue, look_for: bool = True) -> Known:
        """Return these categories and others, of which rows are looked for or not; of the same name, they are one."""
        places = {name: place for place, name in enumerate(self.names)}
        same = np.array([places.get(name, -1) for name in names], np.int64)
        fresh = same < 0
        every = self.catalogue.with_rows_of(catalogue.take(~fresh), same[~fresh])
        if look_for:
            every = every + catalogue.take(fresh)
        return replace(self, names=[*self.names, *(n for n, f in zip(names, fresh, strict=True) if f)], catalogue=every)


@dataclass(frozen=True, eq=False)
class Placed:
    """Which rows are of known categories."""

    target: Labels
    """The category of each row; -1 for those that stay in their cluster."""
    recognised: NDArray[np.bool_]
    """Whether the row is there because it was recognised, or labelled, rather than because its cluster is."""
    probability: Floats
    """The probability that the row is of the category that is nearest to it."""


@dataclass(frozen=True, eq=False)
class Settled:
    """The clusters of a pile, the largest first, and which of them are known."""

    labels: Labels
    confidence: Floats
    names: list[str]
    is_new: NDArray[np.bool_]
    """Whether each cluster is of no category that the model was trained on."""
    novelty: Floats
    """The probability that each row is of none of them."""
    stray: Floats
    """The probability that each row is of no category of which there are others."""
    components: Components
    facts: ClusterFacts | None
    tally: Tally

    def take(self, rows: Labels) -> Settled:
        """Return some of the rows, in the order given."""
        return replace(
            self, **{name: getattr(self, name)[rows] for name in ("labels", "confidence", "novelty", "stray")}
        )


def settled(
    model: ClusteringModel,
    z: NDArray[np.float32],
    found: Clusters,
    known: Known,
    links: Links | None = None,
    limit: int | None = None,
    least: int = 1,
) -> Settled:
    """Return what becomes of the clusters that were found in rows.

    Parameters
    ----------
    model : ClusteringModel
    z : ndarray of shape (rows, S)
        The representations of the rows.
    found : Clusters
        The clusters, found in all of these rows.
    known : Known
        The categories that rows may be of.
    links : Links, optional
        Rows that are labelled, and rows that have to be together or apart.
    limit : int, optional
        The largest number of clusters.
    least : int
        Clusters of new categories that have fewer rows are dissolved.
    """
    at = found.components.placed(z)
    start, confidence = at.labels, at.probability if found.confidence is None else found.confidence.of(at)
    rows = z.astype(np.float64)
    origin, expected = rows.mean(0), model.expected_variance
    labels = start if links is None else linked(model, rows, start, links)
    known = with_labelled(known, rows, links)
    stray, novelty = stray_and_novel(model, rows, at, found.confidence)
    placed = placed_rows(rows, labels, known, links, novelty, expected)
    categories = len(known.names)
    labels = np.where(placed.target >= 0, placed.target, categories + labels)
    said = NO_ROWS if links is None else np.unique(labels[links.codes >= 0])
    labels = few_enough(rows, labels, categories, limit, least, said)
    if links is not None:
        labels = links.moved(rows, labels, expected)
    sizes, first = sizes_of(labels, int(labels.max()) + 1)
    filled = np.flatnonzero(sizes)
    # Of the same size by the first row.
    order = filled[np.lexsort((first[filled], -sizes[filled]))]
    number = np.zeros(len(sizes), np.int64)
    number[order] = np.arange(len(order))
    labels = number[labels]
    names = with_new_names(
        [known.names[place] if place < categories else None for place in order.tolist()],
        {*known.names, *known.taken, *known.trained},
    )
    (factor,) = own_variance_factors(rows - origin, [labels], expected)
    tally = Tally.of(model, z, labels, len(order), origin, factor)
    components, judge = found.components, found.confidence
    if not np.array_equal(labels, start):
        components = tally.components(model)
        judge = found.describe(components)
        now = components.placed(z, labels)
        confidence = now.probability if judge is None else judge.of(now)
    is_new = np.array([name not in known.trained for name in names])
    if not known.looks_for_trained:
        novelty = np.ones(len(rows))
    if links is not None:
        stray = np.where(links.group >= 0, 0.0, stray)
        novelty = np.where(links.codes >= 0, is_new[labels], novelty)
    confidence = np.where(placed.recognised, placed.probability, confidence)
    facts = None if judge is None else judge.facts
    return Settled(labels, confidence, names, is_new, novelty, stray, components, facts, tally)


def stray_and_novel(
    model: ClusteringModel, rows: Floats, at: Placement, judge: Confidence | None
) -> tuple[Floats, Floats]:
    """Return the probability that each row belongs nowhere, and that it is of no category of the training.

    Where that was not learned, they are 0 and 1.
    """
    known = model.known
    if known is None or judge is None:
        return np.zeros(len(rows)), np.ones(len(rows))
    # Clusters without rows have no place among the features.
    labels = np.unique(at.labels, return_inverse=True)[1]
    of_known, _ = known_features(rows, labels, Catalogue.held(known), model.expected_variance)
    of_rows = row_features(at, judge.facts, judge.expected, False)[:, : len(ROW_FEATURES)]
    sizes = np.bincount(labels)[labels].astype(np.float64)
    stray = sigmoid(known.outliers.outputs(outlier_features(rows, of_rows, sizes, judge.expected)))
    # What is of the nearest category is of none less often than that.
    novelty = np.minimum(sigmoid(known.novelty.outputs(of_known)), 1 - sigmoid(known.judge.outputs(of_known)))
    return stray, novelty


def linked(model: ClusteringModel, rows: Floats, labels: Labels, links: Links) -> Labels:
    """Return clusters that obey links: other rows follow those that links have moved."""
    expected, origin = model.expected_variance, rows.mean(0)
    labels = links.obeyed(rows, labels, expected)
    for _ in range(ROUNDS):
        (factor,) = own_variance_factors(rows - origin, [labels], expected)
        tally = Tally.of(model, rows, labels, int(labels.max()) + 1, origin, factor)
        again = links.obeyed(rows, tally.components(model).assigned(rows)[0], expected)
        if np.array_equal(again, labels):
            break
        labels = again
    return labels


def with_labelled(known: Known, rows: Floats, links: Links | None) -> Known:
    """Return the known categories and those of labelled rows."""
    place = np.empty(0, np.int64) if links is None else np.flatnonzero(links.codes >= 0)
    if links is None or not len(place):
        return known
    present, index = np.unique(links.codes[place], return_inverse=True)
    added = Catalogue.of(rows[place], index, len(present), trained=False)
    # Few rows of a category that the encoder has not seen say less of further rows than their clusters do.
    return known.joined([links.names[code] for code in present.tolist()], added, look_for=False)


def placed_rows(
    rows: Floats, labels: Labels, known: Known, links: Links | None, novelty: Floats, expected: float
) -> Placed:
    """Return which rows are of known categories: those that are recognised or labelled, and others by their cluster."""
    none = np.full(len(rows), -1)
    if not known.names:
        return Placed(none, np.zeros(len(rows), bool), np.zeros(len(rows)))
    places = {name: place for place, name in enumerate(known.names)}
    labelled = none if links is None else np.array([*(places.get(n, -1) for n in links.names), -1])[links.codes]
    target, probability, at_once = none, np.zeros(len(rows)), np.zeros(len(rows), bool)
    said, looked_for = labelled >= 0, len(known.catalogue)
    if known.judge is not None and looked_for:
        found = recognised(rows, labels, known.catalogue, known.judge, expected)
        probability = found.probability
        target, at_once = rows_of_known(
            rows, labels, found, known.catalogue, known.threshold, novelty, labelled, known.there
        )
    elif known.there:
        target = nearest_clusters(rows, labels, known.catalogue, expected)
    probability = np.where(said, 1.0, probability)
    # Rows that nothing says of are where their cluster is: with the labelled rows in it.
    owner = np.full(int(labels.max()) + 1, -1)
    owner[labels[said]] = labelled[said]
    target = np.where(said, labelled, np.where(target < 0, owner[labels], target))
    return Placed(target, at_once | said, probability)


def nearest_clusters(rows: Floats, labels: Labels, catalogue: Catalogue, expected: float) -> Labels:
    """Return where rows go by their clusters alone: to the nearest category, where that is near, and to none (-1)."""
    own = Catalogue.of(rows, labels, int(labels.max()) + 1, trained=False)
    between = cdist(own.means, catalogue.means, "sqeuclidean")
    between -= own.variances(expected)[:, None] / own.counts[:, None] + catalogue.variances(expected) / catalogue.counts
    near = between.argmin(1)
    return np.where(between.min(1) < NEAR * expected, near, -1)[labels]


def few_enough(
    rows: Floats, labels: Labels, categories: int, limit: int | None, least: int, kept: Labels = NO_ROWS
) -> Labels:
    """Dissolve small clusters of new categories, and the smallest of all until there are no more than allowed.

    The first so many ``categories`` are known; their rows may be few. Those that are ``kept`` stay in any case.
    """
    while True:
        sizes = np.bincount(labels)
        filled = np.flatnonzero(sizes)
        free = np.setdiff1d(filled, kept)
        small = free[(free >= categories) & (sizes[free] < least)]
        if len(filled) > 1 and len(small):
            gone = small[sizes[small].argmin()]
        elif limit is not None and len(filled) > limit and len(free):
            gone = free[sizes[free].argmin()]
        else:
            return labels
        others = filled[filled != gone]
        mine = labels == gone
        labels = labels.copy()
        labels[mine] = others[nearest(rows[mine], centres_of(rows, labels, len(sizes))[others])]


def with_new_names(names: Sequence[str | None], taken: Collection[str] = ()) -> list[str]:
    """Call those without a name "new 1", "new 2", and so on, without a name that is there already.

    >>> with_new_names(["refunds", None, "new 1", None])
    ['refunds', 'new 2', 'new 1', 'new 3']
    """
    used = {name for name in names if name is not None} | set(taken)
    free = (name for name in (f"{NEW} {number}" for number in count(1)) if name not in used)
    return [next(free) if name is None else name for name in names]


def is_placeholder(name: str) -> bool:
    """Return whether a name is one that :func:`with_new_names` gives.

    >>> is_placeholder("new 12"), is_placeholder("new york")
    (True, False)
    """
    first, _, number = name.partition(" ")
    return first == NEW and number.isdecimal()


def sizes_of(labels: NDArray[np.int64], clusters: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many rows each cluster has, and the first of them (the number of rows where it has none)."""
    first = np.full(clusters, len(labels))
    np.minimum.at(first, labels, np.arange(len(labels)))
    return np.bincount(labels, minlength=clusters), first
