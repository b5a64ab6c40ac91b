"""How many clusters, and how sure: MetaClusterer on piles as people have them, against baselines.

    python -m metaclust.experiments.piles run --dataset clinc150 --embedding-model MODEL --split 0 1 2 \
        --out results/piles.jsonl
    python -m metaclust.experiments.piles table results/piles.jsonl

Of the categories, 80% are known and passed to ``fit``; piles are made of the others (``--validate``: 60% and 20%), and
of known ones where that is said. Rows that are used in a pile are never trained on. The piles:

- ``few``: 2 to 10 unseen categories, 40 rows each (``--rows``).
- ``all``: all rows of all unseen categories.
- ``zipf``: 20 unseen categories (or all there are), the largest with 300 rows, the smallest with 5.
- ``mixed``: 30 known and 20 unseen categories (or as many as there are), sizes as in Zipf's law, 2% junk.
- ``one``: a single unseen category, 20 to 150 rows.
- ``junk``: 8 unseen categories, 40 rows each, with 0%, 2% and 10% junk: single rows of other unseen categories.
- ``limits``: 16 unseen categories (or all there are), all rows.
- ``eight``: 8 unseen categories, 40 rows each.
- ``every``: all rows of all categories, known and unseen, those that were trained on, too.
- ``later``: as ``eight``; then rows of these and of 8 other unseen categories are assigned to the clusters.

Each pile is clustered with ``max_clusters="auto"``; ``mixed`` also with 60, 100 and 200 and with other seeds, and
``limits`` with 20, 40 and 100. One JSON line for each pile: the adjusted Rand index (of rows that are not junk), the
number of clusters found and its 90% interval, the best candidate, the rows that are right with their confidence in ten
bins, and the baselines. ``--set effort='"balanced"'`` passes a setting to MetaClusterer, as JSON. ``--known N`` trains
on N of the known categories only. ``--vectors numbers`` makes a table of numbers from images: the mean ink of 7 x 7
fields, and of every second row and column, in different units.
"""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score, roc_auc_score

from metaclust.data import load_dataset
from metaclust.data.datasets.named import Dataset
from metaclust.data.rows import DataWarning
from metaclust.estimator import MetaClusterer
from metaclust.experiments.records import append_record, commit, read_records
from metaclust.experiments.unseen import EMBEDDING_MODEL, Data, fitted, printed, read, run_or_table
from metaclust.inference.baselines import kmeans_silhouette
from metaclust.inference.confidence import right_rows
from metaclust.inference.pipeline import pipeline_for
from metaclust.training.episodes import split_categories

Labels = NDArray[np.int64]

PILES = ("few", "all", "zipf", "mixed", "one", "junk", "limits", "eight", "later", "every")
USUAL = PILES[:6]
"""The piles that are made unless others are named."""
NUMBERS = {"few": 30, "one": 15, "junk": 5, "eight": 10, "later": 5}
"""Piles of these kinds for each split; one of any other."""
LIMITS: dict[str, tuple[Any, ...]] = {"mixed": ("auto", 60, 100, 200), "limits": ("auto", 20, 40, 100)}
SEEDS = range(10)
MOST_SILHOUETTE = 100
MANY_ROWS = 20_000
"""Of more rows, KMeans given K from one start is the only baseline."""
HDBSCAN_ROWS = 5
"""HDBSCAN takes no fewer rows."""
BINS = 10


@dataclass(frozen=True)
class Pile:
    """Rows to cluster, and the category of each; -1 for junk."""

    kind: str
    number: int
    rows: Labels
    y: Labels
    note: str = ""


def zipf_sizes(categories: int, largest: int, smallest: int) -> Labels:
    """Return sizes that fall as in Zipf's law, from the largest to the smallest.

    >>> zipf_sizes(4, 300, 5).tolist()
    [300, 39, 12, 5]
    """
    power = np.log(largest / smallest) / np.log(categories)
    sizes: Labels = np.rint(largest / np.arange(1, categories + 1) ** power).astype(np.int64)
    return np.maximum(smallest, sizes)


def table_of_images(data: Dataset) -> Data:
    """Return images as a table of numbers: the mean ink of fields, rows and columns, in different units."""
    images = np.asarray(data.X, np.float32)[:, 0] / np.float32(255)
    count, side, _ = images.shape
    fields = images.reshape(count, 7, side // 7, 7, side // 7).mean((2, 4)).reshape(count, -1)
    table = np.concatenate([fields, images.mean(1)[:, ::2], images.mean(2)[:, ::2]], 1)
    units = np.asarray(np.random.default_rng(0).uniform(1, 100, table.shape[1]), np.float32)
    scaled = np.asarray((table - table.mean(0)) / table.std(0), np.float32)
    return Data(table * units, scaled, data.y, data.categories)


class Drawing:
    """Draws piles from rows that were kept from training."""

    def __init__(self, y: Labels, unseen: Labels, known: Labels, held: Labels, split: int, size: int = 40) -> None:
        self.y, self.unseen, self.known, self.held, self.split, self.size = y, unseen, known, held, split, size

    def rows(self, category: int, size: int, generator: np.random.Generator) -> Labels:
        """Draw rows of a category that were not trained on."""
        members = self.held[self.y[self.held] == category]
        return generator.permutation(members)[:size]

    def pile(self, kind: str, number: int) -> Iterator[Pile]:
        """Draw a pile; one of kind "junk" comes with several amounts of junk."""
        generator = np.random.default_rng([self.split, number, PILES.index(kind)])
        unseen = generator.permutation(self.unseen)
        if kind == "few":
            chosen = unseen[: generator.integers(2, min(10, len(unseen)), endpoint=True)]
            sizes = np.full(len(chosen), self.size)
        elif kind in ("all", "limits"):
            chosen = unseen if kind == "all" else unseen[:16]
            sizes = np.full(len(chosen), len(self.y))
        elif kind == "every":
            rows = np.flatnonzero(np.isin(self.y, np.union1d(self.unseen, self.known)))
            yield Pile(kind, number, rows, self.y[rows])
            return
        elif kind == "zipf":
            chosen = unseen[:20]
            sizes = zipf_sizes(len(chosen), 300, 5)
        elif kind == "mixed":
            chosen = np.concatenate([generator.permutation(self.known)[:30], unseen[:20]])
            chosen = generator.permutation(chosen)
            sizes = zipf_sizes(len(chosen), 120, 5)
        elif kind == "one":
            chosen, sizes = unseen[:1], np.rint(np.exp(generator.uniform(np.log(20), np.log(150), 1))).astype(int)
        else:
            # Of those that come later, half of the categories may be left.
            chosen = unseen[: min(8, len(unseen) // 2) if kind == "later" else 8]
            sizes = np.full(len(chosen), self.size)
        parts = [self.rows(int(c), int(s), generator) for c, s in zip(chosen, sizes, strict=True)]
        rows = np.concatenate(parts)
        others = np.setdiff1d(self.held, np.flatnonzero(np.isin(self.y, chosen)))
        others = generator.permutation(others)
        # Rows of other categories in turn, so that few of one are together.
        turn = np.argsort([np.count_nonzero(self.y[others[:i]] == self.y[row]) for i, row in enumerate(others[:2000])])
        shares = {"mixed": (0.02,), "junk": (0.0, 0.02, 0.1)}.get(kind, (0.0,))
        for share in shares:
            added = others[:2000][turn[: round(share * len(rows))]]
            y = np.concatenate([self.y[rows], np.full(len(added), -1)])
            yield Pile(kind, number, np.concatenate([rows, added]), y, f"{share:.0%} junk" if len(shares) > 1 else "")


def bins_of(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> list[list[float]]:
    """Return, for each of ten ranges of confidence, the number of rows, the sum of it, and how many are right."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return [
        [int((place == b).sum()), round(float(confidence[place == b].sum()), 3), int(right[place == b].sum())]
        for b in range(BINS)
    ]


def measured(model: MetaClusterer, data: Data, pile: Pile, baselines: bool, **limits: Any) -> dict[str, Any]:
    """Cluster a pile, and compare with its categories and with baselines."""
    known = pile.y >= 0
    true = len(np.unique(pile.y[known]))
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        result = model.cluster(data.take(pile.rows), **limits)
    seconds = time.process_time() - started

    def ari(labels: Labels) -> float:
        return round(float(adjusted_rand_score(pile.y[known], labels[known])), 4)

    right, _ = right_rows(result.labels, pile.y, result.n_clusters)
    facts: dict[str, Any] = {
        "ari": ari(result.labels),
        "found": result.n_clusters,
        "true": true,
        "rows": len(pile.rows),
        "interval": list(result.k_interval()) if result.k_probabilities else None,
        "bins": bins_of(result.confidence, right),
        "auc": round(float(roc_auc_score(right, result.confidence)), 4) if 0 < right.mean() < 1 else None,
        "cpu_seconds": round(seconds, 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    if not baselines:
        return facts
    z = result.representations
    vectors = data.vectors[pile.rows]
    pipeline = pipeline_for(model.model_, model.search())
    if len(z) <= 4000:
        sample = pipeline.sample(z, z.mean(0, dtype=np.float64))
        candidates = pipeline(model.model_, sample, None).candidates
        facts["best"] = max(ari(candidate.labels) for candidate in candidates)
    most = max(10, min(MOST_SILHOUETTE, 2 * true))
    many = len(z) > MANY_ROWS
    given_k = KMeans(true, n_init=1 if many else 10, random_state=0)
    started = time.process_time()
    facts["kmeans told K"] = ari(given_k.fit_predict(vectors))
    facts["kmeans_cpu_seconds"] = round(time.process_time() - started, 2)
    if many:
        return facts
    facts["kmeans told K, same z"] = ari(given_k.fit_predict(z))
    if true > 1:
        facts["kmeans silhouette"] = ari(kmeans_silhouette(vectors, most))
        facts["kmeans silhouette, same z"] = ari(kmeans_silhouette(z, most))
    if len(z) >= HDBSCAN_ROWS:
        facts["hdbscan"] = ari(HDBSCAN(copy=True).fit_predict(vectors) + 1)
    return facts


def measured_later(model: MetaClusterer, data: Data, drawing: Drawing, pile: Pile) -> dict[str, Any]:
    """Cluster a pile, assign further rows of its categories and of others, and compare their confidence."""
    generator = np.random.default_rng([drawing.split, pile.number, 0x1A7E])
    result = model.cluster(data.take(pile.rows))
    rest = generator.permutation(np.setdiff1d(drawing.held, pile.rows))
    rest = rest[np.isin(data.y[rest], drawing.unseen)]
    own = np.isin(data.y[rest], pile.y)
    others = generator.permutation(np.setdiff1d(drawing.unseen, pile.y))[:8]
    further = np.concatenate([rest[own][:300], rest[np.isin(data.y[rest], others)][:300]])
    assigned = result.assign(data.take(further))
    new = ~np.isin(data.y[further], pile.y)
    _, matched = right_rows(result.labels, pile.y, result.n_clusters)
    return {
        "ari": round(float(adjusted_rand_score(pile.y, result.labels)), 4),
        "found": result.n_clusters,
        "true": len(np.unique(pile.y)),
        "interval": list(result.k_interval()),
        "bins": bins_of(assigned.confidence, matched[assigned.labels] == data.y[further]),
        "auc of new": round(float(roc_auc_score(new, -assigned.confidence)), 4),
    }


def run(
    data: Data, split: int, validate: bool, kinds: list[str], given: dict[str, Any], size: int, most_known: int | None
) -> Iterator[dict[str, Any]]:
    """Train on one split of the categories; yield what is measured of each pile."""
    parts = split_categories(data.y, split)
    known = parts.train if validate else np.union1d(parts.train, parts.validation)
    if most_known is not None:
        known = np.sort(np.random.default_rng([split, 0xFE3]).permutation(known)[:most_known])
    unseen = parts.validation if validate else parts.test
    generator = np.random.default_rng([split, 0x411E])
    # Half of the rows of known categories may be in piles, and are not trained on.
    held = np.isin(data.y, unseen) | (np.isin(data.y, known) & (generator.random(len(data.y)) < 0.5))
    if "mixed" not in kinds:
        held = np.isin(data.y, unseen)
    trained = Data(data.rows, data.vectors, np.where(held, -1, data.y), data.names, data.settings)
    started = time.process_time()
    model = fitted(trained, known, MetaClusterer(seed=split, progress=False, **data.settings, **given))
    fit_seconds = round(time.process_time() - started, 1)
    drawing = Drawing(data.y, unseen, known, np.flatnonzero(held), split, size)
    for kind in kinds:
        for number in range(NUMBERS.get(kind, 1)):
            for pile in drawing.pile(kind, number):
                same = {"pile": kind, "number": number, "note": pile.note, "fit_cpu_seconds": fit_seconds}
                if kind == "later":
                    yield {**same, "max_clusters": "auto", "seed": split, **measured_later(model, data, drawing, pile)}
                    continue
                for limit in LIMITS.get(kind, ("auto",)):
                    found = measured(model, data, pile, limit == "auto", max_clusters=limit)
                    yield {**same, "max_clusters": limit, "seed": split, **found}
                for seed in SEEDS if kind == "mixed" else ():
                    model.set_params(seed=seed)
                    found = measured(model, data, pile, False)
                    yield {**same, "max_clusters": "auto", "note": "seeds", "seed": seed, **found}
                model.set_params(seed=split)


def summary(records: list[dict[str, Any]]) -> dict[str, float]:
    """Return the means over piles, the calibration over rows, and how often the interval holds the true number.

    Standard errors and paired t-tests are over piles, of all splits.
    """

    def mean(name: str) -> float:
        values = [record[name] for record in records if record.get(name) is not None]
        return float(np.mean(values)) if values else float("nan")

    def p_value(name: str) -> float:
        """Return that of a paired t-test against a baseline, over piles."""
        both = np.array([(record["ari"], record[name]) for record in records if record.get(name) is not None])
        if len(both) < 2 or np.ptp(both[:, 0] - both[:, 1]) < 1e-9:
            return float("nan")
        return float(stats.ttest_rel(both[:, 0], both[:, 1]).pvalue)

    bins = np.sum([record["bins"] for record in records], 0)
    covered = [low <= record["true"] <= high for record in records for low, high in [record["interval"] or (0, 0)]]
    return {
        "ari": mean("ari"),
        "s.e.": float(np.std([record["ari"] for record in records], ddof=1) / len(records) ** 0.5)
        if len(records) > 1
        else float("nan"),
        "regret": float(np.mean([r["best"] - r["ari"] for r in records if "best" in r] or [np.nan])),
        "best - told, same z": mean("best") - mean("kmeans told K, same z"),
        "told K": mean("kmeans told K"),
        "told K, same z": mean("kmeans told K, same z"),
        "p, told K": p_value("kmeans told K"),
        "silhouette": mean("kmeans silhouette"),
        "p, silhouette": p_value("kmeans silhouette"),
        "silhouette, same z": mean("kmeans silhouette, same z"),
        "hdbscan": mean("hdbscan"),
        "K error": float(np.mean([abs(record["found"] - record["true"]) for record in records])),
        "found / true": float(np.mean([record["found"] / record["true"] for record in records])),
        "covered": float(np.mean(covered)),
        "ECE": float(np.abs(bins[:, 1] - bins[:, 2]).sum() / bins[:, 0].sum()),
        "AUC": mean("auc"),
        "AUC of new": mean("auc of new"),
        "CPU s": mean("cpu_seconds"),
    }


def table(records: list[dict[str, Any]]) -> str:
    """Return a table with a row for each data set and kind of pile."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for record in records:
        key = (record["dataset"], record["pile"], record["note"], str(record["max_clusters"]))
        groups.setdefault(key, []).append(record)
    lines: list[str] = []
    for (dataset, pile, note, limit), group in groups.items():
        values = summary(group)
        if not lines:
            lines = [f"| pile | piles | {' | '.join(values)} |", "|---" * (len(values) + 2) + "|"]
        name = ", ".join(word for word in (dataset, pile, note, f"max {limit}" if limit != "auto" else "") if word)
        entries = " | ".join("" if np.isnan(value) else f"{value:.3f}" for value in values.values())
        lines.append(f"| {name} | {len(group)} | {entries} |")
    return "\n".join(lines)


def main() -> None:
    parser, running = run_or_table(__doc__, "make piles of validation categories")
    running.add_argument("--dataset", required=True)
    running.add_argument("--vectors", choices=("pixels", "numbers", "tfidf", "embeddings"), default="embeddings")
    running.add_argument("--embedding-model", default=EMBEDDING_MODEL, help="folder or name of the embedding model")
    running.add_argument("--split", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    running.add_argument("--pile", nargs="+", choices=PILES, default=list(USUAL))
    running.add_argument("--rows", type=int, default=40, help="rows of a category in piles of few")
    running.add_argument("--known", type=int, help="number of categories to train on (default: all known)")
    arguments = parser.parse_args()
    if printed(arguments, table):
        return
    dataset = load_dataset(arguments.dataset)
    if arguments.vectors == "numbers":
        data = table_of_images(dataset)
    else:
        data = read(dataset, arguments.vectors, arguments.embedding_model)
    name = arguments.dataset if arguments.vectors != "numbers" else f"{arguments.dataset}, numbers"
    if arguments.known is not None:
        name = f"{name}, {arguments.known} known"
    name = ", ".join([name, *(f"{setting}={value}" for setting, value in dict(arguments.set).items())])
    for split in arguments.split:
        same = {"dataset": name, "split": split, "validate": arguments.validate}
        done = {r["pile"] for r in read_records(arguments.out) if all(r.get(k) == v for k, v in same.items())}
        kinds = [kind for kind in arguments.pile if kind not in done]
        if not kinds:
            continue
        given = dict(arguments.set)
        for record in run(data, split, arguments.validate, kinds, given, arguments.rows, arguments.known):
            append_record(arguments.out, {**same, **record, "commit": commit()})
        own = [r for r in read_records(arguments.out) if all(r.get(k) == v for k, v in same.items())]
        print(table(own), flush=True)


if __name__ == "__main__":
    main()
