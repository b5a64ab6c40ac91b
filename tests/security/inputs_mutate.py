"""Mutations that know the format of a data file: headers, shapes, types, nesting, quotes, huge fields, encodings."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import numpy as np
import polars as pl
from harness import damaged

Mutation = Callable[[bytes, Random], bytes]
CELLS = (
    "", " ", "nan", "NaN", "inf", "-inf", "1e999", "-1e-999", "0x10", "1,5", "10 %", "$1,000", "9" * 400,
    "=cmd|' /C calc'!A0", "\x1b[2Jred", "\u202egnp", "\ufeff", '"', '""', '"open', "a\nb", "\r", "\t", "\x00", "true",
    "null", "None", "007", "-", "x" * 200_000, "\U0010ffff", "2024-01-01", "label", "id", "^x$", "*", "[0]", "{}", "\\",
)  # fmt: skip
ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "utf-8-sig", "utf-7")
SHAPES = (0, 1, 2, 3, 8, 24, -1, -8, 2**31, 2**62, 2**64, 10**30)
TYPES = (
    "<f8", ">f8", "<f4", "<f2", "<f16", "<c16", "|b1", "|u1", "<i8", "|i1", "<u8", "|S3", "<U3", "<U0", "|S0",
    "|V4", "|V0", "|O", "O8", "<M8[D]", "<m8[s]", "<M8", "(2,)<f4", "<U99999999", "q", "", "f", "nonsense", "<f8,<i4",
)  # fmt: skip


def table(content: bytes, random: Random) -> bytes:
    """Change a csv: its cells, columns, lines, quotes or encoding."""
    text = content.decode()
    mark = "\t" if "\t" in text else ";" if ";" in text else ","
    lines = [line.split(mark) for line in text.split("\n")]
    row = random.choice(lines)
    way = random.randrange(11)
    if way <= 3:
        for _ in range(random.choice((1, 1, 3))):
            random.choice(lines)[random.randrange(len(row)) % len(row) : len(row)] = [random.choice(CELLS)]
    elif way == 4:
        lines[0][random.randrange(len(lines[0]))] = random.choice(
            (*CELLS, "x^2", "a", "text", "category", "Unnamed: 0")
        )
    elif way == 5:
        lines = [[*line, *map(str, range(random.choice((3, 3, 3, 3, 900))))] for line in lines]
    elif way == 6:
        lines[0] += [f"n{i}" for i in range(random.choice((5, 5, 5, 5, 3000)))]
    elif way == 7:
        lines = [line for line in lines for _ in range(random.choice((0, 1, 1, 2, 30)))]
    elif way == 8:
        lines.insert(random.randrange(len(lines) + 1), [random.choice(("", "\r", '"', mark, mark * 3, " "))])
    elif way == 9:
        return "\n".join(map(mark.join, lines)).encode(random.choice(ENCODINGS), "replace")
    else:
        packed = (gzip.compress, zlib.compress, lambda data: b"x\x5e" + data, lambda data: b"\x28\xb5\x2f\xfd" + data)
        return random.choice(packed)(content)
    return "\n".join(map(mark.join, lines)).encode("utf-8", "surrogatepass")


def gzipped(content: bytes, random: Random) -> bytes:
    """Change what is in a gzip file, or put something else into it."""
    way = random.randrange(12)
    if way == 0:
        return gzip.compress(content)
    if way == 1:
        return content + random.choice((content, b"\0" * 9, b"garbage", gzip.compress(b"")))
    if way == 2 and random.random() < 0.05:
        return gzip.compress(b"a,b\n" + b"0,0\n" * 2**25)
    plain = gzip.decompress(content)
    return gzip.compress(table(plain, random) if way < 9 else damaged(plain, random))


JSON = (
    None, True, -1, 0.5, 1e308, 10**400, "", " ", "word", "\x1b[2J", "\ud800", "\x00", [], [[]], [1, 2], [1, "a"],
    [None], {}, {"": 1}, {"a": {"b": [1]}}, "x" * 100_000, [0.5] * 3000,
)  # fmt: skip


def json_lines(content: bytes, random: Random) -> bytes:
    """Change lines of JSON: values, keys, nesting, what is no JSON."""
    lines: list[Any] = [json.loads(line) for line in content.decode().splitlines()]
    line = random.choice(lines)
    way = random.randrange(9)
    if way <= 3:
        line[random.choice([*line, "label", "id", "text", "new", ""])] = random.choice(JSON)
    elif way == 4:
        line.pop(random.choice(list(line)))
    elif way == 5:
        line |= {f"k{i}": i for i in range(random.choice((10, 10, 10, 10, 1000)))}
    elif way == 6:
        lines.insert(random.randrange(len(lines) + 1), random.choice(JSON))
    written = [json.dumps(each, ensure_ascii=random.random() < 0.7) for each in lines]
    if way == 7:
        depth, mark = random.choice((5, 31, 33, 300, 20_000)), random.choice(("[", '{"a":'))
        close = random.choice(("", "1" + ("]" if mark == "[" else "}") * depth))
        written.append(f'{{"a": {mark * depth}{close}}}')
    elif way == 8:
        odd = (
            "{'a': 1}",
            '{"a": NaN}',
            '{"a": 1} {"a": 2}',
            '{"a": 1, "a": 2}',
            "[1, 2]",
            "1",
            "\ufeff{}",
            '{"a": 01}',
            "//",
        )
        written.insert(random.randrange(len(written) + 1), random.choice(odd))
    text = random.choice(("\n", "\n", "\n", "\r\n", "\n\n", "\r")).join(written)
    return text.encode(random.choice(ENCODINGS) if random.random() < 0.05 else "utf-8", "replace")


def npy(content: bytes, random: Random) -> bytes:
    """Change the header of a .npy file: shape, type, order, version, length; or give it other values."""
    start = 10 + struct.unpack("<H", content[8:10])[0]
    header, values = content[10:start].decode("latin-1"), content[start:]
    described = eval(header)  # noqa: S307 - a header of our own
    way = random.randrange(10)
    if way <= 2:
        described["shape"] = tuple(random.choice(SHAPES) for _ in range(random.choice((0, 1, 2, 2, 3, 4, 5, 40))))
    elif way <= 4:
        described["descr"] = random.choice((*TYPES, [("a", "<f4")], [("a", "|O")], [("", "<f4")], ["<f8"]))
    elif way == 5:
        described["fortran_order"] = random.choice((True, False, 2, "yes", None))
    elif way == 6:
        return np_file(random)
    elif way == 7:
        kind = np.dtype(described["descr"])
        values = random.randbytes(int(np.prod(described["shape"])) * kind.itemsize)
    written = repr(described)
    if way == 8:
        odd = (
            "(" * 4000,
            "{" * 300,
            "[" * 9000,
            "1" * 9000,
            "__import__('os')",
            "{}",
            "\x00",
            written * 2,
            written[:-2],
        )
        written = random.choice(odd)
    version = random.choice((b"\x01\x00",) * 8 + (b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    written = written.encode("latin-1", "replace").decode("latin-1") + "\n"
    size = len(written) if way != 9 else random.choice((0, 1, 65535, len(written) + 1))
    length = struct.pack("<H" if version[0] == 1 else "<I", size)
    return b"\x93NUMPY" + version + length + written.encode("latin-1") + values


def np_file(random: Random) -> bytes:
    """Return a good .npy file of random bytes in an odd type and shape."""
    kind = np.dtype(
        random.choice(("<f8", "<f4", "<f2", "?", "<U2", "|S3", "<c8", "<M8[s]", "<i8", "<u8", ">f8", "<f16"))
    )
    shape = random.choice(((), (3,), (0,), (2, 2), (3, 0), (0, 3), (2, 3, 3), (2, 3, 3, 1), (1, 1, 1, 1, 1)))
    data = random.randbytes(int(np.prod(shape)) * kind.itemsize)
    file = io.BytesIO()
    np.save(file, np.frombuffer(data, kind).reshape(shape))
    return file.getvalue()


def npz(content: bytes, random: Random) -> bytes:
    """Change the members of an .npz file, or the directory that describes them."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place = random.randrange(len(members))
    name, inner = members[place]
    way = random.randrange(9)
    if way <= 3:
        members[place] = (name, npy(inner, random))
    elif way == 4:
        members[place] = (
            random.choice(("y.npy", "X", "../X.npy", "X.npy", "ids.npy", "names.npy", "", "\x1b.npy")),
            inner,
        )
    elif way == 5:
        members.append((random.choice(("ids.npy", "y.npy", "new.npy", "labels.npy", "readme.txt")), np_file(random)))
    elif way == 6:
        members.pop(place)
    method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    changed = bytearray(zipped(members, method if way == 7 else zipfile.ZIP_DEFLATED))
    if way == 8:
        scramble_directory(changed, random)
    return bytes(changed)


def zipped(members: list[tuple[str, bytes]], method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, inner in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            if name not in archive.NameToInfo:
                archive.writestr(info, inner)
    return file.getvalue()


def scramble_directory(content: bytearray, random: Random) -> None:
    """Change a field of the central directory of a zip: flags, method, sizes, lengths of names, place."""
    places = [i for i in range(len(content) - 46) if content[i : i + 4] == b"PK\x01\x02"]
    if places:
        start = random.choice(places)
        offset, size = random.choice(((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (38, 4), (42, 4)))
        value = random.choice((1, 0x2041, 9, 12, 14, 99, 2**16 - 1, 2**31, 2**32 - 1, random.randrange(2**32)))
        content[start + offset : start + offset + size] = (value % 2 ** (8 * size)).to_bytes(size, "little")


def archive(content: bytes, random: Random) -> bytes:
    """Change the members of a zip of images, or its directory."""
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        members = [(name, opened.read(name)) for name in opened.namelist()]
    place = random.randrange(len(members))
    name, inner = members[place]
    way = random.randrange(5)
    if way == 0:
        members[place] = (name, png(inner, random))
    elif way == 1:
        members[place] = (name, damaged(inner, random))
    elif way == 2:
        names = ("../x.png", "/x.png", "x.png", "a/0.PNG", "a", "a/b/c/d.png", "c:/x.png", "x\n.png", "a/0.png/x.png")
        members[place] = (random.choice(names), inner)
    elif way == 3:
        members.append((random.choice(("notes.txt", "a/1.gif", "d/", ".hidden.png")), inner))
    changed = bytearray(zipped(members, random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))))
    if way == 4:
        scramble_directory(changed, random)
    return bytes(changed)


def png(content: bytes, random: Random) -> bytes:
    """Change a chunk of a PNG and mend its checksum, or insert one."""
    chunks, place = [], 8
    while place + 12 <= len(content):
        size = int.from_bytes(content[place : place + 4], "big")
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += 12 + size
    which = random.randrange(len(chunks))
    name, data = chunks[which]
    way = random.randrange(6)
    if way == 0 and chunks[0][0] == b"IHDR":
        sides = [random.choice((0, 1, 9, 2**15, 2**31 - 1, 2**32 - 1)) for _ in range(2)]
        depths = bytes(random.choice((0, 1, 2, 3, 4, 6, 8, 16, 255)) for _ in range(5))
        chunks[0] = (b"IHDR", struct.pack(">II", *sides) + depths)
    elif way == 1:
        chunks[which] = (name, damaged(data, random))
    elif way == 2:
        chunks.pop(which)
    elif way == 3:
        chunks.insert(which, random.choice(chunks))
    elif way == 4:
        bomb = b"Comment\0\0" + zlib.compress(b"x" * 2**24)
        extra = (
            (b"zTXt", bomb),
            (b"iCCP", bomb),
            (b"tRNS", b"\1" * 9),
            (b"PLTE", b"\1" * 800),
            (b"eXIf", b"MM\0*" * 9),
        )
        chunks.insert(random.randrange(1, len(chunks) + 1), random.choice(extra))
    else:
        chunks[which] = (b"IDAT", zlib.compress(random.choice((b"", b"\0" * 10**6, b"\xff" * 99))))
    return content[:8] + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def parquet(content: bytes, random: Random) -> bytes:
    """Write other columns to a .parquet file, change its footer's length, or cut pages out of it."""
    way = random.randrange(4)
    if way == 0:
        place = len(content) - 8
        return content[:place] + random.choice((0, 1, 2**31, place, place - 4)).to_bytes(4, "little") + content[-4:]
    if way == 1:
        size = int.from_bytes(content[-8:-4], "little")
        start = len(content) - 8 - size
        return content[:start] + damaged(content[start:-8], random)[:size].ljust(size, b"\0") + content[-8:]
    if way == 2:
        first = random.randrange(4, max(5, len(content) // 2))
        return content[:first] + damaged(content[first : len(content) // 2], random) + content[len(content) // 2 :]
    columns = {name: random.choice(COLUMNS)() for name in random.sample(("id", "text", "label", "a", "b", "x"), 3)}
    file = io.BytesIO()
    pl.DataFrame(columns).write_parquet(file)
    return file.getvalue()


COLUMNS: tuple[Callable[[], pl.Series], ...] = (
    lambda: pl.Series([1.0, float("nan"), None]),
    lambda: pl.Series([1.0, float("inf"), -1e300]),
    lambda: pl.Series([b"\xff\xfe", b"", None]),
    lambda: pl.Series([timedelta(1), timedelta(2), None]),
    lambda: pl.Series([[1.0, 2.0], [3.0], None]),
    lambda: pl.Series([[1.0, 2.0], [3.0, 4.0], [None, 6.0]]),
    lambda: pl.Series([[[1.0]], [[2.0]], [[3.0]]]),
    lambda: pl.Series([{"a": 1}, {"a": 2}, None]),
    lambda: pl.Series(["one two three four", "", None]),
    lambda: pl.Series(["1", "x", "3"]),
    lambda: pl.Series([None, None, None]),
    lambda: pl.Series([True, False, None]),
    lambda: pl.Series([2**63, 0, 1], dtype=pl.UInt64),
    lambda: pl.Series(["u", "v", "u"], dtype=pl.Categorical),
    lambda: pl.Series(["1.5", "2.5", "3.5"]).cast(pl.Decimal(10, 2)),
    lambda: pl.Series([1, 2, 3]).cast(pl.Datetime("us")),
    lambda: pl.Series([1, 2, 3]).cast(pl.Time),
    lambda: pl.Series(["\x1b[2J", "\x00", "\u202e"]),
    lambda: pl.Series(np.eye(3), dtype=pl.Array(pl.Float64, 3)),
)
