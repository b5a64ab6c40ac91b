"""Which columns of a table its rows are made of, and of which kind the rows are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from metaclust.data.kinds import Kind
from metaclust.data.mixed_table import Treatment, Usage
from metaclust.data.readers.mixed import check_known
from metaclust.data.readers.numbers import Table, are_numbers, is_list, mean_words, refuse_written_numbers
from metaclust.data.readers.usage import TEXT_NAMES, Finder, given_usage
from metaclust.data.rows import DataError, listed


@dataclass(frozen=True)
class Columns:
    """Which columns of a table to read; those that are None are detected."""

    label: str | None = None
    text: str | None = None
    vector: Sequence[str] | None = None
    """The columns to make rows of, of any type."""
    ids: str | None = None
    keep: Sequence[str] | None = None
    """The columns that results carry; all of them if it is None."""
    partial: bool = False
    """Whether some rows may lack a label."""
    treat: Mapping[str, Treatment] = field(default_factory=dict)
    """What columns are used as, where a person says it."""
    usage: Mapping[str, Usage] | None = None
    """What the columns were used as in training."""
    usual_text: str | None = None
    """The column of text if there is one of that name."""
    has_options: bool = True
    """Whether the caller has the arguments ``columns``, ``text`` and ``treat``, which messages can point to."""

    @property
    def named(self) -> frozenset[str]:
        """The columns that a person has named, now or in training."""
        trained = [name for name, each in (self.usage or {}).items() if each.is_used]
        text = [] if self.text is None else [self.text]
        return frozenset({*(self.vector or ()), *self.treat, *text, *trained})

    def remedy(self, text: bool = False) -> str:
        """Return how the caller can choose other columns, to end a message."""
        if not self.has_options:
            return ""
        others = " or text= (--text-column)" if text else ""
        return f", or choose columns with columns= (--columns){others}, or how they are read with treat= (--treat)"


@dataclass(frozen=True)
class Choice:
    """The kind of the rows of a table, the columns that they are made of, and what each column is used as."""

    kind: Kind
    used: list[str]
    usage: Mapping[str, Usage] = field(default_factory=dict)

    @classmethod
    def of_text(cls, name: str, usage: Mapping[str, Usage] | None = None) -> Choice:
        return cls("text", [name], {**(usage or {}), name: Usage("text")})

    @classmethod
    def of_numbers(cls, names: Sequence[str], usage: Mapping[str, Usage] | None = None) -> Choice:
        return cls("vectors", list(names), {**(usage or {}), **dict.fromkeys(names, Usage("number"))})


def choose_columns(table: Table, free: list[str], columns: Columns, kind: Kind, source: str) -> Choice:
    """Return the kind of the rows and the columns they are made of.

    ``free`` are the columns that are neither labels nor ids.
    """
    if columns.usage is not None and kind == "table":
        check_known(columns.usage, table, source)
        return Choice("table", [name for name, each in columns.usage.items() if each.is_used], columns.usage)
    if columns.vector is not None and not columns.vector:
        raise DataError(f"columns=[]: name at least one of the columns of {source}: {listed(free, 20)}")
    alone = columns.vector is None and not columns.treat
    if alone and ((columns.text is not None and kind == "auto") or kind == "text"):
        return Choice.of_text(columns.text or text_column(table, free, columns.usual_text, source))
    if kind in ("text", "vectors") and columns.treat:
        raise ValueError(f"treat={dict(columns.treat)!r} is for kind='table', but kind={kind!r}: omit one of them")
    if kind == "text":
        raise ValueError(f"columns={list(columns.vector or ())!r}: rows of kind='text' have one column, text=; omit it")
    if kind == "vectors" and columns.vector is not None:
        return Choice.of_numbers(columns.vector)
    if kind == "vectors":
        return numeric_columns(table, free, source)
    return of_several_types(table, free, columns, kind, source)


def numeric_columns(table: Table, free: list[str], source: str) -> Choice:
    """Return all columns of numbers."""
    found = are_numbers([table[name] for name in free])
    numeric = [name for name, is_number in zip(free, found, strict=True) if is_number]
    if not numeric:
        raise DataError(f"{source} has no numeric column besides labels and ids: its columns are {listed(free, 20)}")
    return Choice.of_numbers(numeric)


def of_several_types(table: Table, free: list[str], columns: Columns, kind: Kind, source: str) -> Choice:
    """Return the columns that are used, and the kind: a table unless they are all numbers, or a single text."""
    names = free
    if columns.vector is not None:
        names = list(dict.fromkeys([*columns.vector, *([columns.text] if columns.text else []), *columns.treat]))
    elif kind == "auto" and not columns.treat and any(is_list(table[n]) for n in free):
        # Lists are representations already: nothing stands beside them but numbers.
        found = are_numbers([table[name] for name in free])
        if numeric := [name for name, is_number in zip(free, found, strict=True) if is_number]:
            return Choice.of_numbers(numeric)
    remedy = columns.remedy(text=True)
    usage = Finder(table, columns.named, source, remedy).usages([n for n in names if n not in columns.treat])
    usage |= {name: given_usage(name, treatment, table) for name, treatment in columns.treat.items()}
    if columns.text is not None:
        usage[columns.text] = Usage("text")
    usage = {name: usage[name] for name in names}
    used = [name for name, each in usage.items() if each.is_used]
    if kind == "table" and used:
        return Choice("table", used, usage)
    if used and all(usage[name].treatment == "number" and not is_duration(table[name]) for name in used):
        return Choice.of_numbers(used, usage)
    strings = [n for n, each in usage.items() if table[n].dtype == pl.String and n not in columns.treat]
    strings = [name for name in strings if usage[name].treatment not in ("id", "number", "date")]
    if [usage[name].treatment for name in used] == ["text"]:
        return Choice.of_text(used[0], usage)
    if not used or (used == strings and len(used) == 1):
        text = text_column(table, strings, columns.usual_text, source, list(table))
        refuse_written_numbers(table, [text], source, remedy)
        return Choice.of_text(text, usage)
    return Choice("table", used, usage)


def is_duration(column: pl.Series) -> bool:
    return isinstance(column.dtype, pl.Duration)


def with_lists(columns: Columns, table: Table) -> Columns:
    """Return the columns with name in place of name[0], name[1] and so on, the names of the numbers in a list."""
    if columns.vector is None:
        return columns
    names = []
    for name in columns.vector:
        base = re.sub(r"\[\d+\]$", "", name)
        names.append(base if name not in table and base in table and is_list(table[base]) else name)
    return replace(columns, vector=list(dict.fromkeys(names)))


def text_column(
    table: Table, free: list[str], usual: str | None, source: str, every: Sequence[str] | None = None
) -> str:
    """Return the column with a usual name for text, or the one with the most words."""
    strings = [name for name in free if table[name].dtype == pl.String]
    called = usual if usual in strings else first_of(TEXT_NAMES, strings)
    if called is not None:
        return called
    if not strings:
        raise DataError(
            f"{source} has no column of text and none of numbers: its columns are {listed(every or list(table), 20)}"
        )
    words = mean_words([table[name] for name in strings])
    return strings[words.index(max(words))]


def first_of(names: Sequence[str], among: Sequence[str]) -> str | None:
    """Return the column that has one of the usual names, ignoring case."""
    lower = {name.strip().lower(): name for name in reversed(among)}
    return next((lower[name] for name in names if name in lower), None)
