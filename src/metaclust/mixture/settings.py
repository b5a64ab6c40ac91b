"""Checks of the settings of InfiniteGaussianMixture."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaclust._util.checks import check_choices, check_count, check_seed
from metaclust.mixture.families import FAMILIES
from metaclust.mixture.prior import Prior

CHOICES = {
    "covariance": tuple(FAMILIES),
    "mean_covariance": ("optimal", "unit"),
    "precision": ("auto", "float64"),
}
INITS = ("kmeans++", "kmeans", "random")


def check_mixture_settings(settings: dict[str, Any]) -> None:
    """Raise an error that names the argument, its value and the remedy if a setting is not valid."""
    for name in ("max_components", "max_iter", "n_init"):
        check_count(name, settings[name])
    if settings["batch_rows"] is not None:
        check_count("batch_rows", settings["batch_rows"])
    if not is_number(settings["alpha"]) or not 0 < settings["alpha"] < np.inf:
        raise ValueError(f"alpha={settings['alpha']!r}: it must be positive and finite")
    if not is_number(settings["tol"]) or not 0 <= settings["tol"] < np.inf:
        raise ValueError(f"tol={settings['tol']!r}: it must be 0 or more, and finite")
    check_choices(settings, CHOICES)
    if isinstance(settings["init"], str) and settings["init"] not in INITS:
        raise ValueError(f"init={settings['init']!r}: choose one of {INITS}, or give an array of means")
    prior = settings["prior"]
    if prior is not None and not isinstance(prior, Prior):
        raise ValueError(f"prior={prior!r}: give a metaclust.Prior, or None for one that fits the data")
    for entry in fields(Prior) if prior is not None else ():
        value = getattr(prior, entry.name)
        if not is_number(value) or not 0 < value < np.inf:
            raise ValueError(f"prior.{entry.name}={value!r}: it must be one positive and finite number")
    check_seed(settings["seed"])


def is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def checked_weights(sample_weight: Any) -> NDArray[np.float64] | None:
    """The weights of the rows as an array, checked to be finite and not negative."""
    if sample_weight is None:
        return None
    weights = np.array(sample_weight, np.float64)
    if weights.ndim != 1:
        raise ValueError(f"sample_weight has shape {weights.shape}: give one number for each row")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight holds NaN, infinity or negative numbers: give finite weights of 0 or more")
    return weights


def start_means(init: Any, width: int) -> NDArray[np.float64]:
    """The initial means as an array, checked to fit the rows."""
    means = np.array(init, np.float64)
    if means.ndim != 2 or not len(means) or means.shape[1] != width or not np.isfinite(means).all():
        raise ValueError(
            f"init has shape {means.shape}: give finite means of {width} columns, one row for each component"
        )
    return means


def settings_as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that must be the same when a fit is resumed."""
    plain = {name: value for name, value in settings.items() if name != "progress"}
    plain["prior"] = plain["prior"] and asdict(plain["prior"])
    plain["init"] = plain["init"] if isinstance(plain["init"], str) else np.asarray(plain["init"]).tolist()
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in plain.items()}
