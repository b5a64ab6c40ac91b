"""Variational Bayes of the truncated infinite mixture, and EM of the finite one, for any component family."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from metaclust.mixture.families.full import Full
from metaclust.mixture.families.spherical import MeanCovariance, Spherical
from metaclust.mixture.prior import PAPER, Prior
from metaclust.mixture.statistics import Statistics, accumulation_dtype
from metaclust.mixture.sticks import Sticks, expected_log_weights, expected_weights, sticks_kl, update_sticks

Components = Literal["spherical", "full"]

PSEUDO_ROWS = 1e-6
"""How many standard-normal rows each component of the EM algorithm sees besides its own.

A component without rows would have no mean and no variance. These make the update defined for it, and the
likelihood with them counted in still never falls.
"""


@runtime_checkable
class Family(Protocol):
    """What a kind of component brings: its prior, what it reads of the rows, its update, its likelihood, its KL."""

    def features(self, z: Tensor, mask: Tensor | None = None) -> Tensor: ...
    def statistics(self, features: Tensor, r: Tensor) -> Statistics: ...
    def start(self, features: Tensor, k: int) -> Any: ...
    def update(self, statistics: Statistics, previous: Any) -> Any: ...
    def expected_log_likelihood(self, features: Tensor, parameters: Any) -> Tensor: ...
    def kl(self, parameters: Any) -> Tensor: ...
    def maximize(self, statistics: Statistics) -> Any: ...
    def log_likelihood(self, features: Tensor, parameters: Any) -> Tensor: ...
    def with_standard_rows(self, statistics: Statistics, rows: float) -> Statistics: ...
    def standard_log_likelihood(self, parameters: Any) -> Tensor: ...


def component_family(components: Components, mean_covariance: MeanCovariance = "unit", prior: Prior = PAPER) -> Family:
    """The table of families."""
    if mean_covariance not in ("unit", "optimal"):
        raise ValueError(f"mean_covariance={mean_covariance!r}: choose 'unit' (the paper's) or 'optimal'")
    if components == "spherical":
        return Spherical(mean_covariance, prior)
    if components == "full":
        return Full(prior)
    raise ValueError(f"components={components!r}: choose 'spherical' or 'full'")


@dataclass(frozen=True)
class Posterior:
    """What inference returns; every tensor is differentiable in z, in the logits and in alpha.

    Kept in the precision it was computed in; the properties are in that of the rows.
    """

    assignments: Float[Tensor, "*task n k"]
    """The softmax of the scores, for padding too."""
    scores: Float[Tensor, "*task n k"]
    """E[log pi_k] + E[log N(z_n | k)]."""
    expected_log_weights: Float[Tensor, "*task k"]
    parameters: Any
    family: Family
    sticks: Sticks | None
    alpha: Float[Tensor, "*#task"] | None
    mask: Bool[Tensor, "*task n"] | None
    steps: Int[Tensor, "*task"]
    """How many steps each task took."""
    dtype: torch.dtype
    weight: float | Float[Tensor, "*task"] = 1.0
    """How much each row counts."""

    @property
    def r(self) -> Float[Tensor, "*task n k"]:
        """Soft assignments; rows that the mask leaves out have r = 0."""
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
        """With b: the expected precision is a / b (spherical) or a b^-1 (full)."""
        a: Tensor = self.parameters.a
        return a.to(self.dtype)

    @property
    def b(self) -> Float[Tensor, "*task k"] | Float[Tensor, "*task k s s"]:
        """Rate of the precision's Gamma (spherical), inverse scale matrix of its Wishart (full)."""
        b: Tensor = self.parameters.b
        return b.to(self.dtype)

    @property
    def bound(self) -> Float[Tensor, "*task"]:
        """The evidence lower bound at the r and the parameters returned, every constant included.

        EM: the log likelihood at the parameters returned, that of the pseudo rows included.
        """
        return self.exact_bound.to(self.dtype)

    @cached_property
    def exact_bound(self) -> Float[Tensor, "*task"]:
        """The bound in the precision it was computed in. r is optimal given the parameters, so the
        rows contribute sum_n log sum_k exp(scores_nk)."""
        rows = self.scores.logsumexp(-1)
        if self.mask is not None:
            rows = rows.where(self.mask, 0)
        evidence = self.weight * rows.sum(-1)
        if self.sticks is None or self.alpha is None:
            return evidence + PSEUDO_ROWS * (
                self.expected_log_weights + self.family.standard_log_likelihood(self.parameters)
            ).sum(-1)
        return evidence - sticks_kl(self.sticks, self.alpha).sum(-1) - self.family.kl(self.parameters).sum(-1)


def variational_bayes(
    z: Float[Tensor, "*task n s"],
    logits: Float[Tensor, "*task n k"],
    steps: int = 10,
    alpha: float | Tensor = 1.0,
    mean_covariance: MeanCovariance = "unit",
    components: Components = "spherical",
    mask: Bool[Tensor, "*task n"] | None = None,
    tol: float | None = None,
    prior: Prior = PAPER,
) -> Posterior:
    """Fit a truncated Dirichlet-process Gaussian mixture to each task, from initial assignments (Algorithm 1).

    ``z`` are the rows, ``logits`` the initial assignments before the softmax; both may have any number of
    leading task axes. ``mask`` is False for rows that are padding. ``alpha`` is the concentration, a number
    or a tensor that broadcasts against the task axes, and so are the numbers of the ``prior`` of the components.

    ``steps`` steps are taken; with ``tol``, at most so many: a task is done when a step changes its bound by
    no more than ``tol`` times (number of rows + |bound|), and stays as it is while others go on.

    >>> z = torch.tensor([[0.0], [0.1], [9.0], [9.1]])
    >>> posterior = variational_bayes(z, torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    >>> posterior.r.argmax(-1).tolist()
    [0, 0, 1, 1]
    """
    check_problem(z, logits, steps, mask, tol)
    concentration = positive("alpha", alpha, z)
    checked = Prior(*(positive(f"prior.{field.name}", getattr(prior, field.name), z) for field in fields(Prior)))
    family = component_family(components, mean_covariance, PAPER if prior is PAPER else checked)
    return run(vb_steps(z, logits, family, concentration, mask), steps, tol)


def expectation_maximization(
    z: Float[Tensor, "*task n s"],
    logits: Float[Tensor, "*task n k"],
    steps: int = 10,
    components: Components = "spherical",
    mask: Bool[Tensor, "*task n"] | None = None,
    tol: float | None = None,
) -> Posterior:
    """Fit a finite Gaussian mixture with as many components as ``logits`` has columns, by maximum likelihood.

    The same shapes and the same meaning of ``steps``, ``mask`` and ``tol`` as :func:`variational_bayes`.
    """
    check_problem(z, logits, steps, mask, tol)
    return run(em_steps(z, logits, component_family(components), mask), steps, tol)


def vb_steps(
    z: Float[Tensor, "*task n s"],
    logits: Float[Tensor, "*task n k"],
    family: Family,
    alpha: Tensor,
    mask: Bool[Tensor, "*task n"] | None = None,
    weight: float | Float[Tensor, "*task"] = 1.0,
) -> Iterator[Posterior]:
    """The posterior after one step, two steps, and so on without end; nothing is checked.

    With ``weight`` each row counts as that much of a row: the likelihood is raised to this power.
    """
    features, r = prepared(z, logits, family, mask)
    alpha = alpha.to(features.dtype)
    parameters = family.start(features, logits.shape[-1])
    step = torch.zeros(z.shape[:-2], dtype=torch.int64, device=z.device)
    each = weight[..., None, None].to(features.dtype) if isinstance(weight, Tensor) else weight
    while True:
        statistics = family.statistics(features, r if isinstance(each, float) and each == 1 else each * r)
        sticks = update_sticks(statistics.count, alpha)
        parameters = family.update(statistics, parameters)
        log_weights = expected_log_weights(sticks)
        scores = family.expected_log_likelihood(features, parameters) + log_weights[..., None, :]
        r = softmax_of(scores)
        step = step + 1
        yield Posterior(r, scores, log_weights, parameters, family, sticks, alpha, mask, step, z.dtype, weight)


def em_steps(
    z: Float[Tensor, "*task n s"],
    logits: Float[Tensor, "*task n k"],
    family: Family,
    mask: Bool[Tensor, "*task n"] | None = None,
) -> Iterator[Posterior]:
    """The maximum-likelihood mixture after one step, two steps, and so on without end; nothing is checked."""
    features, r = prepared(z, logits, family, mask)
    step = torch.zeros(z.shape[:-2], dtype=torch.int64, device=z.device)
    while True:
        statistics = family.with_standard_rows(family.statistics(features, r), PSEUDO_ROWS)
        parameters = family.maximize(statistics)
        log_weights = statistics.count.log() - statistics.count.sum(-1, keepdim=True).log()
        scores = family.log_likelihood(features, parameters) + log_weights[..., None, :]
        r = softmax_of(scores)
        step = step + 1
        yield Posterior(r, scores, log_weights, parameters, family, None, None, mask, step, z.dtype)


def softmax_of(scores: Float[Tensor, "*task n k"]) -> Float[Tensor, "*task n k"]:
    """The softmax over the last axis, many times faster than torch's where that axis is short."""
    return scores.mT.contiguous().softmax(-2).mT


def run(posteriors: Iterator[Posterior], steps: int, tol: float | None) -> Posterior:
    """Take ``steps`` steps, or with ``tol`` as many as each task needs and at most ``steps``."""
    if tol is None:
        return next(islice(posteriors, steps - 1, None))
    posterior = next(posteriors)
    rows = posterior.weight * (posterior.scores.shape[-2] if posterior.mask is None else posterior.mask.sum(-1))
    bound = posterior.exact_bound.detach()
    done = torch.zeros_like(posterior.steps, dtype=torch.bool)
    for following in islice(posteriors, steps - 1):
        reached = following.exact_bound.detach()
        posterior = choose(done, posterior, following) if bool(done.any()) else following
        done = done | ((reached - bound).abs() <= tol * (rows + bound.abs()))
        bound = reached
        if bool(done.all()):
            break
    return posterior


def choose(first: Bool[Tensor, "*task"], one: Any, other: Any) -> Any:
    """For each task, ``one`` where ``first`` holds, else ``other``; through all tensors of a dataclass."""
    if isinstance(one, Tensor):
        return torch.where(first.reshape(first.shape + (1,) * (one.ndim - first.ndim)), one, other)
    if is_dataclass(one) and not isinstance(one, type):
        names = [
            field.name for field in fields(one) if field.name not in ("family", "alpha", "mask", "dtype", "weight")
        ]
        return replace(one, **{name: choose(first, getattr(one, name), getattr(other, name)) for name in names})
    return one


def one_task(posterior: Any, index: int) -> Any:
    """The posterior of one of several tasks; nothing is shared with the others."""
    return with_tensors(posterior, lambda tensor: tensor[index].clone() if tensor.ndim else tensor)


def with_tensors(posterior: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same with every tensor changed, through all dataclasses in it."""
    if isinstance(posterior, Tensor):
        return change(posterior)
    if is_dataclass(posterior) and not isinstance(posterior, type):
        names = [field.name for field in fields(posterior)]
        return replace(posterior, **{name: with_tensors(getattr(posterior, name), change) for name in names})
    return posterior


def prepared(z: Tensor, logits: Tensor, family: Family, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The features of the rows and the initial assignments; padding holds zeros and passes no gradient."""
    dtype = accumulation_dtype(z.device, z.dtype)
    if mask is not None:
        z = z.masked_fill(~mask[..., None], 0)
        logits = logits.masked_fill(~mask[..., None], 0)
    return family.features(z.to(dtype), mask), softmax_of(logits.to(dtype))


def positive(name: str, value: float | Tensor, z: Tensor) -> Tensor:
    """A parameter of the prior as a tensor; it must be positive and fit the task axes of z."""
    number = torch.as_tensor(value, dtype=accumulation_dtype(z.device, z.dtype), device=z.device)
    if not bool((number > 0).all()) or not bool(number.isfinite().all()):
        raise ValueError(f"{name}={value!r}: it must be positive and finite")
    if broadcast(number.shape, z.shape[:-2]) != z.shape[:-2]:
        raise ValueError(
            f"{name} has shape {tuple(number.shape)}, which does not fit the task axes {tuple(z.shape[:-2])} of z: "
            "pass one number, or one for each task"
        )
    return number


def broadcast(*shapes: torch.Size) -> torch.Size | None:
    """The common shape, or None where there is none."""
    try:
        return torch.Size(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        return None


def check_problem(z: Tensor, logits: Tensor, steps: int, mask: Tensor | None, tol: float | None) -> None:
    """Errors that name the argument, its value and the remedy."""
    if not isinstance(steps, int | np.integer) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"steps={steps!r}: the number of steps must be a whole number of 1 or more")
    if tol is not None and not tol >= 0:
        raise ValueError(f"tol={tol!r}: the tolerance must be 0 or more, or None for a fixed number of steps")
    for name, value in (("z", z), ("logits", logits)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} is {kind}: pass a floating-point tensor")
        if value.ndim < 2:
            raise ValueError(f"{name} has shape {tuple(value.shape)}: it needs at least two axes, rows and columns")
    if z.shape[:-1] != logits.shape[:-1]:
        raise ValueError(
            f"z has shape {tuple(z.shape)} and logits {tuple(logits.shape)}: all axes but the last must agree"
        )
    if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != z.shape[:-1]):
        raise ValueError(
            f"mask is {getattr(mask, 'dtype', type(mask).__name__)} of shape {tuple(getattr(mask, 'shape', ()))}: "
            f"pass booleans of shape {tuple(z.shape[:-1])} as a tensor"
        )
    if z.shape[-2] == 0 or z.shape[-1] == 0 or logits.shape[-1] == 0:
        raise ValueError(
            f"z has shape {tuple(z.shape)} and logits {tuple(logits.shape)}: there must be at least one row, one "
            "column and one component"
        )
    for name, value in (("z", z), ("logits", logits)):
        finite = value.isfinite().all(-1)
        if not bool((finite if mask is None else finite | ~mask).all()):
            raise ValueError(f"{name} holds NaN or infinity: remove or impute those rows, or leave them out by mask")
