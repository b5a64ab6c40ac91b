"""Gaussian mixtures: probability only, pure functions of tensors with any number of leading task axes."""

from metaclust.mixture.families import FAMILIES, component_family
from metaclust.mixture.inference import em_steps, expectation_maximization, variational_bayes, vb_steps
from metaclust.mixture.posterior import Posterior
from metaclust.mixture.prior import PAPER, Prior
from metaclust.mixture.statistics import Statistics

__all__ = [
    "FAMILIES",
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
