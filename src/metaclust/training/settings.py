"""Validation of the settings of MetaClusterer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metaclust._util.checks import check_choices, check_count, check_seed
from metaclust.model.encoders import ENCODERS
from metaclust.training.config import TrainingConfig


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise an error that names the first invalid setting, before anything is read or trained."""
    for name in ("max_clusters", "min_cluster_size", "choice_tasks"):
        check_count(name, settings[name])
    if settings["restarts"] is not None:
        check_count("restarts", settings["restarts"])
    for name in ("pretrain_steps", "steps"):
        if settings[name] is not None:
            TrainingConfig(**{name: settings[name]})
    for name, highest in (("confidence", 1.0), ("validation", 0.8)):
        value = settings[name]
        if not isinstance(value, int | float | np.number) or not 0 <= value <= highest:
            raise ValueError(f"{name}={value!r}: it must be at least 0 and at most {highest}")
    check_choices(settings, {"encoder": ("auto", *ENCODERS), "choose": ("auto", "learned", "bound")})
    if settings["augment"] not in ("auto", "turn", True, False):
        raise ValueError(f"augment={settings['augment']!r}: choose 'auto', 'turn', True or False")
    if not isinstance(settings["task_rows"], tuple | list) or len(settings["task_rows"]) != 2:
        raise ValueError(f"task_rows={settings['task_rows']!r}: pass the range of rows of a category, such as (5, 30)")
    rows = settings["effective_rows"]
    if rows is not None and rows != "auto" and (isinstance(rows, str) or not 0 < rows < float("inf")):
        raise ValueError(f"effective_rows={rows!r}: it must be positive and finite, or 'auto', or None")
    check_seed(settings["seed"])
