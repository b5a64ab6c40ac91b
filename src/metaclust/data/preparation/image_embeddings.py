"""Image embeddings: a unit vector for each image, by an image model, computed once and cached."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar, get_args

import torch
from torch import Tensor

from metaclust._util.checks import is_count
from metaclust.data.kinds import Kind
from metaclust.data.preparation.base import Options, require, short_repr, values_of
from metaclust.data.preparation.image_embedder import ImageEmbedder
from metaclust.data.preparation.model_folder import NamedByFile
from metaclust.data.preparation.pixels import ImageScaling, originals
from metaclust.data.readers.decoding import Fit
from metaclust.data.rows import DataError, Original, Rows

Own = TypeVar("Own", bound="ImageModelPreparation")


@dataclass(frozen=True)
class ImageModelPreparation:
    """What preparations by an image model share; each says what pictures of its rows are."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    model: str
    fingerprint: str
    width: int
    scaling: ImageScaling = field(default="auto", repr=False)
    fit: Fit = field(default="stretch", repr=False)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        require(isinstance(self.model, str) and self.model != "", "model", self.model)
        require(isinstance(self.fingerprint, str), "fingerprint", self.fingerprint)
        require(is_count(self.width), "width", self.width)
        require(self.scaling in get_args(ImageScaling), "scaling", self.scaling)
        require(self.fit in get_args(Fit), "fit", self.fit)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.width,)

    def pictures(self, rows: Rows) -> list[Original]:
        """Return what the model is given of each row."""
        raise NotImplementedError

    def __call__(self, rows: Rows) -> Tensor:
        values_of(rows, self.kind)
        # In training it was downloaded, if need be; later it may be a stranger's file that names it.
        embedder = ImageEmbedder(NamedByFile(self.model), scaling=self.scaling, fit=self.fit)
        self._check(self.model, embedder.fingerprint)
        return torch.from_numpy(embedder.embed(self.pictures(rows)))

    def with_model(self: Own, model: str | os.PathLike[str]) -> Own:
        """Return the same preparation with another name or place of its model, which is downloaded if need be."""
        self._check(model, ImageEmbedder(model, scaling=self.scaling, fit=self.fit).fingerprint)
        return replace(self, model=str(model))

    def _check(self, model: str | os.PathLike[str], fingerprint: str) -> None:
        if fingerprint != self.fingerprint:
            raise DataError(
                f"the image model {str(model)!r} is not the one that was used in training: its content differs "
                f"({fingerprint[:12]}, not {self.fingerprint[:12]})"
            )


def chosen_model(rows: Rows, options: Options, argument: str) -> tuple[dict[str, Any], str]:
    """Return the fields of a preparation by the image model that the options name, and what to say of it."""
    if options.image_model is None:
        raise ValueError(
            f"{argument}='embeddings' needs image_model: the folder of a vision model that transformers loads, its "
            "name, or an .onnx file"
        )
    embedder = ImageEmbedder(options.image_model, scaling=options.image_scaling, fit=options.fit)
    model = str(options.image_model)
    note = f"Images are given to the image model {embedder.place.name!r} {embedder.about}: {embedder.width:,} columns."
    fields = {"model": model, "fingerprint": embedder.fingerprint, "width": embedder.width}
    return {**fields, "scaling": options.image_scaling, "fit": options.fit}, note


@dataclass(frozen=True)
class ImageEmbeddingPreparation(ImageModelPreparation):
    """Image embeddings by a model that the vision extra loads, cached on disk."""

    name: ClassVar[str] = "image-embeddings"
    kind: ClassVar[Kind] = "images"
    shown: tuple[int, int, int] = field(default=(3, 64, 64), repr=False)
    """Channels, height and width of the pictures that are kept of later images, for reports."""

    __repr__ = short_repr

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = self.shown
        right = isinstance(sizes, tuple) and len(sizes) == 3 and all(map(is_count, sizes)) and sizes[0] in (1, 3)
        require(right, "shown", sizes)

    @classmethod
    def from_rows(cls, rows: Rows, options: Options) -> tuple[ImageEmbeddingPreparation, Rows]:
        """Return how to prepare rows like these, and the rows."""
        channels, height, width = values_of(rows, cls.kind).shape[1:]
        found, note = chosen_model(rows, options, "images")
        return cls(**found, shown=(channels, height, width)), replace(rows, notes=(*rows.notes, note))

    def reading(self) -> dict[str, Any]:
        channels, height, width = self.shown
        return {"size": (height, width), "channels": channels, "fit": self.fit}

    def pictures(self, rows: Rows) -> list[Original]:
        return originals(rows)
