"""Tables of several types: numbers, categories, dates and texts side by side as columns of numbers."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util import schema
from metaclust.data.kinds import Kind
from metaclust.data.mixed_table import TREATMENTS, MixedTable, Usage
from metaclust.data.preparation.base import Options, are_strings, described_fields, require, values_of
from metaclust.data.preparation.table_columns import CategoryColumn, DateColumn, linear_days
from metaclust.data.preparation.table_text import TextColumn, fit_text
from metaclust.data.preparation.vectors import VectorPreparation
from metaclust.data.rows import DataError, DataWarning, Rows, listed, shown

MOST_COLUMNS = 1 << 16


@dataclass(frozen=True)
class TablePreparation:
    """Columns of several types as columns of numbers, which count about alike.

    Numbers, and the time of dates, are standardised. A category has a feature of 0 or 1 for each value: rows of two
    values are as far apart as two rows are in a number, on average. The columns of text have the total variance of all
    other columns. Gaps are at the mean, or have no value, and a feature of 0 or 1 marks them.
    """

    name: ClassVar[str] = "table"
    kind: ClassVar[Kind] = "table"
    order: tuple[str, ...]
    """The columns that are used, in their order."""
    numbers: dict[str, Any] | None = None
    """How numbers, and then the times of dates, are scaled: a description of :class:`VectorPreparation`."""
    categories: tuple[dict[str, Any], ...] = ()
    dates: tuple[dict[str, Any], ...] = ()
    texts: tuple[dict[str, Any], ...] = ()
    gaps: tuple[str, ...] = ()
    """The columns that had gaps in training."""
    left_out: tuple[dict[str, Any], ...] = ()
    """The columns that were left out: their names, treatments and why."""

    def __repr__(self) -> str:
        counts = {"numbers": len(self.scaled_names), "categories": len(self.categories), "dates": len(self.dates)}
        shown_counts = ", ".join(f"{name}={count}" for name, count in {**counts, "texts": len(self.texts)}.items())
        return f"TablePreparation({len(self.order)} columns: {shown_counts}, width={self.input_shape[0]})"

    def __post_init__(self) -> None:
        require(are_strings(self.order) and len(self.order) <= MOST_COLUMNS, "order", self.order)
        require(are_strings(self.gaps) and set(self.gaps) <= set(self.order), "gaps", self.gaps)
        for name in ("categories", "dates", "texts", "left_out"):
            value = getattr(self, name)
            require(isinstance(value, tuple) and all(isinstance(one, dict) for one in value), name, value)
        wanted = {"name": schema.text, "treatment": schema.one_of(*TREATMENTS), "why": schema.text}
        try:
            for one in self.left_out:
                schema.fields(one, wanted, name="left_out")
            found = [*self.scaled_names, *(each.name for each in self._categories)]
            found += [each.name for each in self._texts] + [each.name for each in self._dates if not each.linear]
        except ValueError as error:
            raise DataError(f"the description of how rows are prepared is damaged: {error}") from error
        require(sorted(found) == sorted(set(self.order)) and len(found) == len(self.order), "order", self.order)
        linear = tuple(each.name for each in self._dates if each.linear)
        require(self.scaled_names[len(self.scaled_names) - len(linear) :] == linear, "numbers", self.numbers)
        require(self.input_shape[0] > 0, "order", self.order)

    @classmethod
    def from_rows(cls, rows: Rows, options: Options) -> tuple[TablePreparation, Rows]:
        """Return how to prepare rows like these, and the rows."""
        values: MixedTable = values_of(rows, cls.kind)
        if options.text == "embeddings" and not values.names("text"):
            raise DataError(f"text='embeddings': {rows.source} has no column of text; omit it")
        empty = [name for name in values.frame.columns if values.gaps(name).all()]
        dates = [
            DateColumn.fit(name, values.days(name), values.usage[name].written)
            for name in values.names("date")
            if name not in empty
        ]
        # Dates that are all the same say nothing, unless there are gaps among them.
        same = [each.name for each in dates if not (each.linear or each.cycles or values.gaps(each.name).any())]
        dates = [each for each in dates if each.name not in same]
        categories = [
            CategoryColumn.fit(name, values.strings(name)) for name in values.names("category") if name not in empty
        ]
        scaled = [name for name in values.names("number") if name not in empty]
        scaled += [each.name for each in dates if each.linear]
        weight = max(1, len(scaled) + len(categories))
        names = [name for name in values.names("text") if name not in empty]
        texts = [fit_text(name, values.strings(name), weight / len(names), options) for name in names]
        wordless = [name for name, text in zip(names, texts, strict=True) if text is None]
        if unused := [*empty, *same, *wordless]:
            warnings.warn(
                f"{rows.source}: left out {listed(unused)}: the cells of these columns cannot be told apart",
                DataWarning,
                stacklevel=3,
            )
        order = [name for name in values.frame.columns if name not in unused]
        if not order:
            raise DataError(f"{rows.source}: the cells of no column can be told apart: give other columns")
        left = [(name, each.treatment, each.why) for name, each in values.usage.items() if not each.is_used]
        left += [(name, "drop", "its cells could not be told apart") for name in unused]
        fitted = cls(
            tuple(order),
            fit_numbers(values, scaled, rows),
            tuple(each.describe() for each in categories),
            tuple(each.describe() for each in dates),
            tuple(text.describe() for text in texts if text is not None),
            tuple(name for name in order if values.gaps(name).any()),
            tuple({"name": name, "treatment": treatment, "why": why} for name, treatment, why in left),
        )
        return fitted, rows

    @cached_property
    def _numbers(self) -> VectorPreparation | None:
        if self.numbers is None:
            return None
        settings: dict[str, Any] = schema.fields(self.numbers, {}, name="numbers")
        if set(settings) - set(described_fields(VectorPreparation)):
            raise ValueError("numbers has unknown fields")
        frozen: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
        }
        try:
            found = VectorPreparation(**frozen)
        except TypeError as error:
            raise ValueError(f"numbers is incomplete: {error}") from error
        if found.mean is None or found.scale is None or not found.fill or not found.columns:
            raise ValueError("numbers must have columns, mean, scale and fill")
        return found

    @cached_property
    def _categories(self) -> list[CategoryColumn]:
        return [CategoryColumn.from_description(one) for one in self.categories]

    @cached_property
    def _dates(self) -> list[DateColumn]:
        return [DateColumn.from_description(one) for one in self.dates]

    @cached_property
    def _texts(self) -> list[TextColumn]:
        return [TextColumn.from_description(one) for one in self.texts]

    @property
    def scaled_names(self) -> tuple[str, ...]:
        """The columns of numbers, and then the dates whose time is beside them."""
        return () if self._numbers is None else self._numbers.columns

    @property
    def input_shape(self) -> tuple[int, ...]:
        widths = [each.width for each in self._categories] + [each.width for each in self._dates]
        widths += [each.width for each in self._texts]
        return (len(self.scaled_names) + sum(widths) + len(self.gaps),)

    @cached_property
    def usage(self) -> dict[str, Usage]:
        """What each column is used as, also of those that are left out."""
        found = {name: Usage("number") for name in self.scaled_names}
        found |= {each.name: Usage("date", written=each.written) for each in self._dates}
        found |= {each.name: Usage("category") for each in self._categories}
        found |= {each.name: Usage("text") for each in self._texts}
        left = {one["name"]: Usage(one["treatment"], one["why"]) for one in self.left_out}
        return {**{name: found[name] for name in self.order}, **left}

    def reading(self) -> dict[str, Any]:
        return {"usage": self.usage}

    def __call__(self, rows: Rows) -> Tensor:
        values: MixedTable = values_of(rows, self.kind)
        absent = [name for name in self.order if name not in values.frame.columns]
        if absent:
            raise DataError(f"{rows.source} has no columns {listed(absent)}, which the model was trained on")
        for name in self.order:
            found, wanted = values.usage[name].treatment, self.usage[name].treatment
            if found != wanted:
                raise DataError(
                    f"{rows.source}: column {shown(name)} was read as a {found}, but the model was trained on a "
                    f"{wanted}: read the data with like= the preparation of the model"
                )
        self._remark(values, rows.source)
        parts: list[NDArray[np.float32]] = []
        if self._numbers is not None:
            parts.append(self._numbers(numbers_of(values, self.scaled_names, rows)).numpy())  # type: ignore[union-attr]
        parts += [each(values.strings(each.name)) for each in self._categories]
        parts += [each(values.days(each.name)) for each in self._dates]
        parts += [each(values.strings(each.name)) for each in self._texts]
        parts += [values.gaps(name)[:, None].astype(np.float32) for name in self.gaps]
        return torch.from_numpy(np.concatenate(parts, 1))

    def _remark(self, values: MixedTable, source: str) -> None:
        """Warn of gaps in columns that had none, and of columns of which nothing is known."""
        counts = {name: int(values.gaps(name).sum()) for name in self.order if name not in self.gaps}
        new = [f"{shown(name)} ({count:,})" for name, count in counts.items() if count]
        if new:
            warn(f"{source}: gaps in columns that had none in training are filled: {', '.join(new[:5])}")
        for each in self._categories:
            cells = [cell for cell in values.strings(each.name) if cell is not None]
            if cells and not set(cells) & set(each.values):
                warn(
                    f"{source}: column {shown(each.name)}: none of its values was there in training, such as "
                    f"{shown(cells[0])}: it says nothing here"
                )

    def with_model(self, model: str | os.PathLike[str]) -> TablePreparation:
        """Return the same preparation with another name or folder of the embedding model of its texts."""
        columns = [replace(text, embedder=text.embedder and text.embedder.with_model(model)) for text in self._texts]
        return replace(self, texts=tuple(column.describe() for column in columns))

    @property
    def embeds(self) -> bool:
        """Whether texts become sentence embeddings."""
        return any(text.embedder is not None for text in self._texts)


def warn(words: str) -> None:
    warnings.warn(words, DataWarning, stacklevel=4)


def numbers_of(values: MixedTable, names: tuple[str, ...] | list[str], rows: Rows) -> Rows:
    """Return the columns of numbers and of times as rows of their own."""
    dates = set(values.names("date"))
    cells = [linear_days(values, name) if name in dates else values.numbers(name) for name in names]
    return Rows("vectors", np.stack(cells, 1), rows.ids, columns=tuple(names), source=rows.source)


def fit_numbers(values: MixedTable, names: list[str], rows: Rows) -> dict[str, Any] | None:
    """Return how columns of numbers and times are scaled, as JSON can hold it."""
    if not names:
        return None
    fitted, _ = VectorPreparation.from_rows(numbers_of(values, names, rows), Options("standard"))
    fitted = replace(fitted, fill=True)
    plain = {name: getattr(fitted, name) for name in described_fields(fitted)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
