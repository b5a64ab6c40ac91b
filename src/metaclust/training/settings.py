"""Validation of the settings of MetaClusterer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metaclust._util.checks import check_choices, check_count, check_seed
from metaclust._util.schema import LARGEST_WHOLE, Check, flag, list_of, number, one_of, optional, text, whole
from metaclust.data.preparation.pixels import check_scaling
from metaclust.model.config import MOST_CLUSTERS
from metaclust.model.encoders import ENCODERS
from metaclust.training.config import TrainingConfig
from metaclust.training.tuning import STEPS

MOST_RESTARTS = 1000
"""The largest number of starts that a setting may ask for."""
MOST = {"max_clusters": MOST_CLUSTERS, "restarts": MOST_RESTARTS, "min_cluster_size": 1_000_000}
SAVED_SETTINGS: dict[str, Check] = {
    **{name: whole(1) for name in ("min_cluster_size", "choice_tasks")},
    "max_clusters": lambda value: None if value == "auto" else whole(1)(value),
    "restarts": optional(whole(1)),
    **{name: optional(whole()) for name in ("pretrain_steps", "steps")},
    "task_rows": list_of(whole(), 2),
    **{name: number(0, 1) for name in ("confidence", "validation")},
    "augment": one_of("auto", "turn", True, False),
    "scaling": one_of("auto", "standard", "none"),
    **dict.fromkeys(("text", "preset", "encoder", "choose", "components", "device", "effort"), text),
    **dict.fromkeys(("embedding_model", "image_model"), optional(text)),
    **dict.fromkeys(("images", "image_scaling", "sounds"), text),
    "representation": optional(whole(1)),
    "dropout": optional(number(0, 1)),
    "progress": flag,
    "seed": whole(0, LARGEST_WHOLE),
}
"""The types and ranges of the settings in a model file, besides what :func:`check_settings` asks of all settings."""


def check_max_clusters(value: Any) -> None:
    """Raise an error unless it is a whole number of 1 or more, or "auto"."""
    if isinstance(value, str) and value == "auto":
        return
    try:
        check_count("max_clusters", value)
    except ValueError as error:
        raise ValueError(f"{error}, or 'auto'") from None


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise an error that names the first invalid setting, before anything is read or trained."""
    check_max_clusters(settings["max_clusters"])
    for name in ("min_cluster_size", "choice_tasks"):
        check_count(name, settings[name])
    if settings["restarts"] is not None:
        check_count("restarts", settings["restarts"])
    for name, most in MOST.items():
        if settings[name] not in (None, "auto") and settings[name] > most:
            raise ValueError(f"{name}={settings[name]!r}: it must be at most {most:,}")
    for name in ("pretrain_steps", "steps"):
        if settings[name] is not None:
            TrainingConfig(**{name: settings[name]})
    for name, highest in (("confidence", 1.0), ("validation", 0.8)):
        value = settings[name]
        if not isinstance(value, int | float | np.number) or not 0 <= value <= highest:
            raise ValueError(f"{name}={value!r}: it must be at least 0 and at most {highest}")
    choices = {"encoder": ("auto", *ENCODERS, "tuned"), "choose": ("auto", "learned", "bound"), "effort": tuple(STEPS)}
    check_choices(settings, choices)
    check_scaling(settings["image_scaling"])
    if settings["augment"] not in ("auto", "turn", True, False):
        raise ValueError(f"augment={settings['augment']!r}: choose 'auto', 'turn', True or False")
    if not isinstance(settings["task_rows"], tuple | list) or len(settings["task_rows"]) != 2:
        raise ValueError(f"task_rows={settings['task_rows']!r}: pass the range of rows of a category, such as (5, 30)")
    rows = settings["effective_rows"]
    if rows is not None and rows != "auto" and (isinstance(rows, str) or not 0 < rows < float("inf")):
        raise ValueError(f"effective_rows={rows!r}: it must be positive and finite, or 'auto', or None")
    check_seed(settings["seed"])
