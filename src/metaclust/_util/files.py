"""Files that are replaced whole or not at all, written beside the target; and regular files to read."""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

REPLACE_ATTEMPTS = 20 if os.name == "nt" else 1
"""On Windows a file that a program has open cannot be replaced; a virus scanner has new files open for a moment."""
REPLACE_PAUSE = 0.1
"""Seconds between attempts."""


@contextmanager
def replacing(target: str | os.PathLike[str], beside: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Yield a path to write to; on leaving without an error, what was written there becomes ``target``.

    Until then ``target`` is as it was, and so it stays after an error, a full disk or a kill. The unfinished file is in
    the folder ``beside``, on the same file system; by default that of the target.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "notes.txt") as path:
    ...         _ = path.write_text("all of it")
    ...     (Path(folder) / "notes.txt").read_text()
    'all of it'
    """
    target = Path(target)
    folder = Path(tempfile.mkdtemp(dir=target.parent if beside is None else beside, prefix=f".{target.name}."))
    try:
        # A folder of its own, so that the unfinished file has the target's name and ending.
        unfinished = folder / target.name
        unfinished.touch()
        usual = unfinished.stat().st_mode
        yield unfinished
        # Some writers make files private; this one is as readable as any other new file.
        unfinished.chmod(usual)
        # Open for writing: Windows synchronizes no other.
        with unfinished.open("r+b") as written:
            os.fsync(written.fileno())
        move(unfinished, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def move(source: Path, target: Path) -> None:
    """Replace a file by another one; raise PermissionError, which says what to do, if it cannot be replaced."""
    for attempt in range(REPLACE_ATTEMPTS):
        if attempt:
            time.sleep(REPLACE_PAUSE)
        try:
            source.replace(target)
            return
        except PermissionError as error:
            refused = error
    raise PermissionError(
        f"cannot replace {target} ({refused.strerror or refused}): close the programs that have it open, and check "
        "that you may write it"
    ) from refused


def remove_finished(folder: Path, written: str | os.PathLike[str]) -> None:
    """Remove the folder of work that is done; if that fails, only warn: what it was for has been written."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        warnings.warn(
            f"{os.fspath(written)} is written, but {folder} cannot be removed ({error.strerror or error}): remove it",
            stacklevel=2,
        )


def remove_unfinished(target: str | os.PathLike[str]) -> None:
    """Remove what killed processes left of ``target`` beside it; none may be writing it now."""
    target = Path(target)
    unfinished = re.compile(re.escape(f".{target.name}.") + "[a-z0-9_]{8}")
    for folder in target.parent.iterdir():
        named = unfinished.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink()
        if not named:
            continue
        # Another process may remove it at the same time; that of another user is private.
        with suppress(FileNotFoundError, PermissionError):
            # safetensors has an unfinished file of its own, .tmp and some letters.
            if all(path.name == target.name or path.name.startswith(".tmp") for path in folder.iterdir()):
                shutil.rmtree(folder, ignore_errors=True)


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write a text file whole, or leave what was there."""
    with replacing(target) as path:
        path.write_text(text, encoding="utf-8")


class NotRegularError(OSError):
    """A folder, or something that may block or never end: a pipe, a socket, a device."""


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a regular file for reading; raise NotRegularError for anything else, without waiting for it."""
    check_regular(os.stat(path))  # noqa: PTH116 - Path would not take every PathLike
    # Another file may have taken its place: opening a pipe must not block.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        check_regular(os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a device"
        raise NotRegularError(f"it is not a file but {what}")
