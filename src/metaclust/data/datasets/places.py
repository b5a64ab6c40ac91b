"""Where local copies of the named data sets are."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from metaclust.data.datasets.cards import CARDS, Card

ROOT_VARIABLE = "METACLUST_DATA"
OMNIGLOT_FILES = {28: "omniglot_28.npz", 105: "omniglot_105_packed.npz"}


def roots(root: str | os.PathLike[str] | None) -> list[Path]:
    """Return the folders that may hold local copies; downloads go to the first."""
    if root is not None:
        return [Path(root).expanduser()]
    named = os.environ.get(ROOT_VARIABLE)
    own = platformdirs.user_data_path("metaclust")
    return [Path(named).expanduser(), own] if named else [own]


def local_folder(card: Card, root: str | os.PathLike[str] | None, file: str | None = None) -> Path:
    """Return the folder of a local copy, or raise an error that says what to put where."""
    folders = [base / card.folder for base in roots(root)]
    for folder in folders:
        if folder.is_dir() and (file is None or (folder / file).is_file()):
            return folder
    missing = "there is no " + (f"{file} in " if file else "folder ") + " or ".join(str(folder) for folder in folders)
    raise FileNotFoundError(
        f"{card.name} is not here: {missing}. It comes from {card.source}. {card.how[0].upper()}{card.how[1:]}: "
        f"{folders[0]}. Another folder can be given as root= (--root), or by the environment variable {ROOT_VARIABLE}"
    )


def available(name: str, root: str | os.PathLike[str] | None = None) -> str | None:
    """Return where a data set is, or None; nothing is read."""
    card = CARDS[name]
    if name in ("icons", "digits"):
        return card.how
    needed = OMNIGLOT_FILES.values() if name == "omniglot" else ()
    for folder in (base / card.folder for base in roots(root)):
        if folder.is_dir() and all((folder / file).is_file() for file in needed):
            return str(folder)
    return None
