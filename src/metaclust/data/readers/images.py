"""Rows of images: files decoded by all cores into one array, and folders of them with their categories."""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter, deque
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
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
from metaclust.data.rows import DataError, DataWarning, Rows, listed

EXTENSIONS = (".png", ".jpg", ".jpeg", ".jpe", ".webp", ".gif", ".bmp")
NOT_DATA = ("__MACOSX", "Thumbs.db")


class UnreadableImageError(DataError):
    """An image that cannot be read, where none may be left out."""


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
        raise UnreadableImageError(messages[0])
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
    found = _find_images(folder)
    ids, paths = [name for name, _ in found.images], [path for _, path in found.images]
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
    labels = [name.rpartition("/")[0] for name in ids] if found.nested else None
    if labels is None:
        notes.append("no categories: the images lie directly in the folder")
    else:
        notes.append(f"{len(set(labels)):,} categories, one for each folder of images")
    return Rows("images", values, ids, labels, source=str(folder), notes=tuple(notes), originals=[*files])


@dataclass
class _Found:
    """What lies in a folder and in the folders below it."""

    images: list[tuple[str, Path]] = field(default_factory=list)
    """The path within the folder, with slashes, and the file."""
    other: Counter[str] = field(default_factory=Counter)
    """How many other files there are of each extension."""
    empty: list[str] = field(default_factory=list)
    """The folders with no image in them or below; of those within each other, the outermost."""
    nested: bool = False
    """Whether the images lie in folders of the folder."""

    def notes(self, folder: Path) -> list[str]:
        """Return what to say about other files and empty folders; the latter with a warning."""
        notes = []
        if self.other:
            kinds = ", ".join(f"{count:,} {extension}" for extension, count in sorted(self.other.items()))
            notes.append(f"left out {self.other.total():,} files that are not images: {kinds}")
        if self.empty:
            notes.append(f"left out category folders without images: {listed(self.empty)}")
            warnings.warn(f"{folder}: {notes[-1]}", DataWarning, stacklevel=3)
        return notes


def _find_images(folder: Path) -> _Found:
    if not folder.exists():
        raise FileNotFoundError(f"folder={str(folder)!r}: there is no such folder; check the path")
    if not folder.is_dir():
        raise DataError(f"folder={str(folder)!r} is a file: give the folder that holds the images")
    found = _Found()
    _search(folder, found)
    found.images.sort()
    if not found.images:
        there = f", only {listed(sorted(found.other))}" if found.other else ""
        raise DataError(f"{folder} holds no images{there}: the extensions that are read are {' '.join(EXTENSIONS)}")
    direct = [name for name, _ in found.images if "/" not in name]
    found.nested = not direct
    if direct and len(direct) < len(found.images):
        within = sorted({name.rpartition("/")[0] for name, _ in found.images} - {""})
        raise DataError(
            f"{folder} holds images both directly ({listed(direct, 2)}) and in folders ({listed(within, 2)}): put each "
            f"image into the folder of its category, or all of them directly into the folder for no categories"
        )
    if direct:
        found.empty.clear()
    return found


def _search(folder: Path, found: _Found) -> None:
    """Add the images in a folder and below it to ``found``; every folder is visited once, whatever links to it."""
    # Folders in folders first, then those that links lead to: so a folder has the name of its own place.
    inside, linked = deque([(folder, "")]), deque[tuple[Path, str]]()
    visited: set[Path] = set()
    folders: list[str] = []
    while inside or linked:
        place, prefix = (inside or linked).popleft()
        real = place.resolve()
        if real in visited:
            continue
        visited.add(real)
        folders.append(prefix)
        try:
            with os.scandir(place) as entries:
                listing = sorted((entry.name, entry.is_dir(), entry.is_symlink()) for entry in entries)
        except OSError as error:
            raise DataError(f"{place} cannot be listed ({error}): make it readable, or take it out") from error
        for name, is_folder, is_link in listing:
            if name.startswith(".") or name in NOT_DATA:
                continue
            # Names need not be text on every system; ids are.
            path = prefix + os.fsencode(name).decode("utf-8", "backslashreplace")
            if is_folder:
                (linked if is_link else inside).append((place / name, path + "/"))
            elif (extension := Path(name).suffix.lower()) in EXTENSIONS:
                found.images.append((path, place / name))
            else:
                found.other[extension or "without extension"] += 1
    found.empty = _outermost_empty(folders, found.images)


def _outermost_empty(folders: list[str], images: list[tuple[str, Path]]) -> list[str]:
    """Return the folders with no image in them or below, without those that lie in another one."""
    full = {""}
    for prefix in {name[: name.rfind("/") + 1] for name, _ in images}:
        while prefix not in full:
            full.add(prefix)
            prefix = prefix[: prefix.rfind("/", 0, -1) + 1]
    empty = [prefix for prefix in folders if prefix not in full]
    return sorted(prefix[:-1] for prefix in empty if prefix[: prefix.rfind("/", 0, -1) + 1] in full)
