"""The state of a fit of the mixture and its file: a fit that was stopped resumes with the pass it was in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metaclust._util import schema
from metaclust._util.moments import variances_of
from metaclust._util.schema import LARGEST_WHOLE
from metaclust._util.tensors import CheckpointError, read_tensors, refusing, with_prefix, write_tensors
from metaclust.data.survey import Survey
from metaclust.mixture.families import Family
from metaclust.mixture.sticks import Sticks
from metaclust.mixture.streaming import BlockPosterior, Memo

KIND = "mixture fit"
LARGEST_IN_STATE = 1e100
"""The largest number in a state, such that its cube is still a number."""
FLOAT64 = (torch.float64,)
FLOATS = (torch.float64, torch.float32)
"""A fit starts from parameters in float32 if they come from a device that has no float64; it computes in float64."""
SUM_ROUNDING = 1e-3
"""By what share sums over all rows, perhaps in float32, may differ from their number."""
POSITIVE = ("a", "b", "s", "kappa", "factor")
"""Parameters of the families that are positive, or matrices with positive diagonals."""
POSITIVE_RANGE = (1 / LARGEST_IN_STATE, LARGEST_IN_STATE)
BOUNDS = schema.list_of(schema.number())
FIELDS = {"start": schema.whole(), "bounds": BOUNDS, "survey": schema.mapping}


@dataclass(frozen=True)
class FitState:
    """The state of a fit: enough to resume it without repeating a finished pass."""

    survey: Survey
    start: int = 0
    """The number of the current start."""
    memo: Memo | None = None
    bounds: tuple[float, ...] = ()
    """The bounds of the current start."""
    best: BlockPosterior | None = None
    """The best result of the finished starts."""


def save_state(path: str | os.PathLike[str], state: FitState, settings: dict[str, Any]) -> None:
    """Write the state to a safetensors file, replacing it atomically."""
    seen = state.survey
    tensors = {f"survey.{name}": getattr(seen, name) for name in ("mean", "covariance", "sample", "sample_weights")}
    header: dict[str, Any] = {"kind": KIND, "settings": settings, "start": state.start, "bounds": state.bounds}
    header["survey"] = {"rows": seen.rows, "weight": seen.weight}
    if state.memo is not None:
        tensors |= {"memo.features": state.memo.features, "memo.entropy": state.memo.entropy}
        tensors |= tensors_of(state.memo.parameters, "memo.parameters.")
        header["memo"] = {"rows": state.memo.rows}
    if state.best is not None:
        tensors |= tensors_of(state.best.parameters, "best.parameters.") | tensors_of(state.best.sticks, "best.sticks.")
        header["best"] = {"bounds": state.best.bounds, "converged": state.best.converged}
    write_tensors(path, tensors, header)


def load_state(
    path: str | os.PathLike[str],
    settings: dict[str, Any],
    family: type[Family],
    sample_rows: float = LARGEST_IN_STATE,
    has_variances: bool = True,
) -> FitState | None:
    """The state that :func:`save_state` wrote with the same settings; None if there is no file.

    ``sample_rows`` is the largest weight of the sample of rows in it. ``has_variances`` says whether the survey has the
    variances of the rows: a fit that needs them is not begun with rows that are all equal.
    """
    if not Path(path).exists():
        return None
    tensors, header = read_tensors(path, KIND)
    with refusing(path, "a fit"):
        schema.fields(header, {"settings": schema.mapping, **FIELDS}, {"memo": schema.mapping, "best": schema.mapping})
    before = header["settings"]
    changed = sorted(name for name in before.keys() | settings.keys() if before.get(name) != settings.get(name))
    if changed:
        raise CheckpointError(
            f"state={str(path)!r} belongs to a fit with other settings ({schema.some(changed)}): use the same "
            "settings, or another path"
        )
    with refusing(path, "a fit"):
        state = state_from(tensors, header, family(), sample_rows)
        if has_variances and not bool((variances_of(state.survey.covariance) > 0).any()):
            raise ValueError("survey.covariance has no positive variance: no fit is begun with such rows")
        return state


@contextmanager
def resuming(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Name the file from which a fit goes on, if its sums are those of no rows."""
    try:
        yield
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        if path is None:
            raise
        raise CheckpointError(
            f"state={str(path)!r} cannot be resumed, its sums are those of no rows ({error}): start again with another "
            "path"
        ) from error


def state_from(tensors: dict[str, Tensor], header: dict[str, Any], family: Family, sample_rows: float) -> FitState:
    """Return the state in a file, if all its parts fit each other."""
    seen = survey_from(with_prefix(tensors, "survey."), header["survey"], sample_rows)
    width, used = len(seen.mean), 4
    memo = best = None
    if "memo" in header:
        schema.fields(header["memo"], {"rows": schema.whole(1, LARGEST_WHOLE)}, name="memo")
        batches, components = sizes(tensors, "memo.features", 3)[:2]
        sums = (batches, components, family.feature_count(width))
        memo = Memo(
            schema.tensor(tensors, "memo.features", sums, -LARGEST_IN_STATE, LARGEST_IN_STATE, FLOAT64),
            schema.tensor(tensors, "memo.entropy", (batches,), -LARGEST_IN_STATE, LARGEST_IN_STATE, FLOAT64),
            header["memo"]["rows"],
            parameters_from(tensors, "memo.parameters", family, (components, width), FLOATS),
        )
        check_memo(memo, seen)
        used += 2 + len(fields(memo.parameters))
    if "best" in header:
        end = schema.fields(header["best"], {"bounds": BOUNDS, "converged": schema.flag}, name="best")
        (components,) = sizes(tensors, "best.sticks.gamma1", 1)
        gammas = (
            schema.tensor(tensors, f"best.sticks.{name}", (components,), *POSITIVE_RANGE, FLOAT64)
            for name in ("gamma1", "gamma2")
        )
        found = parameters_from(tensors, "best.parameters", family, (components, width), FLOAT64)
        best = BlockPosterior(found, Sticks(*gammas), tuple(map(float, end["bounds"])), end["converged"])
        used += 2 + len(fields(found))
    if len(tensors) != used:
        raise ValueError(f"it holds {len(tensors)} tensors, of which {used} are known")
    if (best is None) != (header["start"] == 0) or (best is not None and not best.bounds):
        raise ValueError(f"start={header['start']}: a fit has a best result after its first start, and none before")
    if memo is None and header["bounds"]:
        raise ValueError("bounds: there are some of a start that has not begun")
    return FitState(seen, header["start"], memo, tuple(map(float, header["bounds"])), best)


def check_memo(memo: Memo, seen: Survey) -> None:
    """Raise ValueError unless the sums over the rows are those of as many rows as were surveyed."""
    counts = memo.features[..., 0]
    schema.check_range("memo.features", counts, -SUM_ROUNDING * seen.weight)
    weight = float(counts.sum())
    if memo.rows != seen.rows or abs(weight - seen.weight) > SUM_ROUNDING * seen.weight:
        raise ValueError(
            f"memo: its sums are over {memo.rows} rows of weight {weight:g}, the survey over {seen.rows} of weight "
            f"{seen.weight:g}"
        )


def survey_from(tensors: dict[str, Tensor], counts: dict[str, Any], sample_rows: float) -> Survey:
    """Return the survey in a file, if its parts fit each other."""
    schema.fields(
        counts,
        {"rows": schema.whole(2, LARGEST_WHOLE), "weight": schema.number(1 / LARGEST_IN_STATE, LARGEST_IN_STATE)},
        name="survey",
    )
    sample, width = sizes(tensors, "sample", 2)
    axes = 2 if "covariance" in tensors and tensors["covariance"].ndim == 2 else 1
    covariance = schema.tensor(tensors, "covariance", (width,) * axes, -LARGEST_IN_STATE, LARGEST_IN_STATE, FLOAT64)
    # A column of equal values has a variance of zero, but for rounding.
    schema.check_range("survey.covariance", variances_of(covariance), -SUM_ROUNDING * float(covariance.abs().max()))
    if axes == 2 and not torch.equal(covariance, covariance.T):
        raise ValueError("survey.covariance is not symmetric")
    weights = schema.tensor(tensors, "sample_weights", (sample,), 0, LARGEST_IN_STATE, FLOAT64)
    if not 0 < (drawn := float(weights.sum())) <= sample_rows:
        raise ValueError(f"survey.sample_weights add up to {drawn:g}: it must be more than 0, at most {sample_rows:g}")
    return Survey(
        counts["rows"],
        float(counts["weight"]),
        schema.tensor(tensors, "mean", (width,), -LARGEST_IN_STATE, LARGEST_IN_STATE, FLOATS),
        covariance,
        schema.tensor(tensors, "sample", (sample, width), -LARGEST_IN_STATE, LARGEST_IN_STATE, FLOAT64),
        weights,
    )


def parameters_from(
    tensors: dict[str, Tensor], name: str, family: Family, shape: tuple[int, int], dtypes: tuple[torch.dtype, ...]
) -> Any:
    """Return the parameters of so many components in rows of this width, all in one of these dtypes."""
    components, width = shape
    with torch.device("meta"):
        expected = family.start(family.features(torch.zeros(0, width, dtype=torch.float64)), components)
    found = {}
    for entry in fields(expected):
        own = f"{name}.{entry.name}"
        own_shape = tuple(getattr(expected, entry.name).shape)
        value = schema.tensor(tensors, own, own_shape, -LARGEST_IN_STATE, LARGEST_IN_STATE, dtypes)
        found[entry.name] = value
        if entry.name in POSITIVE:
            schema.check_range(own, value.diagonal(dim1=-2, dim2=-1) if value.ndim == 3 else value, *POSITIVE_RANGE)
    schema.common_dtype(found, name)
    return family.parameters_type(**found)


def sizes(tensors: dict[str, Tensor], name: str, axes: int) -> tuple[int, ...]:
    """Return the shape of a tensor with so many axes, none of them empty."""
    if name not in tensors:
        raise ValueError(f"the tensor {name!r} is missing")
    shape = tuple(tensors[name].shape)
    if len(shape) != axes or 0 in shape:
        raise ValueError(f"{name} has shape {shape}: it must have {axes} axes, and none may be empty")
    return shape


def tensors_of(values: Any, prefix: str) -> dict[str, Tensor]:
    """The fields of a dataclass, by name with a prefix."""
    return {f"{prefix}{entry.name}": getattr(values, entry.name) for entry in fields(values)}
