"""Train briefly on the embedded icons, then cluster concepts the model has never seen: `make demo`."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.decomposition import PCA

from metaclust.augmentation import ImageAugmentation
from metaclust.data import load_dataset
from metaclust.devices import choose_device
from metaclust.episodes import TaskSampler, split_categories
from metaclust.evaluation import Evaluation, evaluate
from metaclust.experiments.rivals import bayesian_gaussian_mixture, kmeans_silhouette, score
from metaclust.model import ClusteringModel, ModelConfig
from metaclust.training import TrainingConfig, train


def main(pretrain_steps: int = 700, steps: int = 250, test_tasks: int = 50, seed: int = 0) -> dict[str, Evaluation]:
    """Returns the results on the test tasks, by method."""
    console = Console()
    started = time.perf_counter()
    torch.set_num_threads(os.cpu_count() or 1)
    data = load_dataset("icons")
    split = split_categories(data.y, seed)
    x = torch.from_numpy(data.X)
    sampler = TaskSampler(x, data.y, split.train, rows=15, seed=seed, augment=ImageAugmentation())
    fixed = replace(sampler, augment=None)
    validation = replace(fixed, categories=split.validation).fixed(30)
    tasks = replace(fixed, categories=split.test).fixed(test_tasks)
    console.print(
        f"Icons: {len(data):,} drawings of {len(data.categories)} concepts. Learning to cluster from "
        f"{len(split.train)} of them; {len(split.test)} are kept for the test and never seen in training."
    )
    torch.manual_seed(seed)
    model = ClusteringModel(ModelConfig((1, *data.X.shape[2:]), filters=32)).to(choose_device())
    config = TrainingConfig(seed=seed, pretrain_steps=pretrain_steps, steps=steps, validate_every=125)
    train(model, sampler, validation, config)

    pixels = [data.X[task.rows].reshape(len(task.rows), -1) / np.float32(255) for task in tasks]
    narrow = [PCA(min(10, *rows.shape), random_state=seed).fit_transform(rows) for rows in pixels]
    results = {
        "metaclust": evaluate(model, x, tasks),
        "KMeans, K by silhouette, on pixels": score(tasks, [kmeans_silhouette(rows) for rows in narrow]),
        "BayesianGaussianMixture, on pixels": score(tasks, [bayesian_gaussian_mixture(rows) for rows in narrow]),
    }
    table = Table(title=f"{test_tasks} tasks of 2 to 10 unseen concepts, 15 icons each")
    for column in ("method", "mean ARI", "mean |K found - K|"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for method, result in results.items():
        table.add_row(method, f"{result.ari.mean():.3f}", f"{result.k_error:.2f}")
    console.print(table)
    first = tasks[0]
    concepts = ", ".join(data.categories[i] for i in dict.fromkeys(data.y[first.rows].tolist()))
    ours = results["metaclust"]
    console.print(f"The first task mixes {first.n_categories} concepts ({concepts}): {ours.found[0]} clusters found.")
    console.print(f"{time.perf_counter() - started:.0f} seconds in all.")
    return results


if __name__ == "__main__":
    main()
