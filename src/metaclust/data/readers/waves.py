"""Sound files as samples: plain .wav by the standard library, all other .wav and .flac by soundfile."""

from __future__ import annotations

import wave
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metaclust.data.files import read_whole
from metaclust.data.rows import DataError, reason_of

EXTENSIONS = (".wav", ".flac")
MOST_SAMPLES = 30_000_000
"""The most samples of all channels of a sound that is read; a small .flac can claim far more than memory holds."""
MOST_SECONDS = 900
RATES = (1_000, 768_000)
"""The lowest and the highest number of samples a second."""


@dataclass(frozen=True)
class Sound:
    """Samples of one channel, from -1 to 1, and how many there are a second."""

    samples: NDArray[np.float32]
    rate: int


def read_sound(path: Path, name: str = "") -> Sound:
    """Return a sound, the mean of its channels. Whatever cannot be read is a DataError; ``name`` is what it says."""
    name = name or str(path)
    content = read_whole(path, name=name)
    if not content:
        raise DataError(f"{name}: it is empty (0 bytes); copy it again, or take it out")
    sound = plain_wave(content, name) if content[:4] == b"RIFF" else None
    sound = by_soundfile(content, name) if sound is None else sound
    if not len(sound.samples):
        raise DataError(f"{name}: it holds no sound (0 samples); take it out")
    if not np.isfinite(sound.samples).all():
        raise DataError(f"{name}: it holds samples that are NaN or infinite; convert it again, or take it out")
    return sound


def plain_wave(content: bytes, name: str) -> Sound | None:
    """Return the sound of a .wav of whole numbers; None for one that the standard library does not read."""
    try:
        with wave.open(BytesIO(content)) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            # A file that is cut short holds fewer frames than it says.
            check_size(name, min(file.getnframes(), len(content)), channels, rate)
            packed = file.readframes(file.getnframes())
    except (DataError, MemoryError):
        raise
    # Damaged files also raise errors that the library does not document; libsndfile then says what is wrong.
    except Exception:
        return None
    frames = len(packed) // (channels * width)
    if width not in (1, 2, 3, 4):
        return None
    whole = np.frombuffer(packed, np.uint8, frames * channels * width).reshape(frames, channels, width)
    return Sound(unpacked(whole).mean(1, dtype=np.float32), rate)


def unpacked(packed: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return (frames, channels) from -1 to 1 of little-endian numbers of 1 to 4 bytes; those of 1 are unsigned."""
    width = packed.shape[2]
    if width == 1:
        return (packed[:, :, 0].astype(np.float32) - np.float32(128)) / np.float32(128)
    # Moved up to 32 bits: the sign then has its place.
    wide = np.zeros((*packed.shape[:2], 4), np.uint8)
    wide[:, :, 4 - width :] = packed
    samples: NDArray[np.float32] = wide.view("<i4")[:, :, 0].astype(np.float32) / np.float32(2**31)
    return samples


def by_soundfile(content: bytes, name: str) -> Sound:
    try:
        import soundfile
    except ImportError as error:
        raise ImportError(
            f"{name}: .flac, and .wav other than of whole numbers, need a package that is not installed ({error}): "
            "pip install 'metaclust[sound]'"
        ) from error
    try:
        with soundfile.SoundFile(BytesIO(content)) as file:
            check_size(name, file.frames, file.channels, file.samplerate)
            samples = file.read(dtype="float32", always_2d=True)
            return Sound(samples.mean(1, dtype=np.float32), int(file.samplerate))
    except (DataError, MemoryError):
        raise
    # libsndfile fails on damaged files with several kinds of error.
    except Exception as error:
        raise DataError(
            f"{name}: it is no .wav or .flac, cut short or damaged ({reason_of(error)}); copy it again, or take it out"
        ) from error


def check_size(name: str, frames: int, channels: int, rate: int) -> None:
    """Raise DataError for a sound that is too long, or has a rate that no sound has."""
    if not RATES[0] <= rate <= RATES[1]:
        raise DataError(f"{name}: it has {rate:,} samples a second, not {RATES[0]:,} to {RATES[1]:,}; convert it")
    if frames * channels > MOST_SAMPLES or frames > MOST_SECONDS * rate:
        raise DataError(
            f"{name}: it has {frames:,} samples in {channels} channels ({frames / rate:,.0f} s), more than the limit "
            f"of {MOST_SAMPLES:,} samples and {MOST_SECONDS:,} s; cut it into pieces, or take it out"
        )
