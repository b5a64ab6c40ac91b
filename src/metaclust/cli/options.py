"""Options that several commands share."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer


def suppress_warnings(quiet: bool) -> bool:
    """Ignore warnings from now on if ``quiet``; ``main`` restores them."""
    if quiet:
        warnings.simplefilter("ignore")
    return quiet


DataPath = Annotated[
    Path, typer.Argument(help="A .csv, .tsv, .jsonl (also .gz), .parquet, .npy or .npz file, or a folder of images.")
]
ModelPath = Annotated[Path, typer.Argument(help="Model file written by `metaclust train`.")]
Label = Annotated[
    str | None,
    typer.Option(
        help="Column or array of the known categories; by default one named label or category.", show_default=False
    ),
]
Missing = Annotated[str, typer.Option(help="How to treat rows with missing values: error, drop or mean (numbers).")]
SkipBroken = Annotated[bool, typer.Option("--skip-broken", help="Skip images that cannot be read.")]
EmbeddingModel = Annotated[
    str | None, typer.Option(help="Folder or name of a sentence-transformers model.", show_default=False)
]
MaxClusters = Annotated[
    int | None,
    typer.Option(help="Largest number of clusters; by default that of the model.", show_default=False),
]
Root = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data sets; by default METACLUST_DATA or the user's data folder.", show_default=False
    ),
]
Seed = Annotated[int | None, typer.Option(help="Random seed.", show_default=False)]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or mps.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Suppress progress and warnings.", callback=suppress_warnings)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def comma_separated(names: str | None) -> list[str] | None:
    """Split the value of an option.

    >>> comma_separated("a, b"), comma_separated(None)
    (['a', 'b'], None)
    """
    return [name.strip() for name in names.split(",")] if names else None


def example(*commands: str) -> str:
    r"""Return the last lines of a help text; the control character keeps the lines as they are.

    >>> example("metaclust demo")
    '\x08\nExample:\n  metaclust demo'
    """
    return "\n".join(["\b", "Example:" if len(commands) == 1 else "Examples:", *(f"  {one}" for one in commands)])
