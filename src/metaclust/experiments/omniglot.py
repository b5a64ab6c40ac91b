"""Omniglot by the paper's protocol: the test ARI, and whether training ever collapses.

    python -m metaclust.experiments.omniglot protocol --split 0 --out results/omniglot.jsonl
    python -m metaclust.experiments.omniglot collapse --runs 10 --out results/collapse.jsonl

One JSON line a run is appended to the file; runs that are in it are not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from metaclust._util.tensors import versions
from metaclust.data import Dataset, load_dataset
from metaclust.data.sparse import SparseRows
from metaclust.experiments.records import append_record, read_records
from metaclust.inference.baselines import BASELINES
from metaclust.inference.pipeline import paper_pipeline
from metaclust.model.checkpoint import load_model, save_model
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.training.augmentation import ImageAugmentation
from metaclust.training.batches import Task
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import Split, TaskSampler, split_categories
from metaclust.training.evaluation import Evaluation, compare, evaluate
from metaclust.training.loop import train

VALIDATION_TASKS = 100
TEST_TASKS = 200
COMPARED = {
    "BayesianGaussianMixture": BASELINES["bayesian-gaussian-mixture"],
    "BayesianGaussianMixture, 10 starts": BASELINES["bayesian-gaussian-mixture-10-starts"],
    "KMeans, K by silhouette": BASELINES["kmeans-silhouette"],
    "KMeans told the true K": BASELINES["kmeans-true-k"],
}
"""The baselines by their names in results files."""


def prepare(data: Dataset, seed: int, tasks: int) -> tuple[TaskSampler, list[Task], list[Task], Split]:
    """Return training tasks, and fixed tasks of 2 to 10 categories for validation and testing."""
    split = split_categories(data.y, seed)
    x = torch.from_numpy(data.X)
    augment = ImageAugmentation(turn_categories=True)
    sampler = TaskSampler(x, data.y, split.train, tasks=tasks, seed=seed, augment=augment)
    fixed = replace(sampler, augment=None)
    validation = replace(fixed, categories=split.validation).fixed(VALIDATION_TASKS)
    test = replace(fixed, categories=split.test).fixed(TEST_TASKS)
    return sampler, validation, test, split


def protocol(
    data: Dataset, split: int, folder: Path, settings: ModelConfig, config: TrainingConfig, tasks: int
) -> dict[str, Any]:
    """Train on a split, then test every method once."""
    started = time.perf_counter()
    sampler, validation, test, categories = prepare(data, split, tasks)
    torch.manual_seed(split)
    model = ClusteringModel(settings)
    run = train(model, sampler, validation, config, folder=folder, resume=True)
    save_model(model, folder / "model.safetensors", [data.categories[i] for i in categories.train])
    proto, _ = load_model(folder / "pretrained.safetensors")
    x = sampler.x
    rows = {
        "ours": evaluate(model, x, test),
        "ours, network start, T steps": evaluate(model, x, test, pipeline=paper_pipeline(1, None, model.config.steps)),
        "proto + this VB": evaluate(proto, x, test),
        **baselines("proto", proto, x, test),
        **baselines("ours", model, x, test),
    }
    return {
        "experiment": "protocol",
        "split": split,
        "proto_validation_ari": run.proto_start,
        "best_validation_ari": run.best,
        "best_step": run.best_step,
        "training_seconds": round(run.seconds, 1),
        "seconds": round(time.perf_counter() - started, 1),
        "test": {name: result.summary() for name, result in rows.items()},
    }


def baselines(
    name: str, model: ClusteringModel, x: torch.Tensor | SparseRows, tasks: list[Task]
) -> dict[str, Evaluation]:
    """Return the results of the baselines on a model's representations of the same tasks."""
    z = [model.transform(x[torch.from_numpy(task.rows)]).numpy() for task in tasks]
    return {
        f"{name} + {title}": compare(
            tasks, [baseline(rows, task.n_categories) for rows, task in zip(z, tasks, strict=True)]
        )
        for title, baseline in COMPARED.items()
    }


def collapse(
    data: Dataset, seed: int, folder: Path, settings: ModelConfig, config: TrainingConfig, tasks: int
) -> dict[str, Any]:
    """Run one short training, to see whether it ends above its Proto start."""
    sampler, validation, _, _ = prepare(data, seed, tasks)
    torch.manual_seed(seed)
    model = ClusteringModel(settings)
    run = train(model, sampler, validation, config, folder=folder, resume=True)
    return {
        "experiment": "collapse",
        "seed": seed,
        "proto_validation_ari": run.proto_start,
        "last_validation_ari": run.last,
        "best_validation_ari": run.best,
        "validations": run.validations,
        "held": run.last is not None and run.proto_start is not None and run.last > run.proto_start,
        "training_seconds": round(run.seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("protocol", protocol.__doc__), ("collapse", collapse.__doc__)):
        command = commands.add_parser(name, help=text)
        command.add_argument("--root", help="folder that holds omniglot/ (or set METACLUST_DATA)")
        command.add_argument("--out", type=Path, required=True, help="results file to append to")
        command.add_argument("--runs-folder", type=Path, default=Path("runs"), help="folder of checkpoints and metrics")
        command.add_argument("--threads", type=int, default=torch.get_num_threads())
        command.add_argument("--tasks", type=int, default=4, help="number of tasks in a step")
        command.add_argument("--preset", choices=("default", "paper"), default="default")
        command.add_argument("--pretrain-steps", type=int)
        command.add_argument("--steps", type=int)
        if name == "protocol":
            command.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
        else:
            command.add_argument("--runs", type=int, default=10, help="number of seeds, from 0 on")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    data = load_dataset("omniglot", arguments.root)
    seeds = arguments.split if arguments.command == "protocol" else range(arguments.runs)
    key = "split" if arguments.command == "protocol" else "seed"
    done = {record[key] for record in read_records(arguments.out) if record["experiment"] == arguments.command}
    changes = {name: getattr(arguments, name) for name in ("pretrain_steps", "steps")}
    changes = {name: value for name, value in changes.items() if value is not None}
    for seed in seeds:
        if seed in done:
            print(f"{key} {seed} is in {arguments.out} already")
            continue
        config = TrainingConfig.preset(arguments.preset, seed=seed, **changes)
        folder = arguments.runs_folder / f"omniglot-{arguments.command}-{arguments.preset}-{seed}"
        run = protocol if arguments.command == "protocol" else collapse
        settings = ModelConfig.preset(arguments.preset, (1, 28, 28))
        record = run(data, seed, folder, settings, config, arguments.tasks)
        record |= {
            "preset": arguments.preset,
            "tasks": arguments.tasks,
            "threads": arguments.threads,
            "model": settings.to_dict(),
            "training": asdict(config),
            "versions": versions(),
        }
        append_record(arguments.out, record)
        print(
            json.dumps(
                {name: record[name] for name in record if name not in ("model", "training", "versions")}, indent=1
            )
        )


if __name__ == "__main__":
    main()
