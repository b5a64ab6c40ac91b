"""Downloads of files with a known digest, which are resumed after an interruption and complete or not there at all."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import NoReturn, cast

from metaclust._util.progress import Waiting
from metaclust.data.rows import DataError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

PAUSE = 0.5
"""Seconds before the second try; each further pause is twice as long."""
CHUNK = 2**18
SPAN = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)")
HANDLERS = (
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPErrorProcessor,
)


def download(
    url: str,
    target: Path,
    *,
    sha256: str,
    size: int | None = None,
    progress: bool = True,
    tries: int = 4,
    timeout: float = 30.0,
) -> Path:
    """Download the file at ``url`` with the digest ``sha256`` to ``target``, and return ``target``.

    A file that is there already and has that digest is kept. An interrupted download is resumed, with up to ``tries``
    connections in a call, and by the next call: until it is complete it is a .part file beside ``target``. More than
    ``size`` bytes are not accepted. ``timeout`` is in seconds without a byte.
    """
    check_url(url)
    if not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"sha256={sha256!r}: it must be 64 hexadecimal digits")
    if size is not None and size < 0:
        raise ValueError(f"size={size!r}: it must be 0 or more, or None")
    if tries < 1:
        raise ValueError(f"tries={tries!r}: it must be 1 or more")
    if not timeout > 0:
        raise ValueError(f"timeout={timeout!r}: it must be more than 0")
    sha256 = sha256.lower()
    bar = Waiting(f"downloading {target.name}", size, enabled=progress, unit="bytes")
    try:
        if is_there(target, sha256):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with part_file(target, sha256) as part, bar:
            # Another process may have finished it meanwhile.
            if not is_there(target, sha256):
                Fetch(url, target, part, sha256, size, tries, timeout, bar).run()
    except OSError as error:
        raise DataError(f"{target} cannot be written: {error}. Make room, or choose another folder") from error
    return target


def check_url(url: str) -> None:
    """Raise ValueError for what is not a plain web address."""
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or "@" in parts.netloc or not re.fullmatch("[!-~]+", url):
        raise ValueError(
            f"url={url!r}: it must begin with http:// or https:// and a host, without spaces or a password"
        )


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_there(target: Path, sha256: str) -> bool:
    """Return whether the file is there; another one in its place is an error."""
    if not os.path.lexists(target):
        return False
    if not target.is_file():
        raise DataError(f"{target} is there but is not a file: delete it, or choose another folder")
    found = digest_of(target)
    if found != sha256:
        raise DataError(
            f"{target} is not the expected file: its sha256 is {found}, not {sha256}. Delete it to download the right "
            "one"
        )
    return True


@contextmanager
def part_file(target: Path, sha256: str) -> Iterator[Path]:
    """Yield the file to write to: beside ``target``, under the name from which the next call resumes.

    While another process or thread is writing that one, it is a private file, which is deleted in the end. The lock is
    held by the operating system, which releases it when its process is killed.
    """
    name = f"{target.name}.{sha256[:16]}"
    lock = target.with_name(f"{name}.lock")
    mine = False
    file = lock.open("ab")
    try:
        try:
            if sys.platform == "win32":
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking its holder may have removed it.
            mine = os.path.samestat(os.fstat(file.fileno()), lock.stat())
        except (BlockingIOError, PermissionError, FileNotFoundError):
            pass
        except OSError:
            # A file system without locks: every call has a private part.
            lock.unlink(missing_ok=True)
        part = target.with_name(f"{name}.part" if mine else f"{name}.{secrets.token_hex(4)}.part")
        try:
            yield part
        finally:
            if part.exists() and (not mine or part.stat().st_size == 0):
                part.unlink()
    finally:
        # Windows removes no open file; elsewhere it must go before the lock does.
        if sys.platform == "win32":
            file.close()
        if mine:
            with suppress(OSError):
                lock.unlink()
        file.close()


def web_opener() -> urllib.request.OpenerDirector:
    """Return an opener that follows redirects, but not to local files or FTP as the default one does."""
    opener = urllib.request.OpenerDirector()
    for handler in HANDLERS:
        opener.add_handler(handler())
    return opener


class BrokenOffError(Exception):
    """A connection that ended before the file did; worth another try."""


class StartOverError(Exception):
    """A server that does not resume where the part ends."""


@dataclass
class Fetch:
    """One call of :func:`download`: fills the part, verifies it and moves it into place."""

    url: str
    target: Path
    part: Path
    sha256: str
    size: int | None
    tries: int
    timeout: float
    bar: Waiting
    answered: bool = False
    """Whether there was a connection at all."""
    opener: urllib.request.OpenerDirector = field(default_factory=web_opener)

    def run(self) -> None:
        if not self.part.exists() or digest_of(self.part) != self.sha256:
            pieced = self.fill()
            found = digest_of(self.part)
            if found != self.sha256 and pieced:
                # The file at the url may have changed between the pieces.
                self.part.unlink()
                self.fill()
                found = digest_of(self.part)
            if found != self.sha256:
                self.discard(f"is not the expected file: its sha256 is {found}, not {self.sha256}")
        with self.part.open("rb+") as file:
            os.fsync(file.fileno())
        if is_there(self.target, self.sha256):
            self.part.unlink()
        else:
            self.part.replace(self.target)

    def fill(self) -> bool:
        """Receive until the part is complete, in up to ``tries`` connections; return whether it was resumed."""
        failed = 0
        while True:
            have = self.part.stat().st_size if self.part.exists() else 0
            try:
                return self.receive(have)
            except StartOverError:
                self.part.unlink()
            except BrokenOffError as error:
                failed += 1
                if failed == self.tries:
                    what, remedy = "cannot be reached: there is no connection", "Check the network"
                    if self.answered:
                        what, remedy = "could not be downloaded", "Try again, which resumes the download"
                    raise DataError(f"{self.url} {what} ({error}; tries={failed}). {remedy}{self.by_hand}") from error
                time.sleep(PAUSE * 2 ** (failed - 1))

    def receive(self, have: int) -> bool:
        """Append one response to the ``have`` bytes of the part; return whether those were kept."""
        with self.ask(have) as response:
            self.answered = True
            total = response.length
            if response.status == 206:
                span = SPAN.fullmatch(response.headers.get("Content-Range", ""))
                if span is None or int(span[1]) != have:
                    raise StartOverError if have else BrokenOffError("the server sent a part that was not asked for")
                total = int(span[2]) if span[2] != "*" else None if total is None else have + total
            elif response.status == 200:
                have = 0
            else:
                self.refuse(response.status, response.reason)
            most = float("inf") if self.size is None else self.size
            if total is not None and total > most:
                self.discard(f"has {total} bytes, more than size={self.size}")
            done = have
            with self.part.open("ab" if have else "wb") as file:
                while total is None or done < total:
                    try:
                        chunk = response.read1(CHUNK if total is None else min(CHUNK, total - done))
                    except (OSError, HTTPException) as error:
                        raise BrokenOffError(f"it broke off after {done} bytes: {error}") from error
                    done += len(chunk)
                    if not chunk or done > most:
                        break
                    file.write(chunk)
                    self.bar.set(done)
        if done > most:
            self.discard(f"has more than size={self.size} bytes")
        wanted = self.size if total is None else total
        if wanted is not None and done < wanted:
            raise BrokenOffError(f"it broke off after {done} of {wanted} bytes")
        return have > 0

    def ask(self, have: int) -> HTTPResponse:
        """Return the response to a request for what comes after the first ``have`` bytes."""
        headers = {"User-Agent": "metaclust"} | ({"Range": f"bytes={have}-"} if have else {})
        request = urllib.request.Request(self.url, headers=headers)  # noqa: S310 (check_url has seen it)
        try:
            return cast(HTTPResponse, self.opener.open(request, timeout=self.timeout))
        except urllib.error.HTTPError as error:
            self.answered = True
            error.close()
            if error.code == 416 and have:
                raise StartOverError from error
            if error.code in (408, 429) or error.code >= 500:
                raise BrokenOffError(f"the server returned {error.code} {error.reason}") from error
            self.refuse(error.code, error.reason)
        except urllib.error.URLError as error:
            raise BrokenOffError(str(error.reason)) from error
        except (OSError, HTTPException) as error:
            self.answered = True
            raise BrokenOffError(str(error)) from error
        # An invalid host, here or in a redirect.
        except ValueError as error:
            raise DataError(f"{self.url} is not a valid address ({error}). Check the url{self.by_hand}") from error

    @property
    def by_hand(self) -> str:
        return f", or download the file yourself and put it at {self.target}"

    def refuse(self, status: int, reason: str) -> NoReturn:
        raise DataError(f"{self.url}: the server returned {status} {reason}. Check the url{self.by_hand}")

    def discard(self, why: str) -> NoReturn:
        self.part.unlink(missing_ok=True)
        raise DataError(f"{self.url} {why}. It was not kept. Check the url, or whether there is a newer version")
