"""One step of variational Bayes: what follows from the statistics of the rows."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor

from metaclust.mixture.families import Family
from metaclust.mixture.statistics import Statistics
from metaclust.mixture.sticks import Sticks, expected_log_weights, update_sticks


def vb_step(
    family: Family, statistics: Statistics, previous: Any, alpha: Float[Tensor, "*#task"]
) -> tuple[Sticks, Any]:
    """The sticks and the parameters that maximize the bound given the assignments (Eq. 7)."""
    return update_sticks(statistics.count, alpha), family.update(statistics, previous)


def score_weights(family: Family, parameters: Any, sticks: Sticks) -> Float[Tensor, "*task k f"]:
    """The weights whose product with the features is E[log pi_k] + E[log N(z | k)] (Eq. 8); the first feature is 1."""
    weights = family.score_weights(parameters)
    weights[..., 0] += expected_log_weights(sticks)
    return weights
