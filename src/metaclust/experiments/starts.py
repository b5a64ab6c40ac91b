"""What the starts of a clustering are worth: one learned start, k-means++ seeds, and all that ship.

    python -m metaclust.experiments.starts run --dataset omniglot --vectors pixels --split 0 1 2 \
        --set 'augment="turn"' validation=0.25 --out results/starts.jsonl
    python -m metaclust.experiments.starts table results/starts.jsonl

A default ``MetaClusterer`` is fitted to 80% of the categories. Its representations of piles of 2 to 10 of the other
categories, 40 rows each at most, are clustered from several starts; no number is given. The learned start is the cut
of two trees of all rows that a network expects to have the highest adjusted Rand index (ARI): it does not depend on the
order of the rows and proposes any number of clusters. One JSON line for each way to start, with the CPU time of
clustering. ``--validate`` tests on the validation categories.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from metaclust.data import load_dataset
from metaclust.data.rows import DataWarning
from metaclust.estimator import MetaClusterer
from metaclust.experiments.records import append_record, commit, read_records
from metaclust.experiments.unseen import (
    TASK_ROWS,
    TASKS,
    Data,
    add_data_options,
    fitted,
    measured,
    printed,
    read,
    run_or_table,
)
from metaclust.inference.initialise import BestCut, KMeansPlusPlusStarts, LearnedStart
from metaclust.inference.pipeline import COMPARED_STEPS, Pipeline, only, pipeline_for
from metaclust.inference.refine import AdaptiveRefinement
from metaclust.inference.select import BestBound, LearnedSelector
from metaclust.inference.stages import Initialiser
from metaclust.model.clustering_model import ClusteringModel
from metaclust.training.episodes import TaskSampler, split_categories
from metaclust.training.evaluation import mean_error_text

SEEDS = 20
"""k-means++ starts, of 1 to so many seeds."""


@dataclass(frozen=True)
class Way:
    """A way to start."""

    title: str
    pipeline: Pipeline


def ways(model: ClusteringModel) -> Iterator[Way]:
    """Yield the ways to start that are compared; a task network's only where it was trained."""
    select, steps = LearnedSelector.for_model(model), model.config.steps
    refine = AdaptiveRefinement(COMPARED_STEPS)
    yield Way("all starts, one selected (ships)", pipeline_for(model))
    learned = Pipeline((BestCut(select.network),), AdaptiveRefinement(steps), BestBound(), numbers=only, centred=True)
    yield Way(f"one learned start, {steps} steps", learned)
    others: tuple[Initialiser, ...] = (KMeansPlusPlusStarts(),)
    if (network := LearnedStart.for_model(model, 1)) is not None:
        alone = Pipeline((network,), AdaptiveRefinement(steps), BestBound(), numbers=only, centred=True)
        yield Way(f"start of the task network, {steps} steps", alone)
        others = (*others, network)
    yield Way("without the learned start, one selected", Pipeline(others, refine, select, numbers=seeds, centred=True))


def seeds(limit: int) -> list[int]:
    """Return the numbers of seeds of the k-means++ starts."""
    return list(range(1, min(limit, SEEDS) + 1))


def run(data: Data, split: int, validate: bool, given: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fit a model to one split of the categories; yield what each way to start reaches on unseen ones."""
    parts = split_categories(data.y, split)
    known = parts.train if validate else np.union1d(parts.train, parts.validation)
    unknown = parts.validation if validate else parts.test
    tasks = TaskSampler(torch.zeros(len(data.y), 1), data.y, unknown, rows=TASK_ROWS, seed=split).fixed(TASKS)
    model = fitted(data, known, MetaClusterer(seed=split, progress=False, **data.settings, **given))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        z = [model.transform(data.take(task.rows)) for task in tasks]
    for way in ways(model.model_):
        started = time.process_time()
        found = [
            way.pipeline(model.model_, way.pipeline.sample(rows, rows.mean(0, dtype=np.float64)), None, split)
            for rows in z
        ]
        seconds = time.process_time() - started
        yield way.title, {**measured(tasks, [each.best.labels for each in found]), "cpu_seconds": seconds / len(tasks)}


def table(records: list[dict[str, Any]]) -> str:
    """Return a table with a row for each data set and way: mean ARI, numbers of clusters and CPU seconds a pile."""
    lines = ["| data set (splits) | start | ARI | mean abs(K found - K) | CPU s a pile |", "|---" * 5 + "|"]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["dataset"], record["start"]), []).append(record)
    for (dataset, start), group in groups.items():
        ari = mean_error_text([record["ari"] for record in group])
        wrong, seconds = (np.mean([record[name] for record in group]) for name in ("k_error", "cpu_seconds"))
        lines.append(f"| {dataset} ({len(group)}) | {start} | {ari} | {wrong:.2f} | {seconds:.3f} |")
    return "\n".join(lines)


def main() -> None:
    parser, running = run_or_table(__doc__, "test on validation categories")
    add_data_options(running)
    running.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    if printed(arguments, table):
        return
    data = read(load_dataset(arguments.dataset), arguments.vectors, arguments.embedding_model)
    for split in arguments.split:
        same = {"dataset": arguments.dataset, "vectors": arguments.vectors, "split": split}
        same["validate"] = arguments.validate
        if any(all(r.get(key) == value for key, value in same.items()) for r in read_records(arguments.out)):
            continue
        for start, result in run(data, split, arguments.validate, dict(arguments.set)):
            append_record(arguments.out, {**same, "start": start, **result, "commit": commit()})
            print(f"{arguments.dataset} {split} {start}: {result['ari']:.4f}", flush=True)


if __name__ == "__main__":
    main()
