"""Sounds that tests make, and .wav files of them."""

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]


def tone(frequency: float, seconds: float, rate: int = 16_000, end: float | None = None) -> Samples:
    """Return a tone, or a chirp that ends at another frequency."""
    time = np.arange(round(seconds * rate)) / rate
    slope = 0 if end is None else (end - frequency) / (2 * seconds)
    return 0.5 * np.sin(2 * np.pi * (frequency * time + slope * time**2))


def write_wave(path: Path, samples: Samples, rate: int = 16_000, width: int = 2) -> Path:
    """Write (frames,) or (frames, channels) from -1 to 1 as whole numbers of so many bytes."""
    frames = samples.reshape(len(samples), -1)
    whole = np.rint(frames * (2 ** (8 * width - 1) - 1)).astype("<i8")
    packed = (whole + 128 if width == 1 else whole).astype("<i8").view(np.uint8).reshape(*frames.shape, 8)[..., :width]
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(frames.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(packed.tobytes())
    return path


def tone_families(folder: Path, families: range, each: int, seed: int = 0) -> Path:
    """Write a folder for each family: a tone, a chirp up or a chirp down, in a pitch of its own, with noise."""
    generator = np.random.default_rng(seed)
    for family in families:
        low = 250 * 1.22 ** (family // 3)
        for i in range(each):
            start = low * generator.uniform(0.97, 1.03)
            end = start * (1, 2, 0.5)[family % 3]
            sound = tone(start, generator.uniform(0.3, 0.4), end=end) * generator.uniform(0.2, 1)
            noisy = sound + 0.01 * generator.normal(size=len(sound))
            write_wave(folder / f"family {family:02}" / f"{i}.wav", np.clip(noisy, -1, 1))
    return folder
