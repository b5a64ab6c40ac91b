"""From rows as read to what the encoder takes. Fitted on the training rows, and saved in the model file."""

from __future__ import annotations

import reprlib
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from metaclust.data.preparation.embeddings import SentenceEmbedder
from metaclust.data.preparation.text import USUAL_RULES, Weighting, WordRules, Words, find_words, texts_of
from metaclust.data.readers.decoding import Fit
from metaclust.data.rows import DataError, Kind, Rows, listed
from metaclust.data.sparse import SparseRows, of_unit_length

Scaling = Literal["auto", "standard", "none"]
TextAs = Literal["tfidf", "counts", "embeddings"]
BLOCK = 16_384
"""Rows that are in float64 at a time."""


@runtime_checkable
class Preparation(Protocol):
    """How rows of one kind become the encoder's input."""

    name: ClassVar[str]
    kind: ClassVar[Kind]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one prepared row."""

    def __call__(self, rows: Rows) -> Tensor | SparseRows:
        """The prepared rows; rows that do not fit are an error."""


@dataclass(frozen=True)
class VectorPreparation:
    """Columns by name, missing numbers filled with the mean, each column scaled."""

    name: ClassVar[str] = "vectors"
    kind: ClassVar[Kind] = "vectors"
    width: int
    columns: tuple[str, ...] = ()
    mean: tuple[float, ...] | None = None
    """Means and standard deviations of the training rows; None leaves the numbers as they are."""
    scale: tuple[float, ...] | None = None
    fill: bool = False
    """Whether missing numbers are filled with the means."""

    def __post_init__(self) -> None:
        require(is_count(self.width), "width", self.width)
        require(len(self.columns) in (0, self.width), "columns", self.columns)
        for name in ("mean", "scale"):
            values = getattr(self, name)
            require(values is None or (len(values) == self.width and bool(np.isfinite(values).all())), name, values)
        require(self.scale is None or min(self.scale) > 0, "scale", self.scale)
        require(self.mean is not None or (self.scale is None and not self.fill), "mean", self.mean)

    @classmethod
    def fit(cls, rows: Rows, scaling: Scaling = "auto") -> VectorPreparation:
        """``scaling="auto"`` leaves rows that all have the length one, as embeddings have, as they are."""
        if scaling not in ("auto", "standard", "none"):
            raise ValueError(f"scaling={scaling!r}: choose 'auto', 'standard' or 'none'")
        values = rows.values
        if isinstance(values, list) or rows.kind != "vectors":
            raise DataError(f"{rows.source} holds {rows.kind}, not vectors")
        width = int(values.shape[1])
        if sparse.issparse(values):
            # Centred, they would no longer be sparse.
            return cls(width, rows.columns)
        empty = np.isnan(values).all(0)
        if empty.any():
            name = rows.columns[int(empty.argmax())] if rows.columns else int(empty.argmax())
            raise DataError(f"{rows.source}: column {name!r} has no number at all: leave it out")
        fill = bool(np.isnan(values).any())
        if scaling == "auto":
            scaling = "none" if width > 1 and not fill and of_unit_length(values) else "standard"
        if scaling == "none" and not fill:
            return cls(width, rows.columns)
        scaler = StandardScaler()
        for start in range(0, len(values), BLOCK):
            scaler.partial_fit(values[start : start + BLOCK].astype(np.float64))
        means = tuple(float(value) for value in scaler.mean_)
        if scaling == "none":
            return cls(width, rows.columns, means, fill=fill)
        return cls(width, rows.columns, means, tuple(float(value) for value in scaler.scale_), fill)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.width,)

    def __call__(self, rows: Rows) -> Tensor | SparseRows:
        values = rows.values
        if isinstance(values, list) or rows.kind != "vectors":
            raise DataError(f"{rows.source} holds {rows.kind}, but the model was trained on vectors")
        if values.shape[1] != self.width:
            raise DataError(f"{rows.source} has {values.shape[1]} columns, but the model was trained on {self.width}")
        if self.columns and rows.columns and rows.columns != self.columns:
            raise DataError(
                f"{rows.source} has the columns {listed(rows.columns)}, but the model was trained on "
                f"{listed(self.columns)}"
            )
        if sparse.issparse(values):
            if self.scale is not None:
                raise DataError(f"{rows.source} is sparse, but the model was trained on dense rows: pass X.toarray()")
            return SparseRows(values)
        absent = np.isnan(values)
        if absent.any() and not self.fill:
            raise DataError(
                f"{rows.source}: row {int(absent.any(1).argmax())} (counting from 0) has an empty cell or NaN, but "
                "there was none in training: fill it, or leave such rows out (missing='drop')"
            )
        return torch.from_numpy(self._scaled(values, absent))

    def _scaled(self, values: NDArray[np.float32], absent: NDArray[np.bool_]) -> NDArray[np.float32]:
        if absent.any():
            values = np.where(absent, np.array(self.mean, np.float32), values)
        if self.scale is None or self.mean is None:
            return np.ascontiguousarray(values) if values.flags.writeable else np.array(values)
        # In blocks: a column far from zero needs the difference in float64, but not all rows at once.
        scaled = np.empty(values.shape, np.float32)
        mean, scale = np.array(self.mean), np.array(self.scale)
        for start in range(0, len(values), BLOCK):
            scaled[start : start + BLOCK] = (values[start : start + BLOCK] - mean) / scale
        return scaled


@dataclass(frozen=True)
class ImagePreparation:
    """Images of one size, uint8; the encoder scales them to [0, 1]."""

    name: ClassVar[str] = "images"
    kind: ClassVar[Kind] = "images"
    channels: Literal[1, 3]
    height: int
    width: int
    fit: Fit = "stretch"

    def __post_init__(self) -> None:
        require(self.channels in (1, 3), "channels", self.channels)
        require(is_count(self.height), "height", self.height)
        require(is_count(self.width), "width", self.width)
        require(self.fit in ("stretch", "crop", "pad"), "fit", self.fit)

    @classmethod
    def of(cls, rows: Rows, fit: Fit = "stretch") -> ImagePreparation:
        if isinstance(rows.values, list) or rows.kind != "images":
            raise DataError(f"{rows.source} holds {rows.kind}, not images")
        channels, height, width = rows.values.shape[1:]
        return cls(channels, height, width, fit)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.channels, self.height, self.width)

    def __call__(self, rows: Rows) -> Tensor:
        if isinstance(rows.values, list) or rows.kind != "images":
            raise DataError(f"{rows.source} holds {rows.kind}, but the model was trained on images")
        if tuple(rows.values.shape[1:]) != self.input_shape:
            raise DataError(
                f"{rows.source} has images of (channels, height, width) {tuple(rows.values.shape[1:])}, but the model "
                f"was trained on {self.input_shape}: resize them, or give them as files"
            )
        return torch.from_numpy(rows.values if rows.values.flags.writeable else rows.values.copy())


@dataclass(frozen=True)
class WordPreparation:
    """A bag of words; rows stay sparse until the encoder."""

    name: ClassVar[str] = "words"
    kind: ClassVar[Kind] = "text"
    vocabulary: tuple[str, ...]
    idf: tuple[float, ...] | None = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        strings = isinstance(self.vocabulary, tuple) and all(isinstance(word, str) for word in self.vocabulary)
        require(strings and len(set(self.vocabulary)) == len(self.vocabulary) > 0, "vocabulary", self.vocabulary)
        require(self.idf is None or len(self.idf) == len(self.vocabulary), "idf", self.idf)

    @cached_property
    def words(self) -> Words:
        return Words(self.vocabulary, self.idf)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (len(self.vocabulary),)

    def __call__(self, rows: Rows) -> SparseRows:
        if rows.kind != "text":
            raise DataError(f"{rows.source} holds {rows.kind}, but the model was trained on text")
        prepared = self.words(rows)
        # TF-IDF rows have length one, too little for a first layer that expects numbers of about one.
        return SparseRows(prepared if self.idf is None else prepared * np.float32(np.sqrt(len(self.vocabulary))))


@dataclass(frozen=True)
class EmbeddingPreparation:
    """Sentence embeddings by a model that the text extra loads, cached on disk."""

    name: ClassVar[str] = "embeddings"
    kind: ClassVar[Kind] = "text"
    model: str
    fingerprint: str
    width: int
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(isinstance(self.model, str) and self.model != "", "model", self.model)
        require(isinstance(self.fingerprint, str), "fingerprint", self.fingerprint)
        require(is_count(self.width), "width", self.width)

    @classmethod
    def of(cls, rows: Rows, model: str) -> EmbeddingPreparation:
        embedder = SentenceEmbedder(model)
        return cls(str(model), embedder.fingerprint, embedder.width, rows.columns)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.width,)

    def __call__(self, rows: Rows) -> Tensor:
        texts = texts_of(rows)
        embedder = SentenceEmbedder(self.model)
        if embedder.fingerprint != self.fingerprint:
            raise DataError(
                f"the embedding model {self.model!r} is not the one that was used in training: its content differs "
                f"({embedder.fingerprint[:12]}, not {self.fingerprint[:12]})"
            )
        return torch.from_numpy(embedder.embed(texts) * np.float32(np.sqrt(self.width)))


def require(holds: bool, name: str, value: object) -> None:
    """A description that was read from a file may hold anything."""
    if not holds:
        raise DataError(
            f"{name}={reprlib.repr(value)} cannot be right: the description of how rows are prepared is damaged"
        )


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


PREPARATIONS: dict[str, type[Any]] = {
    cls.name: cls for cls in (VectorPreparation, ImagePreparation, WordPreparation, EmbeddingPreparation)
}


def fit_preparation(
    rows: Rows,
    *,
    scaling: Scaling = "auto",
    text: TextAs = "tfidf",
    rules: WordRules | None = None,
    embedding_model: str | None = None,
    fit: Fit = "stretch",
) -> tuple[Preparation, Rows]:
    """How to prepare rows like these, and the rows that are kept (bags of words may leave some out).

    Text becomes TF-IDF, word counts, or sentence embeddings of ``embedding_model`` (a folder or a name).
    """
    if rows.kind == "vectors":
        return VectorPreparation.fit(rows, scaling), rows
    if rows.kind == "images":
        return ImagePreparation.of(rows, fit), rows
    if text == "embeddings":
        if embedding_model is None:
            raise ValueError(
                "text='embeddings' needs embedding_model: a folder with a sentence-transformers model, or a name"
            )
        return EmbeddingPreparation.of(rows, embedding_model), rows
    if text not in ("tfidf", "counts"):
        raise ValueError(f"text={text!r}: choose 'tfidf', 'counts' or 'embeddings'")
    weighting: Weighting = text
    words, kept = find_words(rows, rules or USUAL_RULES, weighting)
    return WordPreparation(words.vocabulary, words.idf, rows.columns), kept


def describe_preparation(preparation: Preparation) -> dict[str, Any]:
    """As JSON can hold it: for ``save_model(..., input=...)``."""
    return {"preparation": preparation.name, **asdict(preparation)}  # type: ignore[call-overload]


def preparation_from(description: dict[str, Any]) -> Preparation:
    """What :func:`describe_preparation` described; anything else is an error."""
    settings = dict(description)
    name = settings.pop("preparation", None)
    if not isinstance(name, str) or name not in PREPARATIONS:
        raise DataError(f"the model file does not say how its rows were prepared (preparation={name!r})")
    cls = PREPARATIONS[name]
    known = {field.name for field in fields(cls)}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise DataError(
            f"unknown settings {unknown} of preparation {name!r}: the file was written by a newer metaclust"
        )
    frozen = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    try:
        preparation: Preparation = cls(**frozen)
    except TypeError as error:
        raise DataError(f"the description of preparation {name!r} is incomplete: {error}") from error
    return preparation
