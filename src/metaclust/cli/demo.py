"""The demo: train on the bundled icons, cluster unseen concepts, compare with baselines and write a report."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from metaclust._util.targets import check_file
from metaclust.data import Dataset, load_dataset
from metaclust.data.rows import DataWarning
from metaclust.estimator import MetaClusterer
from metaclust.inference.baselines import BASELINES, principal_components
from metaclust.training import evaluation
from metaclust.training.episodes import TaskSampler, split_categories
from metaclust.training.evaluation import Evaluation

PILE = 8
"""Number of concepts in the pile that the report shows."""
COMPARED = [BASELINES[name] for name in ("kmeans-silhouette", "hdbscan", "bayesian-gaussian-mixture")]


def main(
    pretrain_steps: int = 150,
    steps: int = 20,
    test_tasks: int = 40,
    choice_tasks: int = 150,
    seed: int = 0,
    *,
    report: Path = Path("metaclust-demo.html"),
    force: bool = True,
    progress: bool = True,
) -> dict[str, Evaluation]:
    """Run the demo and return the results on ``test_tasks`` piles of unseen concepts by method."""
    check_file(report, force)
    console = Console()
    started = time.perf_counter()
    torch.set_num_threads(os.cpu_count() or 1)
    data = load_dataset("icons")
    split = split_categories(data.y, seed)
    known = np.isin(data.y, np.concatenate((split.train, split.validation)))
    console.print(
        f"Icons: {len(data):,} drawings of {len(data.categories)} concepts. Learning how to cluster from "
        f"{len(split.train) + len(split.validation)} of them; the other {len(split.test)} are not seen in training."
    )
    model = MetaClusterer(
        pretrain_steps=pretrain_steps, steps=steps, choice_tasks=choice_tasks, seed=seed, progress=progress
    )
    model.fit(data.X[known], [data.categories[i] for i in data.y[known]])
    results = compare(model, data, split.test, test_tasks, seed)
    table = Table(title=f"{test_tasks} piles of 2 to 10 unseen concepts, 15 icons each")
    for column in ("method", "mean ARI", "mean |K found - K|"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for method, result in results.items():
        table.add_row(method, f"{result.ari.mean():.3f}", f"{result.k_error:.2f}")
    console.print(table)

    chosen = np.random.default_rng([seed, 0xDE0]).choice(split.test, PILE, replace=False)
    rows = data.rows().take(np.isin(data.y, chosen))
    found = model.cluster(rows)
    console.print(
        f"A pile of {len(rows)} icons of {PILE} unseen concepts ({', '.join(data.categories[i] for i in chosen)}): "
        f"{found.n_clusters} clusters found, ARI {found.scores()['ari']:.2f}."
    )
    path = found.report(report, force=force)
    console.print(f"Report: {Path(path).resolve()}", soft_wrap=True)
    console.print(f"{time.perf_counter() - started:.0f} seconds in total.")
    return results


def compare(
    model: MetaClusterer, data: Dataset, categories: NDArray[np.int64], count: int, seed: int
) -> dict[str, Evaluation]:
    """Compare metaclust with the baselines on the same piles, on pixels and on metaclust's representations."""
    sampler = TaskSampler(torch.from_numpy(data.X), data.y, categories, rows=15, seed=seed)
    tasks = sampler.fixed(count)
    with warnings.catch_warnings():
        # The warning that all ten clusters are in use: here there are at most ten.
        warnings.simplefilter("ignore", DataWarning)
        clusterings = [model.cluster(data.X[task.rows]) for task in tasks]
    pixels = [data.X[task.rows].reshape(len(task.rows), -1) / np.float32(255) for task in tasks]
    narrow = [principal_components(rows, seed) for rows in pixels]
    results = {"metaclust": evaluation.compare(tasks, [clustering.labels for clustering in clusterings])}
    for baseline in COMPARED:
        results[f"{baseline.title}, on pixels"] = evaluation.compare(tasks, [baseline(rows) for rows in narrow])
    for baseline in COMPARED:
        learned = [baseline(clustering.representations) for clustering in clusterings]
        results[f"{baseline.title}, on metaclust's representations"] = evaluation.compare(tasks, learned)
    return results


if __name__ == "__main__":
    main()
