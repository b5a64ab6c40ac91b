"""Where inference starts: k-means++ seeds among a sample of rows, or batched over tasks on the device."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.metrics import pairwise_distances_argmin_min
from torch import Tensor
from torch.nn import functional

from metaclust._util.distributed import Part
from metaclust._util.threads import one_thread

Init = Literal["kmeans++", "kmeans", "random"]
ROUNDS = 10
"""Iterations of k-means, for "kmeans"."""
LEAST_VARIANCE = 1e-3
"""The smallest variance of rows around their seeds, where that of all rows is one."""
EMPTY = -1e9
"""The logit of a cluster that starts without rows: far below any other, and finite."""
ANY = 1e-30
"""The weight of a row that coincides with a seed when the next one is drawn: it counts only if all rows do."""


@one_thread()
def seeds(
    z: NDArray[np.float64], weights: NDArray[np.float64], number: int, init: Init, seed: int
) -> NDArray[np.float64]:
    """At most ``number`` initial means (number, S) for distinct rows. A row of weight two is drawn like two rows."""
    number = min(number, len(z))
    if init == "random":
        # The largest u^(1 / weight): draws without replacement, in proportion to the weights.
        keys = np.log(np.random.default_rng(seed).random(len(z))) / weights
        means = z[np.argsort(-keys)[:number]]
    else:
        means, _ = kmeans_plusplus(z, number, sample_weight=weights, random_state=seed)
    if init == "kmeans":
        rounds = KMeans(number, init=means, n_init=1, max_iter=ROUNDS, tol=0)
        means = rounds.fit(z, sample_weight=weights).cluster_centers_
    return np.asarray(means, np.float64)


@one_thread()
def precision_around(z: NDArray[np.float64], weights: NDArray[np.float64], means: NDArray[np.float64]) -> float:
    """The precision of rows around the nearest of the means."""
    _, distance = pairwise_distances_argmin_min(z, means)
    within: float = float(np.average(np.square(distance), weights=weights)) / z.shape[1]
    # With as many means as rows, no variance is left.
    return 1.0 / max(within, LEAST_VARIANCE)


def fit_columns(logits: Float[Tensor, "*task n k"], clusters: int) -> Float[Tensor, "*task n c"]:
    """The logits with ``clusters`` columns: additional clusters start empty, excess ones are dropped."""
    return functional.pad(logits[..., :clusters], (0, max(0, clusters - logits.shape[-1])), value=EMPTY)


def seed_numbers(clusters: int, starts: int) -> list[int]:
    """The number of seeds of each of several starts: evenly spaced from ``clusters`` down to two.

    >>> seed_numbers(10, 4)
    [10, 7, 5, 2]
    """
    least = min(2, clusters)
    return [round(clusters - i * (clusters - least) / max(1, starts - 1)) for i in range(starts)]


def seed_draws(
    tasks: tuple[int, ...], many: int, generator: torch.Generator | None = None, part: Part | None = None
) -> Float[Tensor, "many tasks"]:
    """The random numbers in [0, 1) that select ``many`` seeds for each task.

    If the tasks are a ``part`` of a larger batch, they get the numbers that they would get in the whole batch.
    """
    shape = tasks if part is None else (*tasks[:-1], part.total)
    draws = torch.rand((many, *shape), dtype=torch.float64, generator=generator)
    return (draws if part is None else draws[..., part.slice]).reshape(many, math.prod(tasks))


def seeded_logits(
    z: Float[Tensor, "*task n s"],
    clusters: int,
    mask: Bool[Tensor, "*task n"] | None = None,
    generator: torch.Generator | None = None,
    seeds: int | Int[Tensor, "*#task"] | None = None,
    part: Part | None = None,
    draws: Float[Tensor, "many tasks"] | None = None,
) -> Float[Tensor, "*task n k"]:
    """Initial logits from k-means++ seeds: rows drawn in proportion to their squared distance from earlier seeds.

    The logits are -||z - seed_k||^2 / 2, those of unit-variance components at the seeds. With fewer ``seeds``
    than ``clusters``, a number or one for each task, the other clusters start empty. If the tasks are a ``part`` of a
    larger batch, they get the seeds that they would get in it. ``draws`` is the result of :func:`seed_draws`, if it has
    already been called.
    """
    numbers = torch.as_tensor(clusters if seeds is None else seeds).expand(z.shape[:-2]).reshape(-1)
    flat = z.reshape(-1, *z.shape[-2:])
    weight = torch.ones(flat.shape[:-1], dtype=z.dtype, device=z.device)
    if mask is not None:
        weight = mask.reshape(weight.shape).to(z.dtype)
    nearest = weight
    distances: list[Tensor] = []
    if draws is None:
        draws = seed_draws(z.shape[:-2], int(numbers.max()), generator, part)
    for draw in draws.to(z.device, z.dtype)[..., None]:
        # If all rows coincide with seeds, any row is drawn.
        total = torch.add(nearest, weight, alpha=ANY).cumsum(-1)
        seed = torch.searchsorted(total, draw * total[:, -1:]).clamp_max(flat.shape[1] - 1)
        row = flat.gather(1, seed[..., None].expand(-1, 1, flat.shape[-1]))
        distance = torch.cdist(flat, row, compute_mode="donot_use_mm_for_euclid_dist")[..., 0].square()
        distances.append(distance)
        candidate = distance * weight
        nearest = candidate if len(distances) == 1 else torch.minimum(nearest, candidate)
    unused = (torch.arange(len(distances)) >= numbers[:, None])[:, None].to(z.device)
    logits = (-0.5 * torch.stack(distances, -1)).masked_fill(unused, -torch.inf)
    logits = (logits - logits.amax(-1, keepdim=True)).clamp_min(EMPTY)
    logits = functional.pad(logits, (0, clusters - len(distances)), value=EMPTY)
    return logits.reshape(*z.shape[:-1], clusters)
