"""What several commands share: options, and how results are printed."""

from __future__ import annotations

import shlex
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from metaclust._util.facts import json_of
from metaclust._util.terminal import printable


def suppress_warnings(quiet: bool) -> bool:
    """Ignore warnings from now on if ``quiet``; ``main`` restores them."""
    if quiet:
        warnings.simplefilter("ignore")
    return quiet


def show_version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"metaclust {version('metaclust')}")
        raise typer.Exit
    return wanted


def unset(words: str) -> Any:
    """Return an option that is left to the program where it is not given."""
    return typer.Option(help=words, show_default=False)


DataPath = Annotated[
    Path,
    typer.Argument(
        help="A .csv, .tsv, .jsonl (also .gz), .parquet, .npy or .npz file, or a folder of images or sounds."
    ),
]
NewDataPath = Annotated[
    Path | None,
    typer.Argument(
        metavar="DATA",
        help="A .csv, .tsv, .jsonl (also .gz), .parquet, .npy or .npz file, or a folder of images.",
        show_default=False,
    ),
]
ModelPath = Annotated[Path, typer.Argument(help="Model file written by `metaclust train`.")]
Label = Annotated[str | None, unset("Column or array of the known categories; by default one named label or category.")]
Confidence = Annotated[float | None, unset("Confidence threshold below which rows are marked as unsure.")]
Ids = Annotated[str | None, unset("Column or array of ids to write with the clusters; by default one named id.")]
Keep = Annotated[
    list[str] | None,
    unset("Comma-separated columns of the data to write beside the clusters, or none; by default all of a table."),
]
RawCells = Annotated[
    bool,
    typer.Option(
        "--raw-cells", help="Write text to .csv as it is, also where a spreadsheet would run it as a formula."
    ),
]
Known = Annotated[str, typer.Option(help="Whether rows may be of the categories of the training: auto, use or ignore.")]
PartialLabel = Annotated[
    str | None, unset("Column of the category of some rows, known or new; cells of all others are empty.")
]
Kind = Annotated[str, typer.Option(help="Kind of data: auto, vectors, images, sounds, text or table.")]
TextColumn = Annotated[str | None, unset("Column that holds the text; by default detected.")]
SelectedColumns = Annotated[
    str | None, unset("Comma-separated names of the columns to use; by default all that can be used.")
]
Treat = Annotated[
    list[str] | None,
    unset("Comma-separated NAME=TREATMENT: use a column as number, category, date, text, id or drop."),
]
Missing = Annotated[
    str,
    typer.Option(help="Missing values: auto (fills and marks them in mixed tables), error, drop or mean (numbers)."),
]
SkipBroken = Annotated[bool, typer.Option("--skip-broken", help="Skip images or sounds that cannot be read.")]
EmbeddingModel = Annotated[str | None, unset("Folder or name of a sentence-transformers model.")]
ImageModel = Annotated[str | None, unset("Folder or name of a vision model of transformers, or an .onnx file.")]
MaxBytes = Annotated[
    int | None,
    unset("Most bytes of data to read, decompressed; by default half of the memory, and 200 times large files."),
]
MaxClusters = Annotated[str | None, unset("Largest number of clusters, or auto; by default that of the model.")]
Root = Annotated[Path | None, unset("Folder of the data sets; by default METACLUST_DATA or the user's data folder.")]
Seed = Annotated[int | None, unset("Random seed.")]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or mps.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Suppress progress and warnings.", callback=suppress_warnings)
]
Version = Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def number_or_auto(words: str | None) -> int | Literal["auto"] | None:
    """Return the value of --max-clusters.

    >>> number_or_auto("12"), number_or_auto("auto"), number_or_auto(None)
    (12, 'auto', None)
    """
    if words is None or words == "auto":
        return words  # type: ignore[return-value]
    try:
        return int(words)
    except ValueError:
        raise ValueError(f"--max-clusters {words}: it must be a whole number of 1 or more, or auto") from None


def comma_separated(names: str | None) -> list[str] | None:
    """Split the value of an option.

    >>> comma_separated("a, b"), comma_separated(None)
    (['a', 'b'], None)
    """
    return [name.strip() for name in names.split(",")] if names else None


def treatments(values: list[str] | None) -> dict[str, str] | None:
    """Return what columns are used as, from --treat, which may be given several times.

    >>> treatments(["zip=category,age=number", "a=b=drop"]), treatments(None)
    ({'zip': 'category', 'age': 'number', 'a=b': 'drop'}, None)
    """
    found = {}
    for pair in [pair for value in values or () for pair in comma_separated(value) or ()]:
        name, equals, treatment = pair.rpartition("=")
        if not equals or not name:
            raise ValueError(f"--treat {pair}: give NAME=TREATMENT, such as --treat zip=category")
        found[name.strip()] = treatment.strip()
    return found or None


FIRST = {"cluster": "model.safetensors", "evaluate": "model.safetensors", "assign": "old.clustering"}
"""The name of a file that stands for the first path of a command."""


def both_paths(first: Path, second: Path | None, command: str, made_by: str) -> Path:
    """Return the second path of a command; an error where only one was given, which says how to get the other."""
    if second is not None:
        return second
    raise ValueError(
        f"Missing argument: `metaclust {command}` needs two paths, and {first} is the only one. The first is "
        f"{made_by}, the second the data: metaclust {command} {FIRST[command]} {shlex.quote(str(first))}"
    )


def kept_columns(values: list[str] | None) -> list[str] | None:
    """Return the columns that --keep names, which may be given several times.

    >>> kept_columns(["a, b", "c"]), kept_columns(["none"]), kept_columns(None)
    (['a', 'b', 'c'], [], None)
    """
    if not values:
        return None
    names = [name for value in values for name in comma_separated(value) or ()]
    if "" in names:
        raise ValueError(f"--keep {','.join(values)}: there is an empty name; give names of columns, or none")
    return [] if names == ["none"] else names


def example(*commands: str) -> str:
    r"""Return the last lines of a help text; the control character keeps the lines as they are.

    >>> example("metaclust demo")
    '\x08\nExample:\n  metaclust demo'
    """
    return "\n".join(["\b", "Example:" if len(commands) == 1 else "Examples:", *(f"  {one}" for one in commands)])


def reading_options(
    label: str | None,
    missing: str,
    skip_broken: bool,
    max_bytes: int | None,
    ids: str | None = None,
    keep: list[str] | None = None,
    partial_label: str | None = None,
) -> dict[str, Any]:
    """Return how data that a trained model is given are read, as arguments of ``read_data``."""
    if partial_label is not None and label is not None:
        raise ValueError(f"--partial-label {partial_label}: labels are read from one column; omit --label {label}")
    if partial_label is not None:
        return {**reading_options(partial_label, missing, skip_broken, max_bytes, ids, keep), "partial": True}
    reading = {"label": label, "missing": missing, "on_error": "skip" if skip_broken else None, "max_bytes": max_bytes}
    return {**reading, "ids": ids, "keep": keep}


def models_in(embedding_model: str | None, image_model: str | None) -> dict[str, str | None]:
    """Return where the models that embed rows are, as arguments of ``MetaClusterer.load``."""
    return {"embedding_model": embedding_model, "image_model": image_model}


def columns_to_keep(keep: list[str] | None, out: Path | None) -> list[str] | None:
    """Return the columns that the table of clusters carries, and none of them if no table is written."""
    if out is None and keep:
        raise ValueError("--keep applies to the table of clusters: name its file with --out, or omit it")
    return [] if out is None else kept_columns(keep)


def refuse(options: dict[str, Any], why: str) -> None:
    """Raise an error for the first of the options that was given."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise ValueError(f"--{name.replace('_', '-')} {why}")


def resume_command(program: list[str], resume: bool) -> str:
    """Return the command that resumes this one."""
    command = shlex.join([*program, *sys.argv[1:]])
    return command if resume else f"{command} --resume"


def show(facts: dict[str, Any], as_json: bool) -> None:
    """Print the result of a command, one fact per line or as JSON."""
    if as_json:
        typer.echo(json_of(facts, indent=2))
        return
    width = max(len(key) for key in facts) + 2
    for key, value in facts.items():
        shown = f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
        typer.echo(f"{key:{width}}{printable(', '.join(map(str, shown)) if isinstance(shown, list) else shown)}")
