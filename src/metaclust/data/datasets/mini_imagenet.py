"""Mini-imagenet: a folder of category folders, or the usual csv splits beside one folder of images."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from metaclust.data.preparation.vocabulary import texts_of
from metaclust.data.readers.choice import Columns
from metaclust.data.readers.decoding import Decoding
from metaclust.data.readers.folders import EXTENSIONS
from metaclust.data.readers.images import decode_many
from metaclust.data.readers.tables import read_table
from metaclust.data.rows import DataError, DataWarning, Rows, listed

SPLITS = ("train", "val", "test")
ROWS = 101
"""Images a category, as in the paper."""


def read_mini_imagenet(
    folder: Path, *, size: int = 84, rows: int = ROWS, seed: int = 0, progress: bool = True
) -> tuple[Rows, dict[str, str] | None]:
    """Return ``rows`` images of each category, drawn by ``seed``, and the split that each category is in."""
    if (folder / "images").is_dir() and any((folder / f"{split}.csv").is_file() for split in SPLITS):
        files = from_tables(folder)
    else:
        files = from_folders(folder)
    groups = {category: split for _, category, split in files}
    chosen: list[tuple[Path, str]] = []
    few: list[str] = []
    for number, category in enumerate(sorted(groups)):
        members = sorted(file for file, name, _ in files if name == category)
        if len(members) < rows:
            few.append(category)
        draw = np.random.default_rng([seed, 0x1A6, number])
        kept = np.sort(draw.choice(len(members), min(rows, len(members)), replace=False))
        chosen += [(members[i], category) for i in kept]
    if few:
        warnings.warn(
            f"{folder}: {len(few)} categories have fewer than {rows} images, all are used: {listed(few)}",
            DataWarning,
            stacklevel=3,
        )
    names = [str(file.relative_to(folder)) for file, _ in chosen]
    images, _ = decode_many([file for file, _ in chosen], names, Decoding(size, size, 3), progress=progress)
    labels = [category for _, category in chosen]
    return Rows("images", images, names, labels, source=str(folder)), groups if any(groups.values()) else None


def from_tables(folder: Path) -> list[tuple[Path, str, str]]:
    """Return (file, category, split) from train.csv, val.csv and test.csv with the columns filename and label."""
    files: list[tuple[Path, str, str]] = []
    for split in SPLITS:
        table = folder / f"{split}.csv"
        if not table.is_file():
            continue
        rows = read_table(table, Columns(label="label", text="filename", keep=()), "text")
        for name, category in zip(texts_of(rows), rows.labels or [], strict=True):
            file = folder / "images" / str(name)
            if Path(str(name)).name != name:
                raise DataError(f"{table}: the file name {name!r} leads out of images/: only plain file names are read")
            files.append((file, category, split))
    absent = [str(file.name) for file, _, _ in files if not file.is_file()]
    if absent:
        raise DataError(
            f"{folder / 'images'} lacks {len(absent):,} of the {len(files):,} listed files: {listed(absent)}"
        )
    return files


def from_folders(folder: Path) -> list[tuple[Path, str, str]]:
    """Return (file, category, split) from CATEGORY/FILE or SPLIT/CATEGORY/FILE."""
    files: list[tuple[Path, str, str]] = []
    for file in sorted(folder.rglob("*")):
        if file.suffix.lower() in EXTENSIONS["images"] and file.is_file():
            parts = file.relative_to(folder).parts
            split = parts[0] if len(parts) > 2 and parts[0] in SPLITS else ""
            if len(parts) > 1:
                files.append((file, parts[-2], split))
    if not files:
        raise DataError(
            f"{folder} holds no folder of images and no train.csv, val.csv, test.csv beside images/: put one of the "
            "two there"
        )
    return files
