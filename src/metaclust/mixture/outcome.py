"""What every outcome must be: finite components and bound, labels of clusters that exist, confidences from 0 to 1."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaclust.data.extremes import row_number
from metaclust.data.rows import DataError
from metaclust.mixture.components import Components

SLACK = 1e-9
"""Rounding of a probability."""
REMEDY = "check its values, or leave it out"


def check_components(components: Components, bound: float, name: str) -> None:
    """Raise DataError unless the bound and the components of a clustering of the rows ``name`` are finite."""
    for field in fields(components):
        finite = np.isfinite(getattr(components, field.name)).reshape(len(components.weights), -1).all(1)
        if not finite.all():
            raise DataError(
                f"{name}: the {field.name} of cluster {int((~finite).argmax())} are not finite: the values of some "
                "rows are too far from those of the others; scale the columns, or leave such rows out"
            )
    if not np.isfinite(bound):
        raise DataError(
            f"{name}: the evidence lower bound is {bound}: the values of some rows are too far from those of the "
            "others; scale the columns, or leave such rows out"
        )


def check_labels(labels: NDArray[Any], clusters: int, name: str, before: int = 0) -> None:
    """Raise DataError that names the first row whose label is not that of a cluster.

    ``before`` is the number of rows that came before these.
    """
    wrong = (labels < 0) | (labels >= clusters)
    if wrong.any():
        raise DataError(
            f"{name}: {row_number(before + int(wrong.argmax()))} is so far from all clusters that it belongs to none: "
            f"{REMEDY}"
        )


def check_probabilities(values: NDArray[Any], name: str, before: int = 0) -> None:
    """Raise DataError that names the first row with a probability that is not from 0 to 1."""
    valid = (values >= -SLACK) & (values <= 1 + SLACK)
    if not valid.all():
        row = int((~valid.reshape(len(valid), -1).all(1)).argmax())
        raise DataError(f"{name}: {row_number(before + row)} has no probability of its cluster: {REMEDY}")


def check_finite(values: NDArray[Any], name: str, before: int = 0) -> None:
    """Raise DataError that names the first row with a value that is not finite."""
    finite = np.isfinite(values).reshape(len(values), -1).all(1)
    if not finite.all():
        raise DataError(
            f"{name}: {row_number(before + int((~finite).argmax()))} is so far from the other rows that it has no "
            f"finite value: {REMEDY}"
        )
