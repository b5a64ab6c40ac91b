"""Named data sets: some are part of the package, one is downloaded, of the others you have a local copy."""

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
from metaclust.data.preparation.text import PAPER_RULES, find_words
from metaclust.data.readers.arrays import load_arrays
from metaclust.data.readers.columns import Columns
from metaclust.data.readers.images import decode_many, read_image_folder
from metaclust.data.readers.tables import read_table
from metaclust.data.rows import DataError, Kind, Rows

TABLES = tuple(f"data{ending}" for ending in (".jsonl.gz", ".jsonl", ".csv.gz", ".csv", ".parquet"))


@dataclass(frozen=True)
class Dataset:
    """Rows ``X``, one integer label ``y`` for each, and the names of the categories that the labels number.

    ``X`` is uint8 (rows, channels, height, width) for images, a list of strings for text, a sparse array for bags of
    words. ``groups`` is what each category belongs to, where there is such a thing: its alphabet, its domain.
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

    @property
    def card(self) -> Card:
        return CARDS[self.name]

    def rows(self) -> Rows:
        """As the readers of files give them."""
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
    """A data set by name; `metaclust data list` shows them all, ``Dataset.card`` says where each comes from.

    Local copies are looked for in ``root``, or in the folder that the environment variable METACLUST_DATA names, or in
    the user's data folder. ``download=True`` gets Omniglot if it is not there.

    ``part`` is for Omniglot: "background" (964 characters, the paper's), "evaluation" (659) or "both". ``size`` is 28
    or 105 for Omniglot (ink is 255), and any for mini-imagenet (84).

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
    if name == "caltech101":
        return read_caltech(folder, progress)
    return read_text(name, folder)


def read_icons() -> Dataset:
    arrays = load_arrays(Path(__file__).parent / "icons" / "icons_32.npz", ("images", "labels", "label_names"))
    names = [str(category) for category in arrays["label_names"]]
    return Dataset("icons", arrays["images"][:, None], arrays["labels"].astype(np.int64), names)


def read_caltech(folder: Path, progress: bool) -> Dataset:
    file = folder / "caltech101_jpeg64.npz"
    if not file.is_file():
        return from_rows("caltech101", read_image_folder(folder, size=64, channels=3, fit="crop", progress=progress))
    arrays = load_arrays(file, ("jpeg", "offsets", "labels", "names"))
    content, ends = arrays["jpeg"].tobytes(), arrays["offsets"].tolist()
    jpegs = [content[start:end] for start, end in pairwise(ends)]
    names = [f"{file.name}, image {i}" for i in range(len(jpegs))]
    images, _ = decode_many(jpegs, names, 64, 64, 3, progress=progress)
    categories = [str(category) for category in arrays["names"]]
    return Dataset("caltech101", images, arrays["labels"].astype(np.int64), categories)


def read_text(name: str, folder: Path) -> Dataset:
    """A table of labelled texts; those of the paper as bags of words by its rules."""
    file = next((folder / table for table in TABLES if (folder / table).is_file()), None)
    if file is None:
        raise FileNotFoundError(f"there is no {', '.join(TABLES)} in {folder}: {CARDS[name].how}")
    rows = replace(read_table(file, Columns(label="label", text="text"), "text", "drop"), source=str(file))
    if name in PAPER_RULES:
        words, kept = find_words(rows, PAPER_RULES[name], "counts")
        counts = Rows("vectors", words(kept), kept.ids, kept.labels, words.vocabulary, kept.source, kept.notes)
        return from_rows(name, counts)
    return from_rows(name, rows, group_of(name, file))


def group_of(name: str, file: Path) -> dict[str, str] | None:
    """What each category belongs to."""
    column = {"clinc150": "domain", "web-directory": "list"}.get(name)
    if column is None:
        return None
    try:
        groups = read_table(file, Columns(label="label", text=column), "text", "drop")
    except DataError:
        return None
    return dict(zip(groups.labels or [], [str(group) for group in groups.values], strict=True))


def from_rows(name: str, rows: Rows, groups: dict[str, str] | None = None) -> Dataset:
    y, categories = rows.numbered()
    belonging = None if groups is None else [groups[category] for category in categories]
    return Dataset(name, rows.values, y, categories, rows.kind, belonging, rows.columns)


def obtain_omniglot(root: str | os.PathLike[str] | None, download: bool, progress: bool, size: int) -> Path:
    """The folder of a local copy, made from the archives that lie in it, or downloaded if asked for."""
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
