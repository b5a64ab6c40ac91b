"""Assignments from which the inference starts: a network's, for another number of clusters, or k-means++ seeds."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from metaclust._util.distributed import Part

EMPTY = -1e9
"""The logit of a cluster that starts without rows: far below any other, and finite."""

ANY = 1e-30
"""The weight of a row on a seed when the next one is drawn: only where there are no others."""


def fit_columns(logits: Float[Tensor, "*task n k"], clusters: int) -> Float[Tensor, "*task n c"]:
    """As many columns as there may be clusters: further ones start empty, those that are too many are left out."""
    return functional.pad(logits[..., :clusters], (0, max(0, clusters - logits.shape[-1])), value=EMPTY)


def seed_numbers(clusters: int, starts: int) -> list[int]:
    """How many seeds each of several starts has: evenly from ``clusters`` down to two.

    >>> seed_numbers(10, 4)
    [10, 7, 5, 2]
    """
    least = min(2, clusters)
    return [round(clusters - i * (clusters - least) / max(1, starts - 1)) for i in range(starts)]


def seed_draws(
    tasks: tuple[int, ...], many: int, generator: torch.Generator | None = None, part: Part | None = None
) -> Float[Tensor, "many tasks"]:
    """Numbers in [0, 1) by which ``many`` seeds are drawn for each task; of a ``part`` of more, as among all."""
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
    """Initial logits from k-means++ seeds: rows drawn one after another, far from those drawn before.

    The logits are -||z - seed_k||^2 / 2, those of unit-variance components at the seeds. With fewer ``seeds``
    than ``clusters``, a number or one for each task, the other clusters start empty. Where the tasks are a ``part`` of
    more, they get the rows that they would get among all. ``draws`` are those of :func:`seed_draws`, if made before.
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
        # Where all rows lie on seeds already, any row is drawn.
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
