"""Fuzzing of data files: tables, arrays, images and archives; a refusal is a DataError, a result sound rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random

import inputs_mutate as mutate
import inputs_seeds as seeds
import numpy as np
from harness import BadResult, FuzzKind, damaged, register
from scipy import sparse

from metaclust._util.terminal import printable
from metaclust.data.mixed_table import MixedTable
from metaclust.data.preparation.prepare import fit_preparation
from metaclust.data.readers.archives import unpack
from metaclust.data.readers.decoding import decode_image
from metaclust.data.readers.sources import read_data
from metaclust.data.readers.spectrogram import BANDS, log_mel
from metaclust.data.readers.waves import read_sound
from metaclust.data.rows import DataError, Rows
from metaclust.data.streams import row_stream
from metaclust.data.survey import survey

MAX_BYTES = 2**26
"""Small, so that what is within the limit also fits into what the harness allows."""


def sound(rows: Rows) -> None:
    """Raise BadResult unless rows are what the rest of the package relies on."""
    if not len(rows) or len(rows.ids) != (len(rows.values) if isinstance(rows.values, list) else rows.values.shape[0]):
        raise BadResult("no rows, or another number of ids")
    if rows.labels is not None and len(rows.labels) != len(rows):
        raise BadResult("another number of labels")
    if rows.partial is not None and (len(rows.partial) != len(rows) or rows.labels is not None):
        raise BadResult("another number of partial labels")
    if rows.table is not None:
        carried = rows.table.polars(dict(enumerate(rows.table.names)))
        if any(len(column) != len(rows) for column in carried):
            raise BadResult("columns to carry of another length")
    texts = list(rows.values) if isinstance(rows.values, list) else []
    if isinstance(rows.values, MixedTable):
        texts += sound_table(rows, rows.values)
    for text in (*rows.ids, *(rows.labels or ()), *(rows.partial or ()), *texts, *rows.columns):
        if not isinstance(text, str):
            raise BadResult(f"a {type(text).__name__} among strings")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadResult("a string that cannot be written as UTF-8") from error
    if not all(text.strip() for text in (*(rows.labels or ()), *texts)):
        raise BadResult("a blank text or label")
    if rows.kind == "vectors":
        cells = rows.values.data if sparse.issparse(rows.values) else np.asarray(rows.values)
        if cells.dtype != np.float32 or not np.isfinite(cells).all():
            raise BadResult("vectors that are not finite float32")
    if rows.kind == "images" and (np.asarray(rows.values).dtype != np.uint8 or np.ndim(rows.values) != 4):
        raise BadResult("images that are not uint8 (rows, channels, height, width)")
    if not printable(rows).isprintable():
        raise BadResult("a description with control characters")


def sound_table(rows: Rows, values: MixedTable) -> list[str]:
    """Raise BadResult unless a table is sound and can be prepared; return its strings."""
    if rows.columns != tuple(values.frame.columns) or rows.columns != tuple(
        n for n in values.usage if n in rows.columns
    ):
        raise BadResult("other columns than those that are used")
    strings: list[str] = []
    for name in rows.columns:
        gaps = values.gaps(name)
        treatment = values.usage[name].treatment
        if treatment in ("category", "text"):
            strings += [cell for cell in values.strings(name) if cell is not None]
            continue
        cells = values.numbers(name) if treatment == "number" else values.days(name)
        if not (np.isfinite(cells) != gaps).all():
            raise BadResult(f"a {treatment} that is neither finite nor a gap")
    preparation, kept = fit_preparation(rows)
    if not bool(np.isfinite(preparation(kept).numpy()).all()):
        raise BadResult("prepared rows that are not finite")
    return strings


def read_rows(path: Path) -> None:
    # Half of the files may lack labels.
    partial = bool(path.stat().st_size % 2)
    sound(read_data(path, partial=partial, max_bytes=MAX_BYTES, progress=False))


def read_stream(path: Path) -> None:
    found = survey(row_stream(path), None, 100, 0)
    if not (np.isfinite(found.sample.numpy()).all() and np.isfinite(found.weight)):
        raise BadResult("a sample that is not finite")


def read_image(path: Path) -> None:
    if decode_image(path, 6, 5, 3, max_pixels=1_000_000).shape != (3, 6, 5):
        raise BadResult("an image of another shape")


def read_as_sound(path: Path) -> None:
    spectrogram = log_mel(read_sound(path))
    if spectrogram.dtype != np.uint8 or spectrogram.shape[0] != BANDS or not spectrogram.shape[1]:
        raise BadResult("a spectrogram of another shape")


def read_archive(path: Path) -> None:
    folder = path.with_name("unpacked")
    try:
        unpack(path, folder, max_bytes=MAX_BYTES, progress=False)
        sound(read_data(folder, max_bytes=MAX_BYTES, progress=False))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def either(structured: mutate.Mutation, share: float, content: bytes, random: Random) -> bytes:
    """Damage bytes, or what the format is made of, or both."""
    if random.random() < share:
        content = structured(content, random)
        if random.random() < 0.8:
            return content
    return damaged(content, random)


Seeds = Callable[[], Sequence[bytes]]
INPUTS: tuple[tuple[str, str, Seeds, mutate.Mutation, Callable[[Path], None]], ...] = (
    ("csv", ".csv", seeds.csv_files, partial(either, mutate.table, 0.6), read_rows),
    ("tsv", ".tsv", seeds.tsv_files, partial(either, mutate.table, 0.6), read_rows),
    ("txt.csv", ".csv", seeds.text_files, partial(either, mutate.table, 0.6), read_rows),
    ("csv.gz", ".csv.gz", seeds.gzip_files, partial(either, mutate.gzipped, 0.5), read_rows),
    ("jsonl", ".jsonl", seeds.json_files, partial(either, mutate.json_lines, 0.6), read_rows),
    ("npy", ".npy", seeds.npy_files, partial(either, mutate.npy, 0.7), read_rows),
    ("npy-stream", ".npy", seeds.matrices, partial(either, mutate.npy, 0.7), read_stream),
    ("npz", ".npz", seeds.npz_files, partial(either, mutate.npz, 0.6), read_rows),
    ("parquet", ".parquet", seeds.parquet_files, partial(either, mutate.parquet, 0.4), read_rows),
    ("parquet-stream", ".parquet", seeds.numeric_parquet_files, partial(either, mutate.parquet, 0.3), read_stream),
    ("png", ".png", seeds.png_files, partial(either, mutate.png, 0.5), read_image),
    ("jpeg", ".jpg", seeds.jpeg_files, damaged, read_image),
    ("images.zip", ".zip", seeds.archives, partial(either, mutate.archive, 0.5), read_archive),
)
if find_spec("soundfile") is not None:
    INPUTS += (
        ("wav", ".wav", seeds.wave_files, damaged, read_as_sound),
        ("flac", ".flac", seeds.flac_files, damaged, read_as_sound),
    )
NAMES = tuple(name for name, *_ in INPUTS)
for name, ending, make, mutation, attempt in INPUTS:
    # What is wrong with an archive may be an image in it.
    names_file = ending != ".zip"
    register(FuzzKind(name, ending, make, mutation, attempt, (DataError,), names_file))
