"""MetaClusterer against baselines, on categories that it has not seen.

    python -m metaclust.experiments.unseen run --dataset clinc150 --vectors embeddings --embedding-model MODEL \
        --split 0 1 2 --out results/unseen.jsonl
    python -m metaclust.experiments.unseen table results/unseen.jsonl

Of the categories, 80% are known (the 60% for training and the 20% for validation of the paper's split) and passed to
``fit``; 20% are the test. ``tasks``: piles of 2 to 10 of them, 40 rows each. ``all``: all rows of all of them at once.
MetaClusterer is given what a user has, texts or images; the baselines are given vectors. One JSON line for each (data
set, vectors, split, test, method); trials in the file are not run again. ``--validate`` tests on the validation
categories, with 60% known: settings are chosen by that. ``--set augment='"turn"'`` passes a setting to MetaClusterer,
as JSON; the paper's preset keeps its own.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from metaclust.data import load_dataset
from metaclust.data.datasets.named import Dataset
from metaclust.data.preparation.embeddings import SentenceEmbedder
from metaclust.data.rows import DataWarning
from metaclust.estimator import MetaClusterer
from metaclust.experiments.records import append_record, commit, read_records, shown_title
from metaclust.inference.baselines import BASELINES, Labels
from metaclust.training.batches import Task
from metaclust.training.episodes import TaskSampler, split_categories
from metaclust.training.evaluation import Evaluation, compare, mean_error_text

Vectors = Literal["pixels", "tfidf", "embeddings"]

TASKS = 60
TASK_ROWS = 40
MOST_AT_ONCE = 100
"""The largest number of clusters where all categories come at once."""
LSA_WIDTH = 100
"""Components to which TF-IDF is reduced for the baselines, as is usual."""
EMBEDDING_MODEL = "all-MiniLM-L6-v2"
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
"""Run only where they are named."""
VARIANTS = {**OURS, **ABLATIONS}
COMPARED = {
    "KMeans, K by silhouette": BASELINES["kmeans-silhouette"],
    "HDBSCAN": BASELINES["hdbscan"],
    "BayesianGaussianMixture, PCA-10": BASELINES["bayesian-gaussian-mixture-pca"],
    "KMeans told K": BASELINES["kmeans-true-k"],
}
"""The baselines by their names in results files; tables show :func:`shown_title`."""


@dataclass(frozen=True)
class Data:
    """The rows as MetaClusterer is given them, and the vectors that the baselines are given."""

    rows: NDArray[Any]
    vectors: NDArray[np.float32]
    y: Labels
    names: list[str]
    settings: dict[str, Any] = field(default_factory=dict)
    """How MetaClusterer reads the rows."""

    def take(self, index: Labels) -> Any:
        rows = self.rows[index]
        return rows.tolist() if rows.dtype == object else rows


def read(data: Dataset, vectors: Vectors, embedding_model: str | None) -> Data:
    """Return the rows and vectors of a data set; for the baselines, what needs no labels is fitted on all rows."""
    if vectors == "pixels":
        pixels = np.asarray(data.X, np.float32).reshape(len(data.X), -1) / np.float32(255)
        return Data(data.X, pixels, data.y, data.categories)
    texts = np.array([str(text) for text in data.X], dtype=object)
    if vectors == "embeddings":
        model = embedding_model or EMBEDDING_MODEL
        # Kept in the same cache from which MetaClusterer reads: each text is embedded once.
        embedded = SentenceEmbedder(model).embed(texts.tolist())
        return Data(texts, embedded, data.y, data.categories, {"text": "embeddings", "embedding_model": model})
    words = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
    reduced = TruncatedSVD(LSA_WIDTH, random_state=0).fit_transform(words).astype(np.float32)
    return Data(texts, reduced, data.y, data.categories)


def run(
    data: Data, split: int, wanted: list[tuple[str, str]], validate: bool, given: dict[str, Any]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (test, method, results) for all (test, method) ``wanted``; each model is trained once."""
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
        if method in VARIANTS:
            # The learned selector and the bound choose among the candidates of the same model.
            choose = VARIANTS[method].get("choose", "auto")
            changes = {name: value for name, value in VARIANTS[method].items() if name != "choose"}
            settings = {**data.settings, **given, **changes}
            key = str(settings)
            if key not in trained:
                trained[key] = fitted(data, known, MetaClusterer(seed=split, progress=False, **settings))
                about = {
                    "fit_seconds": time.perf_counter() - started,
                    "decisions": trained[key].decisions_,
                    "settings": recorded(settings),
                }
            model = trained[key].set_params(choose=choose)
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                # The bound needs a limit; the learned selector is given none.
                limit = "auto" if choose == "auto" and changes.get("preset") != "paper" else most
                found = [model.cluster(data.take(task.rows), max_clusters=limit).labels for task in tasks]
        else:
            found = [COMPARED[method](data.vectors[task.rows], task.n_categories, most) for task in tasks]
        seconds = time.perf_counter() - started
        yield test, method, {**measured(tasks, found), "cluster_seconds": seconds, **about}


def fitted(data: Data, categories: Labels, model: MetaClusterer) -> MetaClusterer:
    """Fit a model to the rows of some categories."""
    rows = np.flatnonzero(np.isin(data.y, categories))
    return model.fit(data.take(rows), [data.names[i] for i in data.y[rows]])


def recorded(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings for a results file, which names a model that embeds rows without its folder."""
    models = {name: Path(settings[name]).name for name in ("embedding_model", "image_model") if settings.get(name)}
    return {**settings, **models}


def measured(tasks: list[Task], found: list[Labels]) -> dict[str, Any]:
    """Return the scores of found labels, in the mean and of each task."""
    result: Evaluation = compare(tasks, found)
    return {
        **result.summary(),
        "ari_of_tasks": [round(float(value), 4) for value in result.ari],
        "found": result.found.tolist(),
        "true": result.true.tolist(),
    }


def table(records: list[dict[str, Any]]) -> str:
    """Return a table with a row for each data set and test.

    p: paired t-test, over all tasks, of ours against the best baseline that is not given K.
    """
    groups: dict[tuple[str, str, str], dict[str, dict[int, dict[str, Any]]]] = {}
    for record in records:
        key = (record["dataset"], record["vectors"], record["test"])
        groups.setdefault(key, {}).setdefault(record["method"], {})[record["split"]] = record
    methods = list(dict.fromkeys(record["method"] for record in records))
    titles = " | ".join(shown_title(method) for method in methods)
    lines = [f"| test ARI (mean of abs(K found - K)) | {titles} | p |", "|---" * (len(methods) + 2) + "|"]
    for (dataset, vectors, test), by_method in groups.items():
        entries = []
        for method in methods:
            of_splits = list(by_method.get(method, {}).values())
            if not of_splits:
                entries.append("")
                continue
            wrong = np.mean([record["k_error"] for record in of_splits])
            entries.append(f"{mean_error_text([record['ari'] for record in of_splits])} ({wrong:.2f})")
        splits = len(by_method.get("metaclust", {}))
        name = f"{dataset}, {vectors}, {test} ({splits} split{'' if splits == 1 else 's'})"
        lines.append(f"| {name} | {' | '.join(entries)} | {probability(by_method)} |")
    return "\n".join(lines)


def probability(by_method: dict[str, dict[int, dict[str, Any]]]) -> str:
    """Return the p-value of the difference between ours and the best baseline that is not given K."""
    others = {m: r for m, r in by_method.items() if m in COMPARED and not COMPARED[m].given_k}
    ours = by_method.get("metaclust", {})
    if not others or not ours:
        return ""
    best = max(others.values(), key=lambda records: float(np.mean([record["ari"] for record in records.values()])))
    splits = sorted(set(ours) & set(best))
    first, second = (np.concatenate([records[split]["ari_of_tasks"] for split in splits]) for records in (ours, best))
    # Without any variation there is nothing to test.
    if len(first) < 2 or np.ptp(first - second) < 1e-9:
        return ""
    p = float(stats.ttest_rel(first, second).pvalue)
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def setting(words: str) -> tuple[str, Any]:
    """Parse NAME=JSON, a setting of MetaClusterer."""
    name, _, value = words.partition("=")
    if name not in MetaClusterer().get_params():
        raise argparse.ArgumentTypeError(f"{words}: MetaClusterer has no setting {name!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{words}: write JSON after the =, as in {name}=300") from None


def run_or_table(
    description: str | None, validate: str | None = None
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Return a parser with the commands run and table, and that of run alone, with the options of all scripts.

    ``validate`` is the help of the option of that name; without it there is none.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run the trials that are missing")
    running.add_argument(
        "--set", type=setting, nargs="+", default=[], metavar="NAME=JSON", help="settings of MetaClusterer"
    )
    if validate is not None:
        running.add_argument("--validate", action="store_true", help=validate)
    running.add_argument("--threads", type=int, help="number of threads")
    running.add_argument("--out", type=Path, required=True)
    commands.add_parser("table", help="print the table").add_argument("paths", type=Path, nargs="+")
    return parser, running


def printed(arguments: argparse.Namespace, table: Callable[[list[dict[str, Any]]], str]) -> bool:
    """Print the table and return True, if that was asked for; else set the number of threads."""
    if arguments.command == "table":
        print(table([record for path in arguments.paths for record in read_records(path)]))
        return True
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    return False


def add_data_options(running: argparse.ArgumentParser) -> None:
    """Add the options that say which rows are read, as :func:`read` takes them."""
    running.add_argument("--dataset", required=True)
    running.add_argument("--vectors", choices=("pixels", "tfidf", "embeddings"), required=True)
    running.add_argument("--embedding-model", default=EMBEDDING_MODEL, help="folder or name of the embedding model")


def main() -> None:
    parser, running = run_or_table(__doc__, "test on validation categories")
    running.add_argument("--dataset", required=True)
    running.add_argument("--vectors", choices=("pixels", "tfidf", "embeddings"), required=True)
    running.add_argument("--embedding-model", help="folder or name of a sentence-transformers model")
    running.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
    running.add_argument("--test", nargs="+", choices=("tasks", "all"), default=["tasks", "all"])
    running.add_argument("--method", nargs="+", help="methods to run (default: all)")
    arguments = parser.parse_args()
    if printed(arguments, table):
        return
    every = [*OURS, *COMPARED]
    names = {shown_title(name): name for name in COMPARED}
    methods = every if arguments.method is None else [names.get(method, method) for method in arguments.method]
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
            scores = f"{result['ari']:.4f} ({result['k_error']:.2f})"
            print(f"{arguments.dataset} {split} {test} {shown_title(method)}: {scores}", flush=True)


if __name__ == "__main__":
    main()
