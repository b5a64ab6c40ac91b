"""What the commands do once their arguments are parsed: read data, train or cluster, write files, return facts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from rich.console import Console

from metaclust._util.devices import choose_device
from metaclust._util.distributed import current
from metaclust._util.terminal import printable
from metaclust.data.readers.sources import read_data
from metaclust.data.rows import DataError, Rows
from metaclust.data.writers import WRITERS, write_table
from metaclust.estimator import MetaClusterer
from metaclust.inference.result import Clustering
from metaclust.training.episodes import TaskSampler


@dataclass(frozen=True)
class TrainedModel:
    """A model file and the settings to use it with; a setting of None keeps the model's own."""

    path: Path
    settings: Mapping[str, Any]
    max_clusters: int | None
    device: str

    @property
    def progress(self) -> bool:
        return bool(self.settings["progress"])

    def load(self) -> MetaClusterer:
        """Load the model with the settings."""
        choose_device(self.device)
        estimator = MetaClusterer.load(self.path, self.device)
        estimator.set_params(**given(self.settings))
        return estimator

    def load_with(self, data: Path, reading: Mapping[str, Any]) -> tuple[MetaClusterer, Rows]:
        """Load the model, and read the data as its training data were read."""
        estimator = self.load()
        return estimator, read(data, {**reading, "like": estimator.preparation_}, self.progress)


@dataclass(frozen=True)
class Outputs:
    """The files that a clustering is written to; None for those that are not wanted."""

    table: Path | None
    report: Path | None
    clustering: Path | None
    force: bool
    raw_cells: bool = False
    """Whether text is written to .csv as it is; see :func:`metaclust.data.writers.write_table`."""

    def check(self) -> None:
        """Raise an error if a file cannot be written."""
        paths = [path for path in (self.table, self.report, self.clustering) if path is not None]
        for path in paths:
            check_writable(path, self.force)
            if sum(other.absolute() == path.absolute() for other in paths) > 1:
                raise ValueError(f"{path} is given twice: use different files for --out, --report and --save")
        if self.table is not None and self.table.suffix.lower() not in WRITERS:
            raise ValueError(f"--out {self.table}: use one of the extensions {', '.join(WRITERS)}")
        if self.raw_cells and (self.table is None or self.table.suffix.lower() != ".csv"):
            raise ValueError("--raw-cells applies to --out with a .csv file only: omit it")

    def write(self, result: Clustering) -> dict[str, str]:
        """Write the files; returns the path of each."""
        written = {}
        if self.table is not None:
            write_table(result.to_frame(), self.table, raw_cells=self.raw_cells)
            written["table"] = str(self.table)
        if self.report is not None:
            written["report"] = str(result.report(self.report, force=self.force))
        if self.clustering is not None:
            result.save(self.clustering)
            written["clustering"] = str(self.clustering)
        return written


def train_model(
    data: Path,
    out: Path,
    *,
    reading: Mapping[str, Any],
    settings: Mapping[str, Any],
    resume: bool,
    force: bool,
    resume_command: str,
) -> dict[str, Any]:
    """Train a model and write it. The run is kept in a folder beside it until the model is written.

    Of several processes all train; the main one writes files and messages.
    """
    among = current()
    run = out.with_name(f"{out.name}.run")
    settings = given({**settings, "progress": settings["progress"] and among.main})
    if "embedding_model" in settings and settings.get("text") != "embeddings":
        raise ValueError("--embedding-model applies to embeddings only: add --text-as embeddings or omit it")
    choose_device(settings["device"])
    estimator = MetaClusterer(**settings)
    estimator.check_settings()
    if among.main:
        check_writable(out, force)
        clear_run(run, resume, force)
    among.wait()
    console = message_console(quiet=not settings["progress"])
    if resume and not run.exists():
        console.print(printable(f"There is no run to resume in {run}: starting a new one."), markup=False)
    rows = read(data, reading, settings["progress"])
    if rows.labels is None:
        raise DataError(f"{data} has no labels to learn from: name their column with --label ({rows})")
    if "text" in settings and rows.kind != "text":
        raise ValueError(f"--text-as applies to text only, but {data} holds {rows.kind}: omit it")
    console.print(printable(f"If this is interrupted, resume with: {resume_command}"), markup=False)
    started = time.perf_counter()
    try:
        estimator.fit(rows, folder=run, resume=resume)
    except KeyboardInterrupt:
        exit_interrupted(resume_command, quiet=not among.main)
    if among.main:
        estimator.save(out)
        shutil.rmtree(run)
    for decision in estimator.decisions_:
        console.print(printable(decision), markup=False)
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
    """Remove an interrupted run with ``force``; without ``resume`` or ``force`` it is an error."""
    if run.exists() and not resume:
        if not force:
            raise FileExistsError(f"{run} holds an interrupted run: add --resume to continue it or --force to restart")
        shutil.rmtree(run)


def cluster_data(model: TrainedModel, data: Path, reading: Mapping[str, Any], outputs: Outputs) -> dict[str, Any]:
    """Cluster a file or a folder of images and write the outputs."""
    outputs.check()
    estimator, rows = model.load_with(data, reading)
    result = estimator.cluster(rows, max_clusters=model.max_clusters)
    facts: dict[str, Any] = {
        "clusters": result.n_clusters,
        "rows": len(result),
        "sizes": result.sizes.tolist(),
        "unsure rows": int(result.unsure.sum()),
    }
    if result.categories is not None:
        facts |= result.scores()
    return facts | outputs.write(result)


def cluster_folder(
    model: TrainedModel, data: Path, out: Path | None, options: Mapping[str, Any], resume_command: str
) -> dict[str, Any]:
    """Cluster a folder of shards; ``options`` are those of ``cluster_shards``."""
    from metaclust.scale.run import cluster_shards

    if out is None:
        raise ValueError("--engine writes labels to a folder: name it with --out")
    options = dict(options)
    options["on_bad_shard"] = "skip" if options.pop("skip_bad_shards") else "stop"
    try:
        result = cluster_shards(
            model.load(), data, out, max_clusters=model.max_clusters, progress=model.progress, **options
        )
    except KeyboardInterrupt:
        exit_interrupted(resume_command)
    return {**result.facts(), "labels": str(out), "skipped shards": [bad.shard for bad in result.skipped]}


def evaluate_model(model: TrainedModel, data: Path, reading: Mapping[str, Any], tasks: int) -> dict[str, Any]:
    """Score all rows together or, with ``tasks``, return the mean scores over tasks of several categories each."""
    if tasks < 0:
        raise ValueError(f"--tasks {tasks}: it must be 0 or more")
    estimator, rows = model.load_with(data, reading)
    if rows.labels is None:
        raise DataError(f"{data} has no labels to compare with: name their column with --label")
    categories = set(rows.labels)
    known = categories & set(estimator.categories_)
    notes = {"seen in training": f"{len(known)} of {len(categories)} categories"} if known else {}
    if tasks == 0:
        result = estimator.cluster(rows, max_clusters=model.max_clusters)
        counts = {"clusters": result.n_clusters, "categories": len(categories), "rows": len(result)}
        return {**counts, **result.scores(), **notes}
    numbers, names = rows.numbered()
    limit = estimator.max_clusters if model.max_clusters is None else model.max_clusters
    most = min(limit, len(names))
    if most < 2:
        raise DataError(f"a task needs two or more categories: {data} has {len(names)}, and --max-clusters is {limit}")
    z = estimator.transform(rows)
    sampler = TaskSampler(torch.from_numpy(z), numbers, np.arange(len(names)), (2, most), seed=estimator.seed)
    scores = [
        estimator.cluster(rows.take(task.rows), max_clusters=model.max_clusters).scores()
        for task in sampler.fixed(tasks)
    ]
    mean = {name: float(np.mean([one[name] for one in scores])) for name in ("ari", "nmi", "acc")}
    return {"tasks": tasks, **mean, "k_error": float(np.mean([abs(one["k_error"]) for one in scores])), **notes}


def given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not None."""
    return {name: value for name, value in settings.items() if value is not None}


def message_console(quiet: bool) -> Console:
    """Return a console for messages on standard error."""
    return Console(stderr=True, quiet=quiet, soft_wrap=True, highlight=False)


def exit_interrupted(resume_command: str, quiet: bool = False) -> NoReturn:
    """Exit after Ctrl-C with the command to resume."""
    message_console(quiet).print(
        f"\nInterrupted. The last checkpoint is kept; resume with: {printable(resume_command)}", markup=False
    )
    raise SystemExit(130) from None


def read(data: Path, reading: Mapping[str, Any], progress: bool) -> Rows:
    if reading.get("on_error") is not None and data.is_file():
        raise ValueError(f"--skip-broken applies to folders of images, but {data} is a file: omit it")
    return read_data(data, progress=progress, **reading)


def check_writable(path: Path, force: bool) -> None:
    """Raise an error if a file cannot be written, or exists and may not be overwritten."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the path of a file")
    if path.exists() and not force:
        raise FileExistsError(f"{path} already exists: choose another path or add --force to overwrite it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist; create it first")
