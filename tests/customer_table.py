"""A table of customers with columns of all types, for tests of several subpackages."""

from datetime import date, timedelta

import numpy as np
import polars as pl

COUNT = 40
DAY = date(2023, 11, 20)


def customers(count: int = COUNT) -> pl.DataFrame:
    """Return a table with columns of all types, and gaps in two of them."""
    generator = np.random.default_rng(0)
    words = ["late", "parcel", "invoice", "refund", "login", "broken", "thanks", "again"]
    return pl.DataFrame(
        {
            "customer_id": range(5000, 5000 + count),
            "zip": generator.integers(10_000, 99_999, count),
            "age": [None if row % 5 == 0 else 20 + row % 30 for row in range(count)],
            "plan": [None if row % 7 == 0 else ["free", "pro", "team"][row % 3] for row in range(count)],
            "business": [row % 4 == 1 for row in range(count)],
            "since": [DAY + timedelta(days=17 * row) for row in range(count)],
            "note": [" ".join(generator.choice(words, 5)) for _ in range(count)],
            "segment": [f"s{row % 4}" for row in range(count)],
        }
    )
