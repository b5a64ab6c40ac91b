"""How files of data are opened and read: regular files only, whole, and within a limit of bytes."""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path

from metaclust._util.checks import check_count
from metaclust.data.rows import DataError

MAX_RATIO = 200
"""How many times larger than its file data may be, unless ``max_bytes`` is given; tables compress 3 to 30 times."""
FLOOR = 2**28
"""Up to this many bytes no ratio is suspicious."""
WITHOUT_SYSCONF = 2**32
"""The limit of bytes where the system does not tell how much memory it has."""
CHUNK = 2**20


@dataclass(frozen=True)
class Limit:
    """How many bytes of data a file may hold, decompressed.

    Parameters
    ----------
    max_bytes : int, optional
        The most bytes, whatever the size of the file. By default half of the memory of this machine, and beyond 256
        MiB at most 200 times the size of the file.
    """

    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.max_bytes is not None:
            check_count("max_bytes", self.max_bytes)

    def check(self, name: str, size: int, packed: int | None = None) -> None:
        """Raise DataError if ``size`` bytes, from a file of ``packed``, are more than may be read."""
        most, why = self.max_bytes, "the limit"
        if most is None:
            most, why = half_of_memory(), "half of the memory of this machine"
            if packed is not None and max(FLOOR, MAX_RATIO * packed) < most:
                most, why = max(FLOOR, MAX_RATIO * packed), f"the limit for a file of {packed:,} bytes"
        if size > most:
            raise DataError(
                f"{name} holds {size:,} bytes of data or more, above {why} ({most:,}). If you trust it, raise the "
                "limit with max_bytes= (--max-bytes)"
            )


DEFAULT_LIMIT = Limit()


def half_of_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return WITHOUT_SYSCONF


def open_regular(path: Path, name: str | None = None) -> io.BufferedReader:
    """Open a file for reading; DataError unless it is a regular one: pipes and devices may block or never end."""
    name = path.name if name is None else name
    try:
        check_regular(path.stat(), name)
        # Another file may have taken its place: opening a pipe must not block.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            check_regular(os.fstat(descriptor), name)
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise DataError(f"{name}: it cannot be opened ({error.strerror}); make it readable, or take it out") from error


def check_regular(status: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a device"
        raise DataError(f"{name}: it is not a file but {what}; give a regular file, or take it out")


def size_of(file: io.BufferedReader) -> int:
    return os.fstat(file.fileno()).st_size


def read_whole(path: Path, limit: Limit = DEFAULT_LIMIT, name: str | None = None) -> bytes:
    """Return the content of a file; ``name`` is what errors call it."""
    name = path.name if name is None else name
    with open_regular(path, name) as file:
        size = size_of(file)
        limit.check(name, size)
        try:
            content = file.read(size)
            changed = len(content) < size or bool(file.read(1))
        except OSError as error:
            raise DataError(f"{name} cannot be read ({error.strerror}): copy it again") from error
    if changed:
        raise DataError(f"{name} changed while it was read: read it again when nothing writes to it")
    return content


def gunzip(content: bytes, name: str, limit: Limit = DEFAULT_LIMIT) -> bytes:
    """Return what a gzip file holds, unless that is more than the limit."""
    out = io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            while chunk := file.read(CHUNK):
                out.write(chunk)
                limit.check(name, out.tell(), len(content))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is not a gzip file, or it is cut short: {error}") from error
    return out.getvalue()
