"""Named data sets: part of the package, downloaded, or read from a local copy."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from metaclust.data.datasets.cards import CARDS, Card
from metaclust.data.datasets.mini_imagenet import read_mini_imagenet
from metaclust.data.datasets.omniglot import PARTS, Part, get_omniglot, read_omniglot
from metaclust.data.datasets.places import OMNIGLOT_FILES, local_folder, roots
from metaclust.data.kinds import Kind, kind_named
from metaclust.data.preparation.vocabulary import PAPER_RULES, find_words, texts_of
from metaclust.data.readers.choice import Columns
from metaclust.data.readers.decoding import Decoding
from metaclust.data.readers.images import decode_many, read_image_folder
from metaclust.data.readers.npy import load_arrays
from metaclust.data.readers.tables import read_table
from metaclust.data.rows import DataError, Rows

TABLES = tuple(f"data{ending}" for ending in (".jsonl.gz", ".jsonl", ".csv.gz", ".csv", ".parquet"))
PACKED = {"caltech101": ("caltech101_jpeg64.npz", 64), "grocery": ("grocery_jpeg96.npz", 96)}
"""Photographs by data set: their file, and the pixels of a side."""


@dataclass(frozen=True)
class Dataset:
    """A named data set.

    Parameters
    ----------
    name : str
        As in ``metaclust data list``.
    X : array, sparse array or list of str
        uint8 (rows, channels, height, width) for images, a list of strings for text, a sparse array for bags of words.
    y : array of int
        The category of each row, as a number.
    categories : list of str
        The names of the categories, by number.
    kind : {"vectors", "images", "text"}
        What the rows are.
    groups : list of str, optional
        What each category belongs to, where there is such a thing: its alphabet, its domain.
    columns : tuple of str
        The words that the columns of a bag of words count.
    """

    name: str
    X: Any
    y: NDArray[np.int64]
    categories: list[str]
    kind: Kind = "images"
    groups: list[str] | None = None
    columns: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        rows = f"{len(self):,} {kind_named(self.kind).plural}"
        return f"<Dataset {self.name}: {rows}, {len(self.categories):,} categories>"

    @property
    def card(self) -> Card:
        """Source, licence, size and citation."""
        return CARDS[self.name]

    def rows(self) -> Rows:
        """Return the rows with their labels, as the readers of files do."""
        ids = [str(i) for i in range(len(self))]
        return Rows(self.kind, self.X, ids, [self.categories[i] for i in self.y], self.columns, self.name)


def load_dataset(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    part: Part = "background",
    size: int | None = None,
    download: bool = False,
    progress: bool = True,
) -> Dataset:
    """Return a data set by name; ``Dataset.card`` says where it comes from.

    Parameters
    ----------
    name : str
        One of those that ``metaclust data list`` shows.
    root : str or path, optional
        The folder of local copies; by default the one that the environment variable METACLUST_DATA names, then the
        user's data folder.
    part : {"background", "evaluation", "both"}
        Of Omniglot: 964 characters (the paper's), the other 659, or both.
    size : int, optional
        Pixels of a side: 28 (the default) or 105 for Omniglot, whose ink is 255; any for mini-imagenet (default 84).
    download : bool
        Download Omniglot if it is not there.
    progress : bool
        Show progress bars.

    >>> data = load_dataset("icons")
    >>> len(data), len(data.categories), data.X.shape[1:]
    (11499, 419, (1, 32, 32))
    """
    if name not in CARDS:
        raise ValueError(f"name={name!r} is not a data set: choose one of {', '.join(CARDS)}")
    if part not in PARTS:
        raise ValueError(f"part={part!r}: choose 'background', 'evaluation' or 'both'")
    if name != "omniglot" and part != "background":
        raise ValueError(f"part={part!r}: only omniglot has parts, {name} has none; leave it out")
    if size is not None and name not in ("omniglot", "mini-imagenet"):
        raise ValueError(f"size={size!r}: {name} has one size only; leave it out")
    if name == "icons":
        return read_icons()
    if name == "digits":
        digits = load_digits()
        x = np.rint(digits.images * (255 / 16)).astype(np.uint8)[:, None]
        return Dataset(name, x, digits.target.astype(np.int64), [str(i) for i in range(10)])
    if name == "omniglot":
        folder = obtain_omniglot(root, download, progress, size or 28)
        images, y, categories, alphabets = read_omniglot(folder, part, size or 28)
        return Dataset(name, images, y, categories, groups=alphabets)
    folder = local_folder(CARDS[name], root)
    if name == "mini-imagenet":
        rows, groups = read_mini_imagenet(folder, size=size or 84, progress=progress)
        return from_rows(name, rows, groups)
    if name in PACKED:
        return read_packed(name, folder, progress)
    return read_text(name, folder)


def read_icons() -> Dataset:
    arrays = load_arrays(Path(__file__).parent / "icons" / "icons_32.npz", ("images", "labels", "label_names"))
    names = [str(category) for category in arrays["label_names"]]
    return Dataset("icons", arrays["images"][:, None], arrays["labels"].astype(np.int64), names)


def read_packed(name: str, folder: Path, progress: bool) -> Dataset:
    """Return photographs of one size: JPEG files one after another in an .npz, or class folders of files."""
    packed, side = PACKED[name]
    file = folder / packed
    if not file.is_file():
        return from_rows(name, read_image_folder(folder, size=side, channels=3, fit="crop", progress=progress))
    arrays = load_arrays(file, ("jpeg", "offsets", "labels", "names"))
    content, ends = arrays["jpeg"].tobytes(), arrays["offsets"].tolist()
    jpegs = [content[start:end] for start, end in pairwise(ends)]
    names = [f"{file.name}, image {i}" for i in range(len(jpegs))]
    images, _ = decode_many(jpegs, names, Decoding(side, side, 3), progress=progress)
    categories = [str(category) for category in arrays["names"]]
    return Dataset(name, images, arrays["labels"].astype(np.int64), categories)


def read_text(name: str, folder: Path) -> Dataset:
    """Return a table of labelled texts; those of the paper as bags of words by its rules."""
    file = next((folder / table for table in TABLES if (folder / table).is_file()), None)
    if file is None:
        raise FileNotFoundError(f"there is no {', '.join(TABLES)} in {folder}: {CARDS[name].how}")
    rows = replace(read_table(file, Columns(label="label", text="text", keep=()), "text", "drop"), source=str(file))
    if name in PAPER_RULES:
        words, kept = find_words(rows, PAPER_RULES[name], "counts")
        counts = Rows("vectors", words(kept), kept.ids, kept.labels, words.vocabulary, kept.source, kept.notes)
        return from_rows(name, counts)
    return from_rows(name, rows, group_of(name, file))


def group_of(name: str, file: Path) -> dict[str, str] | None:
    """Return what each category belongs to."""
    column = {"clinc150": "domain", "web-directory": "list"}.get(name)
    if column is None:
        return None
    try:
        groups = read_table(file, Columns(label="label", text=column, keep=()), "text", "drop")
    except DataError:
        return None
    return dict(zip(groups.labels or [], texts_of(groups), strict=True))


def from_rows(name: str, rows: Rows, groups: dict[str, str] | None = None) -> Dataset:
    y, categories = rows.numbered()
    group_names = None if groups is None else [groups[category] for category in categories]
    return Dataset(name, rows.values, y, categories, rows.kind, group_names, rows.columns)


def obtain_omniglot(root: str | os.PathLike[str] | None, download: bool, progress: bool, size: int) -> Path:
    """Return the folder of a local copy, made from the archives that lie in it, or downloaded if asked for."""
    card = CARDS["omniglot"]
    for base in roots(root):
        folder = base / card.folder
        if (folder / OMNIGLOT_FILES.get(size, OMNIGLOT_FILES[28])).is_file():
            return folder
        if (folder / "images_background.zip").is_file() and (folder / "images_evaluation.zip").is_file():
            return get_omniglot(folder, progress=progress)
    if download:
        return get_omniglot(roots(root)[0] / card.folder, progress=progress)
    return local_folder(card, root, OMNIGLOT_FILES.get(size, OMNIGLOT_FILES[28]))
