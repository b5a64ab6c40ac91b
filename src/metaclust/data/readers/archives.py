"""Archives, which are unpacked completely into a new folder, or refused."""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import secrets
import shutil
import stat
import tarfile
import unicodedata
import zipfile
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, NoReturn, cast

from metaclust._util.progress import Waiting
from metaclust.data.rows import DataError, reason_of

ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz")
FLOOR = 2**24
"""Up to this many bytes no compression ratio is suspicious: a small file of one repeated value packs very well."""
CHUNK = 2**18
LONGEST_HEADER = 2**20
DEEPEST_FOLDER = 64
"""How many folders the path of a file in an archive may have."""
NEITHER = "neither a file nor a folder but a link or a device"
BY_HAND = "If you trust it, unpack it yourself"


def unpack(
    archive: Path,
    target: Path,
    *,
    max_members: int = 200_000,
    max_bytes: int = 4 * 2**30,
    max_ratio: float = 200.0,
    progress: bool = True,
) -> Path:
    """Unpack a .zip, .tar, .tar.gz or .tgz into the new folder ``target``, and return that folder.

    ``max_members`` and ``max_bytes`` bound what comes out; ``max_ratio`` bounds how much larger than its packed form
    a member, or everything together, may be. Links, devices, encrypted members and names that lead elsewhere are
    refused. Permissions are not copied. After an error nothing is left: the folder appears complete or not at all.
    """
    for name, limit in (("max_members", max_members), ("max_bytes", max_bytes), ("max_ratio", max_ratio)):
        if not limit >= 1:
            raise ValueError(f"{name}={limit!r}: it must be 1 or more")
    if not archive.is_file():
        raise DataError(f"{archive} is not a file: give the path of a {' or '.join(ENDINGS)}")
    if not archive.name.lower().endswith(ENDINGS):
        raise DataError(f"{archive}: only {', '.join(ENDINGS)} can be unpacked. Unpack it yourself")
    if os.path.lexists(target):
        raise DataError(f"{target} exists already and is not overwritten: delete it, or choose another folder")
    new = [folder for folder in target.parents if not folder.exists()]
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.unpacking")
    limits = Limits(archive, archive.stat().st_size, max_members, max_bytes, max_ratio)
    try:
        beside.mkdir(parents=True)
        unpacking = Unpacking(limits, beside)
        members = zip_members if archive.name.lower().endswith(".zip") else tar_members
        bar = Waiting(f"unpacking {archive.name}", limits.packed, enabled=progress, unit="bytes")
        with bar, archive.open("rb") as raw, closing(members(raw, limits)) as found:
            for member in found:
                unpacking.add(member)
                bar.set(raw.tell())
        beside.rename(target)
    except DataError:
        raise
    # zipfile and tarfile raise a dozen kinds of exception for a damaged file.
    except Exception as error:
        what = f"{archive} could not be unpacked to {target} ({type(error).__name__}: {reason_of(error)})"
        # A damaged file may make its reader seek out of range: EINVAL, without the name of a file.
        if isinstance(error, OSError) and (error.filename or error.errno not in (None, errno.EINVAL)):
            raise DataError(f"{what}. Make room, or choose another folder") from error
        raise DataError(f"{what}. It is damaged, or of another format than its name says: get it again") from error
    finally:
        # After a success this does nothing: the folder was renamed, and those around it are not empty.
        shutil.rmtree(beside, ignore_errors=True)
        for folder in new:
            with suppress(OSError):
                folder.rmdir()
    return target


@dataclass(frozen=True)
class Member:
    """One entry of an archive, as its header describes it."""

    names: tuple[str, ...]
    """Every name that the archive gives it; the last one counts, all of them must be harmless."""
    folder: bool
    odd: str | None
    """What it is, if it is neither a plain file nor a folder."""
    size: int
    packed: int | None
    """How many bytes of the archive it takes, where that is known."""
    content: Callable[[], IO[bytes]]


@dataclass(frozen=True)
class Limits:
    """How much may come out of an archive of ``packed`` bytes."""

    archive: Path
    packed: int
    max_members: int
    max_bytes: int
    max_ratio: float

    def check(self, members: int, size: int) -> None:
        """Refuse an archive that holds so many members and bytes."""
        if members > self.max_members:
            raise DataError(f"{self.archive} holds more than {self.max_members:,} members, the limit. {BY_HAND}")
        if size > self.max_bytes:
            what = f"{size:,} bytes or more, above the limit of {self.max_bytes:,}"
            raise DataError(f"{self.archive} would unpack to {what}. {BY_HAND}")
        if self.inflated(size, self.packed):
            what = f"to {size:,} bytes or more from {self.packed:,}, above the limit of {self.max_ratio:g} times"
            raise DataError(f"{self.archive} would unpack {what}. {BY_HAND}")

    def inflated(self, size: int, packed: int) -> bool:
        return size > max(FLOOR, self.max_ratio * packed)


class Unpacking:
    """Writes one member after the other into ``folder``, after checking its name."""

    def __init__(self, limits: Limits, folder: Path) -> None:
        self.limits = limits
        self.folder = folder
        self.taken: dict[tuple[str, ...], tuple[tuple[str, ...], bool]] = {}
        """The name as written and whether it is a folder, by :func:`same_form`."""

    def add(self, member: Member) -> None:
        """Check the member, and write it if it is a file. Those that macOS adds are left out."""
        name = member.names[-1]
        parts = [self.parts(each) for each in member.names][-1]
        if member.size < 0:
            self.refuse(name, f"has a size of {member.size}")
        if parts and (parts[0] == "__MACOSX" or parts[-1] == ".DS_Store"):
            return
        if member.odd is not None:
            self.refuse(name, f"is {member.odd}")
        if not parts and not member.folder:
            self.refuse(name, "has no name")
        if member.packed is not None and self.limits.inflated(member.size, member.packed):
            ratio = f"{member.size:,} bytes from {member.packed:,}, above the limit of {self.limits.max_ratio:g} times"
            self.refuse(name, f"would unpack to {ratio}")
        self.claim(name, parts, folder=member.folder)
        if member.folder:
            self.folder.joinpath(*parts).mkdir(parents=True, exist_ok=True)
        else:
            self.write(member, name, self.folder.joinpath(*parts))

    def write(self, member: Member, name: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        written = 0
        with member.content() as source, path.open("xb") as file:
            while chunk := source.read(CHUNK):
                written += len(chunk)
                if written > member.size:
                    break
                file.write(chunk)
        if written != member.size:
            more = "more" if written > member.size else "fewer"
            self.refuse(name, f"holds {more} than the {member.size:,} bytes that its header says", "Get it again")

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the parts of a path; one that could lead outside of the folder is refused."""
        if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in name):
            self.refuse(name, "has control characters, or bytes that are not text, in its name")
        if "\\" in name:
            self.refuse(name, "has a backslash in its name")
        if name.startswith("/"):
            self.refuse(name, "has an absolute path")
        parts = tuple(part for part in name.split("/") if part not in ("", "."))
        for part in parts:
            if re.match("[A-Za-z]:", part):
                self.refuse(name, "names a drive")
            # Windows drops dots and spaces at the end, so that ".. " may be ".." there.
            if not part.strip(". "):
                self.refuse(name, f"has {part!r} in its path")
        if len(parts) > DEEPEST_FOLDER:
            self.refuse(name, f"is {len(parts)} folders deep, more than {DEEPEST_FOLDER}")
        return parts

    def claim(self, name: str, parts: tuple[str, ...], *, folder: bool) -> None:
        """Claim the name and those of the folders around it; a name that another member has is refused."""
        form = tuple(same_form(part) for part in parts)
        for depth in range(1, len(parts) + 1):
            mine = (parts[:depth], folder or depth < len(parts))
            theirs = self.taken.setdefault(form[:depth], mine)
            if theirs != mine or (theirs is not mine and not mine[1]):
                other = "/".join(theirs[0])
                self.refuse(name, f"clashes with {other!r}: the same name, or the same but for case or encoding")

    def refuse(self, name: str, why: str, remedy: str = BY_HAND) -> NoReturn:
        raise DataError(f"{self.limits.archive}: the member {name!r} {why}, so nothing was unpacked. {remedy}")


def same_form(part: str) -> str:
    """Return one form for all spellings that some file system takes for the same name."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", part).casefold()).rstrip(". ")


def zip_members(raw: io.BufferedReader, limits: Limits) -> Generator[Member, None, None]:
    with zipfile.ZipFile(raw) as archive:
        infos = archive.infolist()
        limits.check(len(infos), sum(info.file_size for info in infos))
        for info in infos:
            kind = stat.S_IFMT(info.external_attr >> 16)
            # Bits 0, 6 and 13: encrypted, strongly encrypted, encrypted headers.
            odd = "encrypted" if info.flag_bits & 0x2041 else None
            odd = odd if kind in (0, stat.S_IFREG, stat.S_IFDIR) else NEITHER
            # zipfile cuts a name at its first NUL.
            names = (info.orig_filename, info.filename)
            folder = info.filename.endswith("/")
            yield Member(names, folder, odd, info.file_size, info.compress_size, partial(archive.open, info))


def tar_members(raw: io.BufferedReader, limits: Limits) -> Generator[Member, None, None]:
    packed = limits.archive.name.lower().endswith("gz")
    with gzip.GzipFile(fileobj=raw) if packed else raw as stream:
        metered = Metered(stream, limits)
        with tarfile.open(fileobj=metered, mode="r:") as archive:
            size = 0
            for count, info in enumerate(archive, 1):
                size += info.size
                limits.check(count, size)
                odd = None if info.isreg() or info.isdir() else NEITHER
                odd = "a sparse file" if info.issparse() else odd
                content = partial(cast("Callable[[tarfile.TarInfo], IO[bytes]]", archive.extractfile), info)
                yield Member((info.name,), info.isdir(), odd, info.size, None, content)
        # tarfile takes a damaged header for the end, which is a block of zeros.
        if metered.latest != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("it is cut short")
        # The checksum of gzip comes last.
        while metered.read(CHUNK):
            pass


class Metered(io.BufferedIOBase):
    """A stream that is refused when more comes out of it than the archive may hold.

    tarfile reads long headers in one piece, at whatever length they claim.
    """

    def __init__(self, stream: io.BufferedIOBase, limits: Limits) -> None:
        self.stream = stream
        self.limits = limits
        self.latest = b""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= LONGEST_HEADER:
            raise DataError(f"{self.limits.archive} has a header of {size} bytes, so nothing was unpacked. {BY_HAND}")
        self.latest = self.stream.read(size)
        if self.limits.inflated(self.stream.tell(), self.limits.packed):
            what = f"more than {self.limits.max_ratio:g} times its {self.limits.packed:,} bytes, the limit"
            raise DataError(f"{self.limits.archive} would unpack to {what}. {BY_HAND}")
        return self.latest

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        return self.stream.seek(position, whence)

    def tell(self) -> int:
        return self.stream.tell()

    def seekable(self) -> bool:
        return True
