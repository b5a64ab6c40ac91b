"""Piles as they are: known and new categories together, labels of some rows, links, and rows that come later.

    python -m metaclust.experiments.mixed run --dataset clinc150 --vectors embeddings --embedding-model MODEL \
        --split 0 1 2 3 4 --out results/mixed.jsonl
    python -m metaclust.experiments.mixed table results/mixed.jsonl

A default ``MetaClusterer`` is fitted to half of the rows of 80% of the categories, the known ones (``--validate``: of
60%, and piles are made of the next 20%). The piles, five of each kind and split:

- ``mixed``: 30 known and 20 new categories (or as many as there are), sizes as in Zipf's law from 300 to 5 rows (or as
  many as there are), and 2% junk: single rows of other categories, of which half are known.
- ``new``: the new categories of such a pile alone.
- ``links``: all new categories, up to 40 rows each; then with 20 random pairs that belong together and 20 that do not
  for each category; then with the labels of 100 rows instead.
- ``months``: ten new categories, 40 rows each; then five updates, each with four further new categories, 40 rows each,
  and with ten further rows of each category that was there before. (Of fewer categories, as many in each as there are.)

Beside the default, the same with ``known="ignore"``, and baselines on the embeddings: rows whose five nearest labelled
neighbours are nearer, on average, than those of all but 5% of the labelled rows are of the category that most of these
have, or rows are of the category with the nearest mean by the same rule; the others are clustered by HDBSCAN, or by
KMeans with the number of clusters by silhouette. ``--known N`` trains on N of the known categories only. One JSON line
for each pile.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import HDBSCAN
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, roc_auc_score
from sklearn.neighbors import NearestNeighbors

from metaclust.data import load_dataset
from metaclust.data.rows import DataWarning
from metaclust.estimator import MetaClusterer
from metaclust.experiments.piles import zipf_sizes
from metaclust.experiments.records import append_record, commit, read_records
from metaclust.experiments.unseen import Data, add_data_options, fitted, printed, read, run_or_table
from metaclust.inference.baselines import kmeans_silhouette
from metaclust.inference.confidence import right_rows
from metaclust.inference.edits import Given
from metaclust.inference.result import Clustering
from metaclust.training.episodes import split_categories
from metaclust.training.evaluation import mean_error_text

Labels = NDArray[np.int64]
Record = dict[str, Any]
NUMBER = 5
"""Piles of each kind for each split."""
KINDS = ("mixed", "new", "links", "months")
KNOWN, NEW = 30, 20
LARGEST, SMALLEST, JUNK = 300, 5, 0.02
NEIGHBOURS, KEPT = 5, 0.95
LINKS, LABELLED = 20, 100
BINS = 10
ABOUT = ("split", "number", "validate", "trained on", "fit_cpu_seconds")
"""What is recorded of a run besides its results."""


class Rows:
    """The rows of a data set: those that a model is trained on, and those that are in piles."""

    def __init__(self, data: Data, split: int, validate: bool, most_known: int | None = None) -> None:
        parts = split_categories(data.y, split)
        self.data, self.split = data, split
        self.known = parts.train if validate else np.union1d(parts.train, parts.validation)
        if most_known is not None:
            self.known = np.sort(np.random.default_rng([split, 0xFE3]).permutation(self.known)[:most_known])
        self.new = parts.validation if validate else parts.test
        generator = np.random.default_rng([split, 0x411E])
        of_known = np.isin(data.y, self.known)
        self.held = np.isin(data.y, self.new) | (of_known & (generator.random(len(data.y)) < 0.5))
        self.trained = np.flatnonzero(of_known & ~self.held)
        self.names = np.array(data.names, dtype=object)

    def model(self, given: dict[str, Any]) -> MetaClusterer:
        """Fit a model to the rows to train on."""
        y = np.where(self.held, -1, self.data.y)
        data = Data(self.data.rows, self.data.vectors, y, self.data.names, self.data.settings)
        return fitted(data, self.known, MetaClusterer(seed=self.split, progress=False, **data.settings, **given))

    def some(self, category: int, count: int, generator: np.random.Generator) -> Labels:
        """Draw rows of a category that were not trained on."""
        return generator.permutation(np.flatnonzero(self.held & (self.data.y == category)))[:count]

    def junk(self, chosen: Labels, count: int, generator: np.random.Generator) -> Labels:
        """Draw single rows of categories that are not among the chosen, half of known ones where there are enough."""
        found: list[int] = []
        for pool, share in ((self.new, 0.5), (self.known, 1.0)):
            others = generator.permutation(np.setdiff1d(pool, chosen))[: round(share * count) - len(found)]
            found += [int(self.some(int(category), 1, generator)[0]) for category in others]
        return np.array(found, np.int64)

    def mixed(self, number: int) -> tuple[Labels, Labels]:
        """Draw a pile of known and new categories with junk; return its rows and their categories, -1 for junk."""
        generator = np.random.default_rng([self.split, number, 0x317])
        known, new = generator.permutation(self.known)[:KNOWN], generator.permutation(self.new)[:NEW]
        chosen = generator.permutation(np.concatenate([known, new]))
        sizes = zipf_sizes(len(chosen), LARGEST, SMALLEST)
        rows = np.concatenate([self.some(int(c), int(s), generator) for c, s in zip(chosen, sizes, strict=True)])
        junk = self.junk(chosen, round(JUNK * len(rows)), generator)
        return np.concatenate([rows, junk]), np.concatenate([self.data.y[rows], np.full(len(junk), -1)])


def clustered(model: MetaClusterer, data: Any, **arguments: Any) -> tuple[Clustering, float]:
    """Cluster rows; also return the CPU seconds."""
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        found = model.cluster(data, **arguments)
    return found, round(time.process_time() - started, 3)


def agreement(
    y: Labels, labels: Labels, category: Labels, known: Labels, stray: NDArray[np.float64] | None = None
) -> Record:
    """Compare clusters with the categories of rows, -1 for junk.

    ``category`` is the known category that each row is said to be of, -1 for new ones. A row of a known category is
    right if this is said, and a row of a new one if it is said to be new and in the cluster that stands for it.
    """
    real = y >= 0
    is_known, is_new = real & np.isin(y, known), real & ~np.isin(y, known)
    facts: Record = {
        "ari": float(adjusted_rand_score(y[real], labels[real])),
        "nmi": float(normalized_mutual_info_score(y[real], labels[real])),
        "clusters": len(np.unique(labels[real])),
        "true": len(np.unique(y[real])),
        "new clusters": len(np.unique(labels[real & (category < 0)])),
        "true new": len(np.unique(y[is_new])),
    }
    if is_known.any():
        facts["known"] = float((category == y)[is_known].mean())
    if is_new.any():
        said = np.flatnonzero(is_new & (category < 0))
        _, place = np.unique(labels[said], return_inverse=True)
        _, true = np.unique(y[said], return_inverse=True)
        table = np.zeros((place.max(initial=-1) + 1, true.max(initial=-1) + 1))
        np.add.at(table, (place, true), 1)
        facts["new"] = float(table[linear_sum_assignment(-table)].sum() / is_new.sum())
    if is_known.any() and is_new.any():
        total = facts["known"] + facts["new"]
        facts["harmonic"] = 2 * facts["known"] * facts["new"] / total if total else 0.0
    if stray is not None and not real.all():
        facts["junk auc"] = float(roc_auc_score(~real, stray))
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in facts.items()}


def of_result(rows: Rows, result: Clustering, y: Labels) -> Record:
    """Return how a result agrees with the categories of its rows, and how well its probabilities are calibrated."""
    place = {name: number for number, name in enumerate(rows.names.tolist())}
    category = np.array([-1 if new else place[n] for n, new in zip(result.names, result.is_new, strict=True)])
    category = category[result.labels]
    facts = agreement(y, result.labels, category, rows.known, result.outlier_probability)
    right, _ = right_rows(result.labels, y, result.n_clusters)
    facts["ece"] = round(calibration_error(result.confidence, right), 4)
    real = y >= 0
    new = ~np.isin(y, rows.known)
    if 0 < new[real].mean() < 1:
        facts["novelty auc"] = round(float(roc_auc_score(new[real], result.novelty[real])), 4)
        facts["novelty ece"] = round(calibration_error(result.novelty[real], new[real]), 4)
    return facts


def calibration_error(probability: NDArray[np.float64], true: NDArray[np.bool_]) -> float:
    """Return the expected calibration error in ten bins."""
    place = np.minimum((probability * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(place, probability - true, BINS)).sum() / len(true))


def baselines(rows: Rows, pile: Labels, y: Labels) -> Iterator[tuple[str, Record]]:
    """Yield how baselines agree with the categories of a pile."""
    vectors, labelled = rows.data.vectors, rows.trained
    x, z = vectors[labelled], vectors[pile]
    of_labelled = rows.data.y[labelled]
    near = NearestNeighbors(n_neighbors=NEIGHBOURS + 1).fit(x)
    own = near.kneighbors(x)[0][:, 1:].mean(1)
    distance, index = near.kneighbors(z, NEIGHBOURS)
    voted = np.array([np.bincount(of_labelled[row]).argmax() for row in index])
    means = np.stack([x[of_labelled == category].mean(0) for category in rows.known])
    to_mean = np.sqrt(np.square(x - means[np.searchsorted(rows.known, of_labelled)]).sum(1))
    apart = np.sqrt(np.maximum(np.square(z).sum(1)[:, None] + np.square(means).sum(1) - 2 * z @ means.T, 0))
    ways = {
        "5 nearest labelled neighbours": (voted, distance.mean(1), np.quantile(own, KEPT)),
        "nearest mean": (rows.known[apart.argmin(1)], apart.min(1), np.quantile(to_mean, KEPT)),
    }
    for title, (said, away, limit) in ways.items():
        category = np.where(away <= limit, said, -1)
        rest = np.flatnonzero(category < 0)
        for other in ("HDBSCAN", "KMeans, silhouette"):
            labels = category.copy()
            if len(rest) > max(NEIGHBOURS, 3):
                if other == "HDBSCAN":
                    found = HDBSCAN(copy=True).fit_predict(z[rest]) + 1
                else:
                    found = kmeans_silhouette(z[rest], min(60, len(rest) - 1))
                labels[rest] = len(rows.names) + found
            yield f"{title} + {other}", agreement(y, labels, category, rows.known, away)


def run(rows: Rows, model: MetaClusterer, kinds: list[str]) -> Iterator[tuple[str, int, str, Record]]:
    """Yield what is measured: the kind and the number of a pile, the way, and the facts."""
    data = rows.data
    for number in range(NUMBER):
        pile, y = rows.mixed(number)
        if "mixed" in kinds:
            for known in ("auto", "ignore"):
                result, seconds = clustered(model, data.take(pile), known=known)
                yield "mixed", number, f"known={known!r}", {**of_result(rows, result, y), "cpu seconds": seconds}
            for title, facts in baselines(rows, pile, y):
                yield "mixed", number, title, facts
        if "new" in kinds:
            own = pile[np.isin(y, rows.new)]
            for known in ("auto", "ignore"):
                result, seconds = clustered(model, data.take(own), known=known)
                facts = of_result(rows, result, data.y[own])
                yield "new", number, f"known={known!r}", {**facts, "cpu seconds": seconds}
        if "links" in kinds:
            yield from linked(rows, model, number)
        if "months" in kinds:
            yield from months(rows, model, number)


def linked(rows: Rows, model: MetaClusterer, number: int) -> Iterator[tuple[str, int, str, Record]]:
    """Cluster the new categories without links, with links, and with labels of some rows."""
    generator = np.random.default_rng([rows.split, number, 0x11])
    new = generator.permutation(rows.new)[:NEW]
    pile = np.concatenate([rows.some(int(category), 40, generator) for category in new])
    y = rows.data.y[pile]
    x = rows.data.take(pile)
    must, cannot = [], []
    for category in new:
        own, others = np.flatnonzero(y == category), np.flatnonzero(y != category)
        must += [generator.choice(own, 2, replace=False).tolist() for _ in range(LINKS) if len(own) > 1]
        cannot += [[int(generator.choice(own)), int(generator.choice(others))] for _ in range(LINKS)]
    some = generator.choice(len(pile), min(LABELLED, len(pile) // 2), replace=False)
    labels: list[str | None] = [None] * len(pile)
    for row in some.tolist():
        labels[row] = str(rows.names[y[row]])
    ways: dict[str, dict[str, Any]] = {
        "nothing said": {},
        "links": {"must_link": must, "cannot_link": cannot},
        f"{LABELLED} labels": {"y": labels},
    }
    for title, said in ways.items():
        result, seconds = clustered(model, x, **said)
        _, links = Given.of(result.ids, said.get("y"), said.get("must_link"), said.get("cannot_link"))
        torn, together = (0, 0) if links is None else links.violated(result.labels)
        real = np.ones(len(y), bool)
        if "y" in said:
            # Rows whose label was given do not count.
            real[some] = False
        facts = {"ari": round(float(adjusted_rand_score(y[real], result.labels[real])), 4)}
        facts["ari of all rows"] = round(float(adjusted_rand_score(y, result.labels)), 4)
        if not title.endswith("labels"):
            others = np.setdiff1d(np.arange(len(y)), some)
            facts["ari of the rows without a label"] = round(
                float(adjusted_rand_score(y[others], result.labels[others])), 4
            )
        counts = {"clusters": result.n_clusters, "true": len(new), "violated": torn + together}
        yield "links", number, title, {**facts, **counts, "cpu seconds": seconds}


def months(rows: Rows, model: MetaClusterer, number: int) -> Iterator[tuple[str, int, str, Record]]:
    """Update clusters five times, and compare with clustering all rows at once."""
    generator = np.random.default_rng([rows.split, number, 0x5])
    new = generator.permutation(rows.new)[:30]
    first = max(2, len(new) // 3)
    later = np.array_split(new[first:], 5)
    order = {int(category): rows.some(int(category), len(rows.data.y), generator) for category in new}
    used = dict.fromkeys(order, 0)

    def next_rows(category: int, count: int) -> Labels:
        start = used[category]
        used[category] = min(len(order[category]), start + count)
        return order[category][start : used[category]]

    seen = new[:first].tolist()
    pile = np.concatenate([next_rows(category, 40) for category in seen])
    result, _ = clustered(model, rows.data.take(pile))
    unchanged, seconds = 1.0, []
    for group in later:
        more = [next_rows(category, 10) for category in seen] + [next_rows(int(c), 40) for c in group]
        further = np.concatenate(more)
        seen += group.tolist()
        before = result.labels
        started = time.process_time()
        result = result.update(rows.data.take(further))
        seconds.append(round(time.process_time() - started, 3))
        unchanged = min(unchanged, float((result.labels[: len(before)] == before).mean()))
        pile = np.concatenate([pile, further])
    y = rows.data.y[pile]
    yield (
        "months",
        number,
        "five updates",
        {
            "ari": round(float(adjusted_rand_score(y, result.labels)), 4),
            "clusters": result.n_clusters,
            "true": len(new),
            "unchanged": unchanged,
            "cpu seconds": sum(seconds),
        },
    )
    ways: dict[str, dict[str, Any]] = {"all at once": {}, "all at once, known='ignore'": {"known": "ignore"}}
    for title, said in ways.items():
        found, cpu_seconds = clustered(model, rows.data.take(pile), **said)
        facts = {"ari": round(float(adjusted_rand_score(y, found.labels)), 4), "clusters": found.n_clusters}
        yield "months", number, title, {**facts, "true": len(new), "cpu seconds": cpu_seconds}


def table(records: list[Record]) -> str:
    """Return a table with a row for each data set, kind of pile and way: means over piles, errors over piles."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        few = "" if record["trained on"] is None else f", {record['trained on']} known"
        groups.setdefault((record["dataset"] + few, record["pile"], record["way"]), []).append(record)
    lines: list[str] = []
    last = ("", "")
    for (dataset, pile, way), group in groups.items():
        names = [name for name, value in group[0].items() if isinstance(value, int | float) and name not in ABOUT]
        if last != (dataset, pile):
            title = f"{dataset}, {pile} ({len({r['split'] for r in group})} splits, {len(group)} piles)"
            lines += ["", f"| {title} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
            columns, last = names, (dataset, pile)
        entries = []
        for name in columns:
            values = [float(record[name]) for record in group if name in record]
            shown = mean_error_text(values) if name == "ari" else f"{np.mean(values):.3f}" if values else ""
            entries.append(shown)
        lines.append(f"| {way} | {' | '.join(entries)} |")
    return "\n".join(lines).strip()


def main() -> None:
    parser, running = run_or_table(__doc__, "make piles of validation categories")
    add_data_options(running)
    running.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
    running.add_argument("--known", type=int, help="train on so many of the known categories")
    running.add_argument("--piles", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = parser.parse_args()
    if printed(arguments, table):
        return
    data = read(load_dataset(arguments.dataset), arguments.vectors, arguments.embedding_model)
    for split in arguments.split:
        same = {"dataset": arguments.dataset, "split": split, "validate": arguments.validate}
        same["trained on"] = arguments.known
        done = {r["pile"] for r in read_records(arguments.out) if all(r.get(k) == v for k, v in same.items())}
        wanted = [kind for kind in arguments.piles if kind not in done]
        if not wanted:
            continue
        rows = Rows(data, split, arguments.validate, arguments.known)
        started = time.process_time()
        model = rows.model(dict(arguments.set))
        seconds = round(time.process_time() - started, 1)
        found = list(run(rows, model, wanted))
        for kind, number, way, facts in found:
            about = {"pile": kind, "number": number, "way": way, **facts}
            append_record(arguments.out, {**same, **about, "fit_cpu_seconds": seconds, "commit": commit()})
        print(f"{arguments.dataset} {split}: {len(found)} results", flush=True)


if __name__ == "__main__":
    main()
