"""Rows of sounds: the files of a folder as spectrograms, with their categories."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metaclust._util.progress import Waiting
from metaclust.data.files import DEFAULT_LIMIT, Limit
from metaclust.data.readers.decoding import OnError
from metaclust.data.readers.folders import UnreadableFileError, find_files
from metaclust.data.readers.spectrogram import HOP, RATE, log_mel
from metaclust.data.readers.waves import read_sound
from metaclust.data.rows import DataError, DataWarning, Rows

FRAMES_A_SECOND = RATE / HOP


def read_sound_folder(
    folder: str | os.PathLike[str],
    *,
    on_error: OnError = "raise",
    limit: Limit = DEFAULT_LIMIT,
    progress: bool = True,
) -> Rows:
    """Return the sounds of a folder as spectrograms: each folder in it that holds sounds is a category.

    Sounds that lie directly in the folder have no categories. The ids are the paths within the folder, in order.
    """
    folder = Path(folder)
    found = find_files(folder, "sounds")
    notes = found.notes(folder)
    read = spectrograms([path for _, path in found.files], on_error, limit, str(folder), progress)
    kept = [i for i, spectrogram in enumerate(read) if spectrogram is not None]
    ids = [found.files[i][0] for i in kept]
    values = [spectrogram for spectrogram in read if spectrogram is not None]
    if left_out := len(read) - len(kept):
        notes.append(f"left out {left_out:,} files that cannot be read")
    shortest, middle, longest = np.quantile([s.shape[1] for s in values], [0, 0.5, 1]) / FRAMES_A_SECOND
    labels, words = found.categories(ids)
    lengths = f"{shortest:.2f} to {longest:.2f} s, half of them up to {middle:.2f} s"
    return Rows("sounds", values, ids, labels, source=str(folder), notes=(lengths, *notes, words))


def spectrograms(
    paths: Sequence[Path], on_error: OnError, limit: Limit, source: str, progress: bool = True
) -> list[NDArray[np.uint8] | None]:
    """Return the spectrogram of each file, by all cores; None for those that cannot be read and are left out."""
    read: list[NDArray[np.uint8] | None] = []
    broken: list[str] = []
    size = 0

    def work(path: Path) -> NDArray[np.uint8] | str:
        try:
            return log_mel(read_sound(path))
        except DataError as error:
            # Only the message: the error itself holds on to the samples.
            return str(error)

    with (
        Waiting("reading sounds", len(paths), enabled=progress) as bar,
        ThreadPoolExecutor(max(1, min(os.cpu_count() or 1, len(paths)))) as pool,
        ExitStack() as stack,
    ):
        # By order, so that the first broken one is always found; after an error or an interrupt no other is begun.
        stack.callback(pool.shutdown, cancel_futures=True)
        for one in pool.map(work, paths):
            if isinstance(one, str):
                broken.append(one)
                if on_error == "raise":
                    raise UnreadableFileError(one)
            else:
                size += one.nbytes
                limit.check(source, size)
            read.append(None if isinstance(one, str) else one)
            bar.advance()
    if broken:
        if len(broken) == len(paths):
            raise DataError(f"none of the {len(paths):,} sounds can be read; the first: {broken[0]}")
        more = f"; and {len(broken) - 3:,} more" if len(broken) > 3 else ""
        what = f"left out {len(broken):,} of {len(paths):,} sounds, which cannot be read: {'; '.join(broken[:3])}{more}"
        warnings.warn(what, DataWarning, stacklevel=3)
    return read
