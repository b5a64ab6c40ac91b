"""What a preparation is, and what all of them share: options, checks and a short repr."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from metaclust.data.kinds import Kind
from metaclust.data.preparation.pixels import ImageScaling
from metaclust.data.preparation.vocabulary import WordRules
from metaclust.data.readers.decoding import Fit
from metaclust.data.rows import DataError, Rows
from metaclust.data.sparse import SparseRows

Scaling = Literal["auto", "standard", "none"]
NOT_DESCRIBED = {"described": False}
"""Metadata of a field of a preparation that is no part of its description."""
TextAs: TypeAlias = str
"""A key of ``KINDS["text"].preparations``."""
ImagesAs: TypeAlias = str
"""A key of ``KINDS["images"].preparations``."""
SoundsAs: TypeAlias = str
"""A key of ``KINDS["sounds"].preparations``."""


@dataclass(frozen=True)
class Options:
    """The options of :func:`fit_preparation`, whatever the kind of the rows."""

    scaling: Scaling = "auto"
    text: TextAs = "tfidf"
    rules: WordRules | None = None
    embedding_model: str | None = None
    fit: Fit = "stretch"
    images: ImagesAs = "pixels"
    image_model: str | None = None
    image_scaling: ImageScaling = "auto"
    sounds: SoundsAs = "statistics"


@runtime_checkable
class Preparation(Protocol):
    """How rows of one kind become the input of the encoder.

    Preparations are frozen dataclasses, whose fields are what the model file says of them.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one prepared row."""

    def reading(self) -> dict[str, Any]:
        """Return how files are read as the training files were: arguments of ``read_data``, and ``usual_text``."""

    def __call__(self, rows: Rows) -> Tensor | SparseRows:
        """Return the prepared rows; rows that do not fit are an error."""


def values_of(rows: Rows, kind: Kind) -> Any:
    """Return the values of rows of the kind that the training rows had; rows of another kind are an error."""
    if rows.kind != kind:
        raise DataError(f"{rows.source} holds {rows.kind}, but the model was trained on {kind}")
    return rows.values


def require(holds: bool, name: str, value: object) -> None:
    """Raise DataError unless a field is as it must be: a description that was read from a file may hold anything."""
    if not holds:
        raise DataError(
            f"{name}={reprlib.repr(value)} cannot be right: the description of how rows are prepared is damaged"
        )


def are_strings(values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, str) for value in values)


def are_numbers(values: object, length: int, low: float, high: float) -> bool:
    """Return whether this is a tuple of so many numbers from ``low`` to ``high``."""
    return (
        isinstance(values, tuple)
        and len(values) == length
        and all(isinstance(value, int | float) and low <= value <= high for value in values)
    )


def described_fields(preparation: Any) -> list[str]:
    """Return the names of the fields of a preparation, or of its class, that a model file describes."""
    return [field.name for field in fields(preparation) if field.metadata.get("described", True)]


def short_repr(preparation: Any) -> str:
    """Return one short line, whatever the number of columns or words."""
    shown = []
    for field in fields(preparation):
        if not field.repr:
            continue
        value = getattr(preparation, field.name)
        if isinstance(value, tuple) and len(value) > 3:
            shown.append(f"{field.name}=<{len(value):,} values>")
        elif value not in (None, ()):
            shown.append(f"{field.name}={reprlib.repr(value)}")
    return f"{type(preparation).__name__}({', '.join(shown)})"
