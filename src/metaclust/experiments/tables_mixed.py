"""What the columns of a table that are not numbers are worth: categories, dates, truth values and text beside numbers.

    python -m metaclust.experiments.tables_mixed run --seed 0 1 2 3 4 --out results/tables_mixed.jsonl
    python -m metaclust.experiments.tables_mixed table results/tables_mixed.jsonl

Customers are drawn from segments, which differ a little in each of three numbers, two categories, a truth value, the
date of the first purchase, the time of the last visit, and the words of a note; a fifth of these cells are empty. An
id and a zip code say nothing. A default ``MetaClusterer`` is fitted to the customers of 36 known segments and clusters
those of 8 new ones, all at once, K unknown. Ways: all columns as they are found; without the note; numbers only (gaps
filled with the mean); and numbers with the id and the zip code as if they were magnitudes, as tables of numbers were
read before ids and codes were recognised. Beside each, KMeans that is given K on the representations, and for all
columns also on the prepared columns, of which nothing is learned. One JSON line for each way and seed; ``--validate``
draws other segments, by other seeds.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from metaclust.data import rows_from_array
from metaclust.data.rows import DataWarning
from metaclust.estimator import MetaClusterer
from metaclust.experiments.records import append_record, commit, read_records
from metaclust.experiments.unseen import printed, run_or_table
from metaclust.training.evaluation import mean_error_text

KNOWN, NEW, CUSTOMERS = 36, 8, 30
"""Segments that are known, segments that are new, and customers of each."""
GAPS = 0.2
NUMBERS = ("age", "spend", "visits")
WORDS = 60
FIRST_DAY = datetime(2021, 1, 1)
ALL, TEXTLESS, NUMERIC, AS_NUMBERS = WAYS = (
    "all columns",
    "all columns but the note",
    "numbers only",
    "numbers, id and zip code",
)


@dataclass(frozen=True)
class Customers:
    """Customers and their segments, of which those from ``KNOWN`` on are new."""

    table: pl.DataFrame
    segment: NDArray[np.int64]

    @property
    def known(self) -> NDArray[np.bool_]:
        return self.segment < KNOWN


def customers(seed: int, segments: int = KNOWN + NEW, each: int = CUSTOMERS) -> Customers:
    """Draw customers of random segments.

    Parameters
    ----------
    seed : int
        Random seed, of the segments and of their customers.
    segments, each : int
        The number of segments, and of customers of each.
    """
    generator = np.random.default_rng([seed, 0x7AB1E])
    segment = np.repeat(np.arange(segments), each)
    count = len(segment)

    def drawn(values: list[str], concentration: float) -> list[str]:
        shares = generator.dirichlet(np.full(len(values), concentration), segments)
        return [str(generator.choice(values, p=shares[one])) for one in segment]

    def around(spread: float) -> NDArray[np.float64]:
        centres: NDArray[np.float64] = generator.normal(0, spread, segments)[segment]
        return centres + generator.normal(0, 1, count)

    words = [f"word{number}" for number in range(WORDS)]
    shares = generator.dirichlet(np.full(WORDS, 0.1), segments)
    notes = [" ".join(generator.choice(words, generator.integers(4, 12), p=shares[one])) for one in segment]
    season = generator.uniform(0, 365, segments)[segment] + generator.normal(0, 30, count)
    year = generator.integers(0, 3, count) * 365
    hour = (generator.uniform(0, 24, segments)[segment] + generator.normal(0, 2, count)) % 24
    last = [FIRST_DAY + timedelta(days=int(day)) for day in generator.integers(1100, 1400, count)]
    columns: dict[str, list[Any]] = {
        "age": np.clip(45 + 8 * around(1.5), 18, 95).round().tolist(),
        "spend": np.exp(4 + 0.6 * around(1.5)).round(2).tolist(),
        "visits": np.round(np.exp(1.5 + 0.5 * around(1.5))).tolist(),
        "plan": drawn(["free", "basic", "pro", "team"], 0.3),
        "channel": drawn(["search", "friends", "shop", "radio", "fair", "newsletter", "partner"], 0.3),
        "business": (generator.random(count) < generator.beta(0.5, 0.5, segments)[segment]).tolist(),
        "first_purchase": [(FIRST_DAY + timedelta(days=int(day))).date() for day in season + year],
        "last_visit": [day + timedelta(hours=float(at)) for day, at in zip(last, hour, strict=True)],
        "note": notes,
    }
    for values in columns.values():
        for row in np.flatnonzero(generator.random(count) < GAPS):
            values[row] = None
    codes = {
        "customer_id": generator.permutation(90_000)[:count] + 10_000,
        "zip": generator.integers(10_000, 99_999, count),
    }
    order = generator.permutation(count)
    return Customers(pl.DataFrame({**codes, **columns})[order], segment[order])


def ways(found: Customers) -> Iterator[tuple[str, Any]]:
    """Yield the ways to read the customers."""
    yield ALL, found.table
    yield TEXTLESS, found.table.drop("note")
    for title, names in ((NUMERIC, NUMBERS), (AS_NUMBERS, ("customer_id", "zip", *NUMBERS))):
        numbers = found.table.select(names).cast(pl.Float64).fill_null(float("nan")).to_numpy()
        yield title, rows_from_array(numbers, columns=names, missing="mean")


def run(seed: int, settings: dict[str, Any], wanted: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield how well each of the ways that are wanted finds the new segments."""
    found = customers(seed)
    known = found.known
    y, true = [f"segment {one}" for one in found.segment[known]], found.segment[~known]
    for title, x in ways(found):
        if title not in wanted:
            continue
        parts = [x.filter(known), x.filter(~known)] if isinstance(x, pl.DataFrame) else [x.take(known), x.take(~known)]
        started = time.process_time()
        model = MetaClusterer(seed=seed, progress=False, **settings).fit(parts[0], y)
        seconds = time.process_time() - started
        result = model.cluster(parts[1])
        spent = {"fit_cpu_seconds": round(seconds, 1)}
        yield title, {**measured(true, result.labels), "told": told(true, result.representations), **spent}
        if title == ALL:
            x = np.asarray(model.preparation_(model.represent(parts[1])[0]))
            yield "all columns, not learned", {"told": told(true, x)}


def told(true: NDArray[np.int64], x: NDArray[np.float32]) -> float:
    """Return the adjusted Rand index of KMeans that is given the number of segments."""
    labels = KMeans(NEW, n_init=10, random_state=0).fit_predict(x)
    return round(float(adjusted_rand_score(true, labels)), 4)


def measured(true: NDArray[np.int64], labels: NDArray[np.int64]) -> dict[str, Any]:
    """Return the adjusted Rand index and the number of clusters."""
    return {"ari": round(float(adjusted_rand_score(true, labels)), 4), "clusters": len(np.unique(labels))}


def table(records: list[dict[str, Any]]) -> str:
    """Return a table with a row for each way: mean ARI, the mean error of K, ARI given K, and CPU seconds of a fit."""
    lines = [
        "| columns (seeds) | ARI | mean abs(K found - K) | ARI of KMeans, given K | CPU s of a fit |",
        "|---" * 5 + "|",
    ]
    groups: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["way"], record["validate"]), []).append(record)
    for (way, validate), group in groups.items():
        own = [record for record in group if "ari" in record]
        ari = mean_error_text([record["ari"] for record in own]) if own else ""
        wrong = f"{np.mean([abs(record['clusters'] - NEW) for record in own]):.1f}" if own else ""
        given = mean_error_text([record["told"] for record in group])
        spent = f"{np.mean([record['fit_cpu_seconds'] for record in own]):.0f}" if own else ""
        title = f"{way}{' (validation)' if validate else ''} ({len(group)})"
        lines.append(f"| {title} | {ari} | {wrong} | {given} | {spent} |")
    return "\n".join(lines)


def main() -> None:
    parser, running = run_or_table(__doc__, "draw other segments")
    running.add_argument("--seed", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    running.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    arguments = parser.parse_args()
    if printed(arguments, table):
        return
    warnings.simplefilter("ignore", DataWarning)
    for seed in arguments.seed:
        same = {"seed": seed, "validate": arguments.validate}
        records = read_records(arguments.out)
        done = {r["way"] for r in records if all(r.get(key) == value for key, value in same.items())}
        for way, facts in run(seed + 1000 * arguments.validate, dict(arguments.set), set(arguments.ways) - done):
            append_record(arguments.out, {**same, "way": way, **facts, "commit": commit()})
            print(f"{seed} {way}: {facts}", flush=True)


if __name__ == "__main__":
    main()
