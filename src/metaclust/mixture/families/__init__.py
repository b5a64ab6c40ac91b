"""The component families: one file each, and one line in the registry."""

from __future__ import annotations

from typing import Any

from metaclust.mixture.families.base import Family, MeanCovariance
from metaclust.mixture.families.diagonal import Diagonal
from metaclust.mixture.families.full import Full
from metaclust.mixture.families.spherical import Spherical
from metaclust.mixture.prior import PAPER, Prior

__all__ = ["FAMILIES", "Family", "MeanCovariance", "component_family", "family_of_precisions"]

FAMILIES: dict[str, type[Family]] = {
    "spherical": Spherical,
    "diagonal": Diagonal,
    "full": Full,
}


def component_family(components: str, mean_covariance: MeanCovariance = "unit", prior: Prior = PAPER) -> Family:
    """The family of this name; ``mean_covariance`` only matters to families with a factorized q(mu) q(Lambda)."""
    if mean_covariance not in ("unit", "optimal"):
        raise ValueError(f"mean_covariance={mean_covariance!r}: choose 'unit' (the paper's) or 'optimal'")
    if components not in FAMILIES:
        raise ValueError(f"components={components!r}: choose one of {tuple(FAMILIES)}")
    family = FAMILIES[components]
    options: dict[str, Any] = {"mean_covariance": mean_covariance} if has_mean_covariance(family) else {}
    return family(prior=prior, **options)


def has_mean_covariance(family: type[Family]) -> bool:
    """Whether the family distinguishes "unit" and "optimal"."""
    return "mean_covariance" in family.__dataclass_fields__


def family_of_precisions(precision_axes: int) -> type[Family]:
    """A family whose precisions are numbers (0), have a number for each column (1) or are matrices (2)."""
    return next(family for family in FAMILIES.values() if family.precision_axes == precision_axes)
