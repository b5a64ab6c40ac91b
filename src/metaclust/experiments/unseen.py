"""MetaClusterer against what a user would pick instead, on categories that it has not seen.

    python -m metaclust.experiments.unseen run --dataset clinc150 --vectors embeddings --embedding-model MODEL \
        --split 0 1 2 --out results/unseen.jsonl
    python -m metaclust.experiments.unseen table results/unseen.jsonl

Of the categories, 80% are known (the 60% for training and the 20% for validation of the paper's split) and given to
``fit``; 20% are the test. ``tasks``: piles of 2 to 10 of them, 40 rows each. ``all``: all rows of all of them at once.
One JSON line for each (data set, vectors, split, test, method); what is in the file is not done again. ``--validate``
does the same with the validation categories in place of the test ones, and 60% known: settings are chosen by that.
``--set augment='"turn"'`` gives MetaClusterer a setting, as JSON; the paper's preset keeps its own.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import silhouette_score

from metaclust.data import load_dataset
from metaclust.data.datasets.named import Dataset
from metaclust.data.preparation.embeddings import SentenceEmbedder
from metaclust.data.rows import DataWarning
from metaclust.estimator import MetaClusterer
from metaclust.experiments.grid import append_record, commit, read_records
from metaclust.experiments.methods.rivals import bayesian_gaussian_mixture, hdbscan, kmeans_silhouette, kmeans_true
from metaclust.training.episodes import Task, TaskSampler, split_categories
from metaclust.training.evaluation import Evaluation, compare, mean_error_text

Vectors = Literal["pixels", "tfidf", "embeddings"]
Labels = NDArray[np.int64]

TASKS = 60
TASK_ROWS = 40
MOST_AT_ONCE = 100
"""Clusters that are allowed where all categories come at once."""
LSA_WIDTH = 100
"""Components to which TF-IDF is reduced for the rivals, as is the custom."""
OURS: dict[str, dict[str, Any]] = {
    "metaclust": {},
    "metaclust, by bound": {"choose": "bound"},
    "preset='paper'": {"preset": "paper", "augment": False, "representation": None},
}
ABLATIONS: dict[str, dict[str, Any]] = {
    "encoder='network'": {"encoder": "network"},
    "encoder='network', by bound": {"encoder": "network", "choose": "bound"},
    "every row counts, by bound": {"effective_rows": None, "choose": "bound"},
    "every row counts": {"effective_rows": None},
    "100 tasks to learn to choose": {"choice_tasks": 100},
}
"""What is measured only when it is named."""
WAYS = {**OURS, **ABLATIONS}


@dataclass(frozen=True)
class Data:
    """What MetaClusterer is given, and what the rivals are given."""

    rows: Any
    plain: NDArray[np.float32]
    y: Labels
    names: list[str]

    def take(self, index: Labels) -> Any:
        rows = self.rows[index]
        return rows.tolist() if rows.dtype == object else rows


def read(data: Dataset, vectors: Vectors, embedding_model: str | None) -> Data:
    """The rows as they are clustered. What is fitted without labels is fitted on all rows, for the rivals."""
    if vectors == "embeddings":
        embedded = SentenceEmbedder(embedding_model or "all-MiniLM-L6-v2").embed([str(text) for text in data.X])
        return Data(embedded, embedded, data.y, data.categories)
    if vectors == "tfidf":
        texts = np.array([str(text) for text in data.X], dtype=object)
        words = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
        plain = TruncatedSVD(LSA_WIDTH, random_state=0).fit_transform(words).astype(np.float32)
        return Data(texts, plain, data.y, data.categories)
    plain = np.asarray(data.X, np.float32).reshape(len(data.X), -1) / np.float32(255)
    return Data(data.X, plain, data.y, data.categories)


def rivals(z: NDArray[np.float32], true: int, most: int) -> Iterator[tuple[str, Callable[[], Labels]]]:
    """What scikit-learn has; only the last is told the number."""
    yield "KMeans, K by silhouette", lambda: kmeans_silhouette(z, most) if most <= 10 else many_silhouette(z, most)
    yield "HDBSCAN", lambda: hdbscan(z)
    narrow = PCA(min(10, *z.shape), random_state=0)
    yield "BayesianGaussianMixture, PCA-10", lambda: bayesian_gaussian_mixture(narrow.fit_transform(z), most)
    yield "KMeans told K", lambda: kmeans_true(z, true)


def many_silhouette(z: NDArray[np.float32], most: int) -> Labels:
    """As :func:`kmeans_silhouette`, with every second K and the silhouette of a sample of rows."""
    found = [KMeans(k, n_init=1, random_state=0).fit_predict(z) for k in range(2, most + 1, 2)]
    scores = [silhouette_score(z, labels, sample_size=min(2000, len(z)), random_state=0) for labels in found]
    return np.asarray(found[int(np.argmax(scores))], np.int64)


def run(
    data: Data, split: int, wanted: list[tuple[str, str]], validate: bool, given: dict[str, Any]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(test, method, what was measured) for all (test, method) ``wanted``; each model is trained once."""
    parts = split_categories(data.y, split)
    known = parts.train if validate else np.union1d(parts.train, parts.validation)
    unknown = parts.validation if validate else parts.test
    sampler = TaskSampler(torch.zeros(len(data.y), 1), data.y, unknown, rows=TASK_ROWS, seed=split)
    everything = np.flatnonzero(np.isin(data.y, unknown))
    at_once = Task(everything, np.searchsorted(unknown, data.y[everything]), unknown)
    piles = {"tasks": (sampler.fixed(TASKS), 10), "all": ([at_once], MOST_AT_ONCE)}
    trained: dict[str, MetaClusterer] = {}
    for test, method in wanted:
        tasks, most = piles[test]
        started = time.perf_counter()
        about: dict[str, Any] = {}
        if method in WAYS:
            # One training serves both ways to choose.
            choose = WAYS[method].get("choose", "auto")
            settings = {**given, **{name: value for name, value in WAYS[method].items() if name != "choose"}}
            share = str(settings)
            if share not in trained:
                place = np.flatnonzero(np.isin(data.y, known))
                fitted = MetaClusterer(seed=split, progress=False, **settings)
                trained[share] = fitted.fit(data.take(place), [data.names[i] for i in data.y[place]])
                about = {
                    "fit_seconds": time.perf_counter() - started,
                    "decisions": fitted.decisions_,
                    "settings": settings,
                }
            model = trained[share].set_params(choose=choose)
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                found = [model.cluster(data.take(task.rows), max_clusters=most).labels for task in tasks]
        else:
            found = [dict(rivals(data.plain[task.rows], task.n_categories, most))[method]() for task in tasks]
        seconds = time.perf_counter() - started
        yield test, method, {**measured(tasks, found), "cluster_seconds": seconds, **about}


def measured(tasks: list[Task], found: list[Labels]) -> dict[str, Any]:
    result: Evaluation = compare(tasks, found)
    return {
        **result.summary(),
        "ari_of_tasks": [round(float(value), 4) for value in result.ari],
        "found": result.found.tolist(),
        "true": result.true.tolist(),
    }


def table(records: list[dict[str, Any]]) -> str:
    """A row for each data set and test; paired t-test, over all tasks, of ours against the best that is not told K."""
    groups: dict[tuple[str, str, str], dict[str, dict[int, dict[str, Any]]]] = {}
    for record in records:
        key = (record["dataset"], record["vectors"], record["test"])
        groups.setdefault(key, {}).setdefault(record["method"], {})[record["split"]] = record
    methods = list(dict.fromkeys(record["method"] for record in records))
    lines = [f"| test ARI (mean of abs(K found - K)) | {' | '.join(methods)} | p |", "|---" * (len(methods) + 2) + "|"]
    for (dataset, vectors, test), by_method in groups.items():
        cells = []
        for method in methods:
            of_splits = list(by_method.get(method, {}).values())
            if not of_splits:
                cells.append("")
                continue
            wrong = np.mean([record["k_error"] for record in of_splits])
            cells.append(f"{mean_error_text([record['ari'] for record in of_splits])} ({wrong:.2f})")
        splits = len(by_method.get("metaclust", {}))
        name = f"{dataset}, {vectors}, {test} ({splits} split{'' if splits == 1 else 's'})"
        lines.append(f"| {name} | {' | '.join(cells)} | {probability(by_method)} |")
    return "\n".join(lines)


def probability(by_method: dict[str, dict[int, dict[str, Any]]]) -> str:
    """Of a difference as large between ours and the best rival, if there were none."""
    others = {m: r for m, r in by_method.items() if m not in WAYS and m != "KMeans told K"}
    ours = by_method.get("metaclust", {})
    if not others or not ours:
        return ""
    best = max(others.values(), key=lambda records: float(np.mean([record["ari"] for record in records.values()])))
    splits = sorted(set(ours) & set(best))
    first, second = (np.concatenate([records[split]["ari_of_tasks"] for split in splits]) for records in (ours, best))
    if len(first) < 2:
        return ""
    p = float(stats.ttest_rel(first, second).pvalue)
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def setting(words: str) -> tuple[str, Any]:
    name, _, value = words.partition("=")
    if name not in MetaClusterer().get_params():
        raise argparse.ArgumentTypeError(f"{words}: MetaClusterer has no setting {name!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{words}: after the = must come JSON, as {name}=300") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="measure")
    running.add_argument("--dataset", required=True)
    running.add_argument("--vectors", choices=("pixels", "tfidf", "embeddings"), required=True)
    running.add_argument("--embedding-model", help="a sentence-transformers folder or name")
    running.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
    running.add_argument("--test", nargs="+", choices=("tasks", "all"), default=["tasks", "all"])
    running.add_argument("--method", nargs="+", help="some of the methods; else all")
    running.add_argument("--set", type=setting, nargs="+", default=[], metavar="NAME=JSON", help="of MetaClusterer")
    running.add_argument("--validate", action="store_true", help="validation categories in place of test categories")
    running.add_argument("--threads", type=int, help="of torch")
    running.add_argument("--out", type=Path, required=True)
    showing = commands.add_parser("table", help="print the table")
    showing.add_argument("paths", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "table":
        print(table([record for path in arguments.paths for record in read_records(path)]))
        return
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    every = [*OURS, *(name for name, _ in rivals(np.zeros((20, 2), np.float32), 2, 10))]
    methods = every if arguments.method is None else arguments.method
    unknown = sorted(set(methods) - {*every, *ABLATIONS})
    if unknown:
        parser.error(f"--method {unknown[0]!r}: choose from {', '.join(map(repr, [*every, *ABLATIONS]))}")
    data = read(load_dataset(arguments.dataset), arguments.vectors, arguments.embedding_model)
    for split in arguments.split:
        same = {"dataset": arguments.dataset, "vectors": arguments.vectors, "split": split}
        same["validate"] = arguments.validate
        known = read_records(arguments.out)
        done = {(r["test"], r["method"]) for r in known if all(r.get(key) == value for key, value in same.items())}
        wanted = [(test, method) for method in methods for test in arguments.test if (test, method) not in done]
        for test, method, result in run(data, split, wanted, arguments.validate, dict(arguments.set)):
            append_record(arguments.out, {**same, "test": test, "method": method, **result, "commit": commit()})
            figures = f"{result['ari']:.4f} ({result['k_error']:.2f})"
            print(f"{arguments.dataset} {split} {test} {method}: {figures}", flush=True)


if __name__ == "__main__":
    main()
