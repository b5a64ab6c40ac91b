"""The dimensionless features of candidate clusterings from which the learned selector chooses.

They hardly depend on the number of rows or clusters: the variance of clusters relative to that of training categories,
the distance between neighbours, whether a cluster resembles two, the balance of sizes, the agreement of candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch.nn import functional

from metaclust.inference.stages import Floats, Labels

SILHOUETTE_ROWS = 1000
"""The silhouette compares all pairs of rows; with more rows than this, those of a sample."""
TINY = 1e-9


def describe(
    z: Floats, candidates: Sequence[Labels], expected: float, bounds: Sequence[float], seed: int = 0
) -> Floats:
    """Return the features of each candidate, and their differences from the maximum over the candidates.

    The shape is (candidates, 2 * features). ``expected`` is the expected variance of a category, summed over the
    columns of ``z``; ``bounds`` are the evidence lower bounds per effective row.
    """
    generator = np.random.default_rng([seed, len(z)])
    sample = np.arange(len(z))
    if len(z) > SILHOUETTE_ROWS:
        sample = np.sort(generator.choice(len(z), SILHOUETTE_ROWS, replace=False))
    distances = cdist(z[sample], z[sample])
    np.fill_diagonal(distances, 0)
    dense = [np.unique(labels, return_inverse=True)[1] for labels in candidates]
    n_clusters = np.array([labels.max() + 1 for labels in dense])
    individual = np.stack([individual_features(z, labels, distances, sample, expected) for labels in dense])
    bound_gap = np.asarray(bounds) - max(bounds)
    relative = relative_features(dense, n_clusters, individual[:, 0])
    features = np.column_stack([individual, relative, bound_gap])
    return np.column_stack([features, features - features.max(0)])


def individual_features(z: Floats, labels: Labels, distances: Floats, sample: Labels, expected: float) -> Floats:
    """Return the features of one clustering that do not depend on the other candidates."""
    rows, clusters = len(z), int(labels.max()) + 1
    size = np.bincount(labels).astype(np.float64)
    member = functional.one_hot(torch.from_numpy(labels), clusters).double().numpy()
    centre = (member.T @ z) / size[:, None]
    residual = z - centre[labels]
    squared_distance = np.square(residual).sum(1)
    variance = (member.T @ squared_distance) / np.maximum(size - 1, 1)
    within = squared_distance.sum() / max(1, rows - clusters)
    total = np.square(z - z.mean(0)).sum() / max(1, rows - 1)
    log_variances = np.log(
        np.array([within / (total + TINY), *(np.array([within, variance.max(), variance.min()]) / expected)]) + 1e-6
    )
    silhouettes, gaps, centre_silhouette = np.zeros(4), np.zeros(2), 0.0
    seen = np.unique(labels[sample])
    if 2 <= len(seen) < len(sample):
        values = silhouette(distances, member[sample][:, seen])
        by_cluster = (member[sample][:, seen].T @ values) / member[sample][:, seen].sum(0)
        silhouettes = np.array([values.mean(), by_cluster.min(), np.median(by_cluster), (values < 0).mean()])
    if clusters > 1:
        gaps = np.log(nearest_gaps(centre, residual, member, size) + 1e-6)
        gaps = np.array([gaps.min(), gaps.mean()])
        to_centre = cdist(z, centre)
        own = to_centre[np.arange(rows), labels]
        to_centre[np.arange(rows), labels] = np.inf
        other = to_centre.min(1)
        centre_silhouette = float(((other - own) / (np.maximum(own, other) + TINY)).mean())
    log_share, kurtosis = first_axes(residual, labels, size, variance)
    proportion = size / rows
    balance = -(proportion * np.log(proportion)).sum() - np.log(clusters)
    return np.array(
        [
            *log_variances,
            *silhouettes,
            centre_silhouette,
            *gaps,
            log_share.max(),
            log_share.mean(),
            kurtosis.min(),
            kurtosis.mean(),
            balance,
            np.log(proportion.min() * clusters),
            np.log(clusters),
        ]
    )


def silhouette(distances: Floats, member: Floats) -> Floats:
    """Return the silhouette of each row, as :func:`sklearn.metrics.silhouette_samples`, from shared distances."""
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
    """Return the distance from each centre to the nearest other one, in standard deviations along that direction."""
    distances = cdist(centre, centre)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(1)
    gap = distances[np.arange(len(centre)), nearest]
    direction = (centre - centre[nearest]) / (gap[:, None] + TINY)
    squared_projection = np.square(rest @ direction.T)
    total = (member * squared_projection).sum(0) + (member[:, nearest] * squared_projection).sum(0)
    deviation = np.sqrt(total / np.maximum(size + size[nearest] - 2, 1))
    gaps: Floats = gap / (deviation + TINY)
    return gaps


def first_axes(rest: Floats, labels: Labels, size: Floats, width: Floats, rounds: int = 8) -> tuple[Floats, Floats]:
    """Return the log share of the variance along each cluster's principal axis, and the kurtosis along it.

    ``width`` is the variance of each cluster. A Gaussian has kurtosis 3; two merged clusters have less, down to 1.
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
        squared = np.square(rows @ axis)
        variance = squared.mean()
        share[cluster] = variance / (width[cluster] + TINY)
        kurtosis[cluster] = min((squared @ squared) / len(rows) / (variance * variance + TINY), 6)
    return np.log(share + 1e-6), kurtosis


def relative_features(candidates: Sequence[Labels], numbers: Labels, within: Floats) -> Floats:
    """Return how well each clustering agrees with the others, and how the variance falls as clusters are added."""
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
            nearest = side & (np.abs(numbers - numbers[i]) == np.abs(numbers[side] - numbers[i]).min())
            decrease = abs(within[nearest].min() - within[i])
            # Per unit of the log number of clusters, so that steps of different size are comparable.
            features[i, column] = decrease / abs(np.log(numbers[nearest][0] / numbers[i]))
    return features


def adjusted_rand_indices(candidates: Sequence[Labels]) -> Floats:
    """Return the ARI of every two candidates, computing all contingency tables as one product."""
    clusters = np.array([labels.max() + 1 for labels in candidates])
    offsets = np.concatenate(([0], np.cumsum(clusters)[:-1]))
    rows = len(candidates[0])
    member = np.zeros((rows, int(clusters.sum())), np.float32)
    for offset, labels in zip(offsets, candidates, strict=True):
        member[np.arange(rows), offset + labels] = 1
    table = (member.T @ member).astype(np.float64)
    squares = np.add.reduceat(np.add.reduceat(np.square(table), offsets, 0), offsets, 1)
    common_pairs = (squares - rows) / 2
    pairs = np.diagonal(common_pairs)
    expected = pairs[:, None] * pairs / max(1, rows * (rows - 1) / 2)
    highest = (pairs[:, None] + pairs) / 2
    varies = highest > expected
    result: Floats = np.where(varies, (common_pairs - expected) / np.where(varies, highest - expected, 1), 1.0)
    return result
