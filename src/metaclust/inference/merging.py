"""Clusters that are better taken for one: neighbours are merged as long as the bound of the evidence rises."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from metaclust.inference.candidates import Candidate, Floats, Labels, Starts, bounds_of, candidates_from, in_order
from metaclust.model.clustering_model import ClusteringModel


def merged(model: ClusteringModel, z: Floats, candidate: Candidate) -> Candidate:
    """The candidate, or what becomes of it when neighbours are merged that the bound prefers merged.

    In each round every cluster and its nearest are merged on trial, and the best of these is kept if its bound is
    higher. From where this ends the inference goes on; its end is taken if its bound is higher, too.
    """
    labels, bound = candidate.labels, candidate.bound
    while labels.max() > 0:
        trials = [in_order(np.where(labels == one, other, labels)) for one, other in neighbours(z, labels)]
        bounds = bounds_of(model, z, trials, candidate.weight)
        best = int(np.argmax(bounds))
        if bounds[best] <= bound:
            break
        labels, bound = trials[best], bounds[best]
    if labels is candidate.labels:
        return candidate
    ends = candidates_from(model, z, Starts([labels], int(labels.max()) + 1), None, candidate.weight)
    return max([candidate, *ends], key=lambda end: end.bound)


def neighbours(z: Floats, labels: Labels) -> list[tuple[int, int]]:
    """Each cluster and the one whose mean is nearest to its own, each pair once."""
    centres = np.stack([z[labels == cluster].mean(0) for cluster in range(labels.max() + 1)])
    apart = cdist(centres, centres)
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(1).tolist()
    return sorted({(min(pair), max(pair)) for pair in enumerate(nearest)})
