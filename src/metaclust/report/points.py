"""What the map needs to know of each row that is on it, as the script of the page reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metaclust.data.rows import Rows
from metaclust.inference.result import Clustering
from metaclust.report.apart import Table, largest
from metaclust.report.cards import column_name
from metaclust.report.palette import colours
from metaclust.report.pictures import ACROSS, Pictures
from metaclust.report.projection import Projection
from metaclust.report.wording import number, percent, shortened, shortened_name

TEXT = 300
NAME = 160
SHEET_BYTES = 5_000_000
GRID = 10_000
"""Places are whole numbers up to this."""
NUMBERS = 5


def map_data(clustering: Clustering, projection: Projection) -> dict[str, Any]:
    """Lists with one entry for each row on the map, in its order, and what they refer to."""
    rows = projection.rows
    light, dark = colours(clustering.n_clusters)
    places = np.rint(projection.points * GRID).astype(np.int64)
    names = sorted(set(clustering.categories or []))
    numbered = {name: i for i, name in enumerate(names)}
    return {
        "colours": {"light": light, "dark": dark},
        "grid": GRID,
        "x": places[:, 0].tolist(),
        "y": places[:, 1].tolist(),
        "cluster": clustering.labels[rows].tolist(),
        "confidence": [percent(value) for value in clustering.confidence[rows].tolist()],
        "unsure": clustering.unsure[rows].astype(int).tolist(),
        "id": [shortened_name(clustering.ids[i], NAME) for i in rows.tolist()],
        "categories": [shortened(name, NAME) for name in names],
        "category": None
        if clustering.categories is None
        else [numbered[clustering.categories[i]] for i in rows.tolist()],
        **content(clustering.rows, clustering.labels, rows),
    }


def content(rows: Rows | None, labels: NDArray[np.int64], shown: NDArray[np.int64]) -> dict[str, Any]:
    """The rows themselves: texts, or sheets of pictures, or the numbers that are most unusual in each row."""
    given: dict[str, Any] = {"text": None, "sheets": None, "numbers": None, "columns": []}
    if rows is None:
        return given
    values = rows.values
    if isinstance(values, list):
        return given | {"text": [shortened(values[i], TEXT) for i in shown.tolist()]}
    if rows.kind == "images":
        pictures = Pictures.within(values, shown.tolist(), SHEET_BYTES)
        across, down = pictures.pitch
        return given | {
            "sheets": {
                "images": pictures.sheets(shown.tolist()),
                "lines": ACROSS,
                "width": pictures.width,
                "height": pictures.height,
                "across": across,
                "down": down,
            }
        }
    return given | unusual_numbers(rows, values, Table.of(values, np.zeros_like(labels), 1), shown)


def unusual_numbers(
    rows: Rows, values: NDArray[Any] | sparse.csr_array, table: Table, shown: NDArray[np.int64]
) -> dict[str, Any]:
    """For each row the columns farthest from their means, in the order of the columns, with their values."""
    used: dict[int, int] = {}
    numbers = []
    for i in shown.tolist():
        row: Any = values[[i]]
        cells = np.asarray(row.toarray() if sparse.issparse(row) else row, np.float64)[0]
        chosen = largest(np.abs(table.deviations(cells)), NUMBERS)
        numbers.append([[used.setdefault(c, len(used)), number(float(cells[c]))] for c in sorted(chosen)])
    return {"numbers": numbers, "columns": [shortened_name(column_name(rows, c), NAME) for c in used]}
