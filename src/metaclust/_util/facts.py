"""Results as JSON, which has no NaN and no infinity."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def json_of(facts: Mapping[str, Any], indent: int) -> str:
    """Return the facts as JSON; a number that JSON cannot hold is an error that names it.

    >>> print(json_of({"rows": 3}, 1))
    {
     "rows": 3
    }
    """
    for name, value in facts.items():
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise ValueError(f"{name!r} is {value!r}, which JSON cannot hold: check the values of the rows") from error
    return json.dumps(facts, indent=indent, allow_nan=False)
