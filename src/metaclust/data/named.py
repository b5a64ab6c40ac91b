"""Named data sets: the embedded icons, and those of which you have a local copy."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

NAMES = ("icons", "omniglot")
ROOT_VARIABLE = "METACLUST_DATA"
OmniglotPart = Literal["background", "evaluation", "both"]


@dataclass(frozen=True)
class Dataset:
    """Rows ``X``, one integer label ``y`` for each, and the names of the categories that the labels number."""

    name: str
    X: NDArray[np.uint8]
    y: NDArray[np.int64]
    categories: list[str]

    def __len__(self) -> int:
        return len(self.X)


def load_dataset(
    name: str, root: str | os.PathLike[str] | None = None, *, part: OmniglotPart = "background"
) -> Dataset:
    """A data set by name; images are uint8 of shape (rows, channels, height, width), ink is 255.

    "icons" is part of the package: 11,499 icons of 32x32 pixels, 419 concepts. "omniglot" is read from
    omniglot/omniglot_28.npz in ``root``, or in the folder that the environment variable METACLUST_DATA names;
    ``part`` is "background" (964 characters, the paper's), "evaluation" (659) or "both".

    >>> data = load_dataset("icons")
    >>> len(data), len(data.categories), data.X.shape[1:]
    (11499, 419, (1, 32, 32))
    """
    if name == "icons":
        arrays = read_arrays(Path(__file__).parent / "icons" / "icons_32.npz", ("images", "labels", "label_names"))
        names = [str(category) for category in arrays["label_names"]]
        return Dataset(name, arrays["images"][:, None], arrays["labels"].astype(np.int64), names)
    if name == "omniglot":
        return load_omniglot(local_folder(name, root), part)
    raise ValueError(f"name={name!r} is not a data set: choose one of {', '.join(NAMES)}")


def load_omniglot(folder: Path, part: OmniglotPart) -> Dataset:
    if part not in ("background", "evaluation", "both"):
        raise ValueError(f"part={part!r}: choose 'background', 'evaluation' or 'both'")
    needed = ("images", "labels", "class_names", "class_part", "class_alphabet")
    arrays = read_arrays(folder / "omniglot_28.npz", needed)
    wanted = np.ones(len(arrays["class_part"]), bool) if part == "both" else arrays["class_part"] == part
    number = np.cumsum(wanted) - 1
    labels = arrays["labels"].astype(np.int64)
    rows = wanted[labels]
    names = [
        f"{alphabet}/{character}"
        for alphabet, character in zip(arrays["class_alphabet"][wanted], arrays["class_names"][wanted], strict=True)
    ]
    return Dataset("omniglot", arrays["images"][rows][:, None], number[labels[rows]], names)


def local_folder(name: str, root: str | os.PathLike[str] | None) -> Path:
    base = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if base is None:
        raise FileNotFoundError(
            f"{name} is not in the package: pass root=, the folder that holds {name}/, or set {ROOT_VARIABLE} to it"
        )
    folder = Path(base) / name
    if not folder.is_dir():
        raise FileNotFoundError(f"root={str(base)!r} holds no folder {name}/: put your copy of {name} there")
    return folder


def read_arrays(path: Path, needed: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file; object arrays, which could run code, are refused."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path.name} in {path.parent}")
    try:
        with path.open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            return {name: arrays[name] for name in needed}
    except (KeyError, IndexError, ValueError, BadZipFile, zlib.error, OSError, EOFError) as error:
        raise ValueError(f"{path} is not the data set it should be, or it is cut short: {error}") from error
