"""Whether a default fit ever collapses: one after another with other random seeds.

    python -m metaclust.experiments.seeds run --dataset icons --vectors pixels --out results/seeds.jsonl
    python -m metaclust.experiments.seeds table results/seeds.jsonl

A default ``MetaClusterer`` is fitted to the training categories of split 0 once for each seed. It clusters ten piles of
2 to 10 validation categories, the same for all seeds. A fit has collapsed where half of the piles or more are one
cluster, or where the ARI is below half of what KMeans given K reaches on the same rows without any training. One JSON
line for each seed; seeds that are in the file are not run again.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import torch

from metaclust.data import load_dataset
from metaclust.data.rows import DataWarning
from metaclust.estimator import MetaClusterer
from metaclust.experiments.records import append_record, commit, read_records
from metaclust.experiments.unseen import (
    TASK_ROWS,
    Data,
    add_data_options,
    fitted,
    measured,
    printed,
    read,
    run_or_table,
)
from metaclust.inference.baselines import BASELINES
from metaclust.training.episodes import TaskSampler, split_categories

PILES = 10
LOWEST = 0.5
"""The share of piles in one cluster, and the share of the baseline's ARI, at which a fit counts as collapsed."""


def run(data: Data, seed: int, given: dict[str, Any]) -> dict[str, Any]:
    """Fit with one seed, and cluster the piles."""
    parts = split_categories(data.y, 0)
    tasks = TaskSampler(torch.zeros(len(data.y), 1), data.y, parts.validation, rows=TASK_ROWS, seed=0).fixed(PILES)
    started = time.process_time()
    model = fitted(data, parts.train, MetaClusterer(seed=seed, progress=False, **data.settings, **given))
    seconds = time.process_time() - started
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        found = measured(tasks, [model.cluster(data.take(task.rows)).labels for task in tasks])
    given_k = BASELINES["kmeans-true-k"]
    baseline = measured(tasks, [given_k(data.vectors[task.rows], task.n_categories) for task in tasks])["ari"]
    return {**found, "baseline": baseline, "collapsed": collapsed(found, baseline), "fit_cpu_seconds": seconds}


def collapsed(found: dict[str, Any], baseline: float) -> bool:
    """Return whether a model's clusterings are those of a collapsed one."""
    single = np.mean(np.array(found["found"]) == 1)
    return bool(single >= LOWEST or found["ari"] < LOWEST * baseline)


def table(records: list[dict[str, Any]]) -> str:
    """Return a table with a row for each data set."""
    lines = [
        "| data set | seeds | collapsed | mean ARI | lowest | standard deviation | KMeans given K | CPU s a fit |",
        "|---" * 8 + "|",
    ]
    for name in dict.fromkeys(record["dataset"] for record in records):
        of_set = [record for record in records if record["dataset"] == name]
        ari = np.array([record["ari"] for record in of_set])
        deviation = f"{ari.std(ddof=1):.3f}" if len(ari) > 1 else ""
        seconds = np.mean([record["fit_cpu_seconds"] for record in of_set])
        lines.append(
            f"| {name} | {len(ari)} | {sum(record['collapsed'] for record in of_set)} | {ari.mean():.3f} | "
            f"{ari.min():.3f} | {deviation} | {of_set[0]['baseline']:.3f} | {seconds:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser, running = run_or_table(__doc__)
    add_data_options(running)
    running.add_argument("--seeds", type=int, default=20, help="number of seeds, from 0 on")
    arguments = parser.parse_args()
    if printed(arguments, table):
        return
    data = read(load_dataset(arguments.dataset), arguments.vectors, arguments.embedding_model)
    done = {r["seed"] for r in read_records(arguments.out) if r["dataset"] == arguments.dataset}
    for seed in range(arguments.seeds):
        if seed in done:
            continue
        result = run(data, seed, dict(arguments.set))
        append_record(arguments.out, {"dataset": arguments.dataset, "seed": seed, **result, "commit": commit()})
        print(f"{arguments.dataset} seed {seed}: {result['ari']:.4f}", flush=True)


if __name__ == "__main__":
    main()
