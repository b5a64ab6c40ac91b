"""The unrolled steps of the spherical mixture, for training, with a hand-written derivative.

A step reads the rows through sums M = r X, with X = (1, ||z||^2, z), and computes weights W, so that
r' = softmax(W X^T). For each component, W is a function of few numbers: of its count n and its sums
q = sum r ||z||^2 and f = sum r z it needs n, q, p = ||f||^2, and of the previous step only beta = E[beta_k]. Its
Jacobian is a small matrix for each component, computed for all steps at once. The backward pass of a step is then four
products with the rows and one with these matrices, where automatic differentiation needs about sixty operations; only
the assignments and the weights are saved.
Assignments are (components, rows) here: a softmax over a short last axis is slow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from metaclust.mixture.families.spherical import Spherical
from metaclust.mixture.prior import Prior
from metaclust.mixture.step import score_weights, vb_step
from metaclust.mixture.sticks import sticks_kl, update_sticks


@dataclass(frozen=True)
class Path:
    """The sums and score weights of every step from each of several starts; they determine the assignments."""

    sums: Float[Tensor, "steps b starts k f"]
    weights: Float[Tensor, "steps b starts k f"]
    bound: Float[Tensor, "b starts"]
    """The bound after the last step, up to constants that are the same for all starts."""

    def of(self, start: Int[Tensor, " b"]) -> tuple[Float[Tensor, "steps b k f"], Float[Tensor, "steps b k f"]]:
        """The sums and weights of the start chosen for each task."""
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
    """Take ``steps`` steps from each of the assignments ``r``, in the dtype of the features."""
    family = replace(family, prior=Prior(*(for_starts(value) for value in vars(family.prior).values())))
    family, alpha = in_type(family, features.dtype), for_starts(alpha).to(features.dtype)
    many = r.shape[1:3]
    parameters = family.start(features[:, None].expand(-1, many[0], -1, -1), many[1])
    columns = features.mT
    sums, weights = [], []
    for _ in range(steps):
        # The components of all starts are side by side: one product with the rows of a task.
        sums.append((r.flatten(1, 2) @ features).unflatten(1, many))
        sticks, parameters = vb_step(family, family.read(sums[-1]), parameters, alpha)
        weights.append(score_weights(family, parameters, sticks))
        scores = (weights[-1].flatten(1, 2) @ columns).unflatten(1, many)
        r = scores.softmax(-2)
    bound = scores.new_zeros(many[:1]).expand(len(r), -1)
    if many[0] > 1:
        # Padding has scores of zero from every start, which cancel in the comparison.
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
    """The assignments after each step of a path from ``r``, differentiable in everything but the path itself."""
    prior = in_type(family, features.dtype).prior
    numbers = (torch.as_tensor(value, dtype=features.dtype, device=features.device) for value in vars(prior).values())
    optimal = family.mean_covariance == "optimal"
    result: Tensor = UnrolledSteps.apply(features, r, alpha.to(features.dtype), *numbers, sums, weights, optimal)
    return result


class UnrolledSteps(torch.autograd.Function):
    """Compute the assignments of all steps at once, and their gradient step by step."""

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
        assigned = scores.softmax(-2).transpose(0, 1)
        ctx.save_for_backward(features, r, alpha, mean_precision, shape, rate, sums, weights, assigned)
        ctx.optimal = optimal
        return assigned

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, r, alpha, mean_precision, shape, rate, sums, weights, assigned = ctx.saved_tensors
        prior = Prior(mean_precision, shape, rate)
        learned = any(ctx.needs_input_grad[2:6])
        count, first = sums[..., 0], sums[..., 2:]
        # E[beta_k] before each step: the prior's, then the one in the weights of the previous step.
        before = torch.cat(((shape / rate)[..., None].expand_as(count[:1]), -2 * weights[:-1, ..., 1]))
        power = first.square().sum(-1)
        local, scale = component_derivatives(sums, power, before, prior, ctx.optimal, learned)
        stick, stick_alpha = stick_derivatives(count, alpha)
        grad_features = torch.zeros_like(features)
        grad_beta = torch.zeros_like(count[0])
        grad_prior = torch.zeros((*count.shape[1:], 3), dtype=count.dtype, device=count.device)
        grad_alpha = torch.zeros_like(count[0])
        grad_r = gradient[-1]
        for i in range(len(weights) - 1, -1, -1):
            grad_scores = torch._softmax_backward_data(grad_r, assigned[i], -2, assigned.dtype)
            grad_features.baddbmm_(grad_scores.mT, weights[i])
            grad_weights = grad_scores @ features
            constant, along = grad_weights[..., 0], grad_weights[..., 2:]
            into = torch.stack((constant, grad_beta - 0.5 * grad_weights[..., 1], (along * first[i]).sum(-1)), -1)
            out = (into[..., None] * local[i]).sum(-2)
            grad_beta = out[..., 3]
            if learned:
                grad_prior += out[..., 4:]
                grad_alpha += constant * stick_alpha[i]
            counts = out[..., 0] + (constant[..., None, :] @ stick[i])[..., 0, :]
            means = torch.addcmul(scale[i, ..., None] * along, 2 * out[..., 2, None], first[i])
            grad_sums = torch.cat((counts[..., None], out[..., 1, None], means), -1)
            grad_features.baddbmm_((assigned[i - 1] if i else r).mT, grad_sums)
            grad_r = torch.baddbmm(gradient[i - 1], grad_sums, features.mT) if i else grad_sums @ features.mT
        if not learned:
            return grad_features, grad_r, None, None, None, None, None, None, None
        # The first step starts at beta = shape / rate.
        ratio = (shape / rate)[..., None]
        grad_shape = grad_prior[..., 1] + grad_beta / rate[..., None]
        grad_rate = grad_prior[..., 2] - grad_beta * ratio / rate[..., None]
        pairs = (
            (grad_alpha, alpha),
            (grad_prior[..., 0], mean_precision),
            (grad_shape, shape),
            (grad_rate, rate),
        )
        summed = (value.sum(-1).sum_to_size(like.shape) for value, like in pairs)
        return grad_features, grad_r, *summed, None, None, None


def component_derivatives(
    sums: Float[Tensor, "*step k f"],
    power: Float[Tensor, "*step k"],
    beta: Float[Tensor, "*step k"],
    prior: Prior,
    optimal: bool,
    learned: bool,
) -> tuple[Float[Tensor, "*step k 3 v"], Float[Tensor, "*step k"]]:
    """The derivatives of (C, beta', D), which make up W = (C, -beta' / 2, D f), in n, q, p and beta; and D itself.

    With ``learned``, also in the three parameters of the prior. The functions differentiated here are
    :meth:`Spherical.update` and :meth:`Spherical.score_weights`.
    """
    n, q, p, half = sums[..., 0], sums[..., 1], power, 0.5 * (sums.shape[-1] - 2)
    l0, a0, b0 = (value[..., None] for value in vars(prior).values())
    zero, one = torch.zeros_like(n), torch.ones_like(n)

    def change(*values: Tensor) -> Tensor:
        """The derivatives in n, q, p, beta, l0, a0, b0; those not given are zero."""
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
    """The derivatives of E[log pi_k] in N_i and in alpha.

    Stick j enters E[log pi_k] for j <= k, and N_i enters what is left after stick j for i > j: apart from
    psi'(gamma_k1), the derivative depends only on the smaller of k and i.
    """
    sticks = update_sticks(count, alpha)
    taken, left, whole = torch.special.polygamma(
        1, torch.stack((sticks.gamma1, sticks.gamma2, sticks.gamma1 + sticks.gamma2))
    ).unbind(0)
    common = functional.pad(left[..., :-1].cumsum(-1), (1, 0)) - whole.cumsum(-1)
    index = torch.arange(count.shape[-1], device=count.device)
    return common[..., torch.minimum(index[:, None], index)] + torch.diag_embed(taken), common


def for_starts(value: Any) -> Any:
    """A number, or one for each task, shaped to broadcast against (tasks, starts)."""
    return value[..., None] if isinstance(value, Tensor) and value.ndim else value


def in_type(family: Spherical, dtype: torch.dtype) -> Spherical:
    """The family with its prior in another dtype."""
    values = (value.to(dtype) if isinstance(value, Tensor) else value for value in vars(family.prior).values())
    return replace(family, prior=Prior(*values))
