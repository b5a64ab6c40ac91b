"""One function that reads whatever a person has: a table, an array, a folder of images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from metaclust._util.progress import Waiting
from metaclust.data.preparation.prepare import ImagePreparation, Preparation, VectorPreparation
from metaclust.data.readers.arrays import Missing, read_npy, read_npz
from metaclust.data.readers.columns import Columns
from metaclust.data.readers.decoding import Fit
from metaclust.data.readers.images import read_image_folder
from metaclust.data.readers.tables import read_table
from metaclust.data.rows import DataError, Kind, Rows, check_kind, listed

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
READABLE = ".npy, .npz, .csv, .tsv, .jsonl (each of the last three also .gz), .parquet, or a folder of images"


def read_data(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    kind: Kind | Literal["auto"] = "auto",
    text: str | None = None,
    columns: Sequence[str] | None = None,
    ids: str | None = None,
    missing: Missing = "error",
    size: int | tuple[int, int] | None = None,
    channels: Literal[1, 3] | None = None,
    fit: Fit | None = None,
    on_error: Literal["raise", "skip"] | None = None,
    like: Preparation | None = None,
    progress: bool = True,
) -> Rows:
    """Rows of a .npy, .npz, .csv, .tsv, .jsonl (also .gz) or .parquet file, or of a folder of images.

    ``label`` names the column or array of the categories; without it, a column called "label" or "category" is
    taken. What the rows are is found out, said (``Rows.notes``, and one line on the standard error unless
    ``progress=False``) and can be set: ``kind``, the column of ``text``, the ``columns`` of numbers, ``ids``.

    ``missing`` is what happens to rows with an empty cell or label: "error", "drop", or "mean" (numbers only).
    ``size``, ``channels`` and ``fit`` ("stretch", "crop", "pad") say how images are resized, ``on_error`` whether a
    broken one is skipped. ``like`` reads the file as a model's training data were read.
    """
    source = Path(path).expanduser()
    check_kind(kind)
    if not source.exists():
        raise FileNotFoundError(f"path={str(path)!r}: there is no such file or folder")
    images: dict[str, Any] = {"size": size, "channels": channels, "fit": fit, "on_error": on_error}
    tables = {"text": text, "columns": columns}
    if like is not None:
        given = [name for name, value in {**images, **tables, "on_error": None}.items() if value is not None]
        if given:
            raise ValueError(f"{listed(given)} cannot be given with like=: the model says how its rows are read")
        if kind not in ("auto", like.kind):
            raise DataError(f"kind={kind!r}, but the model was trained on {like.kind}")
        kind = like.kind
        if isinstance(like, VectorPreparation) and like.fill and missing == "error":
            missing = "mean"
    if source.is_dir():
        refuse({**tables, "ids": ids}, "a folder of images", source)
        if kind not in ("auto", "images"):
            raise DataError(f"kind={kind!r}: {source.name} is a folder, which is read as images; give a file of {kind}")
        if isinstance(like, ImagePreparation):
            images |= {"size": (like.height, like.width), "channels": like.channels, "fit": like.fit}
        options = {name: value for name, value in images.items() if value is not None}
        if label is not None:
            raise DataError(f"label={label!r}: in {source.name} the folders are the labels; leave label out")
        rows = read_image_folder(source, progress=progress, **options)
    else:
        refuse(images, "a file", source)
        with Waiting(f"reading {source.name}", enabled=progress):
            rows = read_file(source, label, kind, Columns(label, text, columns, ids), missing, like)
    if progress:
        Console(stderr=True, soft_wrap=True, emoji=False).print(str(rows), markup=False, highlight=False)
    return rows


def read_file(
    path: Path,
    label: str | None,
    kind: Kind | Literal["auto"],
    columns: Columns,
    missing: Missing,
    like: Preparation | None,
) -> Rows:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    last = suffixes[-1] if suffixes else ""
    inner = suffixes[-2] if last == ".gz" and len(suffixes) > 1 else last
    if last in (".npy", ".npz"):
        refuse({"text": columns.text, "columns": columns.vector}, "an array", path)
        if last == ".npy":
            refuse({"ids": columns.ids}, "an array", path)
            return read_npy(path, label, kind, missing)
        return read_npz(path, label, columns.ids, kind, missing)
    if inner in TABLES or last == ".parquet":
        return read_table(path, columns if like is None else columns_like(columns, like), kind, missing)
    raise DataError(f"{path.name} has an ending that is not read ({last or 'none'}): give {READABLE}")


def columns_like(columns: Columns, like: Preparation) -> Columns:
    """The columns that the model was trained on; a text column of another name is found out."""
    names: tuple[str, ...] = getattr(like, "columns", ())
    if not names:
        return columns
    return replace(columns, usual_text=names[0]) if like.kind == "text" else replace(columns, vector=names)


def refuse(options: dict[str, Any], what: str, path: Path) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise DataError(f"{listed(given)}: {path.name} is {what}, for which this has no meaning; leave it out")
