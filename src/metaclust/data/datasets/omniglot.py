"""Omniglot: two files of arrays, which are read here and made from the official archives."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from metaclust._util.files import replacing
from metaclust.data.datasets.download import download
from metaclust.data.datasets.places import OMNIGLOT_FILES
from metaclust.data.readers.archives import unpack
from metaclust.data.readers.decoding import Decoding
from metaclust.data.readers.images import decode_many
from metaclust.data.readers.npy import load_arrays
from metaclust.data.rows import DataError

Part = Literal["background", "evaluation", "both"]
PARTS: tuple[Part, ...] = ("background", "evaluation", "both")
SIZE = 105
URL = "https://github.com/brendenlake/omniglot/raw/master/python/"
ARCHIVES = {
    "images_background.zip": ("ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640", 9_464_212),
    "images_evaluation.zip": ("1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee", 6_462_886),
}
"""The official archives: SHA-256 and size, as TensorFlow Datasets lists them (url_checksums/omniglot.txt)."""


def read_omniglot(
    folder: Path, part: Part = "background", size: int = 28
) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[str], list[str]]:
    """Return images (rows, 1, size, size) with ink 255, labels, the names of the characters and their alphabets."""
    if size not in OMNIGLOT_FILES:
        raise ValueError(f"size={size!r}: Omniglot is kept at 28 and at 105 pixels")
    images = "images" if size == 28 else "images_packed"
    arrays = load_arrays(
        folder / OMNIGLOT_FILES[size], (images, "labels", "class_names", "class_part", "class_alphabet")
    )
    wanted = np.ones(len(arrays["class_part"]), bool) if part == "both" else arrays["class_part"] == part
    number = np.cumsum(wanted) - 1
    labels = arrays["labels"].astype(np.int64)
    rows = wanted[labels]
    x = arrays[images][rows]
    if size == SIZE:
        x = np.unpackbits(x, axis=1, count=SIZE * SIZE).reshape(-1, SIZE, SIZE)
        x *= np.uint8(255)
    names = [str(name) for name in arrays["class_names"][wanted]]
    return x[:, None], number[labels[rows]], names, [str(name) for name in arrays["class_alphabet"][wanted]]


def get_omniglot(folder: Path, url: str | None = None, progress: bool = True) -> Path:
    """Make the two files in ``folder`` from the official archives, which are downloaded unless they lie there.

    Unpacked files are removed again; the archives are kept only if they were there before.
    """
    if all((folder / name).is_file() for name in OMNIGLOT_FILES.values()):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    fetched = [name for name in ARCHIVES if not (folder / name).is_file()]
    for name, (digest, size) in ARCHIVES.items():
        download((url or URL) + name, folder / name, sha256=digest, size=size, progress=progress)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacked-") as place:
        for name in ARCHIVES:
            unpack(folder / name, Path(place) / Path(name).stem, max_members=50_000, max_bytes=2**30, progress=progress)
        write_arrays(folder, arrays_of(Path(place), progress))
    for name in fetched:
        (folder / name).unlink()
    return folder


def arrays_of(place: Path, progress: bool) -> dict[str, NDArray[Any]]:
    """Return the arrays of the drawings in images_background/ and images_evaluation/ below ``place``.

    Files are called 0709_01.png: the number of the character over all alphabets, and of the drawing.
    """
    files = sorted(place.glob("*/**/*.png"), key=lambda file: file.stem)
    if not files:
        raise DataError(f"there are no drawings (.png) in {place}: the archives are not those of Omniglot")
    where = [file.parent.relative_to(place).parts for file in files]
    drawings, _ = decode_many(files, [file.name for file in files], Decoding(SIZE, SIZE, 1), progress=progress)
    ink = np.uint8(255) - drawings[:, 0]
    characters = list(dict.fromkeys(where))
    numbers = {character: i for i, character in enumerate(characters)}
    return {
        "images": ink,
        "labels": np.array([numbers[character] for character in where], np.int16),
        "drawer": np.array([int(file.stem.rpartition("_")[2]) for file in files], np.int8),
        "class_names": np.array(["/".join(character[-2:]) for character in characters]),
        "class_alphabet": np.array([character[-2] for character in characters]),
        "class_part": np.array(
            ["evaluation" if "evaluation" in character[0] else "background" for character in characters]
        ),
    }


def write_arrays(folder: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write the images at 28 pixels, averaged over areas, and at 105, one bit a pixel."""
    images = arrays.pop("images")
    small = np.stack([np.asarray(Image.fromarray(image).resize((28, 28), Image.Resampling.BOX)) for image in images])
    packed = np.packbits(images.reshape(len(images), -1) > 127, axis=1)
    for name, content in ((OMNIGLOT_FILES[105], {"images_packed": packed}), (OMNIGLOT_FILES[28], {"images": small})):
        with replacing(folder / name) as path:
            np.savez_compressed(path, **content, **arrays)  # type: ignore[arg-type]
