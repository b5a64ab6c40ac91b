"""write_report: a clustering as one HTML file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from metaclust._util.progress import Waiting
from metaclust.data.rows import DataError
from metaclust.inference.result import Clustering
from metaclust.report.cards import cards
from metaclust.report.page import page
from metaclust.report.projection import project


def write_report(
    clustering: Clustering,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    title: str | None = None,
    map_rows: int = 3000,
    progress: bool = True,
) -> Path:
    """Write the report, a single HTML file that needs no network, and give back its path.

    ``force`` overwrites a file that is there. The map shows up to ``map_rows`` rows, and at least one of each
    cluster. The same clustering gives the same file, byte for byte.
    """
    target = Path(path)
    check_target(target, force)
    check_clustering(clustering)
    if map_rows < 1:
        raise ValueError(f"map_rows={map_rows!r}: it must be 1 or more")
    with Waiting("report: map", enabled=progress):
        projection = project(clustering.representations, clustering.labels, map_rows)
    text = page(clustering, projection, cards(clustering, progress), title)
    # Half of a surrogate pair, as in text that was cut, has no UTF-8.
    write_beside(target, text.encode("utf-8", "replace"))
    return target


def check_target(target: Path, force: bool) -> None:
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: the folder {target.parent} is not there; create it first")
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {target}: it is a folder; give the path of a file")
    if target.exists() and not force:
        raise FileExistsError(f"{target} exists: pass force=True to overwrite it, or give another path")


def check_clustering(clustering: Clustering) -> None:
    if not len(clustering):
        raise DataError("the clustering has no rows: there is nothing to report")
    rows = clustering.rows
    if rows is None:
        return
    if len(rows) != len(clustering):
        raise DataError(
            f"rows has {len(rows):,} rows, but {len(clustering):,} were clustered: pass the rows that were clustered"
        )
    for i, (here, there) in enumerate(zip(rows.ids, clustering.ids, strict=True)):
        if here != there:
            raise DataError(
                f"rows.ids[{i}] is {here!r}, but {there!r} was clustered there: pass the rows that were clustered, in "
                "their order (dataclasses.replace(rows, ids=clustering.ids) if only the ids have changed)"
            )


def write_beside(target: Path, content: bytes) -> None:
    """Write beside the target and move into place."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; a report is as readable as any other new file.
        umask = os.umask(0)
        os.umask(umask)
        beside.chmod(0o666 & ~umask)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
