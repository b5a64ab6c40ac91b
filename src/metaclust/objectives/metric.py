"""Contrastive and triplet losses, the paper's baselines."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional


def contrastive_loss(z: Float[Tensor, "n s"], y: Integer[Tensor, " n"], margin: float = 1.0) -> Float[Tensor, ""]:
    """Return the loss of siamese networks (Hadsell et al. 2006).

    It pulls rows of one category together and pushes rows of different categories at least ``margin`` apart. It is the
    mean over pairs of the same category plus the mean over the other, far more numerous pairs.
    """
    same = y[:, None] == y
    pairs = torch.ones_like(same).triu(1)
    squared = squared_distances(z)
    # The square root has no gradient at zero, where rows are equal.
    shortfall = functional.relu(margin - (squared + 1e-12).sqrt()).square()
    return mean_where(squared, same & pairs) + mean_where(shortfall, ~same & pairs)


def triplet_loss(
    z: Float[Tensor, "n s"], y: Integer[Tensor, " n"], margin: float = 1.0, draws: int = 8
) -> Float[Tensor, ""]:
    """Return the loss of triplet networks (Hoffer and Ailon 2015), with the hinge of Wang et al. (2014).

    For each anchor row, ``draws`` rows of its own category and ``draws`` rows of other categories are drawn with
    torch's generator; the former should be nearer by ``margin`` in squared distance. Rows without another row of their
    category, or without any row of another category, are not used as anchors.
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
    """Return the squared distance of each pair of rows."""
    # Around their centre, because rows that are far from zero lose the digits in which they differ.
    z = z - z.detach().mean(0)
    norm = z.square().sum(-1)
    return functional.relu(norm[:, None] + norm - 2 * z @ z.T)


def mean_where(values: Float[Tensor, "n n"], chosen: Bool[Tensor, "n n"]) -> Float[Tensor, ""]:
    """Return the mean of the chosen values; 0 if there are none."""
    return (values * chosen).sum() / chosen.sum().clamp_min(1)
