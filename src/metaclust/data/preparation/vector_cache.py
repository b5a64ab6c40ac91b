"""A cache of vectors on disk, by the hash of what they were computed from."""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import platformdirs
from numpy.typing import NDArray

from metaclust.data.rows import DataWarning

CACHE_VARIABLE = "METACLUST_CACHE"
LOCK_SECONDS = 60.0
"""How long to wait for another process that writes to the same cache."""
# What SQLite returns for a file that it cannot read, or that has other tables; other errors are not the file's.
DAMAGED = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
Found = tuple[int, dict[bytes, NDArray[np.float32]]]
Result = TypeVar("Result")


class VectorCache:
    """Vectors by the hash of their text, in one SQLite file; a file that cannot be used is only a warning.

    The width of the vectors is the file's ``user_version``. Every call opens and closes the file, so that threads and
    processes can share it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def read(self, keys: list[bytes]) -> Found:
        """Return the width, 0 where nothing was written yet, and the vectors found; broken ones are deleted."""

        def work(file: sqlite3.Connection) -> Found:
            file.execute("BEGIN")
            width = max(0, file.execute("PRAGMA user_version").fetchone()[0])
            select = "SELECT vector FROM vectors WHERE key = ?"
            blobs = {key: blob for key in keys for (blob,) in file.execute(select, (key,))}
            file.execute("COMMIT")
            found = whole_vectors(blobs, width)
            if broken := [(key,) for key in blobs if key not in found]:
                file.executemany("DELETE FROM vectors WHERE key = ?", broken)
            return width, found

        nothing: Found = (0, {})
        return self._try(work, nothing)

    def write(self, keys: list[bytes], vectors: NDArray[np.float32]) -> None:
        """Add vectors, all or none; one that another process has added meanwhile stays."""
        width = vectors.shape[1]

        def work(file: sqlite3.Connection) -> None:
            file.execute("BEGIN IMMEDIATE")
            if file.execute("PRAGMA user_version").fetchone() != (width,):
                file.execute("DELETE FROM vectors WHERE length(vector) <> ?", (4 * width,))
                file.execute(f"PRAGMA user_version = {width:d}")
            rows = zip(keys, (vector.tobytes() for vector in vectors.astype("<f4")), strict=True)
            file.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
            file.execute("COMMIT")

        self._try(work, None)

    def _try(self, work: Callable[[sqlite3.Connection], Result], otherwise: Result) -> Result:
        """Return what ``work`` returns, after one more attempt on a new file if this one is damaged."""
        for again in (True, False):
            if (path := self.path) is None:
                break
            before = inode(path)
            try:
                with closing(connected(path)) as file:
                    return work(file)
            except (sqlite3.Error, OSError) as error:
                damaged = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF in DAMAGED
                if again and damaged and set_aside(path, before):
                    what = f"is damaged ({error}): it is set aside, and its vectors are computed again"
                else:
                    what = f"cannot be used ({error}): vectors are not kept. Set the environment variable "
                    what += f"{CACHE_VARIABLE} to a folder that can be written to"
                    self.path = None
                warnings.warn(f"{path} {what}", DataWarning, stacklevel=4)
        return otherwise


def set_aside(path: Path, before: int | None) -> bool:
    """Rename a damaged file, and return whether its name is free now."""
    # Another process may have put a new file there since.
    if inode(path) == before:
        try:
            path.replace(path.with_suffix(".damaged"))
            for tail in ("-wal", "-shm"):
                path.with_name(path.name + tail).unlink(missing_ok=True)
        except OSError:
            return False
    return True


def connected(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)
    try:
        # The file holds no text; read as bytes, any is a broken vector.
        file.text_factory = bytes
        # A journal that lets others read meanwhile; some network drives do not support it.
        with suppress(sqlite3.OperationalError):
            file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL)")
    except BaseException:
        file.close()
        raise
    return file


def whole_vectors(blobs: dict[bytes, object], width: int) -> dict[bytes, NDArray[np.float32]]:
    """Return vectors from their bytes, without those of another width or of a length other than 1 or 0."""
    right = {key: blob for key, blob in blobs.items() if isinstance(blob, bytes) and len(blob) == 4 * width > 0}
    vectors = np.frombuffer(b"".join(right.values()), "<f4").astype(np.float32, copy=False).reshape(len(right), width)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(vectors, axis=1)
    good = (np.abs(lengths - 1) < 1e-3) | (lengths == 0)
    return {key: vector for key, vector, fine in zip(right, vectors, good, strict=True) if fine}


def inode(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_ino
    return None


def cache_folder(cache: str | os.PathLike[str] | None) -> Path | None:
    if cache is None:
        return None
    if cache != "default":
        return Path(cache).expanduser()
    named = os.environ.get(CACHE_VARIABLE)
    return (Path(named).expanduser() if named else platformdirs.user_cache_path("metaclust")) / "embeddings"
