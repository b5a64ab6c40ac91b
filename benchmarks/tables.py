"""Reading a csv file of numbers: ours, with labels, checks and float32 rows, against polars alone."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.measure import interleaved
from metaclust import read_data


def main(rows: int = 100_000, columns: int = 50, rounds: int = 7) -> None:
    """Print the ratio of the medians of one run."""
    generator = np.random.default_rng(0)
    frame = pl.DataFrame({f"x{i}": generator.normal(size=rows) for i in range(columns)})
    frame = frame.with_columns(label=pl.Series([f"category {i}" for i in generator.integers(0, 100, rows)]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "numbers.csv"
        frame.write_csv(path)
        seconds = interleaved(
            {
                "polars": lambda _: pl.read_csv(path),
                "ours": lambda _: read_data(path, label="label", progress=False),
            },
            rounds,
        )
        size = path.stat().st_size / 1e6
    ratio = seconds["ours"] / seconds["polars"]
    print(
        f"csv, {rows:,} rows of {columns} numbers and a label, {size:.0f} MB: polars alone {seconds['polars']:.2f} s, "
        f"read_data {seconds['ours']:.2f} s, ratio {ratio:.2f}"
    )


if __name__ == "__main__":
    main()
