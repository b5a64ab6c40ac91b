"""Truncated stick breaking: the weights of a Dirichlet process, eta_k ~ Beta(1, alpha)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Sticks:
    """q(eta_k) = Beta(gamma1_k, gamma2_k)."""

    gamma1: Float[Tensor, "*task k"]
    gamma2: Float[Tensor, "*task k"]


def update_sticks(count: Float[Tensor, "*task k"], alpha: Float[Tensor, "*#task"]) -> Sticks:
    """gamma_k1 = 1 + N_k and gamma_k2 = alpha + sum over j > k of N_j (Eq. 7)."""
    upto = count.cumsum(-1)
    return Sticks(1 + count, alpha[..., None] + (upto[..., -1:] - upto))


def expected_log_weights(sticks: Sticks) -> Float[Tensor, "*task k"]:
    """E[log pi_k] = psi(gamma_k1) - psi(gamma_k1 + gamma_k2) + sum_{j<k} (psi(gamma_j2) - psi(gamma_j1 + gamma_j2)).

    Erratum: the paper prints the sum over k' = k+1..K' with terms of index k; the sum runs over
    the sticks broken *before* k.
    """
    taken, left, whole = torch.digamma(
        torch.stack((sticks.gamma1, sticks.gamma2, sticks.gamma1 + sticks.gamma2))
    ).unbind(0)
    log_left = left - whole
    # Shifted rather than subtracted again: for a tiny alpha the last log_left is huge and would cancel.
    return taken - whole + functional.pad(log_left[..., :-1].cumsum(-1), (1, 0))


def expected_weights(sticks: Sticks) -> Float[Tensor, "*task k"]:
    """E[pi_k] = E[eta_k] prod_{j<k} (1 - E[eta_j]); the remainder after the truncation is not included."""
    log_left = sticks.gamma2.log() - (sticks.gamma1 + sticks.gamma2).log()
    log_taken = sticks.gamma1.log() - (sticks.gamma1 + sticks.gamma2).log()
    return (log_taken + functional.pad(log_left[..., :-1].cumsum(-1), (1, 0))).exp()


def sticks_kl(sticks: Sticks, alpha: Float[Tensor, "*#task"]) -> Float[Tensor, "*task k"]:
    """KL(Beta(gamma1, gamma2) || Beta(1, alpha)) of each stick; log B(1, alpha) = -log alpha."""
    gamma1, gamma2, alpha = sticks.gamma1, sticks.gamma2, alpha[..., None]
    log_beta = torch.lgamma(gamma1) + torch.lgamma(gamma2) - torch.lgamma(gamma1 + gamma2)
    return (
        -alpha.log()
        - log_beta
        + (gamma1 - 1) * torch.digamma(gamma1)
        + (gamma2 - alpha) * torch.digamma(gamma2)
        + (1 + alpha - gamma1 - gamma2) * torch.digamma(gamma1 + gamma2)
    )
