"""The posterior of a mixture, and how its tensors are selected and changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from metaclust.mixture.families import Family
from metaclust.mixture.sticks import Sticks, expected_weights, sticks_kl


@dataclass(frozen=True)
class Posterior:
    """The result of inference; every tensor is differentiable with respect to z, the logits and alpha.

    Tensors are kept in the precision they were computed in; the properties are in that of the rows.

    Attributes
    ----------
    r : Tensor of shape (*task, n, k)
        Soft assignments; zero for rows that the mask excludes.
    theta : Tensor of shape (*task, k, s)
        Means of the components.
    a, b : Tensor
        The expected precision is a / b, or a b^-1 for full covariances.
    weights, log_weights : Tensor of shape (*task, k)
        E[pi_k] and E[log pi_k].
    bound : Tensor of shape (*task,)
        The evidence lower bound; for EM, the log likelihood.
    steps : Tensor of shape (*task,)
        The number of steps that each task took.
    """

    scores: Float[Tensor, "*task n k"]
    """E[log pi_k] + E[log N(z_n | k)]."""
    expected_log_weights: Float[Tensor, "*task k"]
    parameters: Any
    family: Family
    sticks: Sticks | None
    alpha: Float[Tensor, "*#task"] | None
    mask: Bool[Tensor, "*task n"] | None
    steps: Int[Tensor, "*task"]
    dtype: torch.dtype
    weight: float | Float[Tensor, "*task"] = 1.0
    """The weight of each row."""

    @cached_property
    def assignments(self) -> Float[Tensor, "*task n k"]:
        """The softmax of the scores, also for padding."""
        return softmax_of(self.scores)

    @property
    def r(self) -> Float[Tensor, "*task n k"]:
        """Soft assignments; zero for rows that the mask excludes."""
        r = self.assignments.to(self.dtype)
        return r if self.mask is None else r * self.mask[..., None]

    @property
    def log_weights(self) -> Float[Tensor, "*task k"]:
        """E[log pi_k]; EM: log pi_k."""
        return self.expected_log_weights.to(self.dtype)

    @property
    def weights(self) -> Float[Tensor, "*task k"]:
        """E[pi_k]; EM: pi_k."""
        weights = self.expected_log_weights.exp() if self.sticks is None else expected_weights(self.sticks)
        return weights.to(self.dtype)

    @property
    def theta(self) -> Float[Tensor, "*task k s"]:
        """The means of the components."""
        theta: Tensor = self.parameters.theta
        return theta.to(self.dtype)

    @property
    def a(self) -> Float[Tensor, "*task k"]:
        """Shape of the precision's Gamma distribution, or degrees of freedom of its Wishart distribution."""
        a: Tensor = self.parameters.a
        return a.to(self.dtype)

    @property
    def b(self) -> Float[Tensor, "*axes"]:
        """Rate of the precision's Gamma distribution, or inverse scale matrix of its Wishart distribution."""
        b: Tensor = self.parameters.b
        return b.to(self.dtype)

    @property
    def precisions(self) -> Float[Tensor, "*axes"]:
        """The expected precisions of the components: (*task, k), (*task, k, s) or (*task, k, s, s)."""
        return self.family.expected_precisions(self.parameters).to(self.dtype)

    @property
    def bound(self) -> Float[Tensor, "*task"]:
        """The evidence lower bound at the r and the parameters returned, including every constant.

        EM: the log likelihood at the parameters returned, including that of the pseudo-rows.
        """
        return self.exact_bound.to(self.dtype)

    @cached_property
    def exact_bound(self) -> Float[Tensor, "*task"]:
        """The bound in the precision it was computed in.

        r is optimal given the parameters, so the rows contribute sum_n log sum_k exp(scores_nk).
        """
        rows = self.scores.logsumexp(-1)
        if self.mask is not None:
            rows = rows.where(self.mask, 0)
        evidence = self.weight * rows.sum(-1)
        if self.sticks is None or self.alpha is None:
            return evidence + self.family.pseudo_log_likelihood(self.parameters, self.expected_log_weights).sum(-1)
        return evidence - sticks_kl(self.sticks, self.alpha).sum(-1) - self.family.kl(self.parameters).sum(-1)


def without_rows(posterior: Posterior) -> Posterior:
    """Return the posterior without what it says of each row, which takes most of its memory."""
    mask = None if posterior.mask is None else posterior.mask[..., :0]
    return replace(posterior, scores=posterior.scores[..., :0, :].clone(), mask=mask)


def softmax_of(scores: Float[Tensor, "*task n k"]) -> Float[Tensor, "*task n k"]:
    """The softmax over the last axis, many times faster than torch's if that axis is short."""
    return scores.mT.contiguous().softmax(-2).mT


def choose(first: Bool[Tensor, "*task"], one: Any, other: Any) -> Any:
    """For each task, ``one`` where ``first`` holds, else ``other``; applied to all tensors of a dataclass."""
    if isinstance(one, Tensor):
        return torch.where(first.reshape(first.shape + (1,) * (one.ndim - first.ndim)), one, other)
    if is_dataclass(one) and not isinstance(one, type):
        names = [
            field.name for field in fields(one) if field.name not in ("family", "alpha", "mask", "dtype", "weight")
        ]
        return replace(one, **{name: choose(first, getattr(one, name), getattr(other, name)) for name in names})
    return one


def one_task(posterior: Any, index: int) -> Any:
    """The posterior of one of several tasks, sharing no memory with the others."""
    return with_tensors(posterior, lambda tensor: tensor[index].clone() if tensor.ndim else tensor)


def with_tensors(posterior: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A copy with ``change`` applied to every tensor, also in nested dataclasses."""
    if isinstance(posterior, Tensor):
        return change(posterior)
    if is_dataclass(posterior) and not isinstance(posterior, type):
        names = [field.name for field in fields(posterior)]
        return replace(posterior, **{name: with_tensors(getattr(posterior, name), change) for name in names})
    return posterior
