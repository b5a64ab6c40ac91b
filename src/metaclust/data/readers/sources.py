"""Reading of files and folders: tables, arrays, folders of images and of sounds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from metaclust._util.progress import Waiting
from metaclust._util.terminal import printable
from metaclust.data.files import Limit
from metaclust.data.kinds import Kind, check_kind
from metaclust.data.mixed_table import Treatment, as_treatment
from metaclust.data.preparation.base import Preparation
from metaclust.data.readers.cells import Missing
from metaclust.data.readers.choice import Columns
from metaclust.data.readers.decoding import Fit
from metaclust.data.readers.folders import EXTENSIONS, UnreadableFileError, kind_of_folder
from metaclust.data.readers.images import read_image_folder
from metaclust.data.readers.npy import read_npy, read_npz
from metaclust.data.readers.sounds import read_sound_folder
from metaclust.data.readers.tables import read_table
from metaclust.data.rows import DataError, Rows, listed

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
READABLE = ".npy, .npz, .csv, .tsv, .jsonl (each of the last three also .gz), .parquet, or a folder of images or sounds"


def read_data(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    kind: Kind = "auto",
    text: str | None = None,
    columns: Sequence[str] | None = None,
    ids: str | None = None,
    keep: Sequence[str] | None = None,
    partial: bool = False,
    treat: Mapping[str, Treatment] | None = None,
    missing: Missing = "auto",
    size: int | tuple[int, int] | None = None,
    channels: Literal[1, 3] | None = None,
    fit: Fit | None = None,
    on_error: Literal["raise", "skip"] | None = None,
    like: Preparation | None = None,
    max_bytes: int | None = None,
    progress: bool = True,
) -> Rows:
    """Read the rows of a file, or of a folder of images or sounds.

    What is not given is detected, and described in ``Rows.notes`` and in one line on the standard error.

    Parameters
    ----------
    path : str or path
        A .npy, .npz, .csv, .tsv, .jsonl (each of the last three also .gz) or .parquet file, or a folder of images or
        sounds.
    label : str, optional
        The column or array of the categories; by default one called "label" or "category". For a .npy file, the path
        of a second one.
    kind : {"auto", "vectors", "images", "sounds", "text", "table"}
        What the rows are. Tables of numbers alone are vectors, and of one column of text texts; "table" has columns of
        several types.
    text : str, optional
        The column of text. Without ``columns``, the rows are this text alone.
    columns : sequence of str, optional
        The columns to make rows of; by default all that can be used.
    ids : str, optional
        The column or array with a name for each row.
    keep : sequence of str, optional
        The columns of a table that results carry beside their own; by default all of them. ``[]`` saves their memory.
    partial : bool, default=False
        Whether rows may lack a label: an empty cell, or -1 if all labels are whole numbers. The labels are then in
        ``Rows.partial``. Otherwise a row without a label is an error, or is left out, see ``missing``.
    treat : mapping of str to str, optional
        What columns are used as, where the default is not right: {"zip": "category"}. One of "number", "category",
        "date", "text", "id" and "drop"; the last two leave a column out.
    missing : {"auto", "error", "drop", "mean"}
        What happens to rows with an empty cell or label. "auto" fills gaps in tables of several types and marks them,
        and is an error elsewhere; "drop" leaves such rows out with a warning; "mean" fills numbers with the mean of the
        training rows.
    size : int or (int, int), optional
        The side of images, or their height and width.
    channels : {1, 3}, optional
        Grey or colour images.
    fit : {"stretch", "crop", "pad"}, optional
        How images are brought to that size; by default "stretch".
    on_error : {"raise", "skip"}, optional
        Whether an image or sound that cannot be read is an error (the default), or left out with a warning.
    like : Preparation, optional
        Read the file as the training rows of a model were read.
    max_bytes : int, optional
        The most bytes of data, decompressed, that are read. By default half of the memory of this machine, and beyond
        256 MiB at most 200 times the size of the file: a small file can claim to hold more than any memory.
    progress : bool
        Show a progress bar, and the line that describes the rows.
    """
    limit = Limit(max_bytes)
    source = Path(path).expanduser()
    check_kind(kind)
    if not source.exists():
        raise FileNotFoundError(f"path={str(path)!r}: there is no such file or folder")
    images = asked = {"size": size, "channels": channels, "fit": fit, "on_error": on_error}
    if isinstance(keep, str):
        raise TypeError(f"keep={keep!r}: give a list of names")
    treat = {name: as_treatment(name, value) for name, value in (treat or {}).items()}
    table = Columns(label, text, columns, ids, keep, partial, treat)
    if like is not None:
        other = {**asked, "text": text, "columns": columns, "treat": treat or None, "on_error": None}
        if given := [name for name, value in other.items() if value is not None]:
            raise ValueError(f"{listed(given)} cannot be given with like=: the model says how its rows are read")
        if kind not in ("auto", like.kind):
            raise DataError(f"kind={kind!r}, but the model was trained on {like.kind}")
        kind = like.kind
        images = asked | {name: value for name, value in like.reading().items() if name in asked}
        missing = like.reading().get("missing", missing) if missing == "auto" else missing
    if source.is_dir():
        rows = read_folder(source, table, kind, images, limit, progress)
    else:
        refuse(asked, "a file", source)
        with Waiting(f"reading {source.name}", enabled=progress):
            rows = read_file(source, table, kind, missing, like, limit)
    if progress:
        Console(stderr=True, soft_wrap=True, emoji=False).print(printable(rows), markup=False, highlight=False)
    return rows


def read_folder(
    folder: Path, columns: Columns, kind: Kind, images: dict[str, Any], limit: Limit, progress: bool
) -> Rows:
    others = {"text": columns.text, "columns": columns.vector, "ids": columns.ids, "keep": columns.keep or None}
    kind = kind_of_folder(folder) if kind == "auto" else kind
    if kind not in EXTENSIONS:
        raise DataError(
            f"{folder.name} is a folder, which is read as images or sounds, not as {kind}: give a file of {kind}"
        )
    refuse({**others, "treat": columns.treat or None}, f"a folder of {kind}", folder)
    if columns.label is not None:
        raise DataError(f"label={columns.label!r}: in {folder.name} the folders are the labels; leave label out")
    options = {name: value for name, value in images.items() if value is not None}
    if kind == "sounds":
        refuse({name: options.get(name) for name in ("size", "channels", "fit")}, "a folder of sounds", folder)
    try:
        if kind == "sounds":
            return read_sound_folder(folder, limit=limit, progress=progress, **options)
        return read_image_folder(folder, limit=limit, progress=progress, **options)
    except UnreadableFileError as error:
        raise DataError(f"{error}. on_error='skip' (--skip-broken) leaves out {kind} that cannot be read") from error


def read_file(
    path: Path, columns: Columns, kind: Kind, missing: Missing, like: Preparation | None, limit: Limit
) -> Rows:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    last = suffixes[-1] if suffixes else ""
    inner = suffixes[-2] if last == ".gz" and len(suffixes) > 1 else last
    if last in (".npy", ".npz"):
        others = {"text": columns.text, "columns": columns.vector, "keep": columns.keep or None}
        refuse({**others, "treat": columns.treat or None}, "an array", path)
        if last == ".npy":
            refuse({"ids": columns.ids}, "an array", path)
            return read_npy(path, columns.label, kind, missing, limit, columns.partial)
        return read_npz(path, columns.label, columns.ids, kind, missing, limit, columns.partial)
    if inner in TABLES or last == ".parquet":
        if like is not None:
            trained = like.reading()
            vector, text = trained.get("columns"), trained.get("usual_text")
            usage = trained.get("usage")
            columns = replace(columns, vector=vector, usual_text=text, usage=usage, has_options=False)
        return read_table(path, columns, kind, missing, limit)
    raise DataError(f"{path.name} has an ending that is not read ({last or 'none'}): give {READABLE}")


def refuse(options: dict[str, Any], what: str, path: Path) -> None:
    """Raise DataError for options that have no meaning for what is read."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise DataError(f"{listed(given)}: {path.name} is {what}, for which this has no meaning; leave it out")
