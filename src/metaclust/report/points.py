"""The data of the map, as the script of the page reads it."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaclust.inference.result import Clustering
from metaclust.report.content import MAP_NAME, Content
from metaclust.report.palette import colours
from metaclust.report.projection import Projection
from metaclust.report.wording import percent, shortened, shortened_name

GRID = 10_000
"""Coordinates are integers from 0 to this."""


def map_data(clustering: Clustering, content: Content, projection: Projection) -> dict[str, Any]:
    """Return lists with one entry per row on the map, and what their numbers refer to."""
    rows = projection.rows
    light, dark = colours(clustering.n_clusters)
    coordinates = np.rint(projection.points * GRID).astype(np.int64)
    names = sorted(set(clustering.categories or []))
    numbered = {name: i for i, name in enumerate(names)}
    return {
        "colours": {"light": light, "dark": dark},
        "grid": GRID,
        "x": coordinates[:, 0].tolist(),
        "y": coordinates[:, 1].tolist(),
        "cluster": clustering.labels[rows].tolist(),
        "confidence": [percent(value) for value in clustering.confidence[rows].tolist()],
        "unsure": clustering.unsure[rows].astype(int).tolist(),
        "id": [shortened_name(clustering.ids[i], MAP_NAME) for i in rows.tolist()],
        "categories": [shortened(name, MAP_NAME) for name in names],
        "category": None
        if clustering.categories is None
        else [numbered[clustering.categories[i]] for i in rows.tolist()],
        **{"text": None, "sheets": None, "numbers": None, "columns": []},
        **content.on_map(rows.tolist()),
    }
