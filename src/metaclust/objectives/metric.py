"""Contrastive and triplet losses, which the paper compares with."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional


def contrastive_loss(z: Float[Tensor, "n s"], y: Integer[Tensor, " n"], margin: float = 1.0) -> Float[Tensor, ""]:
    """Siamese networks (Hadsell et al. 2006): rows of a category together, others at least ``margin`` apart.

    The mean over all pairs of the same category, plus the mean over all others, so that the many others do not drown
    the few.
    """
    same = y[:, None] == y
    pairs = torch.ones_like(same).triu(1)
    squared = squared_distances(z)
    # The root has no gradient at zero, where rows are equal.
    short = functional.relu(margin - (squared + 1e-12).sqrt()).square()
    return mean_where(squared, same & pairs) + mean_where(short, ~same & pairs)


def triplet_loss(
    z: Float[Tensor, "n s"], y: Integer[Tensor, " n"], margin: float = 1.0, draws: int = 8
) -> Float[Tensor, ""]:
    """Triplet networks (Hoffer and Ailon 2015), with the hinge of Wang et al. (2014).

    For each row ``draws`` rows of its category and of others are drawn by torch's generator: the former should be
    nearer, in squared distance, by ``margin``. Rows that are alone in their category, or among none of another, are
    left out.
    """
    same = y[:, None] == y
    positive = same & ~torch.eye(len(y), dtype=torch.bool, device=y.device)
    anchors = (positive.any(1) & ~same.all(1)).nonzero()[:, 0]
    if not len(anchors):
        return 0 * z.sum()
    near = torch.multinomial(positive[anchors].to(torch.float32), draws, replacement=True)
    far = torch.multinomial((~same[anchors]).to(torch.float32), draws, replacement=True)
    squared = squared_distances(z)[anchors]
    return functional.relu(margin + squared.gather(1, near) - squared.gather(1, far)).mean()


def squared_distances(z: Float[Tensor, "n s"]) -> Float[Tensor, "n n"]:
    norm = z.square().sum(-1)
    return functional.relu(norm[:, None] + norm - 2 * z @ z.T)


def mean_where(values: Float[Tensor, "n n"], chosen: Bool[Tensor, "n n"]) -> Float[Tensor, ""]:
    """0 where nothing is chosen."""
    return (values * chosen).sum() / chosen.sum().clamp_min(1)
