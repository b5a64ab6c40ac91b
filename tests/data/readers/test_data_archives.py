"""Unpacking: what comes out, and everything that is refused."""

import gzip
import io
import os
import stat
import tarfile
import tempfile
import unicodedata
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclust.data.readers import archives
from metaclust.data.readers.archives import FLOOR, LONGEST_HEADER, Limits, Metered, unpack
from metaclust.data.rows import DataError

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")
FILES = {"a.txt": b"alpha", "folder/b.bin": bytes(range(256)) * 40, "folder/deep/\N{SNOWMAN}.txt": b"", "x" * 150: b"x"}
TARS = {
    "symbolic link": (tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": (tarfile.LNKTYPE, "a.txt"),
    "fifo": (tarfile.FIFOTYPE, ""),
    "character device": (tarfile.CHRTYPE, ""),
    "block device": (tarfile.BLKTYPE, ""),
    "unknown": (b"Z", ""),
}


def zip_bytes(members: list[tuple[str, bytes]], **changes: object) -> bytes:
    """A zip; the changes are made to what its directory says of the last member."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for name, content in members:
            info = zipfile.ZipInfo("x")
            # Set afterwards, since the class itself cuts names at a NUL.
            info.filename = name
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
        for name, value in changes.items():
            setattr(archive.infolist()[-1], name, value)
    return buffer.getvalue()


def tar_info(
    name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname, info.mode = size, kind, link, mode
    return info


def tar_bytes(members: list[tuple[str | tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member, content in members:
            info = tar_info(member, len(content)) if isinstance(member, str) else member
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def archive_bytes(suffix: str, members: list[tuple[str, bytes]]) -> bytes:
    if suffix == ".zip":
        return zip_bytes(members)
    return tar_bytes(members) if suffix == ".tar" else gzip.compress(tar_bytes(members), mtime=0)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, by its path; folders have no content."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")
    }


def unpacked(folder: Path, content: bytes, suffix: str, **limits: object) -> dict[str, bytes | None]:
    archive = folder / f"archive{suffix}"
    archive.write_bytes(content)
    target = folder / "new" / "target"
    assert unpack(archive, target, progress=False, **limits) == target
    assert sorted(path.name for path in folder.iterdir()) == [archive.name, "new"]
    assert [path.name for path in target.parent.iterdir()] == ["target"]
    return tree(target)


def refused(folder: Path, content: bytes, suffix: str, match: str, **limits: object) -> None:
    """The error names the archive, and nothing is left: not even the folder that the target was to be in."""
    archive = folder / f"archive{suffix}"
    archive.write_bytes(content)
    with pytest.raises(DataError, match=match) as caught:
        unpack(archive, folder / "new" / "target", progress=False, **limits)
    assert str(archive) in str(caught.value)
    assert tree(folder) == {archive.name: content}


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".ZIP", ".Tar.GZ"])
def test_what_went_in_comes_out(tmp_path, suffix):
    found = unpacked(tmp_path, archive_bytes(suffix.lower(), list(FILES.items())), suffix)
    assert found == FILES | {"folder": None, "folder/deep": None}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_archive_is_an_empty_folder(tmp_path, suffix):
    assert unpacked(tmp_path, archive_bytes(suffix, []), suffix) == {}


def test_folders_of_an_archive_may_be_empty_and_come_in_any_order(tmp_path):
    members = [("a/b/c.txt", b"c"), ("a/", b""), ("a/b/", b""), ("./", b""), ("./a/d.txt", b"d"), ("e//f/", b"")]
    expected = {"a": None, "a/b": None, "a/b/c.txt": b"c", "a/d.txt": b"d", "e": None, "e/f": None}
    assert unpacked(tmp_path, zip_bytes(members), ".zip") == expected
    (tmp_path / "tar").mkdir()
    infos = [(tar_info(n, len(c), tarfile.DIRTYPE if n[-1] == "/" else tarfile.REGTYPE), c) for n, c in members]
    assert unpacked(tmp_path / "tar", tar_bytes(infos), ".tar") == expected


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_macos_adds_is_left_out(tmp_path, suffix):
    members = [("__MACOSX/._a.txt", b"1"), ("a.txt", b"2"), (".DS_Store", b"3"), ("b/.DS_Store", b"4"), ("b/c", b"5")]
    found = unpacked(tmp_path, archive_bytes(suffix, members), suffix)
    assert found == {"a.txt": b"2", "b": None, "b/c": b"5"}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")
@pytest.mark.parametrize("suffix", [".zip", ".tar"])
def test_permissions_are_those_of_any_new_file(tmp_path, suffix):
    content = zip_bytes([("tool", b"#!")], external_attr=(stat.S_IFREG | 0o6777) << 16)
    content = content if suffix == ".zip" else tar_bytes([(tar_info("tool", 2, mode=0o6777), b"#!")])
    unpacked(tmp_path, content, suffix)
    (tmp_path / "usual").write_bytes(b"")
    mode = (tmp_path / "new" / "target" / "tool").stat().st_mode
    assert mode == (tmp_path / "usual").stat().st_mode
    assert mode & 0o7111 == 0


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/absolute.txt", "absolute path"),
        ("//server/share", "absolute path"),
        ("../up.txt", r"has '\.\.' in its path"),
        ("a/../../up.txt", r"has '\.\.' in its path"),
        ("a/..", r"has '\.\.' in its path"),
        ("a/.. /b", r"has '\.\. ' in its path"),
        ("a/.../b", r"has '\.\.\.' in its path"),
        ("C:/windows.txt", "names a drive"),
        ("c:windows.txt", "names a drive"),
        ("a/D:b", "names a drive"),
        ("..\\up.txt", "backslash"),
        ("a\\b.txt", "backslash"),
        ("\\\\server\\share", "backslash"),
        ("a\nb.txt", "control characters"),
        ("a\x1b[2J.txt", "control characters"),
        ("a\x7f", "control characters"),
        ("a\x85b", "control characters"),
        ("a\u2028b", "control characters"),
        ("__MACOSX/../../up.txt", r"has '\.\.' in its path"),
        ("/".join("a" * 65), "65 folders deep"),
        (".", "has no name"),
    ],
)
def test_names_that_could_lead_elsewhere_are_refused(tmp_path, suffix, name, why):
    content = archive_bytes(suffix, [("good.txt", b"good"), (name, b"bad")])
    refused(tmp_path, content, suffix, f"member .*{why}.*nothing was unpacked.*unpack it yourself")


@pytest.mark.parametrize("suffix", [".zip", ".tar"])
def test_a_nul_in_a_name_is_refused_although_zipfile_would_cut_it_off(tmp_path, suffix):
    pax = tar_info("a")
    pax.pax_headers = {"path": "a.txt\0.exe"}
    content = zip_bytes([("a.txt\0.exe", b"bad")]) if suffix == ".zip" else tar_bytes([(pax, b"")])
    refused(tmp_path, content, suffix, r"member 'a.txt\\x00.exe' has control characters")


def test_a_name_that_is_not_text_is_refused(tmp_path):
    refused(tmp_path, tar_bytes([("caf\udce9", b"")]), ".tar", "bytes that are not text")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.txt", "a.txt"),
        ("a.txt", "./a.txt"),
        ("a.txt", "A.TXT"),
        ("a/b", "a//b"),
        ("a/b", "a"),
        ("a", "a/b"),
        ("Folder/a", "folder/b"),
        (
            "a/\N{LATIN SMALL LETTER E WITH ACUTE}",
            "a/" + unicodedata.normalize("NFD", "\N{LATIN SMALL LETTER E WITH ACUTE}"),
        ),
        ("stra\N{LATIN SMALL LETTER SHARP S}e", "STRASSE"),
        ("a", "a."),
        ("a /b", "a/c"),
    ],
)
def test_names_that_some_file_system_takes_for_the_same_are_refused(tmp_path, suffix, first, second):
    content = archive_bytes(suffix, [(first, b"1"), (second, b"2")])
    refused(tmp_path, content, suffix, "member .* clashes with .*nothing was unpacked")


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize("what", TARS)
def test_links_and_devices_in_a_tar_are_refused(tmp_path, suffix, what):
    kind, link = TARS[what]
    content = tar_bytes([("a.txt", b"1"), (tar_info("odd", 0, kind, link), b"")])
    content = gzip.compress(content) if suffix == ".tar.gz" else content
    refused(tmp_path, content, suffix, "member 'odd' is neither a file nor a folder")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_and_devices_in_a_zip_are_refused(tmp_path, kind):
    content = zip_bytes([("a.txt", b"1"), ("odd", b"/etc/passwd")], external_attr=(kind | 0o777) << 16)
    refused(tmp_path, content, ".zip", "member 'odd' is neither a file nor a folder")


def test_a_file_through_a_link_is_refused_with_the_link(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    link = tar_info("way", 0, tarfile.SYMTYPE, str(outside))
    (tmp_path / "inner").mkdir()
    refused(tmp_path / "inner", tar_bytes([(link, b""), ("way/a.txt", b"bad")]), ".tar", "member 'way'")
    assert tree(outside) == {}


def test_a_sparse_file_is_refused(tmp_path):
    info = tar_info("sparse", 4)
    info.pax_headers = {"GNU.sparse.map": "0,4", "GNU.sparse.size": str(2**40), "GNU.sparse.name": "sparse"}
    refused(tmp_path, tar_bytes([(info, b"1234")]), ".tar", "the limit|sparse")
    info.pax_headers["GNU.sparse.size"] = "8"
    refused(tmp_path, tar_bytes([(info, b"1234")]), ".tar", "member 'sparse' is a sparse file")


@pytest.mark.parametrize("bit", [0, 6, 13])
def test_encrypted_members_are_refused(tmp_path, bit):
    refused(tmp_path, zip_bytes([("a", b"1"), ("secret", b"2")], flag_bits=1 << bit), ".zip", "'secret' is encrypted")


def test_a_method_that_cannot_be_read_is_refused(tmp_path):
    content = zip_bytes([("a", b"1")], compress_type=9)
    refused(tmp_path, content, ".zip", "could not be unpacked.*compression")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_too_many_members_and_too_many_bytes_are_refused_and_the_limit_itself_is_not(tmp_path, suffix):
    content = archive_bytes(suffix, [("a", bytes(10)), ("b", bytes(20)), ("c", bytes(30))])
    refused(tmp_path, content, suffix, "more than 2 members, the limit.*unpack it yourself", max_members=2)
    refused(tmp_path, content, suffix, "above the limit of 59.*unpack it yourself", max_bytes=59)
    assert len(unpacked(tmp_path, content, suffix, max_members=3, max_bytes=60)) == 3


def test_a_zip_that_is_too_large_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(archives.Unpacking, "add", lambda *_: pytest.fail("a member was unpacked"))
    refused(tmp_path, zip_bytes([("a", bytes(10)), ("b", bytes(20))]), ".zip", "above the limit of 29", max_bytes=29)


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_a_bomb_is_refused_and_a_small_file_may_be_packed_as_well_as_it_likes(tmp_path, suffix):
    refused(tmp_path, archive_bytes(suffix, [("a", bytes(FLOOR + 1))]), suffix, "the limit.*unpack it yourself")
    many = archive_bytes(suffix, [(name, bytes(FLOOR // 2)) for name in "abc"])
    refused(tmp_path, many, suffix, "the limit.*unpack it yourself")
    assert len(unpacked(tmp_path, many, suffix, max_ratio=2000)) == 3


def test_one_inflated_member_is_refused_although_the_rest_is_not(tmp_path):
    content = zip_bytes([("noise", os.urandom(2**18)), ("zeros", bytes(FLOOR + 1))])
    refused(tmp_path, content, ".zip", "member 'zeros' would unpack to 16,777,217 bytes from .*the limit of 200 times")


def test_zeros_after_the_end_of_a_tar_count_too(tmp_path):
    refused(tmp_path, gzip.compress(tar_bytes([]) + bytes(FLOOR)), ".tgz", "the limit.*unpack it yourself")


@pytest.mark.parametrize("size", [2**21, 2**40])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_is_not_read_at_whatever_length_it_claims(tmp_path, size, kind):
    header = tar_info("long", size, kind).tobuf(tarfile.GNU_FORMAT)
    refused(tmp_path, header + bytes(2**21), ".tar", f"has a header of {size} bytes")


@pytest.mark.parametrize("size", [-1, None, LONGEST_HEADER + 1])
def test_a_stream_is_not_read_to_its_end_in_one_piece(size):
    metered = Metered(io.BytesIO(bytes(2 * LONGEST_HEADER)), Limits(Path("a.tar"), 10, 10, 10, 10.0))
    assert len(metered.read(LONGEST_HEADER)) == LONGEST_HEADER
    with pytest.raises(DataError, match=r"a\.tar has a header of"):
        metered.read(size)


def test_a_negative_size_is_refused(tmp_path):
    for name in ("a", "__MACOSX/a"):
        header = tar_info(name, -512).tobuf(tarfile.GNU_FORMAT)
        refused(tmp_path, header + tar_bytes([]), ".tar", "size of -512|damaged")


@pytest.mark.parametrize("size", [0, 99, 101, 2**31])
def test_a_zip_that_lies_about_a_size_is_refused(tmp_path, size):
    content = zip_bytes([("good", b"good"), ("a", os.urandom(100))], file_size=size)
    refused(tmp_path, content, ".zip", "CRC|fewer than|the limit|damaged")


@pytest.mark.parametrize("count", [0, 99, 101, 2**20])
def test_what_is_written_is_held_to_what_the_header_says(tmp_path, monkeypatch, count):
    content = zip_bytes([("a", bytes(100))])
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: io.BytesIO(bytes(count)))
    more = "more" if count > 100 else "fewer"
    refused(tmp_path, content, ".zip", f"member 'a' holds {more} than the 100 bytes")


def test_an_endless_member_is_left_at_once(tmp_path, monkeypatch):
    class Endless(io.BytesIO):
        chunks = 0

        def read(self, size: int | None = -1) -> bytes:
            self.chunks += 1
            assert self.chunks < 3
            return bytes(size or 0)

    content = zip_bytes([("a", bytes(100))])
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: Endless())
    refused(tmp_path, content, ".zip", "member 'a' holds more than the 100 bytes")


def test_a_file_is_not_overwritten_even_where_two_names_are_the_same_unexpectedly(tmp_path, monkeypatch):
    monkeypatch.setattr(archives.Unpacking, "claim", lambda *_, **__: None)
    refused(tmp_path, zip_bytes([("a", b"1"), ("a", b"2")]), ".zip", "FileExistsError")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_beginning_of_an_archive_passes_for_the_whole(tmp_path, suffix):
    content = archive_bytes(suffix, [("a.txt", b"alpha" * 100), ("b.txt", b"beta" * 200)])
    # The end of a tar is any block of zeros.
    end = 2 * 512 + 512 + 1024 + 511 if suffix == ".tar" else len(content) - 1
    for length in {*range(0, end, 67), *range(0, end, 512), end}:
        refused(tmp_path, content[:length], suffix, "could not be unpacked.*get it again")


def test_a_damaged_header_does_not_pass_for_the_end(tmp_path):
    content = bytearray(tar_bytes([("a", b"1"), ("b", b"2"), ("c", b"3")]))
    content[1024 + 5] ^= 1
    refused(tmp_path, bytes(content), ".tar", "could not be unpacked.*cut short")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", bytes(100), os.urandom(5000)])
def test_a_file_of_another_kind_is_refused(tmp_path, suffix, content):
    refused(tmp_path, content, suffix, "of another format than its name says: get it again")


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tgz"])
@given(data=st.data())
@settings(max_examples=40)
def test_whatever_bytes_are_damaged_it_is_unpacked_or_refused_and_never_half(suffix, data):
    members = [("a.txt", b"alpha" * 30), ("b/c.txt", bytes(range(256))), ("d", b"")]
    content = bytearray(archive_bytes(suffix, members))
    places = st.integers(0, min(len(content), 3000) - 1)
    for place in data.draw(st.lists(places, min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as name:
        archive = Path(name) / f"archive{suffix}"
        archive.write_bytes(content)
        try:
            unpack(archive, Path(name) / "target", progress=False)
        except DataError:
            assert os.listdir(name) == [archive.name]  # noqa: PTH208
        else:
            assert sorted(os.listdir(name)) == [archive.name, "target"]  # noqa: PTH208


awkward = st.text(st.sampled_from("./\\:Ca ~\0") | st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)


@pytest.mark.parametrize("suffix", [".zip", ".tar"])
@given(member_names=st.lists(awkward | awkward.map(lambda name: "../" + name), min_size=1, max_size=3))
@settings(max_examples=80)
def test_whatever_the_names_nothing_is_written_outside_of_the_target(suffix, member_names):
    content = archive_bytes(suffix, [(name, b"bad") for name in member_names])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "a", "b", "c")
        folder.mkdir(parents=True)
        archive = folder / f"archive{suffix}"
        archive.write_bytes(content)
        before = tree(Path(name))
        target = folder / "target"
        try:
            unpack(archive, target, progress=False)
        except DataError:
            assert tree(Path(name)) == before
        else:
            assert not any(part == ".." for name in member_names for part in name.split("/"))
            assert not any(name.startswith("/") or "\\" in name or "\0" in name for name in member_names)
            after = tree(Path(name))
            inside = {path for path in after if path == "a/b/c/target" or path.startswith("a/b/c/target/")}
            assert {path: content for path, content in after.items() if path not in inside} == before
            assert all(after[path] in (None, b"bad") for path in inside)


def test_a_target_that_exists_is_left_alone(tmp_path):
    archive = tmp_path / "a.zip"
    archive.write_bytes(zip_bytes([("a", b"1")]))
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"mine")
    for name in ("folder", "file"):
        with pytest.raises(DataError, match=f"{name} exists already and is not overwritten: delete it"):
            unpack(archive, tmp_path / name)
    assert tree(tmp_path) == {"a.zip": archive.read_bytes(), "folder": None, "file": b"mine"}


def test_a_target_that_appears_meanwhile_is_left_alone(tmp_path, monkeypatch):
    write = archives.Unpacking.write

    def meanwhile(*arguments: object) -> None:
        write(*arguments)
        (tmp_path / "target").mkdir()
        (tmp_path / "target" / "mine").write_bytes(b"mine")

    monkeypatch.setattr(archives.Unpacking, "write", meanwhile)
    archive = tmp_path / "a.zip"
    archive.write_bytes(zip_bytes([("a", b"1")]))
    with pytest.raises(DataError, match=r"could not be unpacked.*choose another folder"):
        unpack(archive, tmp_path / "target", progress=False)
    assert tree(tmp_path) == {"a.zip": archive.read_bytes(), "target": None, "target/mine": b"mine"}


@pytest.mark.parametrize(
    ("error", "seen", "match"),
    [
        (KeyboardInterrupt("stop"), KeyboardInterrupt, "stop"),
        (OSError(28, "No space left on device"), DataError, r"could not be unpacked.*No space left.*Make room"),
        (OSError(22, "Invalid argument"), DataError, r"could not be unpacked.*Invalid argument.*get it again"),
    ],
)
def test_an_interrupt_and_a_full_disk_leave_nothing(tmp_path, monkeypatch, error, seen, match):
    def fail(*_: object) -> None:
        raise error

    archive = tmp_path / "a.zip"
    archive.write_bytes(zip_bytes([("folder/", b""), ("a", b"1")]))
    monkeypatch.setattr(archives.Unpacking, "write", fail)
    with pytest.raises(seen, match=match):
        unpack(archive, tmp_path / "new" / "target", progress=False)
    assert tree(tmp_path) == {"a.zip": archive.read_bytes()}


def test_arguments_that_cannot_be_meant_are_named(tmp_path):
    with pytest.raises(DataError, match=r"a.zip is not a file: give the path of a \.zip"):
        unpack(tmp_path / "a.zip", tmp_path / "target")
    (tmp_path / "a.rar").write_bytes(b"Rar!")
    with pytest.raises(DataError, match=r"a.rar: only \.zip, \.tar, \.tar\.gz, \.tgz can be unpacked"):
        unpack(tmp_path / "a.rar", tmp_path / "target")
    for limit in ("max_members", "max_bytes", "max_ratio"):
        with pytest.raises(ValueError, match=f"{limit}=0: it must be 1 or more"):
            unpack(tmp_path / "a.rar", tmp_path / "target", **{limit: 0})
    assert tree(tmp_path) == {"a.rar": b"Rar!"}
