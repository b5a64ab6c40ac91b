"""Formatting of numbers and texts."""

from __future__ import annotations

import math


def percent(share: float) -> str:
    """Format a share of 0 to 1; only exact values are 0% or 100%.

    >>> percent(0.5), percent(0.123), percent(0.0021), percent(0.9999), percent(1.0)
    ('50%', '12%', '0.2%', '>99%', '100%')
    """
    if 0.995 <= share < 1:
        return ">99%"
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{share:.1%}" if 0 < share < 0.01 else f"{share:.0%}"


def number(value: float) -> str:
    """Format a number with three digits or as a whole number, with a typographic minus; NaN is a dash.

    >>> number(54321.0), number(12.345), number(3e9)
    ('54,321', '12.3', '3e+09')
    """
    if math.isnan(value):
        return "–"  # noqa: RUF001
    size = abs(value)
    form = ",.0f" if 999.5 <= size < 1e9 else ".3g"
    return format(value, form).replace("-", "−")  # noqa: RUF001


def counted(count: int, what: str, several: str | None = None) -> str:
    """Format a count with its noun.

    >>> counted(1, "row"), counted(1200, "row"), counted(2, "category", "categories")
    ('1 row', '1,200 rows', '2 categories')
    """
    return f"{count:,} {what if count == 1 else several or what + 's'}"


def shortened(text: str, most: int) -> str:
    """Collapse white space and cut the text after ``most`` characters."""
    # Only the beginning is processed: a text may be a whole book.
    flat = " ".join(text[: 4 * most].split())
    return flat if len(flat) <= most and len(text) <= 4 * most else flat[: most - 1].rstrip() + "…"


def shortened_name(name: str, most: int) -> str:
    """Cut the beginning of an id, since paths differ at their end."""
    return name if len(name) <= most else "…" + name[len(name) - most + 1 :]
