"""What the commands do once their arguments are parsed: read data, train or cluster, write files, return facts."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import numpy as np
import torch
from rich.console import Console

from metaclust._util.devices import choose_device
from metaclust._util.distributed import current
from metaclust._util.files import remove_finished
from metaclust._util.locks import LOCK, held, writing
from metaclust._util.targets import check_file, check_space, same
from metaclust._util.terminal import printable
from metaclust.data.kinds import KINDS
from metaclust.data.labels import without_labels
from metaclust.data.readers.sources import read_data
from metaclust.data.readers.tables import read_pairs
from metaclust.data.rows import DataError, DataWarning, Rows, listed
from metaclust.data.writers import WRITERS, unwritable, write_table
from metaclust.estimator import MetaClusterer
from metaclust.inference.result import Clustering
from metaclust.inference.update import unseen
from metaclust.training.episodes import TaskSampler
from metaclust.training.plan import TRAINED_CLUSTERS, options_of

TABLE_BYTES = 30
"""Bytes of a row of a table, about: its id, cluster and confidence."""
RUN_FILES = (
    "checkpoint.safetensors",
    "metrics.jsonl",
    "compare-residual-60",
    "compare-residual",
    "fold-0",
    "tune-0",
    "tune",
)
"""What a training run writes first, in this version or an earlier one."""


@dataclass(frozen=True)
class TrainedModel:
    """A model file and the settings to use it with; a setting of None keeps the model's own."""

    path: Path
    settings: Mapping[str, Any]
    max_clusters: int | Literal["auto"] | None
    device: str
    models: Mapping[str, str | None] = field(default_factory=dict)
    """Where the models that embed rows are, if not where the file says, as arguments of ``MetaClusterer.load``."""

    @property
    def progress(self) -> bool:
        return bool(self.settings["progress"])

    def load(self) -> MetaClusterer:
        """Load the model with the settings."""
        choose_device(self.device)
        estimator = MetaClusterer.load(self.path, self.device, **self.models)
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

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.table, self.report, self.clustering) if path is not None]

    def check(self, *inputs: Path) -> None:
        """Raise an error if a file cannot be written, or is one of those that are read."""
        for path in self.paths:
            check_file(path, self.force, inputs)
            if sum(same(other, path) for other in self.paths) > 1:
                raise ValueError(f"{path} is given twice: use different files for --out, --report and --save")
            check_space(path.parent, 0, str(path))
        if self.table is not None and self.table.suffix.lower() not in WRITERS:
            raise ValueError(f"--out {self.table}: use one of the extensions {', '.join(WRITERS)}")
        if self.raw_cells and (self.table is None or self.table.suffix.lower() != ".csv"):
            raise ValueError("--raw-cells applies to --out with a .csv file only: omit it")

    def writable(self, rows: Rows, keep: Sequence[str] | None) -> Rows:
        """Return rows whose table the file of clusters can carry; ``keep`` are the columns that were asked for."""
        if self.table is None or rows.table is None:
            return rows
        wrong = unwritable(rows.table.frame, self.table)
        if not wrong:
            return rows
        what = f"{rows.source} has bytes or objects in {listed(wrong)}, which {self.table.name} cannot hold"
        if keep is not None:
            raise ValueError(f"{what}: leave that out of --keep, or write .parquet")
        warnings.warn(f"{what}: left out; write .parquet to keep that", DataWarning, stacklevel=2)
        return replace(rows, table=rows.table.without(wrong))

    def check_space(self, rows: Rows, width: int, model: Path) -> None:
        """Raise an error if the files, as far as their sizes are known beforehand, do not fit on the disk."""
        if self.table is not None:
            carried = 0 if rows.table is None else rows.table.bytes
            check_space(self.table.parent, len(rows) * TABLE_BYTES + carried, str(self.table))
        if self.clustering is not None:
            size = model.stat().st_size + len(rows) * (4 * width + TABLE_BYTES)
            check_space(self.clustering.parent, size, str(self.clustering))

    def write(self, result: Clustering) -> dict[str, str]:
        """Write the files; returns the path of each."""
        written = {}
        if self.table is not None:
            write_table(result.to_frame("polars"), self.table, raw_cells=self.raw_cells)
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
    for name in ("image_model", "image_scaling"):
        if name in settings and "embeddings" not in (settings.get("images"), settings.get("sounds")):
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} applies to embeddings of images only: add --images-as embeddings or omit it")
    choose_device(settings["device"])
    estimator = MetaClusterer(**settings)
    estimator.check_settings()
    if among.main:
        check_file(out, force, [data])
        check_space(out.parent, 0, f"training {out}")
    with writing(out) if among.main else nullcontext():
        if among.main:
            check_run(run, data, resume, force)
        among.wait()
        console = message_console(quiet=not settings["progress"])
        if resume and not run.exists():
            console.print(printable(f"There is no run to resume in {run}: starting a new one."), markup=False)
        rows = read(data, reading, settings["progress"])
        if rows.labels is None and rows.partial is None:
            raise DataError(f"{data} has no labels to learn from: name their column with --label ({rows})")
        applicable = options_of(rows)
        for kind in KINDS.values():
            if kind.option in settings and kind.option not in applicable:
                raise ValueError(
                    f"--{kind.option}-as applies to {kind.name} only, but {data} holds {rows.kind}: omit it"
                )
        if among.main and not resume:
            clear_run(run)
        console.print(printable(f"If this is interrupted, resume with: {resume_command}"), markup=False)
        started = time.perf_counter()
        try:
            estimator.fit(rows, folder=run, resume=resume)
        except KeyboardInterrupt:
            exit_interrupted(resume_command, quiet=not among.main)
        if among.main:
            estimator.save(out)
            remove_finished(run, out)
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


def check_run(run: Path, data: Path, resume: bool, force: bool) -> None:
    """Raise an error if the folder of the run holds what may not be overwritten, or is in use."""
    if not run.exists():
        return
    if not run.is_dir():
        raise FileExistsError(f"{run} is a file, where the folder of the run would be: choose another --out")
    with held(run / LOCK, run):
        names = {path.name for path in run.iterdir()} - {LOCK}
        if names and not names.intersection(RUN_FILES):
            raise FileExistsError(f"{run} holds other files than a training run: choose another --out")
        if data.resolve().is_relative_to(run.resolve()):
            raise ValueError(f"{data} is in {run}, which is removed in the end: choose another --out")
        if not resume and not force:
            raise FileExistsError(f"{run} holds an interrupted run: add --resume to continue it or --force to restart")


def clear_run(run: Path) -> None:
    """Remove an interrupted run, unless a process is at it."""
    if run.exists():
        with held(run / LOCK, run):
            for path in run.iterdir():
                if path.name != LOCK:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        # A run that has just begun in it, or a lock that could not be removed, are for the new run to notice.
        with suppress(OSError):
            run.rmdir()


@dataclass(frozen=True)
class Said:
    """What a person says of rows before they are clustered, besides the labels of some."""

    known: str = "auto"
    must_link: Path | None = None
    cannot_link: Path | None = None

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.must_link, self.cannot_link) if path is not None]

    def read(self) -> dict[str, Any]:
        """Return the arguments of ``MetaClusterer.cluster``."""
        return {
            "known": self.known,
            "must_link": None if self.must_link is None else read_pairs(self.must_link),
            "cannot_link": None if self.cannot_link is None else read_pairs(self.cannot_link),
        }


def cluster_data(
    model: TrainedModel, data: Path, reading: Mapping[str, Any], outputs: Outputs, said: Said
) -> dict[str, Any]:
    """Cluster a file or a folder of images and write the outputs."""
    outputs.check(data, model.path, *said.files)
    with writing(*outputs.paths):
        # Another process may have finished them meanwhile.
        outputs.check(data, model.path, *said.files)
        links = said.read()
        estimator, rows = model.load_with(data, reading)
        rows = outputs.writable(rows, reading.get("keep"))
        outputs.check_space(rows, estimator.model_.config.representation, model.path)
        rows, y = without_labels(rows) if reading.get("partial") else (rows, None)
        result = estimator.cluster(rows, y, max_clusters=model.max_clusters, **links)
        facts: dict[str, Any] = {"clusters": result.n_clusters}
        if result.k_probabilities:
            facts["90% interval"] = "{} to {}".format(*result.k_interval())
        return facts | facts_of_rows(result) | outputs.write(result)


def facts_of_rows(result: Clustering) -> dict[str, Any]:
    """Return what is printed of the rows of a clustering."""
    facts: dict[str, Any] = {
        "rows": len(result),
        "sizes": result.sizes.tolist(),
        "unsure rows": int(result.unsure.sum()),
    }
    if not result.is_new.all():
        present = result.sizes > 0
        facts["known categories"] = int((present & ~result.is_new).sum())
        facts["new categories"] = int((present & result.is_new).sum())
        facts["rows of new categories"] = int(result.is_new[result.labels].sum())
    if result.outlier.any():
        facts["outliers"] = int(result.outlier.sum())
    return facts if result.categories is None else facts | result.scores()


def loaded_with_model(path: Path, device: str, models: Mapping[str, str | None], progress: bool) -> Clustering:
    """Load a clustering whose model encodes further rows."""
    loaded = Clustering.load(path, device)
    if loaded.model is None:
        raise ValueError(f"{path} was saved without its model, which encodes the rows: cluster and save again")
    loaded.model.set_params(progress=progress)
    loaded.model._use_models(models, str(path))
    return loaded


def update_data(
    clustering: Path,
    data: Sequence[Path],
    reading: Mapping[str, Any],
    outputs: Outputs,
    *,
    known: str,
    relabel: bool,
    again: bool,
    device: str,
    models: Mapping[str, str | None],
    progress: bool,
) -> dict[str, Any]:
    """Add the rows of files or folders of images to the clusters of a file, and write the outputs."""
    if len(data) > 1 and outputs.table is not None:
        raise ValueError("--out holds the rows of one file: update with one file after another, or omit it")
    # A link stays, and what it leads to is replaced.
    target = outputs.clustering or clustering.resolve()
    outputs.check(*data, clustering)
    with writing(*outputs.paths, *([] if outputs.clustering else [target])):
        outputs.check(*data, clustering)
        result = loaded_with_model(clustering, device, models, progress)
        before, had = len(result), result.n_clusters
        for path in data:
            rows = read(path, {**reading, "like": result.model.preparation_}, progress)
            rows = outputs.writable(rows, reading.get("keep"))
            rows, y = without_labels(rows) if reading.get("partial") else (rows, None)
            further = np.arange(len(rows)) if again else unseen(result, rows, y or [None] * len(rows))
            rows, y = rows.take(further), None if y is None else [y[row] for row in further.tolist()]
            if len(rows):
                result = result.update(rows, y, known=cast("Any", known), relabel=relabel, again=True)
        if len(result) == before:
            if outputs.table is not None or outputs.report is not None:
                raise DataError(f"{clustering} has all of these rows already: omit --out and --report, or add --again")
            result.save(target)
            return {"clusters": had, "rows": before, "further rows": 0, "clustering": str(target)}
        latest = result.since(before, rows if len(data) == 1 else None)
        facts: dict[str, Any] = {
            "clusters": result.n_clusters,
            "new clusters": result.n_clusters - had,
            "rows": len(result),
            "further rows": len(latest),
            "in new clusters": int((latest.labels >= had).sum()),
            "unsure rows": int(latest.unsure.sum()),
        }
        written = replace(outputs, clustering=None).write(latest)
        result.save(target)
        return facts | written | {"clustering": str(target)}


def assign_data(
    clustering: Path,
    data: Path,
    reading: Mapping[str, Any],
    outputs: Outputs,
    *,
    confidence: float | None,
    device: str,
    models: Mapping[str, str | None],
    progress: bool,
) -> dict[str, Any]:
    """Assign the rows of a file or a folder of images to the clusters of a file, and write the outputs."""
    if confidence is not None and not 0 <= confidence <= 1:
        raise ValueError(f"--confidence {confidence}: it must be at least 0 and at most 1")
    outputs.check(data, clustering)
    with writing(*outputs.paths):
        outputs.check(data, clustering)
        loaded = loaded_with_model(clustering, device, models, progress)
        model = loaded.model
        rows = read(data, {**reading, "like": model.preparation_}, progress)
        rows = outputs.writable(rows, reading.get("keep"))
        outputs.check_space(rows, model.model_.config.representation, clustering)
        result = loaded.assign(rows)
        if confidence is not None:
            result = replace(result, threshold=confidence)
        facts = {"clusters": result.n_clusters, "clusters with rows": int(np.count_nonzero(result.sizes))}
        facts |= facts_of_rows(result)
        # How many clusters there are was not asked here.
        facts.pop("k_error", None)
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
    most = min(TRAINED_CLUSTERS if limit == "auto" else limit, len(names))
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
        raise ValueError(f"--skip-broken applies to folders of images or sounds, but {data} is a file: omit it")
    return read_data(data, progress=progress, **reading)
