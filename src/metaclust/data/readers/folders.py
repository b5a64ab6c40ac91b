"""The files of a folder that hold rows, and the categories that their folders are."""

from __future__ import annotations

import os
import warnings
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

from metaclust.data.kinds import KINDS
from metaclust.data.readers import waves
from metaclust.data.rows import DataError, DataWarning, listed

EXTENSIONS = {"images": (".png", ".jpg", ".jpeg", ".jpe", ".webp", ".gif", ".bmp"), "sounds": waves.EXTENSIONS}
"""By kind: the files that are read."""
NOT_DATA = ("__MACOSX", "Thumbs.db")


class UnreadableFileError(DataError):
    """A file of a folder that cannot be read, where none may be left out."""


@dataclass
class Found:
    """What lies in a folder and in the folders below it."""

    kind: str
    files: list[tuple[str, Path]] = field(default_factory=list)
    """The path within the folder, with slashes, and the file."""
    other: Counter[str] = field(default_factory=Counter)
    """How many other files there are of each extension."""
    empty: list[str] = field(default_factory=list)
    """The folders with none of the files in them or below; of those within each other, the outermost."""
    nested: bool = False
    """Whether the files lie in folders of the folder."""

    def notes(self, folder: Path) -> list[str]:
        """Return what to say about other files and empty folders; the latter with a warning."""
        notes = []
        if self.other:
            kinds = ", ".join(f"{count:,} {extension}" for extension, count in sorted(self.other.items()))
            notes.append(f"left out {self.other.total():,} files that are not {self.kind}: {kinds}")
        if self.empty:
            notes.append(f"left out category folders without {self.kind}: {listed(self.empty)}")
            warnings.warn(f"{folder}: {notes[-1]}", DataWarning, stacklevel=3)
        return notes

    def categories(self, ids: list[str]) -> tuple[list[str] | None, str]:
        """Return the category of each file that is kept, None where there are none, and what to say of them."""
        if not self.nested:
            return None, f"no categories: the {self.kind} lie directly in the folder"
        labels = [name.rpartition("/")[0] for name in ids]
        return labels, f"{len(set(labels)):,} categories, one for each folder of {self.kind}"


def kind_of_folder(folder: Path) -> str:
    """Return what a folder holds, images or sounds; both are an error, and neither is for the reader of images."""
    searched = {kind: Found(kind) for kind in EXTENSIONS}
    for found in searched.values():
        _search(folder, found)
    held = [kind for kind, found in searched.items() if found.files]
    if len(held) > 1:
        each = " and ".join(f"{len(searched[kind].files):,} {kind}" for kind in held)
        raise DataError(f"{folder} holds {each}: choose with kind={held[0]!r} or kind={held[1]!r} (--kind)")
    return held[0] if held else next(iter(EXTENSIONS))


def find_files(folder: Path, kind: str) -> Found:
    """Return the files of a kind; none at all, or some directly and some in folders, are an error."""
    one = KINDS[kind].singular
    if not folder.exists():
        raise FileNotFoundError(f"folder={str(folder)!r}: there is no such folder; check the path")
    if not folder.is_dir():
        raise DataError(f"folder={str(folder)!r} is a file: give the folder that holds the {kind}")
    found = Found(kind)
    _search(folder, found)
    found.files.sort()
    if not found.files:
        there = f", only {listed(sorted(found.other))}" if found.other else ""
        read = " ".join(EXTENSIONS[kind])
        raise DataError(f"{folder} holds no {kind}{there}: the extensions that are read are {read}")
    direct = [name for name, _ in found.files if "/" not in name]
    found.nested = not direct
    if direct and len(direct) < len(found.files):
        within = sorted({name.rpartition("/")[0] for name, _ in found.files} - {""})
        raise DataError(
            f"{folder} holds {kind} both directly ({listed(direct, 2)}) and in folders ({listed(within, 2)}): put each "
            f"{one} into the folder of its category, or all of them directly into the folder for no categories"
        )
    if direct:
        found.empty.clear()
    return found


def _search(folder: Path, found: Found) -> None:
    """Add the files in a folder and below it to ``found``; every folder is visited once, whatever links to it."""
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
            elif (extension := Path(name).suffix.lower()) in EXTENSIONS[found.kind]:
                found.files.append((path, place / name))
            else:
                found.other[extension or "without extension"] += 1
    found.empty = _outermost_empty(folders, found.files)


def _outermost_empty(folders: list[str], files: list[tuple[str, Path]]) -> list[str]:
    """Return the folders with no file in them or below, without those that lie in another one."""
    full = {""}
    for prefix in {name[: name.rfind("/") + 1] for name, _ in files}:
        while prefix not in full:
            full.add(prefix)
            prefix = prefix[: prefix.rfind("/", 0, -1) + 1]
    empty = [prefix for prefix in folders if prefix not in full]
    return sorted(prefix[:-1] for prefix in empty if prefix[: prefix.rfind("/", 0, -1) + 1] in full)
