"""The command line. Commands import what they need when they run, so that --help is fast."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from metaclust._util.terminal import printable
from metaclust.cli.data import data
from metaclust.cli.options import (
    AsJson,
    Confidence,
    DataPath,
    Device,
    EmbeddingModel,
    Force,
    Ids,
    ImageModel,
    Keep,
    Kind,
    Known,
    Label,
    MaxBytes,
    MaxClusters,
    Missing,
    ModelPath,
    NewDataPath,
    PartialLabel,
    Quiet,
    RawCells,
    Root,
    Seed,
    SelectedColumns,
    SkipBroken,
    TextColumn,
    Treat,
    Version,
    both_paths,
    columns_to_keep,
    comma_separated,
    example,
    models_in,
    number_or_auto,
    reading_options,
    refuse,
    resume_command,
    show,
    treatments,
    unset,
)

app = typer.Typer(
    name="metaclust",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `metaclust demo`. The --help of every command has an example.",
)
app.add_typer(data, name="data")


@app.callback()
def about(version: Version = False) -> None:
    """Learn how to cluster from known categories, then find new ones in unlabelled data."""


@app.command(
    epilog=example(
        "metaclust train tickets.csv --label topic --out tickets.safetensors",
        "torchrun --nproc-per-node=2 -m metaclust train tickets.csv --label topic --out tickets.safetensors",
    )
)
def train(
    data: DataPath,
    out: Annotated[Path, typer.Option(help="Model file to write.")],
    label: Label = None,
    kind: Kind = "auto",
    text_column: TextColumn = None,
    columns: SelectedColumns = None,
    treat: Treat = None,
    missing: Missing = "auto",
    skip_broken: SkipBroken = False,
    max_bytes: MaxBytes = None,
    size: Annotated[int | None, unset("Side of the images in pixels.")] = None,
    text_as: Annotated[str | None, unset("Text features: tfidf (default), counts or embeddings.")] = None,
    embedding_model: EmbeddingModel = None,
    images_as: Annotated[str | None, unset("Images: pixels (default), or embeddings, which photographs need.")] = None,
    image_model: ImageModel = None,
    image_scaling: Annotated[
        str | None, unset("Pixels for an .onnx file: imagenet (default), symmetric, unit or raw.")
    ] = None,
    sounds_as: Annotated[
        str | None, unset("Sounds: statistics (default), spectrograms, or embeddings of spectrograms.")
    ] = None,
    max_clusters: Annotated[str, typer.Option(help="Largest number of clusters, or auto.")] = "auto",
    encoder: Annotated[
        str,
        typer.Option(
            help="Encoder: auto, network, residual (embeddings, images) or tuned (trains the embedding model)."
        ),
    ] = "auto",
    effort: Annotated[
        str, typer.Option(help="Training time: fast, balanced or best; all but fast may train the embedding model.")
    ] = "fast",
    choose: Annotated[str, typer.Option(help="How to select a clustering: auto, learned or bound.")] = "auto",
    pretrain_steps: Annotated[
        int | None, unset("Steps of prototypical pretraining; by default chosen for the encoder.")
    ] = None,
    steps: Annotated[
        int | None,
        unset("Training steps on the continuous ARI (residual: of candidates); by default chosen for the encoder."),
    ] = None,
    seed: Seed = None,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Learn how to cluster from labelled data of known categories.

    Rows with an empty label are left out.
    """
    from metaclust._util.distributed import launch_command, process_group
    from metaclust.cli.commands import train_model

    reading: dict[str, Any] = {
        "label": label,
        "kind": kind,
        "text": text_column,
        "columns": comma_separated(columns),
        "size": size,
    }
    reading |= {
        "treat": treatments(treat),
        "missing": missing,
        "on_error": "skip" if skip_broken else None,
        "max_bytes": max_bytes,
    }
    # Rows without a label are left out; the table is not needed once its rows are read.
    reading |= {"partial": True, "keep": []}
    settings = {
        "max_clusters": number_or_auto(max_clusters),
        "encoder": encoder,
        "effort": effort,
        "choose": choose,
        "pretrain_steps": pretrain_steps,
        "steps": steps,
        "text": text_as,
        "embedding_model": embedding_model,
        "images": images_as,
        "image_model": image_model,
        "image_scaling": image_scaling,
        "sounds": sounds_as,
        "seed": seed,
        "device": device,
        "progress": not quiet,
    }
    with process_group(device) as among:
        facts = train_model(
            data,
            out,
            reading=reading,
            settings=settings,
            resume=resume,
            force=force,
            resume_command=resume_command(launch_command(), resume),
        )
    if among.main:
        show(facts, as_json)


@app.command(
    epilog=example(
        "metaclust cluster tickets.safetensors new.csv --out clusters.csv --report clusters.html",
        "metaclust cluster tickets.safetensors new.csv --keep topic --out clusters.parquet",
        "metaclust cluster tickets.safetensors new.csv --save tickets.clustering",
        "metaclust cluster tickets.safetensors shards --engine local --out labels",
    )
)
def cluster(
    model: ModelPath,
    data: NewDataPath = None,
    out: Annotated[
        Path | None, unset("Table of clusters to write: .csv, .jsonl or .parquet; with --engine a folder.")
    ] = None,
    ids: Ids = None,
    keep: Keep = None,
    raw_cells: RawCells = False,
    report: Annotated[Path | None, unset("HTML report to write.")] = None,
    save: Annotated[Path | None, unset("Clustering file to write, to assign further rows.")] = None,
    known: Known = "auto",
    partial_label: PartialLabel = None,
    must_link: Annotated[
        Path | None, unset("Table of pairs of ids of rows that belong together: its first two columns.")
    ] = None,
    cannot_link: Annotated[Path | None, unset("Table of pairs of ids of rows that do not belong together.")] = None,
    max_clusters: MaxClusters = None,
    min_cluster_size: Annotated[int | None, unset("Smallest number of rows in a cluster.")] = None,
    restarts: Annotated[int | None, unset("k-means++ initialisations per number of clusters.")] = None,
    confidence: Confidence = None,
    label: Label = None,
    missing: Missing = "auto",
    skip_broken: SkipBroken = False,
    max_bytes: MaxBytes = None,
    embedding_model: EmbeddingModel = None,
    image_model: ImageModel = None,
    seed: Seed = None,
    device: Device = "auto",
    engine: Annotated[str | None, unset("Cluster a folder of .npy or .parquet shards: dask or local.")] = None,
    workers: Annotated[int | None, unset("Shards: number of processes; by default one per core.")] = None,
    address: Annotated[str | None, unset("Shards: address of a Dask scheduler to use.")] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Shards: write the probability of every cluster.")
    ] = False,
    skip_bad_shards: Annotated[
        bool, typer.Option("--skip-bad-shards", help="Shards: skip those that cannot be read.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Shards: resume an interrupted run.")] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Cluster new data, and find which rows are of known categories and how many new ones there are.

    The table of clusters has the columns of the data, too. Those called as columns of the result end with _input.
    """
    from metaclust.cli.commands import Outputs, Said, TrainedModel, cluster_data, cluster_folder

    data = both_paths(model, data, "cluster", "a model, which `metaclust train` learns from labelled data")
    settings = {
        "min_cluster_size": min_cluster_size,
        "restarts": restarts,
        "confidence": confidence,
        "seed": seed,
        "progress": not quiet,
    }
    trained = TrainedModel(
        model, settings, number_or_auto(max_clusters), device, models_in(embedding_model, image_model)
    )
    sharded = {
        "workers": workers,
        "address": address,
        "probabilities": probabilities,
        "skip_bad_shards": skip_bad_shards,
        "resume": resume,
    }
    if engine is None:
        refuse(sharded, "applies to shards only: add --engine, or omit it")
        keep = columns_to_keep(keep, out)
        reading = reading_options(label, missing, skip_broken, max_bytes, ids, keep, partial_label)
        outputs = Outputs(out, report, save, force, raw_cells)
        facts = cluster_data(trained, data, reading, outputs, Said(known, must_link, cannot_link))
    else:
        others: dict[str, Any] = {
            "partial_label": partial_label,
            "must_link": must_link,
            "cannot_link": cannot_link,
            "report": report,
            "save": save,
            "confidence": confidence,
            "label": label,
            "skip_broken": skip_broken,
        }
        others |= {"max_bytes": max_bytes, "raw_cells": raw_cells, "keep": keep or None}
        refuse(
            others | {"missing": None if missing == "auto" else missing},
            "does not apply to shards: omit it, or --engine",
        )
        command = resume_command(["metaclust"], resume)
        facts = cluster_folder(trained, data, out, {"engine": engine, "force": force, "ids": ids, **sharded}, command)
    show(facts, as_json)


@app.command(epilog=example("metaclust assign tickets.clustering more.csv --out more-clusters.csv"))
def assign(
    clustering: Annotated[Path, typer.Argument(help="Clustering file written by `metaclust cluster --save`.")],
    data: NewDataPath = None,
    out: Annotated[Path | None, unset("Table of clusters to write: .csv, .jsonl or .parquet.")] = None,
    ids: Ids = None,
    keep: Keep = None,
    raw_cells: RawCells = False,
    report: Annotated[Path | None, unset("HTML report to write.")] = None,
    save: Annotated[Path | None, unset("Clustering file to write, of these rows.")] = None,
    confidence: Confidence = None,
    label: Label = None,
    missing: Missing = "auto",
    skip_broken: SkipBroken = False,
    max_bytes: MaxBytes = None,
    embedding_model: EmbeddingModel = None,
    image_model: ImageModel = None,
    device: Device = "auto",
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Assign further rows to the clusters of an earlier `metaclust cluster --save`, without clustering again.

    A low confidence says that a row may belong to none of them.
    """
    from metaclust.cli.commands import Outputs, assign_data

    data = both_paths(clustering, data, "assign", "a clustering, which `metaclust cluster --save` writes")
    reading = reading_options(label, missing, skip_broken, max_bytes, ids, columns_to_keep(keep, out))
    outputs = Outputs(out, report, save, force, raw_cells)
    facts = assign_data(
        clustering,
        data,
        reading,
        outputs,
        confidence=confidence,
        device=device,
        models=models_in(embedding_model, image_model),
        progress=not quiet,
    )
    show(facts, as_json)


@app.command(
    epilog=example(
        "metaclust update tickets.clustering march.csv --save march.clustering --out march-clusters.csv",
        "metaclust update tickets.clustering march.csv april.csv --in-place",
    )
)
def update(
    clustering: Annotated[Path, typer.Argument(help="Clustering file written by `metaclust cluster --save`.")],
    data: Annotated[list[Path], typer.Argument(help="Files or folders of further rows, added one after another.")],
    save: Annotated[Path | None, unset("Clustering file to write, of all rows.")] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Replace the clustering file by the new one.")] = False,
    out: Annotated[Path | None, unset("Table of the further rows to write: .csv, .jsonl or .parquet.")] = None,
    ids: Ids = None,
    keep: Keep = None,
    raw_cells: RawCells = False,
    report: Annotated[Path | None, unset("HTML report to write, of the further rows.")] = None,
    known: Known = "auto",
    partial_label: PartialLabel = None,
    relabel: Annotated[
        bool, typer.Option("--relabel", help="Let rows that were there before go to other clusters.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Count rows once more whose id is in the clustering already.")
    ] = False,
    label: Label = None,
    missing: Missing = "auto",
    skip_broken: SkipBroken = False,
    max_bytes: MaxBytes = None,
    embedding_model: EmbeddingModel = None,
    image_model: ImageModel = None,
    device: Device = "auto",
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Add further rows to the clusters of an earlier `metaclust cluster --save`: to those there are, and to new ones.

    Clusters keep their numbers and names, and rows that were there before keep their clusters.
    """
    from metaclust.cli.commands import Outputs, update_data

    if save is None and not in_place:
        raise ValueError("update writes a clustering file: name it with --save, or replace the old one with --in-place")
    if save is not None and in_place:
        raise ValueError(f"--save {save}: omit it, or omit --in-place")
    reading = reading_options(label, missing, skip_broken, max_bytes, ids, columns_to_keep(keep, out), partial_label)
    facts = update_data(
        clustering,
        data,
        reading,
        Outputs(out, report, save, force, raw_cells),
        known=known,
        relabel=relabel,
        again=again,
        device=device,
        models=models_in(embedding_model, image_model),
        progress=not quiet,
    )
    show(facts, as_json)


@app.command(epilog=example("metaclust evaluate tickets.safetensors labelled.csv --label topic"))
def evaluate(
    model: ModelPath,
    data: NewDataPath = None,
    label: Label = None,
    tasks: Annotated[
        int, typer.Option(help="Number of random tasks of 2 to max-clusters categories; 0 clusters all rows together.")
    ] = 0,
    max_clusters: MaxClusters = None,
    missing: Missing = "auto",
    skip_broken: SkipBroken = False,
    max_bytes: MaxBytes = None,
    embedding_model: EmbeddingModel = None,
    image_model: ImageModel = None,
    seed: Seed = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Score the clusters of labelled data against its categories."""
    from metaclust.cli.commands import TrainedModel, evaluate_model

    data = both_paths(model, data, "evaluate", "a model, which `metaclust train` learns from labelled data")
    limit = number_or_auto(max_clusters)
    trained = TrainedModel(
        model, {"seed": seed, "progress": not quiet}, limit, device, models_in(embedding_model, image_model)
    )
    reading = reading_options(label, missing, skip_broken, max_bytes, keep=[])
    show(evaluate_model(trained, data, reading, tasks), as_json)


@app.command(epilog=example("metaclust demo --out icons.html"))
def demo(
    out: Annotated[Path, typer.Option(help="HTML report to write.")] = Path("metaclust-demo.html"),
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Run a demo of less than three minutes.

    Trains on the bundled icons, clusters unseen concepts, compares with baselines and writes a report.
    """
    from metaclust._util.locks import writing
    from metaclust._util.targets import check_file
    from metaclust.cli.demo import main as run_demo

    check_file(out, force)
    with writing(out):
        run_demo(report=out, force=force, progress=not quiet)


@app.command(epilog=example("metaclust experiment table1 --dataset omniglot --splits 3 --workers 2"))
def experiment(
    name: Annotated[
        str,
        typer.Argument(
            help="table1, ablation, vb-steps-train, vb-steps-test, categories, time, worth, tsne or discovery."
        ),
    ],
    dataset: Annotated[str, typer.Option(help="Data set, see `metaclust data list`.")] = "omniglot",
    splits: Annotated[int, typer.Option(help="Number of random splits of the categories.")] = 10,
    budget: Annotated[
        str, typer.Option(help="Training budget: quick (minutes), short, standard (hours) or paper (days).")
    ] = "standard",
    methods: Annotated[str | None, unset("Comma-separated method names; by default all.")] = None,
    known: Annotated[float | None, unset("Share of the labels that are known, for discovery: 0.25, 0.5, 0.75.")] = None,
    seeds: Annotated[int | None, unset("Number of random divisions, for discovery; by default 10.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of results, tables and figures.")] = Path("results"),
    runs: Annotated[Path, typer.Option(help="Folder of trained models, shared by experiments.")] = Path("runs"),
    root: Root = None,
    workers: Annotated[int, typer.Option(help="Number of parallel processes.")] = 1,
    threads: Annotated[int | None, unset("Number of threads of a single process.")] = None,
    render_only: Annotated[bool, typer.Option("--render-only", help="Only write tables and figures again.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper's tables and figures.

    Existing results are kept, so that an interrupted experiment continues where it stopped.
    """
    from metaclust._util.targets import check_new_folder
    from metaclust.experiments.command import run_discovery, run_experiment

    if workers > 1:
        refuse({"threads": threads}, "applies to a single process: omit it, or --workers")
    if render_only:
        refuse(
            {"methods": methods, "threads": threads}, "does not apply to tables and figures: omit it, or --render-only"
        )
    for folder in (out, runs):
        check_new_folder(folder)
    if name == "discovery":
        refuse({"threads": threads}, "does not apply to discovery: omit it")
        chosen = range(10 if seeds is None else seeds)
        ratio = 0.75 if known is None else known
        show(
            run_discovery(
                dataset,
                known=ratio,
                seeds=chosen,
                out=out,
                runs=runs,
                root=root,
                methods=comma_separated(methods),
                progress=not quiet,
            ),
            as_json,
        )
        return
    refuse({"known": known, "seeds": seeds}, "is for discovery: omit it")
    facts = run_experiment(
        name,
        dataset,
        splits=splits,
        budget=budget,
        out=out,
        runs=runs,
        root=root,
        workers=workers,
        threads=threads,
        methods=comma_separated(methods),
        progress=not quiet,
        render_only=render_only,
    )
    show(facts, as_json)


def show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line without source code; of several processes, only the first prints it."""
    if os.environ.get("RANK", "0") == "0":
        typer.secho(f"metaclust: {printable(message)}", fg=typer.colors.YELLOW, err=True)


def main() -> None:
    """Run the command line. An error that the user can fix is one line on standard error and exit code 2."""
    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        try:
            app()
        except (ValueError, TypeError, OSError, ImportError, FloatingPointError) as error:
            which = "" if int(os.environ.get("WORLD_SIZE", "1")) == 1 else f" (process {os.environ.get('RANK')})"
            typer.secho(f"metaclust{which}: {printable(error)}", fg=typer.colors.RED, err=True)
            raise SystemExit(2) from None
