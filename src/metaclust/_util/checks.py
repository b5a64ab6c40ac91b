"""Checks of arguments: errors name the argument, its value and the remedy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def is_count(value: object) -> bool:
    """Return whether a value is a whole number of 1 or more, as files and readers want it: not NumPy's, not True."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def check_count(name: str, value: object) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}: it must be a whole number of 1 or more")


def check_choices(settings: Mapping[str, object], choices: Mapping[str, tuple[object, ...]]) -> None:
    for name, allowed in choices.items():
        if settings[name] not in allowed:
            raise ValueError(f"{name}={settings[name]!r}: choose one of {allowed}")


def check_seed(seed: object) -> None:
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"seed={seed!r}: it must be a whole number of 0 or more")
    if seed >= 2**63:
        raise ValueError(f"seed={seed!r}: it must be below 2**63, to fit into a file")
