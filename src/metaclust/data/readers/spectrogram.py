"""Log-mel spectrograms: how much of each band of frequencies a sound has from moment to moment, as bytes.

The power spectrum of windows of 25 ms, every 10 ms, is summed in triangles that are even on the mel scale,
mel(f) = 2595 log10(1 + f / 700), and taken in decibels below the loudest: 255 is the loudest, 0 is ``RANGE`` below.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy import signal

from metaclust.data.readers.waves import Sound

RATE = 16_000
"""Samples a second, to which all sounds are resampled."""
WINDOW, HOP = 400, 160
"""Samples of a window, and between the beginnings of two."""
TRANSFORM = 512
BANDS = 64
LOWEST, HIGHEST = 30.0, 8_000.0
"""Frequencies, in hertz, at which the lowest triangle begins and the highest ends."""
RANGE = 80.0
"""Decibels."""
BLOCK = 4096
"""Windows that are transformed at a time."""


def log_mel(sound: Sound) -> NDArray[np.uint8]:
    """Return the spectrogram of a sound as (bands, frames), the lowest band first."""
    samples = resampled(sound)
    # A sound that is shorter than a window has one frame.
    samples = np.pad(samples, (0, max(0, WINDOW - len(samples))))
    windows = sliding_window_view(samples, WINDOW)[::HOP]
    shape, triangles = signal.get_window("hann", WINDOW).astype(np.float32), mel_triangles()
    power = np.empty((BANDS, len(windows)), np.float32)
    for start in range(0, len(windows), BLOCK):
        spectrum = np.fft.rfft(windows[start : start + BLOCK] * shape, TRANSFORM)
        power[:, start : start + BLOCK] = triangles @ (spectrum.real**2 + spectrum.imag**2).T
    loudest = power.max()
    if loudest <= 0:
        return np.zeros(power.shape, np.uint8)
    decibels = 10 * np.log10(np.maximum(power / loudest, 10 ** (-RANGE / 10)))
    whole: NDArray[np.uint8] = np.rint((decibels + RANGE) * (255 / RANGE)).astype(np.uint8)
    return whole


def resampled(sound: Sound) -> NDArray[np.float32]:
    """Return the samples at :data:`RATE`."""
    if sound.rate == RATE:
        return sound.samples
    # Rates such as 11,027 differ by less than a hair from a ratio of small numbers.
    ratio = Fraction(RATE, sound.rate).limit_denominator(1000)
    found: NDArray[np.float32] = signal.resample_poly(sound.samples, ratio.numerator, ratio.denominator)
    return found.astype(np.float32, copy=False)


@cache
def mel_triangles() -> NDArray[np.float32]:
    """Return (bands, frequencies), the weight of each frequency of the transform in each band."""
    low, high = mel(np.array([LOWEST, HIGHEST])).tolist()
    edges = hertz(np.linspace(low, high, BANDS + 2))
    frequencies = np.fft.rfftfreq(TRANSFORM, 1 / RATE)
    rising = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    weights = np.maximum(0, np.minimum(rising, falling))
    # A triangle between two frequencies of the transform takes the nearest.
    empty = np.flatnonzero(weights.sum(1) == 0)
    weights[empty, np.abs(frequencies - edges[1:-1][empty, None]).argmin(1)] = 1
    return weights.astype(np.float32)


def mel(frequency: NDArray[np.float64]) -> NDArray[np.float64]:
    return 2595 * np.log10(1 + frequency / 700)


def hertz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    return 700 * (10 ** (mels / 2595) - 1)
