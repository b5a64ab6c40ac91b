"""What every reader returns: rows of one kind, their ids and, where there are any, their labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metaclust.data.input_table import InputTable
from metaclust.data.kinds import DataKind, Kind, kind_named
from metaclust.data.mixed_table import MixedTable, Usage

Values: TypeAlias = NDArray[Any] | list[str] | list[NDArray[np.uint8]] | sparse.csr_array | MixedTable
Original: TypeAlias = Path | NDArray[np.uint8]
"""An image as it came: a file, or (channels, height, width)."""


class DataError(ValueError):
    """Data that cannot be used as it is; the message says what is wrong, where, and what to do."""


class DataWarning(UserWarning):
    """Data that was left out or changed, and where."""


@dataclass(frozen=True)
class Rows:
    """Rows as they were read, before any preparation.

    Parameters
    ----------
    kind : {"vectors", "images", "sounds", "text", "table"}
        What the rows are.
    values : array, sparse array, list of str, list of array or MixedTable
        float32 (rows, columns), dense or sparse, for vectors; uint8 (rows, channels, height, width) for images;
        a list of uint8 (bands, frames), spectrograms, for sounds; a list of strings for text; columns of several types
        for tables.
    ids : list of str
        A name for each row: the path of a file, a cell of the table, or the number of the row.
    labels : list of str, optional
        The category of each row, where it is known.
    columns : tuple of str
        The names of the columns that the values come from.
    source : str
        Where the rows come from, for messages.
    notes : tuple of str
        What was decided while reading: the kind, the columns, the rows that were left out.
    partial : list of str, optional
        The category of each row, "" where it is unknown, if it is known of some rows only; ``labels`` is then None.
    table : InputTable, optional
        The table that the rows come from: results carry its columns.
    originals : list of path or array, optional
        Images as they came, before they were brought to one size: what an image model is given.
    usage : mapping
        What each column of that table is used as, but for labels and ids.
    """

    kind: Kind
    values: Values
    ids: list[str]
    labels: list[str] | None = None
    columns: tuple[str, ...] = ()
    source: str = "the rows"
    notes: tuple[str, ...] = ()
    partial: list[str] | None = None
    table: InputTable | None = field(default=None, compare=False, repr=False)
    originals: list[Original] | None = field(default=None, compare=False, repr=False)
    usage: Mapping[str, Usage] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        kind_named(self.kind)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<Rows of {self.source}: {self._counts()}>"

    def __str__(self) -> str:
        return "; ".join([f"{self.source}: {self._counts()}", *self.notes])

    def _counts(self) -> str:
        shape = "" if isinstance(self.values, list) else " of " + "x".join(str(n) for n in self.values.shape[1:])
        known = "" if self.labels is None else f", {len(set(self.labels))} categories"
        if self.partial is not None:
            labelled = [name for name in self.partial if name]
            known = f", {len(set(labelled))} categories in {len(labelled):,} labelled rows"
        return f"{len(self):,} {self.data_kind.plural}{shape}{known}"

    @property
    def data_kind(self) -> DataKind:
        """What is known about rows of this kind: its entry in the registry."""
        return kind_named(self.kind)

    @property
    def said(self) -> list[str | None] | None:
        """The category of each row, None where it is unknown, if it is known of some rows only; otherwise None."""
        return None if self.partial is None else [name or None for name in self.partial]

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | Sequence[int]) -> Rows:
        """Return some of the rows, by number or by a mask."""
        index = np.asarray(rows)
        index = index.nonzero()[0] if index.dtype == bool else index.astype(np.int64)
        # All rows: nothing is copied.
        if len(index) == len(self) and bool((index == np.arange(len(self))).all()):
            return self
        values = [self.values[i] for i in index] if isinstance(self.values, list) else self.values[index]
        labels = None if self.labels is None else [self.labels[i] for i in index]
        partial = None if self.partial is None else [self.partial[i] for i in index]
        table = None if self.table is None else self.table.take(index)
        originals = None if self.originals is None else [self.originals[i] for i in index]
        ids = [self.ids[i] for i in index]
        return replace(self, values=values, ids=ids, labels=labels, partial=partial, table=table, originals=originals)

    def followed_by(self, others: Rows) -> Rows:
        """Return these rows and others of the same kind after them."""
        values: Any
        if isinstance(self.values, list):
            values = [*self.values, *cast("list[str]", others.values)]
        elif isinstance(self.values, MixedTable):
            values = self.values.followed_by(others.values)  # type: ignore[arg-type]
        elif sparse.issparse(self.values):
            values = sparse.csr_array(sparse.vstack([self.values, others.values]))
        else:
            values = np.concatenate([self.values, np.asarray(others.values)])
        labels = None if self.labels is None or others.labels is None else [*self.labels, *others.labels]
        originals = None if self.originals is None or others.originals is None else self.originals + others.originals
        table = None if self.table is None or others.table is None else self.table.followed_by(others.table)
        return replace(
            self,
            values=values,
            ids=[*self.ids, *others.ids],
            labels=labels,
            partial=None,
            table=table,
            originals=originals,
        )

    def numbered(self) -> tuple[NDArray[np.int64], list[str]]:
        """Return the category of each row as a number, and the names of the categories in order.

        >>> Rows("text", ["a", "b", "c"], ["0", "1", "2"], ["no", "yes", "no"]).numbered()
        (array([0, 1, 0]), ['no', 'yes'])
        """
        if self.labels is None:
            raise DataError(f"{self.source} has no labels: read it again with the name of their column or array")
        names, numbers = np.unique(np.array(self.labels, dtype=object), return_inverse=True)
        return numbers.astype(np.int64), [str(name) for name in names]

    def without_small_categories(self, min_rows: int = 2, least: int = 2) -> Rows:
        """Leave out categories of fewer than ``min_rows`` rows, with a warning that names them.

        Fewer than ``least`` remaining categories are an error: a task mixes at least two.
        """
        if min_rows < 1:
            raise ValueError(f"min_rows={min_rows!r}: it must be 1 or more")
        numbers, names = self.numbered()
        counts = np.bincount(numbers, minlength=len(names))
        small = [name for name, count in zip(names, counts, strict=True) if count < min_rows]
        if len(names) - len(small) < least:
            raise DataError(
                f"{self.source} has {len(names)} categories, {len(names) - len(small)} of them with {min_rows} rows or "
                f"more: learning to cluster needs at least {least}. Add labelled rows of more categories"
                + (f", or more rows of {listed(small)}" if small else "")
            )
        if not small:
            return self
        kept = self.take(counts[numbers] >= min_rows)
        what = (
            f"{len(self) - len(kept)} rows of {len(small)} categories with fewer than {min_rows} rows: {listed(small)}"
        )
        warnings.warn(f"{self.source}: left out {what}", DataWarning, stacklevel=2)
        return replace(kept, notes=(*kept.notes, f"left out {what}"))


def listed(names: Iterable[object], most: int = 5) -> str:
    """Return the first few names, and how many more there are.

    >>> listed("abcdefg", 3)
    "'a', 'b', 'c' and 4 more"
    """
    every = [shown(name) for name in names]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def shown(value: object, most: int = 80) -> str:
    """Return the representation of a name or a cell for a message, shortened in the middle.

    >>> shown("abcdefgh", 8)
    "'ab...h'"
    """
    if isinstance(value, str) and len(value) > 2 * most:
        value = value[:most] + value[-most:]
    text = repr(value)
    return text if len(text) <= most else f"{text[: most // 2 - 1]}...{text[-(most - most // 2 - 2) :]}"


def reason_of(error: BaseException, most: int = 300) -> str:
    """Return the first line of an error of another library, shortened: it may quote what is in a file."""
    first = str(error).partition("\n")[0]
    return first if len(first) <= most else f"{first[:most]}..."
