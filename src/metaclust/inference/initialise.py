"""First stage: assignments to start from, by the trained task network, by Ward's method and by k-means++ seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist
from sklearn.cluster import kmeans_plusplus

from metaclust.inference.features import evidence_of, mean_ari, merge_probabilities, pairs_of_all
from metaclust.inference.groups import sums_of_rows
from metaclust.inference.partitions import Partitions
from metaclust.inference.stages import Floats, Initial, Initialiser, Labels, Sample, in_order
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.selector import SelectorNetwork

WARD_ROWS = 4000
"""Ward's method compares all pairs: beyond this many rows it sees a sample, and the others join the nearest centre."""
ALL_UP_TO = 12
"""Every number of clusters up to this one is tried."""
THRESHOLDS = (0.02, *np.linspace(0.05, 0.95, 19).tolist())
"""At these probabilities of being of one category, pairs of rows are together or apart."""
FINER = 2
"""Even cuts have at most so many times as many clusters as the finest other ones."""
MOST_CUTS = 20
"""The cuts of trees that are refined."""
SMALLEST, FEWEST_TO_DISSOLVE = 3, 60
"""Clusters of fewer rows are no candidates, where there are at least so many rows in all."""


@dataclass(frozen=True)
class LearnedStart:
    """The assignments of the task network (f_U, g_U, f_R), soft, whatever numbers are asked for."""

    @classmethod
    def for_model(cls, model: ClusteringModel, restarts: int) -> LearnedStart | None:
        return cls() if model.config.learned_start else None

    @torch.no_grad()
    def __call__(
        self, model: ClusteringModel, sample: Sample, numbers: Sequence[int], generator: np.random.Generator
    ) -> list[Initial]:
        # The network was trained on rows where the encoder puts them.
        rows = torch.from_numpy(sample.z + sample.mean).to(model.device, model.weight_dtype)
        limit = min(max(numbers), model.config.max_clusters)
        return [Initial.soft(model.proposed_logits(rows)[..., :limit])]


@dataclass(frozen=True)
class WardStarts:
    """Labels by Ward's method, one for each number of clusters, from one tree."""

    @classmethod
    def for_model(cls, model: ClusteringModel, restarts: int) -> WardStarts:
        return cls()

    def __call__(
        self, model: ClusteringModel, sample: Sample, numbers: Sequence[int], generator: np.random.Generator
    ) -> list[Initial]:
        return [Initial(in_order(labels)) for labels in ward_labels(sample.z, numbers, generator)]


@dataclass(frozen=True)
class TreeCuts:
    """The cuts of two trees with the highest expected ARI, by the probabilities of a selector network.

    Which cuts are proposed does not depend on the largest number asked for, except that cuts with more clusters are
    left out, and that each tree is cut into just so many clusters, too.
    """

    network: SelectorNetwork
    restarts: int = 0
    """k-means++ starts for each number of clusters that a cut has."""

    def __call__(
        self, model: ClusteringModel, sample: Sample, numbers: Sequence[int], generator: np.random.Generator
    ) -> list[Initial]:
        evidence = evidence_of(model, sample)
        limit = max(numbers)
        probabilities = merge_probabilities(evidence, self.network)
        cuts = [tree.best_cuts(each, THRESHOLDS) for tree, each in zip(evidence.trees, probabilities, strict=True)]
        # Many more clusters than at the highest price of a pair are not expected to be right.
        finest = max(int(cut.max()) + 1 for of_tree in cuts for cut in of_tree)
        most = min(evidence.most_clusters, FINER * finest)
        even = [evidence.trees[0].cut(number) for number in candidate_numbers(most, 10, 1.2)]
        merged = [without_small(sample.z, in_order(cut)) for cut in [*cuts[0], *cuts[1], *even]]
        different = {labels.tobytes(): labels for labels in merged}
        cuts_of_all = list(different.values())
        expected = [mean_ari(pairs) for pairs in pairs_of_all(evidence, probabilities, Partitions.of(cuts_of_all))]
        ranked = [cuts_of_all[place] for place in np.argsort(-np.array(expected), kind="stable").tolist()]
        # Some even cuts go on in any case: the probabilities may be wrong.
        some = [evidence.trees[0].cut(number) for number in candidate_numbers(most, 3, 1.5)]
        chosen = [*ranked[:MOST_CUTS], *(without_small(sample.z, in_order(labels)) for labels in some)]
        if any(labels.max() >= limit for labels in chosen):
            chosen += [in_order(tree.cut(limit)) for tree in evidence.trees]
        chosen = [labels for labels in chosen if labels.max() < limit]
        sizes = sorted({int(labels.max()) + 1 for labels in chosen})
        for _ in range(self.restarts):
            chosen += [in_order(labels) for labels in seeded_labels(sample.z, sizes, generator)]
        return [Initial(labels) for labels in chosen]


@dataclass(frozen=True)
class BestCut:
    """The cut of two trees with the highest expected ARI alone: one learned start, for any number of clusters."""

    network: SelectorNetwork

    def __call__(
        self, model: ClusteringModel, sample: Sample, numbers: Sequence[int], generator: np.random.Generator
    ) -> list[Initial]:
        return TreeCuts(self.network)(model, sample, numbers, generator)[:1]


def without_small(z: Floats, labels: Labels) -> Labels:
    """Let the rows of very small clusters join the nearest other one, if there are many rows."""
    size = np.bincount(labels)
    large = size >= SMALLEST
    if len(z) < FEWEST_TO_DISSOLVE or large.all() or not large.any():
        return labels
    kept = np.flatnonzero(large)
    order = np.argsort(labels, kind="stable")
    centres = (sums_of_rows(z, np.cumsum(size) - size, order) / size[:, None])[kept]
    loose = ~large[labels]
    new = np.searchsorted(kept, labels)
    new[loose] = nearest(z[loose], centres)
    return in_order(new)


@dataclass(frozen=True)
class KMeansPlusPlusStarts:
    """Labels by the nearest of k-means++ seeds, ``restarts`` for each number of clusters."""

    restarts: int = 1

    @classmethod
    def for_model(cls, model: ClusteringModel, restarts: int) -> KMeansPlusPlusStarts:
        return cls(restarts)

    def __call__(
        self, model: ClusteringModel, sample: Sample, numbers: Sequence[int], generator: np.random.Generator
    ) -> list[Initial]:
        every = [labels for _ in range(self.restarts) for labels in seeded_labels(sample.z, numbers, generator)]
        return [Initial(in_order(labels)) for labels in every]


INITIALISERS: dict[str, Callable[[ClusteringModel, int], Initialiser | None]] = {
    "ward": WardStarts.for_model,
    "k-means++": KMeansPlusPlusStarts.for_model,
    "learned": LearnedStart.for_model,
}
"""The starts where the bound selects: from a model and the number of restarts, or None where the model has no such."""


def initial_assignments(
    initialisers: Sequence[Initialiser], model: ClusteringModel, sample: Sample, numbers: Sequence[int], seed: int
) -> list[Initial]:
    """Return what all initialisers propose, each partition once."""
    generator = np.random.default_rng([seed, 0xCA7])
    numbers = sorted({min(number, len(sample)) for number in numbers})
    proposed = [initial for each in initialisers for initial in each(model, sample, numbers, generator)]
    different: dict[bytes, Initial] = {}
    for initial in proposed:
        different.setdefault(initial.labels.tobytes(), initial)
    return list(different.values())


def candidate_numbers(limit: int, all_up_to: int = ALL_UP_TO, ratio: float = 1.125) -> list[int]:
    """Return the numbers of clusters to try: all of the first, then each about an eighth more.

    >>> candidate_numbers(30)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 21, 24, 28, 30]
    """
    numbers = list(range(1, min(limit, all_up_to) + 1))
    while numbers[-1] < limit:
        numbers.append(min(limit, round(numbers[-1] * ratio + 0.5)))
    return numbers


def untried_near(number: int, numbers: Sequence[int]) -> list[int]:
    """Return the numbers between the one found and those tried before and after it.

    >>> untried_near(14, [1, 2, 12, 14, 17, 20])
    [13, 15, 16]
    """
    below = max((other for other in numbers if other < number), default=number)
    above = min((other for other in numbers if other > number), default=number)
    return [other for other in range(below + 1, above) if other not in numbers]


def ward_labels(z: Floats, numbers: Sequence[int], generator: np.random.Generator) -> list[Labels]:
    """Cut Ward's tree at each number of clusters."""
    if len(z) == 1:
        return [np.zeros(1, np.int64) for _ in numbers]
    sample = np.arange(len(z))
    if len(z) > WARD_ROWS:
        sample = np.sort(generator.choice(len(z), WARD_ROWS, replace=False))
    tree = linkage(z[sample], "ward")
    found = []
    for number in numbers:
        cut = np.unique(fcluster(tree, number, "maxclust"), return_inverse=True)[1]
        if len(sample) < len(z):
            centres = np.stack([z[sample][cut == cluster].mean(0) for cluster in range(cut.max() + 1)])
            cut = nearest(z, centres)
        found.append(cut.astype(np.int64))
    return found


def seeded_labels(z: Floats, numbers: Sequence[int], generator: np.random.Generator) -> list[Labels]:
    """Assign rows to the nearest of the first k seeds for each number k, from one sequence of k-means++ seeds."""
    seeds, _ = kmeans_plusplus(z, min(max(numbers), len(z)), random_state=int(generator.integers(2**31)))
    labels, least = np.zeros(len(z), np.int64), np.full(len(z), np.inf)
    found = []
    for place, distance in enumerate(distances_to(z, seeds)):
        nearer = distance < least
        labels[nearer] = place
        least[nearer] = distance[nearer]
        found.append(labels.copy())
    return [found[min(number, len(seeds)) - 1] for number in numbers]


def distances_to(z: Floats, centres: Floats) -> Iterator[Floats]:
    """Yield the squared distances of all rows to each of the centres."""
    squares = np.square(z).sum(1)
    for centre in centres:
        yield squares - 2 * (z @ centre) + centre @ centre


def nearest(z: Floats, centres: Floats, block: int = 100_000) -> Labels:
    """Return the nearest centre of each row."""
    parts = [cdist(z[start : start + block], centres, "sqeuclidean").argmin(1) for start in range(0, len(z), block)]
    return np.concatenate(parts)
