"""The command line: parses, calls the package. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
import os
import shlex
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from metaclust.cli.data import data

app = typer.Typer(
    name="metaclust",
    help="Learn how to cluster from known categories, then find new ones in unlabelled data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: metaclust demo. Every command has --help with an example.",
)
app.add_typer(data, name="data")

Label = Annotated[
    str | None,
    typer.Option(help="The column or array of the known categories; else one called label.", show_default=False),
]
Kind = Annotated[str, typer.Option(help="What the rows are: auto, vectors, images or text.")]
TextColumn = Annotated[str | None, typer.Option("--text-column", help="The column of text.", show_default=False)]
Columns = Annotated[
    str | None, typer.Option(help="The columns of numbers, parted by commas; else all of them.", show_default=False)
]
Missing = Annotated[str, typer.Option(help="Rows with an empty cell or label: error, drop, or mean (numbers).")]
SkipBroken = Annotated[bool, typer.Option("--skip-broken", help="Leave out images that cannot be read.")]
Seed = Annotated[int | None, typer.Option(help="Of everything random.", show_default=False)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks.")]
AsJson = Annotated[bool, typer.Option("--json", help="For machines: JSON on the standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite output files that are there.")]
DataPath = Annotated[
    Path, typer.Argument(help=".csv, .tsv, .jsonl (also .gz), .parquet, .npy, .npz, or a folder of images.")
]
ModelPath = Annotated[Path, typer.Argument(help="A model file of `metaclust train`.")]


def show_version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"metaclust {version('metaclust')}")
        raise typer.Exit
    return wanted


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Learn how to cluster from known categories, then find new ones in unlabelled data."""


@app.command(
    epilog="Example: metaclust train tickets.csv --label topic --out tickets.safetensors. In two processes: torchrun "
    "--nproc-per-node=2 -m metaclust train tickets.csv ..."
)
def train(
    data: DataPath,
    out: Annotated[Path, typer.Option(help="Where to write the model.")],
    label: Label = None,
    kind: Kind = "auto",
    text_column: TextColumn = None,
    columns: Columns = None,
    missing: Missing = "error",
    skip_broken: SkipBroken = False,
    size: Annotated[int | None, typer.Option(help="Images: pixels a side.", show_default=False)] = None,
    text_as: Annotated[str, typer.Option(help="Text: tfidf, counts, or embeddings.")] = "tfidf",
    embedding_model: Annotated[
        str | None, typer.Option(help="A sentence-transformers folder or name.", show_default=False)
    ] = None,
    max_clusters: Annotated[int, typer.Option(help="How many clusters there may be.")] = 10,
    encoder: Annotated[str, typer.Option(help="auto, network, or residual (for embeddings).")] = "auto",
    choose: Annotated[str, typer.Option(help="Among clusterings: auto, learned, or bound.")] = "auto",
    pretrain_steps: Annotated[int, typer.Option(help="Steps on telling categories apart.")] = 1000,
    steps: Annotated[int, typer.Option(help="Steps on clustering them.")] = 300,
    seed: Seed = None,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Learn how to cluster from labelled data of known categories."""
    from metaclust._util.distributed import launch_command, process_group
    from metaclust.cli.commands import train_model

    command = shlex.join([*launch_command(), *sys.argv[1:]])
    with process_group(device) as among:
        facts = train_model(
            data,
            out,
            reading={
                "label": label,
                "kind": kind,
                "text": text_column,
                "columns": [name.strip() for name in columns.split(",")] if columns else None,
                "missing": missing,
                "on_error": "skip" if skip_broken else None,
                "size": size,
            },
            settings={
                "max_clusters": max_clusters,
                "encoder": encoder,
                "choose": choose,
                "pretrain_steps": pretrain_steps,
                "steps": steps,
                "text": text_as,
                "embedding_model": embedding_model,
                "seed": seed or 0,
                "device": device,
                "progress": not quiet,
            },
            resume=resume,
            force=force,
            go_on=command if resume else f"{command} --resume",
        )
    if among.main:
        show(facts, as_json)


@app.command(epilog="Example: metaclust cluster tickets.safetensors new.csv --out clusters.csv --report clusters.html")
def cluster(
    model: ModelPath,
    data: DataPath,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to write the clusters: .csv, .jsonl or .parquet; a folder with --engine.", show_default=False
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Where to write the HTML report.", show_default=False)] = None,
    save: Annotated[
        Path | None, typer.Option(help="Where to keep the clustering, to assign further rows.", show_default=False)
    ] = None,
    max_clusters: Annotated[int | None, typer.Option(help="Else that of the model.", show_default=False)] = None,
    min_cluster_size: Annotated[
        int | None, typer.Option(help="Smaller ones are dissolved.", show_default=False)
    ] = None,
    restarts: Annotated[
        int | None, typer.Option(help="Starts from seeds for each number of clusters.", show_default=False)
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Rows less sure than this are marked unsure.", show_default=False)
    ] = None,
    label: Label = None,
    missing: Missing = "error",
    skip_broken: SkipBroken = False,
    seed: Seed = None,
    device: Device = "auto",
    engine: Annotated[
        str | None,
        typer.Option(help="For a folder of .npy or .parquet shards: dask, or local (one process).", show_default=False),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes here; else one a core.", show_default=False)] = None,
    address: Annotated[
        str | None, typer.Option(help="Of a Dask scheduler, instead of processes here.", show_default=False)
    ] = None,
    ids: Annotated[
        str | None, typer.Option(help="Shards: a column to keep with the labels.", show_default=False)
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Shards: write those, too.")] = False,
    skip_bad_shards: Annotated[bool, typer.Option("--skip-bad-shards", help="Go on without them.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Shards: go on with a run that was interrupted.")] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Group new data, and find out how many groups there are."""
    from metaclust.cli.commands import cluster_data, cluster_folder

    settings = {
        "min_cluster_size": min_cluster_size,
        "restarts": restarts,
        "confidence": confidence,
        "seed": seed,
        "progress": not quiet,
    }
    sharded = {
        "workers": workers,
        "address": address,
        "ids": ids,
        "probabilities": probabilities,
        "skip_bad_shards": skip_bad_shards,
        "resume": resume,
    }
    if engine is not None:
        others = {"report": report, "save": save, "confidence": confidence, "label": label, "skip_broken": skip_broken}
        refuse(others | {"missing": None if missing == "error" else missing}, "has no meaning with --engine")
        command = shlex.join(["metaclust", *sys.argv[1:]])
        go_on = command if resume else f"{command} --resume"
        show(cluster_folder(model, data, out, engine, settings, sharded, max_clusters, device, force, go_on), as_json)
        return
    refuse(sharded, "is for shards: give --engine, too")

    facts = cluster_data(
        model,
        data,
        out=out,
        report=report,
        save=save,
        reading={"label": label, "missing": missing, "on_error": "skip" if skip_broken else None},
        settings=settings,
        max_clusters=max_clusters,
        device=device,
        force=force,
    )
    show(facts, as_json)


@app.command(epilog="Example: metaclust evaluate tickets.safetensors labelled.csv --label topic")
def evaluate(
    model: ModelPath,
    data: DataPath,
    label: Label = None,
    tasks: Annotated[
        int, typer.Option(help="Draw so many piles of 2 to max_clusters categories; 0 clusters all rows together.")
    ] = 0,
    max_clusters: Annotated[int | None, typer.Option(help="Else that of the model.", show_default=False)] = None,
    missing: Missing = "error",
    skip_broken: SkipBroken = False,
    seed: Seed = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """How well the clusters are the known categories of data that the model has not seen."""
    from metaclust.cli.commands import evaluate_model

    facts = evaluate_model(
        model,
        data,
        tasks=tasks,
        reading={"label": label, "missing": missing, "on_error": "skip" if skip_broken else None},
        settings={"seed": seed, "progress": not quiet},
        max_clusters=max_clusters,
        device=device,
    )
    show(facts, as_json)


@app.command(epilog="Example: metaclust demo --out icons.html")
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the report.")] = Path("metaclust-demo.html"),
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Learn from the embedded icons, cluster concepts never seen, write the report: under three minutes."""
    from metaclust.cli.demo import main as run_demo

    run_demo(report=out, force=force, progress=not quiet)


@app.command(epilog="Example: metaclust experiment table1 --dataset omniglot --splits 3 --workers 2")
def experiment(
    name: Annotated[
        str,
        typer.Argument(help="table1, ablation, vb-steps-train, vb-steps-test, categories, time or tsne."),
    ],
    dataset: Annotated[str, typer.Option(help="A named data set, see `metaclust data list`.")] = "omniglot",
    splits: Annotated[int, typer.Option(help="Of the categories into training, validation, test.")] = 10,
    budget: Annotated[
        str, typer.Option(help="quick (minutes, to try it), short, standard (hours), paper (days).")
    ] = "standard",
    methods: Annotated[
        str | None, typer.Option(help="Only these of its methods, parted by commas.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of results, tables and figures.")] = Path("results"),
    runs: Annotated[Path, typer.Option(help="The folder of trained models, which experiments share.")] = Path("runs"),
    root: Annotated[
        Path | None, typer.Option(help="The folder of data sets; else METACLUST_DATA.", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes side by side; threads are divided.")] = 1,
    threads: Annotated[int | None, typer.Option(help="With one worker.", show_default=False)] = None,
    render_only: Annotated[bool, typer.Option("--render-only", help="Only write tables and figures anew.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Repeat the paper's tables and figures; goes on where it stopped, and does nothing twice."""
    from metaclust.experiments.command import run_experiment

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
        methods=[method.strip() for method in methods.split(",")] if methods else None,
        progress=not quiet,
        render_only=render_only,
    )
    show(facts, as_json)


def refuse(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None and value is not False:
            raise ValueError(f"--{name.replace('_', '-')} {why}, or leave it out")


def show(facts: dict[str, Any], as_json: bool) -> None:
    """What a command found out, one line each or as JSON."""
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    width = max(len(key) for key in facts) + 2
    for key, value in facts.items():
        shown = f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
        typer.echo(f"{key:{width}}{', '.join(map(str, shown)) if isinstance(shown, list) else shown}")


def remark(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line, without the lines of code that gave it; of several processes, one tells it."""
    if os.environ.get("RANK", "0") == "0":
        typer.secho(f"metaclust: {message}", fg=typer.colors.YELLOW, err=True)


def main() -> None:
    """Run the command line. What a person can put right is one line on the standard error and exit code 2."""
    warnings.showwarning = remark
    try:
        app()
    except (ValueError, TypeError, OSError, ImportError, FloatingPointError) as error:
        which = "" if int(os.environ.get("WORLD_SIZE", "1")) == 1 else f" (process {os.environ.get('RANK')})"
        typer.secho(f"metaclust{which}: {error}", fg=typer.colors.RED, err=True)
        raise SystemExit(2) from None
