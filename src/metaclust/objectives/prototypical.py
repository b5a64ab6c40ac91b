"""The prototypical loss: rows are classified by their distances to the centroids of the categories."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional

from metaclust.objectives.ari import category_sizes, dense_categories


def prototypical_loss(
    z: Float[Tensor, "*task n s"], y: Integer[Tensor, "*task n"], mask: Bool[Tensor, "*task n"] | None = None
) -> Float[Tensor, "*task"]:
    """Return the loss of prototypical networks (Snell et al. 2017).

    It is the mean cross-entropy of each row's category, with logits -||z - centroid||^2. The centroid of a row's own
    category is taken over its *other* rows, so that every row is both support and query. A row that is the only one of
    its category is left out.

    Parameters
    ----------
    z : tensor of shape (..., n_rows, n_features)
        Representations.
    y : integer tensor of shape (..., n_rows)
        The category of each row.
    mask : bool tensor of shape (..., n_rows), optional
        False for padding.

    Returns
    -------
    tensor of shape (...)
        One loss per task.
    """
    rows = z.shape[-2]
    flat = z.reshape(-1, rows, z.shape[-1])
    present = torch.ones(y.shape, dtype=torch.bool, device=z.device) if mask is None else mask
    present = present.reshape(-1, rows)
    padding = None if mask is None else ~present[..., None]
    flat = flat if padding is None else flat.masked_fill(padding, 0)
    # Around their centre, because rows that are far from zero lose the digits in which they differ.
    centre = flat.detach().sum(-2, keepdim=True) / present.sum(-1).clamp_min(1)[:, None, None]
    flat = flat - centre
    flat = flat if padding is None else flat.masked_fill(padding, 0)
    category = dense_categories(y.reshape(-1, rows), present)
    size = category_sizes(category, present)
    member = functional.one_hot(category, size.shape[-1]).to(z.dtype) * present[..., None]
    sums = member.mT @ flat
    centroid = sums / size.clamp_min(1).to(z.dtype)[..., None]
    own = size.gather(-1, category)
    # Leaving the row out of its own centroid multiplies its distance by N / (N - 1).
    factor = (own.to(z.dtype) / (own - 1).clamp_min(1))[..., None]
    distance = functional.relu(
        flat.square().sum(-1, keepdim=True) - 2 * flat @ centroid.mT + centroid.square().sum(-1)[:, None]
    )
    distance = distance * (1 + member * (factor.square() - 1))
    scores = (-distance).masked_fill((size == 0)[:, None], float("-inf"))
    loss = functional.cross_entropy(scores.flatten(0, 1), category.flatten(), reduction="none").reshape(-1, rows)
    counted = present & (own > 1)
    loss = loss.masked_fill(~counted, 0).sum(-1) / counted.sum(-1).clamp_min(1)
    return loss.reshape(z.shape[:-2])
