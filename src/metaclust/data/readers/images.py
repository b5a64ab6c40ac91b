"""Rows of images: files decoded by all cores into one array, and folders of them with their categories."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from operator import length_hint
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metaclust._util.checks import is_count
from metaclust._util.progress import Waiting
from metaclust.data.files import DEFAULT_LIMIT, Limit
from metaclust.data.readers.decoding import (
    MAX_PIXELS,
    USUAL_SIDE,
    Channels,
    Decoding,
    Fit,
    OnError,
    common_format,
    decode,
    without_pillow_warnings,
)
from metaclust.data.readers.folders import UnreadableFileError, find_files
from metaclust.data.rows import DataError, DataWarning, Rows


def decode_many(
    sources: Sequence[Path | bytes], names: Sequence[str], decoding: Decoding, *, progress: bool = True
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return images as bytes (images, channels, height, width), and for each source whether it was kept.

    One that cannot be read raises DataError (the first by order), or with ``on_error="skip"`` is left out with a
    warning. They are decoded by all cores, straight into the array.
    """
    if len(names) != len(sources):
        raise ValueError(f"names: {len(names)} names for {len(sources)} sources; give one for each")
    array = np.empty((len(sources), decoding.channels, decoding.height, decoding.width), np.uint8)
    broken = _decode_into(array, sources, names, decoding, progress)
    if not broken:
        return array, np.ones(len(sources), np.bool_)
    messages = [broken[row] for row in sorted(broken)]
    if decoding.on_error == "raise":
        raise UnreadableFileError(messages[0])
    if len(broken) == len(sources):
        raise DataError(f"none of the {len(sources):,} images can be read; the first: {messages[0]}")
    more = f"; and {len(messages) - 3:,} more" if len(messages) > 3 else ""
    what = f"left out {len(messages):,} of {len(sources):,} images, which cannot be read: "
    warnings.warn(what + "; ".join(messages[:3]) + more, DataWarning, stacklevel=2)
    return _compacted(array, broken)


def _decode_into(
    array: NDArray[np.uint8], sources: Sequence[Path | bytes], names: Sequence[str], decoding: Decoding, progress: bool
) -> dict[int, str]:
    """Decode images by all cores, and return the messages of those that cannot be read, by row."""
    rows, lock, stop = iter(range(len(sources))), threading.Lock(), threading.Event()
    broken: dict[int, str] = {}

    def work() -> None:
        while True:
            # A row that was handed out is decoded whatever happens: so the first broken one is always found.
            with lock:
                row = None if stop.is_set() else next(rows, None)
            if row is None:
                return
            try:
                array[row] = decode(sources[row], decoding, names[row])
            except DataError as error:
                # Only the message: the error itself holds on to the image.
                broken[row] = str(error)
                if decoding.on_error == "raise":
                    stop.set()
            except BaseException:
                stop.set()
                raise

    threads = max(1, min(os.cpu_count() or 1, len(sources)))
    with (
        without_pillow_warnings(),
        Waiting("reading images", len(sources), enabled=progress) as bar,
        ThreadPoolExecutor(threads) as pool,
    ):
        futures = [pool.submit(work) for _ in range(threads)]
        try:
            while wait(futures, timeout=0.2).not_done:
                bar.set(len(sources) - length_hint(rows))
        finally:
            # After an interrupt no thread begins another image.
            stop.set()
    for future in futures:
        future.result()
    return broken


def _compacted(array: NDArray[np.uint8], broken: Collection[int]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the rows that are not broken, moved together within the same memory, and which those are."""
    kept = np.ones(len(array), np.bool_)
    kept[list(broken)] = False
    rows = np.flatnonzero(kept)
    for new, old in enumerate(rows):
        if new != old:
            array[new] = array[old]
    return array[: len(rows)], kept


def read_image_folder(
    folder: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    channels: Channels | None = None,
    fit: Fit = "stretch",
    on_error: OnError = "raise",
    max_pixels: int = MAX_PIXELS,
    limit: Limit = DEFAULT_LIMIT,
    progress: bool = True,
) -> Rows:
    """Return the images of a folder: each folder in it that holds images is a category, named by its path.

    Images that lie directly in the folder have no categories. ``size`` is the side of a square or (height, width);
    size and channels that are not given are found by common_format. The ids are the paths within the folder, in order.
    """
    folder = Path(folder)
    asked = (size, size) if isinstance(size, int) else size
    if asked is not None and not (isinstance(asked, tuple) and len(asked) == 2 and all(map(is_count, asked))):
        raise ValueError(f"size={size!r}: give the pixels of a side, as 84, or (height, width), each 1 or more")
    decoding = Decoding(
        *(asked or (USUAL_SIDE, USUAL_SIDE)), 3 if channels is None else channels, fit, on_error, max_pixels
    )
    found = find_files(folder, "images")
    ids, paths = [name for name, _ in found.files], [path for _, path in found.files]
    if asked is None or channels is None:
        common = common_format(paths, max_pixels=max_pixels)
        height, width = asked or common[:2]
        decoding = replace(decoding, height=height, width=width, channels=channels or common.channels)
    limit.check(str(folder), len(paths) * decoding.channels * decoding.height * decoding.width)
    notes = [
        f"{decoding.height}x{decoding.width} pixels ({'detected' if asked is None else 'set'})",
        f"{'grey' if decoding.channels == 1 else 'colour'} ({'detected' if channels is None else 'set'})",
        *found.notes(folder),
    ]
    values, kept = decode_many(paths, [str(path) for path in paths], decoding, progress=progress)
    if left_out := len(paths) - len(values):
        notes.append(f"left out {left_out:,} files that cannot be read")
    ids = [name for name, keep in zip(ids, kept, strict=True) if keep]
    files = [path for path, keep in zip(paths, kept, strict=True) if keep]
    labels, words = found.categories(ids)
    notes.append(words)
    return Rows("images", values, ids, labels, source=str(folder), notes=tuple(notes), originals=[*files])
