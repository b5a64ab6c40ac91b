"""The state of a fit of the mixture and its file: a fit that was stopped resumes with the pass it was in."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from metaclust._util.tensors import CheckpointError, read_tensors, with_prefix, write_tensors
from metaclust.data.survey import Survey
from metaclust.mixture.families import Family
from metaclust.mixture.sticks import Sticks
from metaclust.mixture.streaming import BlockPosterior, Memo

KIND = "mixture fit"


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


def load_state(path: str | os.PathLike[str], settings: dict[str, Any], family: type[Family]) -> FitState | None:
    """The state that :func:`save_state` wrote with the same settings; None if there is no file."""
    if not Path(path).exists():
        return None
    tensors, header = read_tensors(path, KIND)
    before = header.get("settings", {})
    changed = sorted(name for name in before.keys() | settings.keys() if before.get(name) != settings.get(name))
    if changed:
        raise CheckpointError(
            f"state={str(path)!r} belongs to a fit with other settings ({', '.join(changed)}): use the same settings, "
            "or another path"
        )
    parameters = family.parameters_type
    try:
        memo = best = None
        if "memo" in header:
            memo = Memo(
                tensors["memo.features"],
                tensors["memo.entropy"],
                header["memo"]["rows"],
                parameters(**with_prefix(tensors, "memo.parameters.")),
            )
        if "best" in header:
            end = header["best"]
            sticks = Sticks(**with_prefix(tensors, "best.sticks."))
            found = parameters(**with_prefix(tensors, "best.parameters."))
            best = BlockPosterior(found, sticks, tuple(end["bounds"]), end["converged"])
        surveyed: dict[str, Any] = {**header["survey"], **with_prefix(tensors, "survey.")}
        seen = Survey(**surveyed)
        return FitState(seen, header["start"], memo, tuple(header["bounds"]), best)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not hold a fit that this version can resume: {error}") from error


def tensors_of(values: Any, prefix: str) -> dict[str, Tensor]:
    """The fields of a dataclass, by name with a prefix."""
    return {f"{prefix}{entry.name}": getattr(values, entry.name) for entry in fields(values)}
