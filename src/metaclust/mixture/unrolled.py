"""The steps of the spherical mixture that training goes through, with their derivative written out.

A step reads the rows through sums M = r X, with X = (1, ||z||^2, z), and gives weights W, so that r' = softmax(W X^T).
For each component, W is a function of few numbers: of its count n and its sums q = sum r ||z||^2 and f = sum r z it
needs n, q, p = ||f||^2, and of the step before only beta = E[beta_k]. Its derivative is a small matrix for each
component, found for all steps at once. Going back, a step is then four products with the rows and one with such
matrices, where automatic differentiation goes through some sixty operations; what is kept is the assignments and the
weights.
Assignments are (components, rows) here: a softmax over few components that lie next to each other is slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from metaclust.mixture.families.spherical import Spherical
from metaclust.mixture.prior import Prior
from metaclust.mixture.sticks import expected_log_weights, sticks_kl, update_sticks


@dataclass(frozen=True)
class Path:
    """What the steps from each of several starts read of the rows and found; the assignments follow from it."""

    sums: Float[Tensor, "steps b starts k f"]
    weights: Float[Tensor, "steps b starts k f"]
    bound: Float[Tensor, "b starts"]
    """After the last step, but for constants that are the same for all starts: where to compare them."""

    def of(self, start: Int[Tensor, " b"]) -> tuple[Float[Tensor, "steps b k f"], Float[Tensor, "steps b k f"]]:
        """Sums and weights from one of the starts, for each task."""
        tasks = torch.arange(len(start), device=start.device)
        return self.sums[:, tasks, start], self.weights[:, tasks, start]


@torch.no_grad()
def follow(
    features: Float[Tensor, "b n f"],
    r: Float[Tensor, "b starts k n"],
    family: Spherical,
    alpha: Float[Tensor, "*#b"],
    steps: int,
) -> Path:
    """Take ``steps`` steps from each of the assignments ``r``, in the precision of the features."""
    family = Spherical(family.mean_covariance, Prior(*(for_starts(value) for value in vars(family.prior).values())))
    family, alpha = in_type(family, features.dtype), for_starts(alpha).to(features.dtype)
    many = r.shape[1:3]
    parameters = family.start(features[:, None].expand(-1, many[0], -1, -1), many[1])
    columns = features.mT
    sums, weights = [], []
    for _ in range(steps):
        # The components of all starts side by side: one product with the rows of a task.
        sums.append((r.flatten(1, 2) @ features).unflatten(1, many))
        statistics = family.read(sums[-1])
        sticks = update_sticks(statistics.count, alpha)
        parameters = family.update(statistics, parameters)
        log_weights = expected_log_weights(sticks)
        weight = family.score_weights(parameters)
        weight[..., 0] += log_weights
        weights.append(weight)
        scores = (weight.flatten(1, 2) @ columns).unflatten(1, many)
        r = scores.softmax(-2)
    bound = scores.new_zeros(many[:1]).expand(len(r), -1)
    if many[0] > 1:
        # Padding has scores of zero, in every start.
        bound = scores.logsumexp(-2).sum(-1) - sticks_kl(sticks, alpha).sum(-1) - family.kl(parameters).sum(-1)
    return Path(torch.stack(sums), torch.stack(weights), bound)


def assignments(
    features: Float[Tensor, "b n f"],
    r: Float[Tensor, "b k n"],
    family: Spherical,
    alpha: Float[Tensor, "*#b"],
    sums: Float[Tensor, "steps b k f"],
    weights: Float[Tensor, "steps b k f"],
) -> Float[Tensor, "steps b k n"]:
    """The assignments after each step of a path that starts at ``r``; differentiable in all but the path itself."""
    prior = in_type(family, features.dtype).prior
    numbers = (torch.as_tensor(value, dtype=features.dtype, device=features.device) for value in vars(prior).values())
    optimal = family.mean_covariance == "optimal"
    found: Tensor = Through.apply(features, r, alpha.to(features.dtype), *numbers, sums, weights, optimal)
    return found


class Through(torch.autograd.Function):
    """The assignments of all steps at once, and the way back through the steps one after another."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        r: Tensor,
        alpha: Tensor,
        mean_precision: Tensor,
        shape: Tensor,
        rate: Tensor,
        sums: Tensor,
        weights: Tensor,
        optimal: bool,
    ) -> Tensor:
        steps, batch, columns, width = weights.shape
        every = weights.transpose(0, 1).reshape(batch, steps * columns, width)
        scores = (every @ features.mT).reshape(batch, steps, columns, -1)
        found = scores.softmax(-2).transpose(0, 1)
        ctx.save_for_backward(features, r, alpha, mean_precision, shape, rate, sums, weights, found)
        ctx.optimal = optimal
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, r, alpha, mean_precision, shape, rate, sums, weights, found = ctx.saved_tensors
        prior = Prior(mean_precision, shape, rate)
        learned = any(ctx.needs_input_grad[2:6])
        count, first = sums[..., 0], sums[..., 2:]
        # E[beta_k] before each step: the prior's, then the one that the step before has put into its weights.
        before = torch.cat(((shape / rate)[..., None].expand_as(count[:1]), -2 * weights[:-1, ..., 1]))
        power = first.square().sum(-1)
        local, scale = component_derivatives(sums, power, before, prior, ctx.optimal, learned)
        stick, of_alpha = stick_derivatives(count, alpha)
        back = torch.zeros_like(features)
        beta = torch.zeros_like(count[0])
        of_prior = torch.zeros((*count.shape[1:], 3), dtype=count.dtype, device=count.device)
        of_sticks = torch.zeros_like(count[0])
        change = gradient[-1]
        for i in range(len(weights) - 1, -1, -1):
            change = torch._softmax_backward_data(change, found[i], -2, found.dtype)
            back.baddbmm_(change.mT, weights[i])
            weight = change @ features
            constant, along = weight[..., 0], weight[..., 2:]
            into = torch.stack((constant, beta - 0.5 * weight[..., 1], (along * first[i]).sum(-1)), -1)
            out = (into[..., None] * local[i]).sum(-2)
            beta = out[..., 3]
            if learned:
                of_prior += out[..., 4:]
                of_sticks += constant * of_alpha[i]
            counts = out[..., 0] + (constant[..., None, :] @ stick[i])[..., 0, :]
            means = torch.addcmul(scale[i, ..., None] * along, 2 * out[..., 2, None], first[i])
            moved = torch.cat((counts[..., None], out[..., 1, None], means), -1)
            back.baddbmm_((found[i - 1] if i else r).mT, moved)
            change = torch.baddbmm(gradient[i - 1], moved, features.mT) if i else moved @ features.mT
        if not learned:
            return back, change, None, None, None, None, None, None, None
        # The first step starts at beta = shape / rate.
        ratio = (shape / rate)[..., None]
        of_shape = of_prior[..., 1] + beta / rate[..., None]
        of_rate = of_prior[..., 2] - beta * ratio / rate[..., None]
        summed = (
            value.sum(-1).sum_to_size(like.shape)
            for value, like in (
                (of_sticks, alpha),
                (of_prior[..., 0], mean_precision),
                (of_shape, shape),
                (of_rate, rate),
            )
        )
        return back, change, *summed, None, None, None


def component_derivatives(
    sums: Float[Tensor, "*step k f"],
    power: Float[Tensor, "*step k"],
    beta: Float[Tensor, "*step k"],
    prior: Prior,
    optimal: bool,
    learned: bool,
) -> tuple[Float[Tensor, "*step k 3 v"], Float[Tensor, "*step k"]]:
    """How (C, beta', D), of which the weights W = (C, -beta' / 2, D f) are made, change with n, q, p, beta.

    With ``learned`` also with the three numbers of the prior. Second: D itself. See :meth:`Spherical.update` and
    :meth:`Spherical.score_weights` for what is differentiated here.
    """
    n, q, p, half = sums[..., 0], sums[..., 1], power, 0.5 * (sums.shape[-1] - 2)
    l0, a0, b0 = (value[..., None] for value in vars(prior).values())
    zero, one = torch.zeros_like(n), torch.ones_like(n)

    def change(*values: Tensor) -> Tensor:
        """The derivatives in n, q, p, beta, l0, a0, b0; those that are not given are zero."""
        return torch.stack((*values, *[zero] * ((7 if learned else 4) - len(values))), -1)

    shrink = 1 / (l0 + beta * n)
    w = beta * shrink
    raw = q + (w * w * n - 2 * w) * p
    s = shrink if optimal else one
    a = a0 + half * n
    b = b0 + 0.5 * raw.clamp_min(0) + half * n * s
    new = a / b
    square = shrink * shrink
    d_shrink = change(-beta * square, zero, zero, -n * square, *([-square] if learned else []))
    d_w = change(-w * w, zero, zero, l0 * square, *([-w * shrink] if learned else []))
    d_raw = change(w * w * p, one, w * w * n - 2 * w) - (2 * p * l0 * shrink)[..., None] * d_w
    d_raw = d_raw * (raw > 0)[..., None]
    d_ns = change(s) + (n[..., None] * d_shrink if optimal else 0)
    d_a = change(half * one, zero, zero, zero, zero, one) if learned else change(half * one)
    d_b = 0.5 * d_raw + half * d_ns
    if learned:
        d_b[..., 6] += 1
    d_new = (d_a - new[..., None] * d_b) / b[..., None]
    d_c = half * (torch.special.polygamma(1, a)[..., None] * d_a - d_b / b[..., None] - s[..., None] * d_new)
    if optimal:
        d_c = d_c - (half * new)[..., None] * d_shrink
    d_c = d_c - (0.5 * w * w * p)[..., None] * d_new - (new * w * p)[..., None] * d_w
    d_c[..., 2] -= 0.5 * new * w * w
    d_scale = w[..., None] * d_new + new[..., None] * d_w
    return torch.stack((d_c, d_new, d_scale), -2), new * w


def stick_derivatives(
    count: Float[Tensor, "*step k"], alpha: Float[Tensor, "*#task"]
) -> tuple[Float[Tensor, "*step k k"], Float[Tensor, "*step k"]]:
    """How E[log pi_k] changes with N_i, and with alpha.

    A stick j counts in E[log pi_k] for j <= k, and N_i in what is left after it for i > j: the change depends on the
    lesser of k and i alone, but for psi'(gamma_k1).
    """
    sticks = update_sticks(count, alpha)
    taken, left, whole = torch.special.polygamma(
        1, torch.stack((sticks.gamma1, sticks.gamma2, sticks.gamma1 + sticks.gamma2))
    ).unbind(0)
    common = functional.pad(left[..., :-1].cumsum(-1), (1, 0)) - whole.cumsum(-1)
    place = torch.arange(count.shape[-1], device=count.device)
    lesser = torch.minimum(place[:, None], place)
    return common[..., lesser] + torch.diag_embed(taken), common


def for_starts(value: Any) -> Any:
    """A number, or one for each task, to be broadcast against (tasks, starts)."""
    return value[..., None] if isinstance(value, Tensor) and value.ndim else value


def in_type(family: Spherical, dtype: torch.dtype) -> Spherical:
    """The family with its prior in another precision."""
    values = {
        name: value.to(dtype) if isinstance(value, Tensor) else value for name, value in vars(family.prior).items()
    }
    return Spherical(family.mean_covariance, Prior(**values))
