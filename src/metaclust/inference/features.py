"""What the learned selector sees of candidate clusterings: features without a unit.

They hardly depend on how many rows or clusters there are: how wide clusters are against what categories were in
training, how far apart the nearest are, whether one looks like two, how even their sizes, how well clusterings agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch.nn import functional

from metaclust.inference.stages import Floats, Labels

SILHOUETTE_ROWS = 1000
"""The silhouette looks at all pairs: of more rows than this, at a sample."""
TINY = 1e-9


def describe(
    z: Floats, candidates: Sequence[Labels], expected: float, bounds: Sequence[float], seed: int = 0
) -> Floats:
    """(candidates, 2 features): the features of each, and how far each is below the highest among the candidates.

    ``expected`` is the variance, summed over the columns of ``z``, that a category has; ``bounds`` are those of the
    evidence, for each row that counts.
    """
    generator = np.random.default_rng([seed, len(z)])
    sample = np.arange(len(z))
    if len(z) > SILHOUETTE_ROWS:
        sample = np.sort(generator.choice(len(z), SILHOUETTE_ROWS, replace=False))
    distances = cdist(z[sample], z[sample])
    np.fill_diagonal(distances, 0)
    dense = [np.unique(labels, return_inverse=True)[1] for labels in candidates]
    numbers = np.array([labels.max() + 1 for labels in dense])
    each = np.stack([alone(z, labels, distances, sample, expected) for labels in dense])
    below = np.asarray(bounds) - max(bounds)
    features = np.column_stack([each, between(dense, numbers, each[:, 0]), below])
    return np.column_stack([features, features - features.max(0)])


def alone(z: Floats, labels: Labels, distances: Floats, sample: Labels, expected: float) -> Floats:
    """The features of one clustering by itself."""
    rows, clusters = len(z), int(labels.max()) + 1
    size = np.bincount(labels).astype(np.float64)
    member = functional.one_hot(torch.from_numpy(labels), clusters).double().numpy()
    centre = (member.T @ z) / size[:, None]
    rest = z - centre[labels]
    square = np.square(rest).sum(1)
    width = (member.T @ square) / np.maximum(size - 1, 1)
    within = square.sum() / max(1, rows - clusters)
    whole = np.square(z - z.mean(0)).sum() / max(1, rows - 1)
    widths = np.log(
        np.array([within / (whole + TINY), *(np.array([within, width.max(), width.min()]) / expected)]) + 1e-6
    )
    silhouettes, gaps, of_centres = np.zeros(4), np.zeros(2), 0.0
    seen = np.unique(labels[sample])
    if 2 <= len(seen) < len(sample):
        value = silhouette(distances, member[sample][:, seen])
        by_cluster = (member[sample][:, seen].T @ value) / member[sample][:, seen].sum(0)
        silhouettes = np.array([value.mean(), by_cluster.min(), np.median(by_cluster), (value < 0).mean()])
    if clusters > 1:
        gaps = np.log(nearest_gaps(centre, rest, member, size) + 1e-6)
        gaps = np.array([gaps.min(), gaps.mean()])
        to_centre = cdist(z, centre)
        own = to_centre[np.arange(rows), labels]
        to_centre[np.arange(rows), labels] = np.inf
        other = to_centre.min(1)
        of_centres = float(((other - own) / (np.maximum(own, other) + TINY)).mean())
    axis, flatness = first_axes(rest, labels, size, width)
    share = size / rows
    evenness = -(share * np.log(share)).sum() - np.log(clusters)
    return np.array(
        [
            *widths,
            *silhouettes,
            of_centres,
            *gaps,
            axis.max(),
            axis.mean(),
            flatness.min(),
            flatness.mean(),
            evenness,
            np.log(share.min() * clusters),
            np.log(clusters),
        ]
    )


def silhouette(distances: Floats, member: Floats) -> Floats:
    """Of each row, as :func:`sklearn.metrics.silhouette_samples`: here distances serve all candidates."""
    size, rows = member.sum(0), np.arange(len(member))
    own = member.argmax(1)
    sums = distances @ member
    inside = sums[rows, own] / np.maximum(size[own] - 1, 1)
    mean = sums / size
    mean[rows, own] = np.inf
    outside = mean.min(1)
    value: Floats = (outside - inside) / np.maximum(np.maximum(inside, outside), TINY)
    return np.where(size[own] > 1, value, 0.0)


def nearest_gaps(centre: Floats, rest: Floats, member: Floats, size: Floats) -> Floats:
    """From each cluster to its nearest: the distance of the centres, in standard deviations along the line between."""
    apart = cdist(centre, centre)
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(1)
    gap = apart[np.arange(len(centre)), nearest]
    line = (centre - centre[nearest]) / (gap[:, None] + TINY)
    along = np.square(rest @ line.T)
    spread = (member * along).sum(0) + (member[:, nearest] * along).sum(0)
    deviation = np.sqrt(spread / np.maximum(size + size[nearest] - 2, 1))
    result: Floats = gap / (deviation + TINY)
    return result


def first_axes(rest: Floats, labels: Labels, size: Floats, width: Floats, rounds: int = 8) -> tuple[Floats, Floats]:
    """Along the axis in which each cluster is longest: the log of its share of the variance, and its kurtosis.

    A Gaussian has the kurtosis 3; two clusters that were taken for one have less, down to 1.
    """
    generator = np.random.default_rng(0)
    axes = generator.normal(size=(len(size), rest.shape[1]))
    ordered = rest[np.argsort(labels, kind="stable")]
    share, kurtosis = np.full(len(size), 0.1), np.full(len(size), 3.0)
    ends = np.cumsum(size).astype(int)
    for cluster, (axis, end) in enumerate(zip(axes, ends, strict=True)):
        rows = ordered[end - int(size[cluster]) : end]
        if len(rows) <= 3:
            continue
        for _ in range(rounds):
            axis = rows.T @ (rows @ axis)
            axis /= np.sqrt(axis @ axis) + TINY
        square = np.square(rows @ axis)
        second = square.mean()
        share[cluster] = second / (width[cluster] + TINY)
        kurtosis[cluster] = min((square @ square) / len(rows) / (second * second + TINY), 6)
    return np.log(share + 1e-6), kurtosis


def between(candidates: Sequence[Labels], numbers: Labels, within: Floats) -> Floats:
    """The features of each clustering beside the others: agreement, and how the width falls as clusters are added."""
    count = len(candidates)
    agreement = adjusted_rand_indices(candidates)
    features = np.zeros((count, 4))
    for i in range(count):
        others = np.arange(count) != i
        same = others & (numbers == numbers[i])
        features[i, 0] = agreement[i, others].mean() if others.any() else 1
        features[i, 1] = agreement[i, same].mean() if same.any() else 1
        for column, side in ((2, numbers < numbers[i]), (3, numbers > numbers[i])):
            if not side.any():
                continue
            near = side & (np.abs(numbers - numbers[i]) == np.abs(numbers[side] - numbers[i]).min())
            fall = abs(within[near].min() - within[i])
            # By so much as the number of clusters changes, in its logarithm, so that steps of different size compare.
            features[i, column] = fall / abs(np.log(numbers[near][0] / numbers[i]))
    return features


def adjusted_rand_indices(candidates: Sequence[Labels]) -> Floats:
    """(candidates, candidates): the ARI of every two, all contingency tables from one product."""
    clusters = np.array([labels.max() + 1 for labels in candidates])
    starts = np.concatenate(([0], np.cumsum(clusters)[:-1]))
    rows = len(candidates[0])
    member = np.zeros((rows, int(clusters.sum())), np.float32)
    for start, labels in zip(starts, candidates, strict=True):
        member[np.arange(rows), start + labels] = 1
    table = (member.T @ member).astype(np.float64)
    squares = np.add.reduceat(np.add.reduceat(np.square(table), starts, 0), starts, 1)
    together = (squares - rows) / 2
    pairs = np.diagonal(together)
    chance = pairs[:, None] * pairs / max(1, rows * (rows - 1) / 2)
    most = (pairs[:, None] + pairs) / 2
    result: Floats = np.where(most > chance, (together - chance) / np.where(most > chance, most - chance, 1), 1.0)
    return result
