"""The report of a clustering as one HTML file."""

from __future__ import annotations

import os
from pathlib import Path

from metaclust._util.files import replacing
from metaclust._util.progress import Waiting
from metaclust._util.targets import check_file
from metaclust.data.rows import DataError
from metaclust.inference.result import Clustering
from metaclust.report.cards import make_cards
from metaclust.report.content import content_of
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
    """Write the report, a single HTML file that needs no network, and return its path.

    The same clustering gives the same file, byte for byte. The title is by default the source of the data; the map
    has at most ``map_rows`` rows, and at least one of each cluster.
    """
    target = Path(path)
    check_file(target, force)
    check_clustering(clustering)
    if map_rows < 1:
        raise ValueError(f"map_rows={map_rows!r}: it must be 1 or more")
    with Waiting("report: map", enabled=progress):
        projection = project(clustering.representations, clustering.labels, map_rows)
    content = content_of(clustering)
    text = page(clustering, content, projection, make_cards(clustering, content, progress), title)
    with replacing(target) as unfinished:
        # Half of a surrogate pair, as in text that was cut, has no UTF-8.
        unfinished.write_bytes(text.encode("utf-8", "replace"))
    return target


def check_clustering(clustering: Clustering) -> None:
    """Raise an error if there is nothing to report, or the rows are not those that were clustered."""
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
                "the same order (dataclasses.replace(rows, ids=clustering.ids) if only the ids have changed)"
            )
