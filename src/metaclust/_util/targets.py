"""Checks of what is to be written, before the work whose result it is: may it, can it, and does it fit?"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

SPARE = 2**24
"""Bytes that must be free beyond what is written, for file systems need some of their own."""


def check_file(target: Path, force: bool, inputs: Iterable[Path] = ()) -> None:
    """Raise an error if a file cannot be written, or exists and may not be overwritten.

    Parameters
    ----------
    target : path
        The file to write.
    force : bool
        Whether it may be overwritten.
    inputs : iterable of path
        What is read, which is never overwritten.
    """
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: give the path of a file")
    for path in inputs:
        if same(target, path):
            raise ValueError(f"{target} is read as {path}, and would be overwritten: choose another path")
    if os.path.lexists(target) and not force:
        raise FileExistsError(f"{target} already exists: choose another path, or pass force=True (--force)")
    if target.exists() and not target.is_file():
        raise OSError(f"{target} is a device or a pipe: give the path of a file")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(f"{target} is read-only: make it writable or choose another path")
    check_folder(target.parent, target)


def check_folder(folder: Path, target: Path) -> None:
    """Raise an error unless files for ``target`` can be made in a folder, which is tried."""
    if not folder.is_dir():
        raise FileNotFoundError(f"cannot write {target}: the folder {folder} does not exist; create it first")
    try:
        Path(tempfile.mkdtemp(dir=folder, prefix=".metaclust-probe.")).rmdir()
    except OSError as error:
        raise PermissionError(
            f"cannot write {target}: the folder {folder} does not let files be made ({error.strerror or error}); "
            "choose another"
        ) from error


def check_new_folder(folder: Path) -> None:
    """Raise an error unless a folder, which need not exist, can be made and written."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise NotADirectoryError(f"cannot write to the folder {folder}: {place} is a file; choose another")
    check_folder(place, folder)


def check_space(folder: Path, size: int, what: str) -> None:
    """Raise an error if less than ``size`` bytes, and some to spare, are free where ``folder`` is."""
    free = shutil.disk_usage(folder).free
    if free < size + SPARE:
        raise OSError(
            f"{what} in {folder} needs about {(size + SPARE) / 1e6:,.0f} MB, but {free / 1e6:,.0f} MB are free: make "
            "room or choose another folder"
        )


def same(one: Path, other: Path) -> bool:
    """Return whether two paths lead to the same file, now or once it is written."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
