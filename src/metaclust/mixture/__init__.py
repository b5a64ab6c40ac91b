"""The mixture: probability only, pure functions on tensors with any number of leading task axes."""

from metaclust.mixture.inference import (
    Posterior,
    component_family,
    em_steps,
    expectation_maximization,
    variational_bayes,
    vb_steps,
)
from metaclust.mixture.prior import PAPER, Prior
from metaclust.mixture.statistics import Statistics

__all__ = [
    "PAPER",
    "Posterior",
    "Prior",
    "Statistics",
    "component_family",
    "em_steps",
    "expectation_maximization",
    "variational_bayes",
    "vb_steps",
]
