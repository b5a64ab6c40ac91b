"""The continuous adjusted Rand index, computed exactly without enumerating pairs."""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor
from torch.nn import functional

from metaclust.mixture.arguments import broadcast
from metaclust.mixture.statistics import accumulation_dtype
from metaclust.objectives.pairs import pair_coefficients

Distance = Literal["tv", "prob"]

COLUMN_BLOCK = 1 << 21
"""Number of values sorted at a time, so that working memory does not grow with the number of columns."""


def soft_ari(
    r: Float[Tensor, "*task n k"],
    y: Integer[Tensor, "*#task n"],
    mask: Bool[Tensor, "*#task n"] | None = None,
    distance: Distance = "tv",
) -> Float[Tensor, "*task"]:
    """Return the continuous adjusted Rand index of soft assignments (Eqs. 10 to 15).

    For hard assignments it equals the adjusted Rand index, with scikit-learn's values for degenerate tables.

    Parameters
    ----------
    r : tensor of shape (..., n_rows, n_clusters)
        Soft assignments in [0, 1].
    y : integer tensor of shape (..., n_rows)
        The category of each row. It broadcasts against the task axes of ``r``.
    mask : bool tensor of shape (..., n_rows), optional
        False for padding. It broadcasts like ``y``.
    distance : {"tv", "prob"}
        "tv" is the paper's total variation distance, by sorting in O(K N log N) time and O(K N) memory; "prob" is the
        ablation's d = 1 - sum_k r_nk r_n'k, in O(K N).

    Returns
    -------
    tensor of shape (...)
        One index per task, differentiable in ``r``.

    Notes
    -----
    Erratum: the denominator is (N1+N2)(N2+N4) + (N1+N3)(N3+N4); the paper prints (N3+N4) and (N2+N4) exchanged.

    Examples
    --------
    >>> r = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> soft_ari(r, torch.tensor([7, 7, -1])).item()
    1.0
    """
    check_assignments(r, y, mask, distance)
    return continuous_ari(r, y, mask, distance)


def continuous_ari(
    r: Float[Tensor, "*task n k"],
    y: Integer[Tensor, "*#task n"],
    mask: Bool[Tensor, "*#task n"] | None = None,
    distance: Distance = "tv",
) -> Float[Tensor, "*task"]:
    """Return :func:`soft_ari` without checking the arguments."""
    task = r.shape[:-2]
    rows = r.shape[-2]
    y = y.expand(*task, rows).reshape(-1, rows)
    present = torch.ones_like(y, dtype=torch.bool) if mask is None else mask.expand(*task, rows).reshape(-1, rows)
    flat = r.reshape(-1, rows, r.shape[-1])
    category = dense_categories(y, present)
    size = category_sizes(category, present)
    summed = TotalVariation.apply if distance == "tv" else probability_distances
    apart, within = summed(flat, category, present, size)
    return index_from_sums(apart, within, size).reshape(task).to(r.dtype)


def index_from_sums(
    apart: Float[Tensor, " b"], within: Float[Tensor, " b"], size: Int[Tensor, "b c"]
) -> Float[Tensor, " b"]:
    """Return the index, given N1 and N3: the summed distances of pairs of different and of the same category."""
    size = size.to(apart.dtype)
    count = size.sum(-1)
    same_pairs = (size * (size - 1) / 2).sum(-1)
    other_pairs = count * (count - 1) / 2 - same_pairs
    n1, n2, n3, n4 = apart, other_pairs - apart, within, same_pairs - within
    numerator = 2 * (n1 * n4 - n2 * n3)
    denominator = (n1 + n2) * (n2 + n4) + (n1 + n3) * (n3 + n4)
    # The denominator is zero only if no pair is wrong (N2 = N3 = 0): one row, one category in one cluster, or a cluster
    # for every row. By convention the index is 1 there; it has no gradient.
    perfect = denominator <= 0
    return torch.where(perfect, torch.ones_like(numerator), numerator / denominator.where(~perfect, 1))


def dense_categories(y: Integer[Tensor, "b n"], present: Bool[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    """Number the categories of each task from 0; padding gets the last number."""
    largest = y.amax(-1, keepdim=True)
    ordered, order = y.where(present, largest).sort(-1)
    changes = functional.pad((ordered[:, 1:] != ordered[:, :-1]).to(torch.int64), (1, 0)).cumsum(-1)
    return torch.empty_like(changes).scatter_(-1, order, changes)


def category_sizes(category: Int[Tensor, "b n"], present: Bool[Tensor, "b n"]) -> Int[Tensor, "b c"]:
    """Return the number of rows of each category in each task; padding is not counted."""
    count = int(category.max()) + 1
    return torch.zeros((len(category), count), dtype=torch.int64, device=category.device).scatter_add_(
        1, category, present.to(torch.int64)
    )


class TotalVariation(torch.autograd.Function):
    """Sums of total variation distances over the pairs of different and of the same category.

    For one column, sum_{n<n'} |r_n - r_n'| = sum_n r_n (rows below r_n - rows above r_n): linear in r for a
    given order, so the coefficients are also the gradient. Equal values get equal coefficients, since sign(0) = 0.
    """

    @staticmethod
    def forward(
        ctx: Any,
        r: Float[Tensor, "b n k"],
        category: Int[Tensor, "b n"],
        present: Bool[Tensor, "b n"],
        size: Int[Tensor, "b c"],
    ) -> tuple[Tensor, Tensor]:
        batch, rows, columns = r.shape
        wide = accumulation_dtype(r.device, r.dtype)
        apart = r.new_zeros(batch, dtype=wide)
        within = r.new_zeros(batch, dtype=wide)
        coefficients = []
        block = max(1, COLUMN_BLOCK // max(1, batch * rows))
        for first in range(0, columns, block):
            values = r[..., first : first + block].mT.contiguous()
            every, same = pair_coefficients(values, category, present, size)
            other = every - same
            values = values.to(wide).masked_fill(~present[:, None], 0)
            apart += 0.5 * (other * values).sum((-2, -1))
            within += 0.5 * (same * values).sum((-2, -1))
            if ctx.needs_input_grad[0]:
                coefficients += [other, same]
        ctx.save_for_backward(*coefficients)
        ctx.shape, ctx.dtype = r.shape, r.dtype
        return apart, within

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_apart: Tensor, grad_within: Tensor) -> tuple[Tensor, None, None, None]:
        saved = ctx.saved_tensors
        grad_apart, grad_within = (0.5 * g.to(ctx.dtype)[:, None, None] for g in (grad_apart, grad_within))
        columns = [
            torch.addcmul(grad_apart * other, grad_within, same.to(ctx.dtype))
            for other, same in zip(saved[::2], saved[1::2], strict=True)
        ]
        return torch.cat(columns, 1).mT.reshape(ctx.shape), None, None, None


def probability_distances(
    r: Float[Tensor, "b n k"], category: Int[Tensor, "b n"], present: Bool[Tensor, "b n"], size: Int[Tensor, "b c"]
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """Return the sums of 1 - sum_k r_nk r_n'k over pairs of different and of the same category."""
    r = r.to(accumulation_dtype(r.device, r.dtype)).masked_fill(~present[..., None], 0)
    size = size.to(r.dtype)
    count = size.sum(-1)
    index = category[..., None].expand_as(r)
    sums = r.new_zeros((len(r), size.shape[-1], r.shape[-1])).scatter_add(1, index, r)
    squares = r.square().sum((-2, -1))
    all_products = 0.5 * (sums.sum(1).square().sum(-1) - squares)
    same_products = 0.5 * (sums.square().sum((-2, -1)) - squares)
    same_pairs = (size * (size - 1) / 2).sum(-1)
    every = count * (count - 1) / 2 - all_products
    within = same_pairs - same_products
    return every - within, within


def check_assignments(r: Tensor, y: Tensor, mask: Tensor | None, distance: str) -> None:
    if distance not in ("tv", "prob"):
        raise ValueError(f"distance={distance!r}: choose 'tv' (total variation) or 'prob'")
    if not r.is_floating_point() or r.ndim < 2:
        raise ValueError(
            f"r is {r.dtype} of shape {tuple(r.shape)}: pass floating-point assignments (..., rows, clusters)"
        )
    if 0 in r.shape[-2:]:
        raise ValueError(f"r has shape {tuple(r.shape)}: there must be at least one row and one column")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise TypeError(f"y is {y.dtype}: pass the categories as integers (map names to integers first)")
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask is {mask.dtype}: pass booleans, False for padding")
    for name, value in (("y", y), ("mask", mask)):
        if value is None:
            continue
        if broadcast(value.shape, r.shape[:-1]) != r.shape[:-1] or value.shape[-1:] != r.shape[-2:-1]:
            raise ValueError(
                f"{name} has shape {tuple(value.shape)} and r {tuple(r.shape)}: {name} needs one entry for each row"
            )
    finite = r.isfinite().all(-1)
    if not bool((finite if mask is None else finite | ~mask).all()):
        raise ValueError("r holds NaN or infinity: pass assignments in [0, 1]")


class LimitedGradient(torch.autograd.Function):
    """The identity; the backward pass clips the norm of each task's gradient to ``limit``."""

    @staticmethod
    def forward(ctx: Any, z: Float[Tensor, "b n s"], limit: float) -> Float[Tensor, "b n s"]:
        ctx.limit = limit
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        norm = gradient.flatten(1).norm(dim=1)[:, None, None]
        return gradient * (ctx.limit / norm.clamp_min(ctx.limit)), None
