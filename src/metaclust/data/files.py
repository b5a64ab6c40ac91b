"""How files of data are opened and read: regular files only, whole, and within a limit of bytes."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from metaclust._util import files
from metaclust._util.checks import check_count
from metaclust.data.memory import memory_size
from metaclust.data.rows import DataError

MAX_RATIO = 200
"""How many times larger than its file data may be, unless ``max_bytes`` is given; tables compress 3 to 30 times."""
FLOOR = 2**28
"""Up to this many bytes no ratio is suspicious."""
UNKNOWN_MEMORY = 2**32
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
    remedy : str
        What the error advises.
    """

    max_bytes: int | None = None
    remedy: str = "If you trust it, raise the limit with max_bytes= (--max-bytes)"

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
            raise DataError(f"{name} holds {size:,} bytes of data or more, above {why} ({most:,}). {self.remedy}")


DEFAULT_LIMIT = Limit()


def half_of_memory() -> int:
    size = memory_size()
    return UNKNOWN_MEMORY if size is None else size // 2


def open_regular(path: Path, name: str | None = None) -> io.BufferedReader:
    """Open a file for reading; DataError unless it is a regular one. ``name`` is what errors call it."""
    name = path.name if name is None else name
    try:
        return files.open_regular(path)
    except files.NotRegularError as error:
        raise DataError(f"{name}: {error}; give a regular file, or take it out") from error
    except OSError as error:
        raise DataError(f"{name}: it cannot be opened ({error.strerror}); make it readable, or take it out") from error


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
