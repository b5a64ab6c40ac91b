"""Sounds as statistics of their cepstra: a vector for each sound, whatever its length."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.fft import dct
from torch import Tensor

from metaclust.data.kinds import Kind
from metaclust.data.preparation.base import Options, are_numbers, require, short_repr, values_of
from metaclust.data.preparation.sounds import spectrograms_of
from metaclust.data.readers.sounds import FRAMES_A_SECOND
from metaclust.data.readers.spectrogram import RANGE
from metaclust.data.rows import Rows

COEFFICIENTS = 20
PARTS = 3
"""A sound is divided into so many equal parts, each with its means: what comes first and last is then known."""
AUDIBLE = 40
"""Decibels below the loudest moment at which a sound begins and ends."""
WIDTH = COEFFICIENTS * (PARTS + 2) + 1
LARGEST_MOMENT = 1e6


@dataclass(frozen=True)
class SoundStatisticsPreparation:
    """Means, deviations and changes of mel-frequency cepstral coefficients, standardised by the training sounds."""

    name: ClassVar[str] = "sound-statistics"
    kind: ClassVar[Kind] = "sounds"
    mean: tuple[float, ...]
    scale: tuple[float, ...]

    __repr__ = short_repr

    def __post_init__(self) -> None:
        require(are_numbers(self.mean, WIDTH, -LARGEST_MOMENT, LARGEST_MOMENT), "mean", self.mean)
        require(are_numbers(self.scale, WIDTH, 1 / LARGEST_MOMENT, LARGEST_MOMENT), "scale", self.scale)

    @classmethod
    def from_rows(cls, rows: Rows, options: Options) -> tuple[SoundStatisticsPreparation, Rows]:
        """Return how to prepare rows like these, and the rows."""
        values_of(rows, cls.kind)
        values = statistics_of(rows)
        deviation = values.std(0)
        # A column that is constant, but for rounding, stays as it is.
        scale = np.where(deviation > 1e-4, deviation, 1)
        return cls(tuple(values.mean(0).tolist()), tuple(scale.tolist())), rows

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (WIDTH,)

    def reading(self) -> dict[str, Any]:
        return {}

    def __call__(self, rows: Rows) -> Tensor:
        values_of(rows, self.kind)
        scaled = (statistics_of(rows) - np.array(self.mean)) / np.array(self.scale)
        return torch.from_numpy(scaled.astype(np.float32))


def statistics_of(rows: Rows) -> NDArray[np.float64]:
    """Return (rows, :data:`WIDTH`)."""
    return np.stack([statistics(spectrogram) for spectrogram in spectrograms_of(rows)])


def statistics(spectrogram: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the means of the coefficients in each part of a sound, their deviations and their mean changes.

    The last number is the logarithm of the seconds between its audible ends.
    """
    audible = np.flatnonzero(spectrogram.max(0) >= 255 * (1 - AUDIBLE / RANGE))
    heard = spectrogram[:, audible[0] : audible[-1] + 1] if len(audible) else spectrogram
    cepstra = dct(heard.astype(np.float64) * (RANGE / 255), axis=0, norm="ortho")[:COEFFICIENTS]
    frames = cepstra.shape[1]
    ends = np.linspace(0, frames, PARTS + 1)
    # A sound of fewer frames than parts has some of them twice.
    parts = [cepstra[:, int(low) : max(int(np.ceil(high)), int(low) + 1)].mean(1) for low, high in pairwise(ends)]
    changes = np.abs(np.diff(cepstra, axis=1)).mean(1) if frames > 1 else np.zeros(COEFFICIENTS)
    return np.concatenate([*parts, cepstra.std(1), changes, [np.log(frames / FRAMES_A_SECOND)]])
