"""Variational Bayes of the truncated infinite mixture, and EM of the finite one, for any component family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metaclust.mixture.arguments import check_problem, positive
from metaclust.mixture.families import Family, MeanCovariance, component_family
from metaclust.mixture.posterior import Posterior, choose, softmax_of
from metaclust.mixture.prior import PAPER, Prior
from metaclust.mixture.statistics import accumulation_dtype
from metaclust.mixture.step import vb_step
from metaclust.mixture.sticks import expected_log_weights


def variational_bayes(
    z: Float[Tensor, "*task n s"],
    logits: Float[Tensor, "*task n k"],
    steps: int = 10,
    alpha: float | Tensor = 1.0,
    mean_covariance: MeanCovariance = "unit",
    components: str = "spherical",
    mask: Bool[Tensor, "*task n"] | None = None,
    tol: float | None = None,
    prior: Prior = PAPER,
) -> Posterior:
    """Fit a truncated Dirichlet-process Gaussian mixture to each task, from initial assignments (Algorithm 1).

    Parameters
    ----------
    z : Tensor of shape (*task, n, s)
        Rows to cluster, with any number of leading task axes.
    logits : Tensor of shape (*task, n, k)
        Initial assignments before the softmax; k is the truncation.
    steps : int
        Number of steps; with ``tol``, the maximum number.
    alpha : float or Tensor
        Concentration of the Dirichlet process; a tensor must broadcast against the task axes.
    mean_covariance : {"unit", "optimal"}
        Covariance of q(mu_k): fixed at the identity as in the paper, or optimized.
    components : str
        Component family: a key of ``metaclust.mixture.FAMILIES``.
    mask : boolean Tensor of shape (*task, n), optional
        False for rows that are padding.
    tol : float, optional
        A task has converged when a step changes its bound by at most ``tol * (number of rows + |bound|)``. It then
        keeps its result while other tasks continue.
    prior : Prior
        Prior of the means and precisions; tensors must broadcast against the task axes.

    Returns
    -------
    Posterior

    Examples
    --------
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
    components: str = "spherical",
    mask: Bool[Tensor, "*task n"] | None = None,
    tol: float | None = None,
) -> Posterior:
    """Fit a finite Gaussian mixture to each task by maximum likelihood, from initial assignments.

    Parameters
    ----------
    z : Tensor of shape (*task, n, s)
        Rows to cluster, with any number of leading task axes.
    logits : Tensor of shape (*task, n, k)
        Initial assignments before the softmax; k is the number of components.
    steps : int
        Number of steps; with ``tol``, the maximum number.
    components : str
        Component family: a key of ``metaclust.mixture.FAMILIES``.
    mask : boolean Tensor of shape (*task, n), optional
        False for rows that are padding.
    tol : float, optional
        Tolerance of convergence, as in :func:`variational_bayes`.

    Returns
    -------
    Posterior
        Its ``bound`` is the log likelihood.
    """
    check_problem(z, logits, steps, mask, tol)
    return run(em_steps(z, logits, component_family(components), mask), steps, tol)


@dataclass(frozen=True)
class Sums:
    """What initial assignments r add up to, where they need not be known themselves: r^T features."""

    values: Float[Tensor, "*task k f"]


def vb_steps(
    z: Float[Tensor, "*#task n s"],
    start: Float[Tensor, "*task n k"] | Sums,
    family: Family,
    alpha: Tensor,
    mask: Bool[Tensor, "*task n"] | None = None,
    weight: float | Float[Tensor, "*task"] = 1.0,
) -> Iterator[Posterior]:
    """Yield the posterior after each step, without end and without checking the arguments.

    It starts from logits, or from what assignments add up to; all tasks may have the same rows. Each row counts as
    ``weight`` rows: the likelihood is raised to this power.
    """
    each = weight[..., None, None].to(accumulation_dtype(z.device, z.dtype)) if isinstance(weight, Tensor) else weight
    if isinstance(start, Sums):
        features = features_of(z, family, mask)
        tasks, clusters = start.values.shape[:-2], start.values.shape[-2]
        statistics = family.read(start.values if isinstance(each, float) and each == 1 else each * start.values)
    else:
        features, r = prepared(z, start, family, mask)
        tasks, clusters = z.shape[:-2], start.shape[-1]
        statistics = family.statistics(features, r if isinstance(each, float) and each == 1 else each * r)
    alpha = alpha.to(features.dtype)
    parameters = family.start(features.expand(*tasks, *features.shape[-2:]), clusters)
    step = torch.zeros(tasks, dtype=torch.int64, device=z.device)
    while True:
        sticks, parameters = vb_step(family, statistics, parameters, alpha)
        log_weights = expected_log_weights(sticks)
        scores = family.expected_log_likelihood(features, parameters) + log_weights[..., None, :]
        step = step + 1
        posterior = Posterior(scores, log_weights, parameters, family, sticks, alpha, mask, step, z.dtype, weight)
        yield posterior
        r = posterior.assignments
        statistics = family.statistics(features, r if isinstance(each, float) and each == 1 else each * r)


def em_steps(
    z: Float[Tensor, "*task n s"],
    logits: Float[Tensor, "*task n k"],
    family: Family,
    mask: Bool[Tensor, "*task n"] | None = None,
) -> Iterator[Posterior]:
    """Yield the maximum-likelihood mixture after each step, without end and without checking the arguments."""
    features, r = prepared(z, logits, family, mask)
    step = torch.zeros(z.shape[:-2], dtype=torch.int64, device=z.device)
    while True:
        statistics = family.with_pseudo_rows(family.statistics(features, r))
        parameters = family.maximize(statistics)
        log_weights = statistics.count.log() - statistics.count.sum(-1, keepdim=True).log()
        scores = family.log_likelihood(features, parameters) + log_weights[..., None, :]
        step = step + 1
        posterior = Posterior(scores, log_weights, parameters, family, None, None, mask, step, z.dtype)
        yield posterior
        r = posterior.assignments


def prepared(z: Tensor, logits: Tensor, family: Family, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The features of the rows and the initial assignments; padding is set to zero and gets no gradient."""
    features = features_of(z, family, mask)
    if mask is not None:
        logits = logits.masked_fill(~mask[..., None], 0)
    return features, softmax_of(logits.to(features.dtype))


def features_of(z: Tensor, family: Family, mask: Tensor | None = None) -> Tensor:
    """The features of the rows, in the precision of sums over them; padding is set to zero and gets no gradient."""
    if mask is not None:
        z = z.masked_fill(~mask[..., None], 0)
    return family.features(z.to(accumulation_dtype(z.device, z.dtype)), mask)


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
