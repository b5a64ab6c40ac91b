"""Locks on what is written: two processes that write the same file or folder would undo each other's work.

The operating system holds the locks, and releases them when a process ends or is killed. What is left of a lock then is
a file that blocks nobody.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from metaclust._util.files import open_regular, remove_unfinished

LOCK = ".lock"
WITHOUT_LOCKS = (None, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""What locking fails with on file systems that cannot; filelock's own error has no number."""


class InUseError(OSError):
    """Another process is writing the file or folder."""


def lock_beside(target: str | os.PathLike[str]) -> Path:
    """Return the lock of a file: beside it, the same one whatever path leads to the folder.

    >>> lock_beside("/data/../data/labels.csv").name
    '.labels.csv.lock'
    """
    target = Path(target)
    return Path(os.path.realpath(target.parent)) / f".{target.name}{LOCK}"


@contextmanager
def writing(*targets: str | os.PathLike[str]) -> Iterator[None]:
    """Let no other process write these files until the end; raise InUseError if one does already.

    What killed processes left of them is removed.
    """
    with ExitStack() as stack:
        for target in targets:
            stack.enter_context(held(lock_beside(target), target))
            remove_unfinished(target)
        yield


@contextmanager
def held(lock: Path, target: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a lock file that stands for ``target``; raise InUseError if another process, or thread, holds it."""
    holder = note(lock)
    # Readable by all, so that others see who holds it.
    own = FileLock(lock, timeout=0, mode=0o644, is_singleton=False)
    try:
        try:
            own.acquire()
        except PermissionError:
            if not remove_left(lock):
                raise
            own.acquire()
    except Timeout:
        # The note of a process that has just begun may come a moment later.
        holder = note(lock) or holder or "another process"
        raise InUseError(f"{os.fspath(target)} is being written by {holder}: wait for it, or choose another") from None
    except PermissionError as error:
        raise PermissionError(f"cannot write {os.fspath(target)}: {refusal(lock, target, error)}") from error
    except (NotImplementedError, OSError) as error:
        if getattr(error, "errno", None) not in WITHOUT_LOCKS:
            raise
        warnings.warn(
            f"{os.fspath(target)} is on a file system without locks: let no other process write it", stacklevel=3
        )
    try:
        with suppress(OSError):
            lock.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
        yield
    finally:
        # While it is held: a process that has opened it meanwhile sees that it is gone, and makes a new one.
        if os.name != "nt":
            # In a folder such as /tmp, only its owner can remove it.
            with suppress(PermissionError):
                lock.unlink(missing_ok=True)
        own.release()


def remove_left(lock: Path) -> bool:
    """Remove what a killed process of another user left of a lock, which cannot be opened for writing.

    Return False if that is not possible; raise Timeout if the lock is held.
    """
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        with open_regular(lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Timeout(str(lock)) from None
            # While it is held, and only if it is still the same file: another process may have replaced it.
            if os.path.samestat(os.fstat(file.fileno()), lock.lstat()):
                lock.unlink()
    except FileNotFoundError:
        return True
    except Timeout:
        raise
    except OSError:
        return False
    return True


def refusal(lock: Path, target: str | os.PathLike[str], error: OSError) -> str:
    """Return why a lock cannot be held, and what to do about it."""
    try:
        owner = lock.owner() if lock.exists() else None
    except (KeyError, OSError, NotImplementedError):
        owner = "another user"
    if owner is None:
        return f"its lock {lock} cannot be created ({error.strerror or error})"
    return (
        f"its lock {lock} belongs to {owner} and cannot be opened: have it removed once no process of theirs "
        f"writes {os.fspath(target)}"
    )


def note(lock: Path) -> str:
    """Return who holds a lock, as its holder wrote it; "" if that is unknown."""
    if not lock.is_file():
        return ""
    try:
        with lock.open(encoding="utf-8", errors="replace") as file:
            return file.read(200).strip()
    except OSError:
        return ""
