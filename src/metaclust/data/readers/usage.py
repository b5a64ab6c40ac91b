"""What each column of a table is used as: a number, a category, a date, a text, or nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from metaclust.data.mixed_table import Treatment, Usage
from metaclust.data.readers.dates import is_temporal, present, way_of
from metaclust.data.readers.numbers import Table, are_numbers, is_list, mean_words, refuse_written_numbers, shown_type
from metaclust.data.rows import shown

TEXT_NAMES = ("text", "document", "content", "body", "sentence", "message", "description", "abstract", "title")
WORDS = 3.0
"""A column of strings with at least so many words on average is text."""
ID_WORDS = {"id", "ids", "uuid", "guid", "rowid"}
CODE_WORDS = {"zip", "zipcode", "plz", "postal", "postcode", "postalcode", "postleitzahl"}
"""Words in the names of columns whose numbers are no magnitudes."""
UUID = r"(?i)^\s*\{?[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}\}?\s*$"
NEARLY_ALL = 0.95
"""The share of distinct values from which a column of ids is one that has an own value for each row."""
MOST_VALUES = 30
"""The largest number of values of a category that have a feature of their own."""
COVERED = 0.5
"""The share of cells that these values must have, at least, where there are more values."""


def words_of(name: str) -> set[str]:
    """Return the words in the name of a column, in lower case.

    >>> sorted(words_of("customerId")), sorted(words_of("ZIP-code"))
    (['customer', 'id'], ['code', 'zip'])
    """
    return set(re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower().replace("_", " ").replace("-", " ").split())


def is_code(name: str) -> bool:
    """Return whether a name is that of ids or of codes, such as zip codes, whose numbers are no magnitudes."""
    return bool(words_of(name) & (ID_WORDS | CODE_WORDS))


def is_whole(column: pl.Series) -> bool:
    """Return whether a column holds whole numbers, be it of a type for other numbers, or strings that are no others."""
    if column.dtype == pl.String:
        column = column.cast(pl.Float64, strict=False)
    if column.dtype.is_float():
        return bool((column.fill_nan(None).drop_nulls() % 1 == 0).all())
    return column.dtype.is_integer()


@dataclass(frozen=True)
class Finder:
    """Finds what the columns of a table are used as, where nobody says it.

    Parameters
    ----------
    table : dict
        The columns by name.
    named : set of str
        Columns that a person has chosen: they are not left out.
    source : str
        What messages call the table.
    remedy : str
        How the caller can choose other columns, for messages.
    """

    table: Table
    named: frozenset[str]
    source: str
    remedy: str = ""

    def usages(self, names: Sequence[str]) -> dict[str, Usage]:
        """Return what each of the columns is used as."""
        numeric = are_numbers([self.table[name] for name in names])
        return {name: self.usage(name, number) for name, number in zip(names, numeric, strict=True)}

    def usage(self, name: str, is_number: bool) -> Usage:
        """Return what a column is used as; ``is_number`` says whether it holds numbers."""
        column = self.table[name]
        dtype = column.dtype
        if isinstance(dtype, pl.Duration) or (is_number and (is_list(column) or dtype == pl.Boolean)):
            return Usage("number")
        if is_number:
            return Usage("number") if name in self.named or not is_code(name) else self.code(name)
        if is_temporal(column):
            return Usage("date") if column.null_count() < len(column) else Usage("drop", "it is empty")
        if dtype == pl.Null:
            return Usage("drop", "it is empty")
        if dtype != pl.String:
            return Usage("drop", f"it holds {shown_type(column)}")
        return self.of_strings(name)

    def code(self, name: str) -> Usage:
        """Return what a column of ids or codes is used as."""
        column = self.table[name]
        if not is_whole(column):
            return Usage("number")
        values = present(column).drop_nulls() if column.dtype == pl.String else column.drop_nulls()
        if words_of(name) & ID_WORDS and values.n_unique() >= NEARLY_ALL * len(values):
            return Usage("id", "an id")
        return self.category(values, "codes")

    def of_strings(self, name: str) -> Usage:
        """Return what a column of strings is used as."""
        column = self.table[name]
        values = present(column).drop_nulls()
        if not len(values):
            return Usage("drop", "it is empty")
        if name not in self.named:
            if is_code(name):
                return self.code(name)
            if values.n_unique() >= NEARLY_ALL * len(values) and values.str.contains(UUID).all():
                return Usage("id", "an id")
        if way := way_of(column):
            if way == "ambiguous" and name not in self.named:
                return Usage("drop", f"dates such as {shown(values[0])} may begin with the day or the month")
            return Usage("date", written=way)
        refuse_written_numbers(self.table, [name], self.source, self.remedy)
        words = mean_words([column])[0]
        category = self.category(values, "values")
        few = category.is_used and values.n_unique() <= MOST_VALUES
        called_text = name.strip().lower() in TEXT_NAMES
        if (words >= WORDS and (called_text or not few)) or (called_text and not category.is_used):
            return Usage("text")
        if category.is_used:
            return category
        # What is chosen is used, as the most frequent of its values.
        return Usage("category") if name in self.named else category

    def category(self, values: pl.Series, what: str) -> Usage:
        """Return whether values are few enough, or repeated often enough, for a category."""
        distinct = values.n_unique()
        if distinct == 1:
            return Usage("drop", "a single value")
        if distinct * 2 > len(values):
            return Usage("drop", f"{distinct:,} {what} in {len(values):,} rows")
        if distinct > MOST_VALUES:
            frequent = values.value_counts(sort=True)["count"].head(MOST_VALUES).sum()
            if frequent < COVERED * len(values):
                return Usage("drop", f"{distinct:,} {what} in {len(values):,} rows")
        return Usage("category")


def given_usage(name: str, treatment: Treatment, table: Table) -> Usage:
    """Return what a column is used as where a person says it."""
    column = table[name]
    if treatment == "date" and column.dtype == pl.String:
        return Usage("date", written=way_of(column) or "year first")
    return Usage(treatment, "as asked for" if treatment in ("id", "drop") else "")
