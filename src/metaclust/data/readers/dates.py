"""Dates and times as they are written in tables: read as points in time, or refused where they are ambiguous."""

from __future__ import annotations

import polars as pl

from metaclust.data.readers.numbers import ABSENT
from metaclust.data.rows import DataError, shown

CLOCK = r"(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?)?\s*(Z|[+-]\d{2}:?\d{2})?$"
DAY = r"^\s*(?P<{}>\d{{1,2}})[./-](?P<{}>\d{{1,2}})[./-](?P<y>\d{{4}})"
WRITTEN = {
    "year first": r"^\s*(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})" + CLOCK,
    "day first": DAY.format("d", "m") + CLOCK,
    "month first": DAY.format("m", "d") + CLOCK,
}
"""How dates may be written, by the order of their parts; a time, and an offset from UTC, may follow."""
STRAY = 0.1
"""Where fewer of the cells than this are no dates, the column is one of dates with errors."""


SPACES = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""What Python takes for white space, which is more than what polars does."""
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The first day of the year 1 and the last of the year 9999, in days since 1970."""
PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def is_temporal(column: pl.Series) -> bool:
    return isinstance(column.dtype, pl.Date | pl.Datetime | pl.Time)


def points(cells: pl.Series, way: str) -> pl.Series:
    """Return the points in time of strings, null where a cell is not a date that is written in this way.

    >>> points(pl.Series(["2024-02-29", "29.2.2024", "2024-02-29T12:30+01:00"]), "year first").to_list()
    [datetime.datetime(2024, 2, 29, 0, 0), None, datetime.datetime(2024, 2, 29, 11, 30)]
    """
    groups = cells.str.extract_groups(WRITTEN[way]).struct.unnest()
    # Unnamed groups are called by their numbers: after year, month and day follow hour, minute, second and offset.
    hour, minute, second, offset = (groups[name] for name in ("4", "5", "6", "7"))
    clock = [part.fill_null("0").str.zfill(2) for part in (hour, minute, second)]
    date = [groups["y"], groups["m"].str.zfill(2), groups["d"].str.zfill(2)]
    parts = pl.DataFrame([part.alias(str(place)) for place, part in enumerate([*date, *clock])])
    written = parts.select(pl.format("{}-{}-{} {}:{}:{}", *parts.columns)).to_series()
    found = written.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="us")
    sign = offset.str.slice(0, 1).replace({"+": "1", "-": "-1", "Z": "0"}).cast(pl.Int64, strict=False)
    figures = offset.str.replace_all(r"[^0-9]", "").str.zfill(4)
    hours, minutes = (figures.str.slice(start, 2).cast(pl.Int64, strict=False) for start in (0, 2))
    ahead = (sign * (60 * hours + minutes)).fill_null(0)
    return found - (ahead * 60_000_000).cast(pl.Duration("us"))


def present(column: pl.Series) -> pl.Series:
    """Return strings without the spaces around them, null where a cell says that there is no value."""
    stripped = column.str.strip_chars(SPACES)
    return stripped.set(stripped.str.to_lowercase().is_in(ABSENT).fill_null(False), None)


def way_of(column: pl.Series) -> str:
    """Return how the strings of a column are written if they are dates: a key of WRITTEN, "" if they are not.

    Dates of which day and month cannot be told apart are "ambiguous".
    """
    cells = present(column)
    count = len(cells) - cells.null_count()
    if not count or not cells.drop_nulls().head(100).str.contains(r"^\s*\d{1,4}[-/.]\d{1,2}[-/.]\d").any():
        return ""
    wrong = {way: count - (len(cells) - points(cells, way).null_count()) for way in WRITTEN}
    best = min(wrong, key=lambda way: wrong[way])
    if wrong[best] >= STRAY * count:
        return ""
    if best == "day first" and wrong["month first"] == wrong[best]:
        same = points(cells, best).equals(points(cells, "month first"))
        # With points, as in 1.2.2024, the day comes first wherever such dates are written.
        dotted = bool(cells.drop_nulls().str.contains(r"^\d+\.\d+\.").all())
        return best if same or dotted else "ambiguous"
    return best


def read_dates(column: pl.Series, name: str, way: str, source: str, remedy: str) -> pl.Series:
    """Return a column of points in time; a cell that is no date is an error that names it."""
    dtype = column.dtype
    if isinstance(dtype, pl.Time):
        return (column.cast(pl.Int64) // 1000).cast(pl.Datetime("us"))
    if isinstance(dtype, pl.Date | pl.Datetime):
        check_years(column, name, source)
        plain = column.dt.replace_time_zone(None) if isinstance(dtype, pl.Datetime) else column
        return plain.cast(pl.Datetime("us"))
    if dtype == pl.Null:
        return column.cast(pl.Datetime("us"))
    if dtype != pl.String:
        raise DataError(
            f"{source}: column {shown(name)} holds {shown(str(dtype))[1:-1]}, such as {shown(first_of(column))}, not "
            f"dates: write them as 2024-12-31{remedy}"
        )
    cells = present(column)
    way = way or way_of(column) or "year first"
    if way == "ambiguous":
        raise DataError(
            f"{source}: column {shown(name)} has dates such as {shown(first_of(cells))}, of which day and month cannot "
            f"be told apart: write them as 2024-12-31{remedy}"
        )
    found = points(cells, way)
    if way != "year first":
        found = found.zip_with(found.is_not_null(), points(cells, "year first"))
    wrong = found.is_null() & cells.is_not_null()
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise DataError(
            f"{source}: row {row} (counting from 0), column {shown(name)}: {shown(column[row])} is not a date "
            f"({int(wrong.sum()):,} such cells). Write it as 2024-12-31{remedy}"
        )
    return found


def check_years(column: pl.Series, name: str, source: str) -> None:
    """Raise DataError for a date before the year 1 or after 9999, which polars may hold, and not convert."""
    days = column.to_physical().cast(pl.Float64) / PER_DAY.get(getattr(column.dtype, "time_unit", ""), 1)
    wrong = ((days < FIRST_DAY) | (days >= LAST_DAY + 1)).fill_null(False)
    if wrong.any():
        raise DataError(
            f"{source}: row {int(wrong.arg_max() or 0)} (counting from 0), column {shown(name)}: the date is not in "
            "the years 1 to 9999: correct it, or leave it empty"
        )


def first_of(column: pl.Series) -> object:
    """Return the first value of a column; None if it has none."""
    values = column.drop_nulls()
    return values[0] if len(values) else None
