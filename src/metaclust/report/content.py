"""How rows of each kind of data are shown on the cards and on the map."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metaclust.data.mixed_table import MixedTable
from metaclust.data.preparation.sounds import pictures_of, typical_frames
from metaclust.data.rows import Rows
from metaclust.inference.result import Clustering
from metaclust.report.distinctive import Column, ColumnStatistics, Word, distinctive_words, largest
from metaclust.report.pictures import ACROSS, Pictures
from metaclust.report.wording import counted, number, shortened, shortened_name

CARD_TEXT = 220
MAP_TEXT = 300
"""Characters of a text that are shown."""
CARD_NAME = 48
MAP_NAME = 160
CARD_PICTURE_BYTES = 3_000_000
MAP_PICTURE_BYTES = 5_000_000
CARD_COLUMNS = 4
MAP_COLUMNS = 5


class Content:
    """Shows rows by their ids alone: the default, for any kind of data that is not registered."""

    layout: ClassVar[str] = "ids"
    """The part of the template that lists rows on a card."""
    typical: ClassVar[int] = 10
    least_sure: ClassVar[int] = 5
    """Rows on a card."""

    def __init__(self, rows: Rows | None, labels: NDArray[np.int64], clusters: int) -> None:
        self.kind = "" if rows is None else str(rows.kind)

    def describe(self) -> str:
        """Return what the rows are."""
        return self.kind

    def words(self, cluster: int) -> list[Word]:
        """Return the words that distinguish a cluster."""
        return []

    def columns(self, cluster: int) -> list[Column]:
        """Return the columns that distinguish a cluster."""
        return []

    def card_columns(self, cluster: int) -> list[int]:
        """Return the columns whose values are shown on a card."""
        return []

    def column_name(self, i: int) -> str:
        return f"column {i}"

    def prepare_cards(self, rows: Sequence[int]) -> None:
        """Prepare for :meth:`on_card` of these rows."""

    def on_card(self, row: int, columns: Sequence[int]) -> dict[str, Any]:
        """Return ``text``, ``picture`` or ``numbers`` of a row."""
        return {}

    def on_map(self, rows: Sequence[int]) -> dict[str, Any]:
        """Return ``text``, ``sheets`` or ``numbers`` and ``columns`` of the rows on the map."""
        return {}

    def characters_on_map(self, rows: Sequence[int]) -> int:
        """Return how many characters of each text are on the map; 0 if no text is cut."""
        return 0


class TextContent(Content):
    """Shows texts and the words that distinguish clusters."""

    layout = "text"
    typical, least_sure = 5, 3

    def __init__(self, rows: Rows, labels: NDArray[np.int64], clusters: int) -> None:
        super().__init__(rows, labels, clusters)
        self.texts = cast("list[str]", rows.values)
        self.distinctive = distinctive_words(self.texts, labels, clusters)

    def describe(self) -> str:
        return "texts"

    def words(self, cluster: int) -> list[Word]:
        return self.distinctive[cluster]

    def on_card(self, row: int, columns: Sequence[int]) -> dict[str, Any]:
        return {"text": shortened(self.texts[row], CARD_TEXT)}

    def on_map(self, rows: Sequence[int]) -> dict[str, Any]:
        return {"text": [shortened(self.texts[i], MAP_TEXT) for i in rows]}

    def characters_on_map(self, rows: Sequence[int]) -> int:
        return MAP_TEXT if any(len(self.texts[i]) > MAP_TEXT for i in rows) else 0


class ImageContent(Content):
    """Shows small pictures."""

    layout = "images"
    typical, least_sure = 14, 7

    def __init__(self, rows: Rows, labels: NDArray[np.int64], clusters: int) -> None:
        super().__init__(rows, labels, clusters)
        self.images: Any = rows.values

    def describe(self) -> str:
        channels, height, width = self.images.shape[1:]
        return f"{'grey' if channels == 1 else 'colour'} images of {width} × {height}"  # noqa: RUF001

    def prepare_cards(self, rows: Sequence[int]) -> None:
        self.pictures = Pictures.within(self.images, rows, CARD_PICTURE_BYTES)

    def on_card(self, row: int, columns: Sequence[int]) -> dict[str, Any]:
        return {"picture": self.pictures.one(row)}

    def on_map(self, rows: Sequence[int]) -> dict[str, Any]:
        pictures = Pictures.within(self.images, rows, MAP_PICTURE_BYTES)
        across, down = pictures.pitch
        sheets = {
            "images": pictures.sheets(rows),
            "lines": ACROSS,
            "width": pictures.width,
            "height": pictures.height,
            "across": across,
            "down": down,
        }
        return {"sheets": sheets}


class VectorContent(Content):
    """Shows the columns that distinguish clusters, and the most unusual values of each row."""

    layout = "vectors"
    typical, least_sure = 4, 3

    def __init__(self, rows: Rows, labels: NDArray[np.int64], clusters: int) -> None:
        super().__init__(rows, labels, clusters)
        self.values: Any = rows.values
        self.names = rows.columns
        self.statistics = ColumnStatistics.of(self.values, labels, clusters)

    def describe(self) -> str:
        return f"vectors of {counted(self.values.shape[1], 'column')}"

    def columns(self, cluster: int) -> list[Column]:
        return self.statistics.distinctive(cluster)

    def card_columns(self, cluster: int) -> list[int]:
        chosen = [column.index for column in self.columns(cluster)[:CARD_COLUMNS]]
        return chosen or list(range(min(CARD_COLUMNS, self.values.shape[1])))

    def column_name(self, i: int) -> str:
        return self.names[i] if len(self.names) == self.values.shape[1] else super().column_name(i)

    def on_card(self, row: int, columns: Sequence[int]) -> dict[str, Any]:
        return {"numbers": tuple(number(float(self.values[row, column])) for column in columns)}

    def on_map(self, rows: Sequence[int]) -> dict[str, Any]:
        used: dict[int, int] = {}
        numbers = []
        for i in rows:
            row = self.values[[i]]
            row = np.asarray(row.toarray() if sparse.issparse(row) else row, np.float64)[0]
            chosen = sorted(largest(np.abs(self.statistics.deviations(row)), MAP_COLUMNS))
            numbers.append([[used.setdefault(c, len(used)), number(float(row[c]))] for c in chosen])
        return {"numbers": numbers, "columns": [shortened_name(self.column_name(c), MAP_NAME) for c in used]}


class SoundContent(ImageContent):
    """Shows spectrograms: time from left to right, high sounds above."""

    def __init__(self, rows: Rows, labels: NDArray[np.int64], clusters: int) -> None:
        super().__init__(rows, labels, clusters)
        self.images = pictures_of(rows, typical_frames(rows))

    def describe(self) -> str:
        return "sounds, as spectrograms"


class TableContent(Content):
    """Shows the cells of tables of several types."""

    layout = "text"
    typical, least_sure = 5, 3

    def __init__(self, rows: Rows, labels: NDArray[np.int64], clusters: int) -> None:
        super().__init__(rows, labels, clusters)
        self.frame = cast("MixedTable", rows.values).frame

    def describe(self) -> str:
        return f"table rows of {counted(self.frame.width, 'column')}"

    def cells(self, row: int) -> str:
        """Return the cells of a row with the names of their columns, without gaps."""
        cells = zip(self.frame.columns, self.frame.row(row), strict=True)
        return "; ".join(f"{name}: {cell_text(cell)}" for name, cell in cells if cell is not None)

    def on_card(self, row: int, columns: Sequence[int]) -> dict[str, Any]:
        return {"text": shortened(self.cells(row), CARD_TEXT)}

    def on_map(self, rows: Sequence[int]) -> dict[str, Any]:
        return {"text": [shortened(self.cells(row), MAP_TEXT) for row in rows]}

    def characters_on_map(self, rows: Sequence[int]) -> int:
        return MAP_TEXT if any(len(self.cells(row)) > MAP_TEXT for row in rows) else 0


def cell_text(cell: Any) -> str:
    """Return a cell of a table as it is shown; dates without a time are days."""
    if isinstance(cell, datetime):
        return cell.isoformat(" ", "minutes").removesuffix(" 00:00")
    return number(cell) if isinstance(cell, float) else str(cell)


CONTENT: dict[str, type[Content]] = {
    "text": TextContent,
    "images": ImageContent,
    "sounds": SoundContent,
    "vectors": VectorContent,
    "table": TableContent,
}
"""By kind of data; :class:`Content` for any other."""


def content_of(clustering: Clustering) -> Content:
    """Return the content of a clustering's rows."""
    rows = clustering.rows
    show = Content if rows is None else CONTENT.get(rows.kind, Content)
    return show(rows, clustering.labels, clustering.n_clusters)
