"""Sounds: spectrograms as images of one size, and as embeddings of an image model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from metaclust._util.checks import is_count
from metaclust.data.kinds import Kind
from metaclust.data.preparation.base import Options, require, short_repr, values_of
from metaclust.data.preparation.image_embeddings import ImageModelPreparation, chosen_model
from metaclust.data.readers.sounds import FRAMES_A_SECOND
from metaclust.data.readers.spectrogram import BANDS
from metaclust.data.rows import Original, Rows

TYPICAL = 0.9
"""The share of the training sounds that are not cut."""
LEAST_FRAMES, MOST_FRAMES = 16, 3_000
COLUMNS = 64
"""The most columns of a picture of a spectrogram: frames are averaged to that."""


def spectrograms_of(rows: Rows) -> list[NDArray[np.uint8]]:
    """Return the spectrograms of sounds."""
    return [np.asarray(each) for each in cast("list[NDArray[np.uint8]]", rows.values)]


def typical_frames(rows: Rows) -> int:
    """Return the length to which sounds like these are cut or padded."""
    lengths = [spectrogram.shape[1] for spectrogram in spectrograms_of(rows)]
    return int(np.clip(np.quantile(lengths, TYPICAL, method="inverted_cdf"), LEAST_FRAMES, MOST_FRAMES))


def pictures_of(rows: Rows, frames: int) -> NDArray[np.uint8]:
    """Return spectrograms as images (rows, 1, bands, columns): the lowest band below, silence around short ones."""
    columns = min(frames, COLUMNS)
    pictures = np.empty((len(rows), 1, BANDS, columns), np.uint8)
    for picture, spectrogram in zip(pictures, spectrograms_of(rows), strict=True):
        whole = of_length(spectrogram[::-1], frames)
        picture[0] = np.asarray(Image.fromarray(whole).resize((columns, BANDS), Image.Resampling.BOX))
    return pictures


def of_length(spectrogram: NDArray[np.uint8], frames: int) -> NDArray[np.uint8]:
    """Return the middle of a long spectrogram, or a short one in the middle of silence."""
    spare = frames - spectrogram.shape[1]
    if spare < 0:
        return np.ascontiguousarray(spectrogram[:, -spare // 2 :][:, :frames])
    return np.pad(spectrogram, ((0, 0), (spare // 2, spare - spare // 2)))


def length_note(frames: int) -> str:
    return f"Sounds are cut or padded to {frames / FRAMES_A_SECOND:.2f} s, the length of {TYPICAL:.0%} of them at most."


@dataclass(frozen=True)
class SpectrogramPreparation:
    """Log-mel spectrograms as grey images of one size, uint8; the encoder scales them to [0, 1]."""

    name: ClassVar[str] = "spectrograms"
    kind: ClassVar[Kind] = "sounds"
    frames: int
    """The length to which sounds are cut or padded, in hundredths of a second."""

    __repr__ = short_repr

    def __post_init__(self) -> None:
        require(is_count(self.frames) and self.frames <= MOST_FRAMES, "frames", self.frames)

    @classmethod
    def from_rows(cls, rows: Rows, options: Options) -> tuple[SpectrogramPreparation, Rows]:
        """Return how to prepare rows like these, and the rows."""
        values_of(rows, cls.kind)
        frames = typical_frames(rows)
        return cls(frames), replace(rows, notes=(*rows.notes, length_note(frames)))

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (1, BANDS, min(self.frames, COLUMNS))

    def reading(self) -> dict[str, Any]:
        return {}

    def __call__(self, rows: Rows) -> Tensor:
        values_of(rows, self.kind)
        return torch.from_numpy(pictures_of(rows, self.frames))


@dataclass(frozen=True)
class SoundEmbeddingPreparation(ImageModelPreparation):
    """Embeddings of spectrograms by an image model."""

    name: ClassVar[str] = "sound-embeddings"
    kind: ClassVar[Kind] = "sounds"
    frames: int = 100

    __repr__ = short_repr

    def __post_init__(self) -> None:
        super().__post_init__()
        require(is_count(self.frames) and self.frames <= MOST_FRAMES, "frames", self.frames)

    @classmethod
    def from_rows(cls, rows: Rows, options: Options) -> tuple[SoundEmbeddingPreparation, Rows]:
        """Return how to prepare rows like these, and the rows."""
        values_of(rows, cls.kind)
        found, note = chosen_model(rows, options, "sounds")
        frames = typical_frames(rows)
        return cls(**found, frames=frames), replace(rows, notes=(*rows.notes, f"{length_note(frames)} {note}"))

    def reading(self) -> dict[str, Any]:
        return {}

    def pictures(self, rows: Rows) -> list[Original]:
        return list(pictures_of(rows, self.frames))
