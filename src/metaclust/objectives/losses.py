"""The losses: the continuous adjusted Rand index, exact and without pairs, and those of the comparing methods."""

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
"""How many values are sorted at a time, so that the working memory does not grow with the number of columns."""


def soft_ari(
    r: Float[Tensor, "*task n k"],
    y: Integer[Tensor, "*#task n"],
    mask: Bool[Tensor, "*#task n"] | None = None,
    distance: Distance = "tv",
) -> Float[Tensor, "*task"]:
    """The continuous adjusted Rand index of soft assignments ``r`` against the categories ``y`` (Eqs. 10 to 15).

    ``y`` are any integers; ``y`` and ``mask`` (False for padding) broadcast against the task axes of ``r``.
    ``distance`` is "tv", the total variation distance of the paper, by sorting in O(K N log N) time and O(K N)
    memory, or "prob", the ablation's d = 1 - sum_k r_nk r_n'k, in O(K N). On hard assignments both are the
    adjusted Rand index, with scikit-learn's values for degenerate tables.

    Erratum: the denominator is (N1+N2)(N2+N4) + (N1+N3)(N3+N4); the paper prints (N3+N4) and (N2+N4) exchanged.

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
    """:func:`soft_ari` of arguments that are known to be right."""
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
    """The index from the summed distances of the pairs of different and of the same category: N1 and N3."""
    size = size.to(apart.dtype)
    count = size.sum(-1)
    same_pairs = (size * (size - 1) / 2).sum(-1)
    other_pairs = count * (count - 1) / 2 - same_pairs
    n1, n2, n3, n4 = apart, other_pairs - apart, within, same_pairs - within
    numerator = 2 * (n1 * n4 - n2 * n3)
    denominator = (n1 + n2) * (n2 + n4) + (n1 + n3) * (n3 + n4)
    # It vanishes only where no pair is wrong (N2 = N3 = 0): one row, one category in one cluster, all
    # rows alone. The index is 1 there, by convention, and has no gradient.
    perfect = denominator <= 0
    return torch.where(perfect, torch.ones_like(numerator), numerator / denominator.where(~perfect, 1))


def dense_categories(y: Integer[Tensor, "b n"], present: Bool[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    """Categories numbered from 0 in each task; padding has the last number."""
    largest = y.amax(-1, keepdim=True)
    ordered, order = y.where(present, largest).sort(-1)
    changes = functional.pad((ordered[:, 1:] != ordered[:, :-1]).to(torch.int64), (1, 0)).cumsum(-1)
    return torch.empty_like(changes).scatter_(-1, order, changes)


def category_sizes(category: Int[Tensor, "b n"], present: Bool[Tensor, "b n"]) -> Int[Tensor, "b c"]:
    """How many rows each category has in each task; padding is not counted."""
    many = int(category.max()) + 1
    return torch.zeros((len(category), many), dtype=torch.int64, device=category.device).scatter_add_(
        1, category, present.to(torch.int64)
    )


class TotalVariation(torch.autograd.Function):
    """The total variation distances summed over pairs of different and of the same category.

    For one column, sum_{n<n'} |r_n - r_n'| = sum_n r_n (rows below r_n - rows above r_n): linear in r given the
    order, so the coefficients are also the gradient. Equal values get equal coefficients, as sign(0) = 0 gives.
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
    """sum of 1 - sum_k r_nk r_n'k over pairs of different and of the same category, from sums of r and of r^2."""
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
        raise ValueError(f"r is {r.dtype} of shape {tuple(r.shape)}: pass floating-point assignments (..., rows, K)")
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
    """The identity; going back, the gradient of each task is scaled down to a largest norm."""

    @staticmethod
    def forward(ctx: Any, z: Float[Tensor, "b n s"], limit: float) -> Float[Tensor, "b n s"]:
        ctx.limit = limit
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        norm = gradient.flatten(1).norm(dim=1)[:, None, None]
        return gradient * (ctx.limit / norm.clamp_min(ctx.limit)), None


def prototypical_loss(
    z: Float[Tensor, "*task n s"], y: Integer[Tensor, "*task n"], mask: Bool[Tensor, "*task n"] | None = None
) -> Float[Tensor, "*task"]:
    """Prototypical networks (Snell et al. 2017): the mean cross-entropy of each row's category by -||z - centroid||^2.

    Each row is classified with its own category's centroid taken over the *other* rows, so that every row serves
    as support and as query. A category with one row has no such centroid and that row is left out.
    """
    rows = z.shape[-2]
    flat = z.reshape(-1, rows, z.shape[-1])
    present = torch.ones(y.shape, dtype=torch.bool, device=z.device) if mask is None else mask
    present = present.reshape(-1, rows)
    flat = flat.masked_fill(~present[..., None], 0)
    category = dense_categories(y.reshape(-1, rows), present)
    size = category_sizes(category, present)
    member = functional.one_hot(category, size.shape[-1]).to(z.dtype) * present[..., None]
    sums = member.mT @ flat
    centroid = sums / size.clamp_min(1).to(z.dtype)[..., None]
    own = size.gather(-1, category)
    # The distance to the own centroid without the row is that with it times N / (N - 1).
    grow = (own.to(z.dtype) / (own - 1).clamp_min(1))[..., None]
    distance = functional.relu(
        flat.square().sum(-1, keepdim=True) - 2 * flat @ centroid.mT + centroid.square().sum(-1)[:, None]
    )
    distance = distance * (1 + member * (grow.square() - 1))
    scores = (-distance).masked_fill((size == 0)[:, None], float("-inf"))
    loss = functional.cross_entropy(scores.flatten(0, 1), category.flatten(), reduction="none").reshape(-1, rows)
    counted = present & (own > 1)
    loss = loss.masked_fill(~counted, 0).sum(-1) / counted.sum(-1).clamp_min(1)
    return loss.reshape(z.shape[:-2])


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
