"""What the commands do, once their arguments are parsed: read, train or cluster, write files, tell facts."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import polars as pl
import torch
from rich.console import Console

from metaclust._util.devices import choose_device
from metaclust._util.distributed import current
from metaclust.data.readers.sources import read_data
from metaclust.data.rows import DataError, Rows
from metaclust.estimator import MetaClusterer
from metaclust.inference.result import Clustering
from metaclust.training.episodes import TaskSampler

TABLES: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    ".csv": lambda frame, path: frame.write_csv(path),
    ".jsonl": lambda frame, path: frame.write_ndjson(path),
    ".parquet": lambda frame, path: frame.write_parquet(path),
}


def train_model(
    data: Path, out: Path, *, reading: dict[str, Any], settings: dict[str, Any], resume: bool, force: bool, go_on: str
) -> dict[str, Any]:
    """Train and write the model. The run is kept beside it until it is done; ``go_on`` is the command to resume it.

    Of several processes all train, and the main one writes and tells.
    """
    among = current()
    run = out.with_name(f"{out.name}.run")
    if among.main:
        writable(out, force)
        clear_run(run, resume, force)
    among.wait()
    settings = {**settings, "progress": settings["progress"] and among.main}
    choose_device(settings["device"])
    estimator = MetaClusterer(**settings)
    estimator.check_settings()
    told = Console(stderr=True, quiet=not settings["progress"], soft_wrap=True, highlight=False)
    if resume and not run.exists():
        told.print(f"There is no run to go on with in {run}: this one starts anew.", markup=False)
    rows = read(data, reading, settings["progress"])
    if rows.labels is None:
        raise DataError(f"{data} has no labels to learn from: name their column with --label ({rows})")
    told.print(f"If this is interrupted, go on with: {go_on}", markup=False)
    started = time.perf_counter()
    try:
        estimator.fit(rows, folder=run, resume=resume)
    except KeyboardInterrupt:
        stopped(go_on, quiet=not among.main)
    if among.main:
        estimator.save(out)
        shutil.rmtree(run)
    for words in estimator.decisions_:
        told.print(words, markup=False)
    facts: dict[str, Any] = {
        "model": str(out),
        "rows": len(rows),
        "categories": len(estimator.categories_),
        "seconds": round(time.perf_counter() - started, 1),
    }
    if estimator.run_.best_step >= 0:
        facts["validation ARI"] = round(estimator.run_.best, 4)
    return facts


def clear_run(run: Path, resume: bool, force: bool) -> None:
    """A run that was interrupted and is not resumed is an error, or with ``force`` removed."""
    if run.exists() and not resume:
        if not force:
            raise FileExistsError(
                f"{run} holds a run that was interrupted: go on with --resume, or start anew with --force"
            )
        shutil.rmtree(run)


def cluster_data(
    model: Path,
    data: Path,
    *,
    out: Path | None,
    report: Path | None,
    save: Path | None,
    reading: dict[str, Any],
    settings: dict[str, Any],
    max_clusters: int | None,
    device: str,
    force: bool,
) -> dict[str, Any]:
    """Cluster and write what was asked for."""
    outputs = [path for path in (out, report, save) if path is not None]
    for path in outputs:
        writable(path, force)
        if sum(other.absolute() == path.absolute() for other in outputs) > 1:
            raise ValueError(f"{path} is given twice: give --out, --report and --save a file each")
    if out is not None and out.suffix.lower() not in TABLES:
        raise ValueError(f"--out {out}: give it the ending {', '.join(TABLES)}")
    result = clustering_of(model, data, reading, settings, max_clusters, device)
    facts: dict[str, Any] = {
        "clusters": result.n_clusters,
        "rows": len(result),
        "sizes": result.sizes.tolist(),
        "unsure rows": int(result.unsure.sum()),
    }
    if result.categories is not None:
        facts |= result.scores()
    if out is not None:
        write_table(result.to_frame(), out)
        facts["table"] = str(out)
    if report is not None:
        facts["report"] = str(result.report(report, force=force))
    if save is not None:
        result.save(save)
        facts["clustering"] = str(save)
    return facts


def cluster_folder(
    model: Path,
    data: Path,
    out: Path | None,
    engine: str,
    settings: dict[str, Any],
    sharded: dict[str, Any],
    max_clusters: int | None,
    device: str,
    force: bool,
    go_on: str,
) -> dict[str, Any]:
    """Cluster a folder of shards on the workers of an engine; ``go_on`` is the command to resume it."""
    from metaclust.scale.run import cluster_shards

    if out is None:
        raise ValueError("--engine writes labels to a folder: give it as --out")
    options = dict(sharded)
    on_bad: Literal["skip", "stop"] = "skip" if options.pop("skip_bad_shards") else "stop"
    estimator = with_settings(model, settings, device)
    try:
        result = cluster_shards(
            estimator,
            data,
            out,
            engine=engine,
            max_clusters=max_clusters,
            on_bad_shard=on_bad,
            force=force,
            progress=settings["progress"],
            **options,
        )
    except KeyboardInterrupt:
        stopped(go_on)
    facts = {**result.facts(), "labels": str(out)}
    facts["skipped shards"] = [bad.shard for bad in result.skipped]
    return facts


def evaluate_model(
    model: Path,
    data: Path,
    *,
    tasks: int,
    reading: dict[str, Any],
    settings: dict[str, Any],
    max_clusters: int | None,
    device: str,
) -> dict[str, Any]:
    """Scores on all rows together, or in the mean over tasks of several categories each."""
    if tasks < 0:
        raise ValueError(f"--tasks {tasks}: it must be 0 or more")
    estimator, rows = loaded(model, data, reading, settings, device)
    if rows.labels is None:
        raise DataError(f"{data} has no labels to compare with: name their column with --label")
    known = set(estimator.categories_) & set(rows.labels)
    notes = {"seen in training": f"{len(known)} of {len(set(rows.labels))} categories"} if known else {}
    if tasks == 0:
        result = estimator.cluster(rows, max_clusters=max_clusters)
        found = {"clusters": result.n_clusters, "categories": len(set(rows.labels)), "rows": len(result)}
        return {**found, **result.scores(), **notes}
    numbers, names = rows.numbered()
    limit = estimator.max_clusters if max_clusters is None else max_clusters
    most = min(limit, len(names))
    if most < 2:
        raise DataError(
            f"a task needs two categories or more: {data} has {len(names)}, and --max-clusters {limit} are allowed"
        )
    z = estimator.transform(rows)
    sampler = TaskSampler(torch.from_numpy(z), numbers, np.arange(len(names)), (2, most), seed=estimator.seed)
    drawn = [
        estimator.cluster(rows.take(task.rows), max_clusters=max_clusters).scores() for task in sampler.fixed(tasks)
    ]
    mean = {name: float(np.mean([scores[name] for scores in drawn])) for name in ("ari", "nmi", "acc")}
    return {"tasks": tasks, **mean, "k_error": float(np.mean([abs(scores["k_error"]) for scores in drawn])), **notes}


def clustering_of(
    model: Path,
    data: Path,
    reading: dict[str, Any],
    settings: dict[str, Any],
    max_clusters: int | None,
    device: str,
) -> Clustering:
    estimator, rows = loaded(model, data, reading, settings, device)
    return estimator.cluster(rows, max_clusters=max_clusters)


def stopped(go_on: str, quiet: bool = False) -> NoReturn:
    """By the person at the keyboard."""
    Console(stderr=True, soft_wrap=True, highlight=False, quiet=quiet).print(
        f"\nStopped. Nothing is lost up to the last checkpoint; go on with: {go_on}", markup=False
    )
    raise SystemExit(130) from None


def loaded(
    model: Path, data: Path, reading: dict[str, Any], settings: dict[str, Any], device: str
) -> tuple[MetaClusterer, Rows]:
    """The model with the settings asked for, and the data as the model's training data were read."""
    estimator = with_settings(model, settings, device)
    return estimator, read(data, {**reading, "like": estimator.preparation_}, settings["progress"])


def with_settings(model: Path, settings: dict[str, Any], device: str) -> MetaClusterer:
    choose_device(device)
    estimator = MetaClusterer.load(model, device)
    estimator.set_params(**{name: value for name, value in settings.items() if value is not None})
    return estimator


def read(data: Path, reading: dict[str, Any], progress: bool) -> Rows:
    if reading.get("on_error") is not None and data.is_file():
        raise ValueError(f"--skip-broken is for folders of images, but {data} is a file: leave it out")
    return read_data(data, progress=progress, **reading)


def writable(path: Path, force: bool) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the path of a file")
    if path.exists() and not force:
        raise FileExistsError(f"{path} is there already: give another path, or --force to overwrite it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} is not there; create it first")


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Beside the target, then moved into place."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as place:
        beside = Path(place) / path.name
        TABLES[path.suffix.lower()](frame, beside)
        beside.replace(path)
