"""Small real data files of each kind, the same in every process."""

from __future__ import annotations

import gzip
import io
import wave
import zipfile
from collections.abc import Callable
from datetime import date, timedelta
from functools import cache

import numpy as np
import polars as pl
from PIL import Image

NUMBERS = "id,a,b,label\n" + "".join(f"r{i},{i * 0.5},{-i},{'xyz'[i % 3]}\n" for i in range(6))
TEXTS = 'id,text,label\n1,"one, two ""three""",x\n2,"a text of\ntwo lines",y\n3,plain words here,x\n'


PLANS, SINCE = ("free", "", "pro"), ("2024-01-05", "2024-02-29 12:30", "NA")
MIXED = "user_id,plan,since,age,label\n" + "".join(
    f"{900 + i},{PLANS[i % 3]},{SINCE[i % 3]},{'' if i == 4 else i},{'xy'[i % 2]}\n" for i in range(9)
)


def csv_files() -> list[bytes]:
    return [
        MIXED.encode(),
        NUMBERS.encode(),
        TEXTS.encode(),
        NUMBERS.replace(",", ";").encode(),
        NUMBERS.replace("\n", "\r\n").encode(),
    ]


def tsv_files() -> list[bytes]:
    return [NUMBERS.replace(",", "\t").encode()]


def text_files() -> list[bytes]:
    return [b"text\nwhat a fine day it is\nanother line of text\n\nand one more \xc3\xa9t\xc3\xa9\n"]


def gzip_files() -> list[bytes]:
    return [gzip.compress(content, mtime=0) for content in csv_files()]


def json_files() -> list[bytes]:
    return [
        b'{"text": "what a fine day", "label": "x"}\n{"text": "an \\u00e9t\\u00e9 \\"quoted\\"", "label": "y"}\n',
        b'{"a": 1, "b": 2.5, "id": 7}\n{"a": 3, "b": -1e3, "id": 8}\n{"a": 0, "b": 0, "id": 9}\n',
        b'{"embedding": [0.5, 1, 2], "label": 3}\n{"embedding": [1, 2, 3.5], "label": 4}\n',
        b"".join(b'{"plan": "%s", "age": %d, "at": null, "label": "x"}\n' % (b"ab"[i % 2 :][:1], i) for i in range(8)),
        b'{"a": true, "more": {"deep": [1, 2]}}\n{"a": false, "more": {"deep": []}}\n',
    ]


def saved(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def array_file(array: np.ndarray) -> bytes:
    return saved(lambda file: np.save(file, array))


def wave_file(width: int, channels: int) -> bytes:
    def write(file: io.BytesIO) -> None:
        with wave.open(file, "wb") as sound:
            sound.setparams((channels, width, 8_000, 0, "NONE", ""))
            sound.writeframes(np.arange(100 * width * channels, dtype=np.uint8).tobytes())

    return saved(write)


def wave_files() -> list[bytes]:
    return [wave_file(width, channels) for width, channels in ((1, 1), (2, 1), (2, 2), (3, 1), (4, 2))]


def flac_files() -> list[bytes]:
    import soundfile

    sound = np.sin(np.arange(400) / 9)
    forms = (("FLAC", "PCM_16"), ("FLAC", "PCM_24"), ("WAV", "FLOAT"))
    return [saved(lambda file, f=f, t=t: soundfile.write(file, sound, 8_000, t, format=f)) for f, t in forms]


def matrices() -> list[bytes]:
    values = np.arange(24.0).reshape(8, 3)
    return [array_file(values.astype(kind)) for kind in ("<f8", ">f4", "<i2", "?", "<f2")] + [
        array_file(np.asfortranarray(values))
    ]


def npy_files() -> list[bytes]:
    return [
        *matrices(),
        array_file(np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)),
        array_file(np.array(["one text", "and \xe9t\xe9"])),
        array_file(np.array([b"one text", b"another"])),
    ]


def npz_files() -> list[bytes]:
    x, y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 0, 1])
    names = np.array(["cat", "dog"])
    return [
        saved(lambda file: np.savez(file, X=x, y=y, label_names=names, ids=np.array(list("abcd")))),
        saved(lambda file: np.savez_compressed(file, X=x.astype("f4"), y=y)),
        saved(lambda file: np.savez(file, texts=np.array(["a text", "another"]), labels=np.array(["u", "v"]))),
    ]


def frames() -> list[pl.DataFrame]:
    day = date(2024, 1, 1)
    return [
        pl.DataFrame({"id": ["a", "b", "c"], "x": [1.5, 2.0, 3.0], "y": [1, 2, 3], "label": ["u", "v", "u"]}),
        pl.DataFrame({"text": ["some words here", "more of them", "the last"], "label": [1, 2, 1]}),
        pl.DataFrame({"v": [[1.0, 2.0], [3.0, 4.0]], "day": [day, day], "wait": [timedelta(1), timedelta(2)]}),
        pl.DataFrame({"b": [True, False] * 20, "n": range(40), "s": [{"p": i} for i in range(40)]}),
        pl.DataFrame({"plan": ["a", "b", None] * 4, "day": [day, None] * 6, "n": range(12), "label": ["u", "v"] * 6}),
        pl.DataFrame({"x": [0.25] * 500, "label": ["same"] * 250 + ["other"] * 250}),
    ]


@cache
def parquet_files() -> tuple[bytes, ...]:
    return tuple(
        saved(lambda file, frame=frame, way=way: frame.write_parquet(file, compression=way))  # type: ignore[misc]
        for frame in frames()
        for way in ("zstd", "snappy", "uncompressed")
    )


@cache
def numeric_parquet_files() -> tuple[bytes, ...]:
    numeric = [
        pl.DataFrame({"x": [1.5, 2.0, 3.0], "y": [1, 2, 3]}),
        pl.DataFrame({"x": [0.25] * 500, "y": [True] * 500}),
    ]
    return tuple(
        saved(lambda file, frame=frame, way=way: frame.write_parquet(file, compression=way))  # type: ignore[misc]
        for frame in numeric
        for way in ("zstd", "uncompressed")
    )


def picture(kind: str, mode: str, size: tuple[int, int] = (9, 7)) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 4), np.uint8)
    image = Image.fromarray(pixels, "RGBA").convert(mode)
    return saved(lambda file: image.save(file, kind))


@cache
def png_files() -> tuple[bytes, ...]:
    return tuple(picture("PNG", mode) for mode in ("RGB", "L", "1", "RGBA", "LA", "P", "I;16"))


@cache
def jpeg_files() -> tuple[bytes, ...]:
    return tuple(picture("JPEG", mode, (40, 30)) for mode in ("RGB", "L"))


@cache
def archives() -> tuple[bytes, ...]:
    def write(file: io.BytesIO, way: int) -> None:
        with zipfile.ZipFile(file, "w", way) as archive:
            for name in ("a/0.png", "a/1.png", "b/0.png"):
                archive.writestr(zipfile.ZipInfo(name), picture("PNG", "L"))

    return tuple(saved(lambda file, way=way: write(file, way)) for way in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))  # type: ignore[misc]
