"""Images of one size, uint8; the encoder scales them to [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from metaclust._util.checks import is_count
from metaclust.data.kinds import Kind
from metaclust.data.preparation.base import Options, require, short_repr, values_of
from metaclust.data.readers.decoding import Fit
from metaclust.data.rows import DataError, Rows


@dataclass(frozen=True)
class ImagePreparation:
    """Images of one size, uint8; the encoder scales them to [0, 1]."""

    name: ClassVar[str] = "images"
    kind: ClassVar[Kind] = "images"
    channels: Literal[1, 3]
    height: int
    width: int
    fit: Fit = "stretch"

    __repr__ = short_repr

    def __post_init__(self) -> None:
        require(is_count(self.channels) and self.channels in (1, 3), "channels", self.channels)
        require(is_count(self.height), "height", self.height)
        require(is_count(self.width), "width", self.width)
        require(self.fit in ("stretch", "crop", "pad"), "fit", self.fit)

    @classmethod
    def from_rows(cls, rows: Rows, options: Options) -> tuple[ImagePreparation, Rows]:
        """Return how to prepare rows like these, and the rows."""
        channels, height, width = values_of(rows, cls.kind).shape[1:]
        return cls(channels, height, width, options.fit), rows

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.channels, self.height, self.width)

    def reading(self) -> dict[str, Any]:
        return {"size": (self.height, self.width), "channels": self.channels, "fit": self.fit}

    def __call__(self, rows: Rows) -> Tensor:
        pixels = values_of(rows, self.kind)
        if pixels.shape[1:] != self.input_shape:
            raise DataError(
                f"{rows.source} has images of (channels, height, width) {pixels.shape[1:]}, but the model was trained "
                f"on {self.input_shape}: resize them, or pass them as files"
            )
        return torch.from_numpy(pixels if pixels.flags.writeable else pixels.copy())
