"""Images in: files decoded by all cores into one array, and a folder of them to rows with categories."""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from operator import length_hint
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metaclust._util.progress import Waiting
from metaclust.data.readers.decoding import (
    MAX_PIXELS,
    USUAL_SIDE,
    Channels,
    Fit,
    ImageFormat,
    OnError,
    check_form,
    decode,
    is_count,
    look_at_images,
    without_remarks,
)
from metaclust.data.rows import DataError, DataWarning, Rows, listed

EXTENSIONS = (".png", ".jpg", ".jpeg", ".jpe", ".webp", ".gif", ".bmp")
NOT_DATA = ("__MACOSX", "Thumbs.db")


def decode_many(
    sources: Sequence[Path | bytes],
    names: Sequence[str],
    height: int,
    width: int,
    channels: Channels,
    *,
    fit: Fit = "stretch",
    on_error: OnError = "raise",
    max_pixels: int = MAX_PIXELS,
    progress: bool = True,
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Images as bytes (images, channels, height, width), and for each source whether it was kept.

    One that cannot be read raises DataError (the first by order), or with ``on_error="skip"`` is left out with a
    warning. They are decoded by all cores, straight into the array.
    """
    form = ImageFormat(height, width, channels)
    check_form(form, fit, on_error, max_pixels)
    if len(names) != len(sources):
        raise ValueError(f"names: {len(names)} names for {len(sources)} sources; give one for each")
    array = np.empty((len(sources), channels, height, width), np.uint8)
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
                array[row] = decode(sources[row], form, fit, max_pixels, names[row])
            except DataError as error:
                # The message alone: the error itself holds on to the image.
                broken[row] = str(error)
                if on_error == "raise":
                    stop.set()
            except BaseException:
                stop.set()
                raise

    threads = max(1, min(os.cpu_count() or 1, len(sources)))
    with (
        without_remarks(),
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
    if not broken:
        return array, np.ones(len(sources), np.bool_)
    messages = [broken[row] for row in sorted(broken)]
    if on_error == "raise":
        raise DataError(f"{messages[0]}. on_error='skip' leaves out what cannot be read")
    if len(broken) == len(sources):
        raise DataError(f"none of the {len(sources):,} images can be read; the first: {messages[0]}")
    more = f"; and {len(messages) - 3:,} more" if len(messages) > 3 else ""
    what = f"left out {len(messages):,} of {len(sources):,} images, which cannot be read: "
    warnings.warn(what + "; ".join(messages[:3]) + more, DataWarning, stacklevel=2)
    return _compacted(array, broken)


def _compacted(array: NDArray[np.uint8], broken: Collection[int]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The rows that are not broken, moved together within the same memory, and which those are."""
    kept = np.ones(len(array), np.bool_)
    kept[list(broken)] = False
    rows = np.flatnonzero(kept)
    for new, old in enumerate(rows):
        if new != old:
            array[new] = array[old]
    return array[: len(rows)], kept


def read_image_files(
    paths: Sequence[Path],
    ids: Sequence[str],
    labels: Sequence[str] | None,
    height: int,
    width: int,
    channels: Channels,
    *,
    fit: Fit = "stretch",
    on_error: OnError = "raise",
    max_pixels: int = MAX_PIXELS,
    progress: bool = True,
    source: str = "the images",
    notes: Sequence[str] = (),
) -> Rows:
    """Rows of images from files with known ids and labels; what cannot be read is raised or left out."""
    for argument, given in (("ids", ids), ("labels", labels)):
        if given is not None and len(given) != len(paths):
            raise ValueError(f"{argument}: {len(given)} of them for {len(paths)} paths; give one for each")
    values, kept = decode_many(
        paths,
        [str(path) for path in paths],
        height,
        width,
        channels,
        fit=fit,
        on_error=on_error,
        max_pixels=max_pixels,
        progress=progress,
    )
    left_out = len(paths) - len(values)
    return Rows(
        "images",
        values,
        [name for name, keep in zip(ids, kept, strict=True) if keep],
        None if labels is None else [label for label, keep in zip(labels, kept, strict=True) if keep],
        source=source,
        notes=(*notes, *([f"left out {left_out:,} files that cannot be read"] if left_out else [])),
    )


def read_image_folder(
    folder: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    channels: Channels | None = None,
    fit: Fit = "stretch",
    on_error: OnError = "raise",
    max_pixels: int = MAX_PIXELS,
    progress: bool = True,
) -> Rows:
    """Rows of images from a folder: each folder in it that holds images is a category, named by its path.

    Images that lie directly in the folder have no categories. ``size`` is the side of a square or (height, width);
    what is not given is found by look_at_images. The ids are the paths within the folder, in order.
    """
    folder = Path(folder)
    asked = (size, size) if isinstance(size, int) else size
    if asked is not None and not (isinstance(asked, tuple) and len(asked) == 2 and all(map(is_count, asked))):
        raise ValueError(f"size={size!r}: give the pixels of a side, as 84, or (height, width), each 1 or more")
    form = ImageFormat(*(asked or (USUAL_SIDE, USUAL_SIDE)), 3 if channels is None else channels)
    check_form(form, fit, on_error, max_pixels)
    found = _find_images(folder)
    ids, paths = [name for name, _ in found.images], [path for _, path in found.images]
    if asked is None or channels is None:
        seen = look_at_images(paths, max_pixels=max_pixels)
        form = ImageFormat(*(asked or seen[:2]), channels or seen.channels)
    notes = [
        f"{form.height}x{form.width} pixels ({'detected' if asked is None else 'set'})",
        f"{'grey' if form.channels == 1 else 'colour'} ({'detected' if channels is None else 'set'})",
    ]
    if found.other:
        kinds = ", ".join(f"{count:,} {extension}" for extension, count in sorted(found.other.items()))
        notes.append(f"left out {found.other.total():,} files that are not images: {kinds}")
    if found.empty:
        notes.append(f"left out category folders without images: {listed(found.empty)}")
        warnings.warn(f"{folder}: {notes[-1]}", DataWarning, stacklevel=2)
    rows = read_image_files(
        paths,
        ids,
        [name.rpartition("/")[0] for name in ids] if found.nested else None,
        *form,
        fit=fit,
        on_error=on_error,
        max_pixels=max_pixels,
        progress=progress,
        source=str(folder),
        notes=notes,
    )
    last = "no categories: the images lie directly in the folder"
    if rows.labels is not None:
        last = f"{len(set(rows.labels)):,} categories, one for each folder of images"
    return replace(rows, notes=(*rows.notes, last))


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


def _find_images(folder: Path) -> _Found:
    if not folder.exists():
        raise FileNotFoundError(f"folder={str(folder)!r}: there is no such folder; check the path")
    if not folder.is_dir():
        raise DataError(f"folder={str(folder)!r} is a file: give the folder that holds the images")
    found = _Found()
    _search(folder, "", frozenset({folder.resolve()}), found)
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


def _search(folder: Path, prefix: str, above: frozenset[Path], found: _Found) -> bool:
    """Whether there are images in a folder or below it; they are added to ``found``.

    ``prefix`` is the path to the folder, for the ids; ``above`` are the folder and those it lies in.
    """
    try:
        with os.scandir(folder) as entries:
            inside = sorted((entry.name, entry.is_dir()) for entry in entries)
    except OSError as error:
        raise DataError(f"{folder} cannot be listed ({error}): make it readable, or take it out") from error
    any_images = False
    for name, is_folder in inside:
        if name.startswith(".") or name in NOT_DATA:
            continue
        # Names need not be text on every system; ids are.
        path = prefix + os.fsencode(name).decode("utf-8", "backslashreplace")
        if is_folder:
            place, empty_before = (folder / name).resolve(), len(found.empty)
            # A link to a folder above would go round for ever, and holds nothing new.
            if place in above:
                continue
            if _search(folder / name, path + "/", above | {place}, found):
                any_images = True
            else:
                found.empty[empty_before:] = [path]
        elif (extension := Path(name).suffix.lower()) in EXTENSIONS:
            any_images = True
            found.images.append((path, folder / name))
        else:
            found.other[extension or "without extension"] += 1
    return any_images
