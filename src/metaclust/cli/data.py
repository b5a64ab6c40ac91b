"""`metaclust data`: the named data sets, and what a file of one's own is read as."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

data = typer.Typer(
    help="Named data sets, and what a file of your own is read as.",
    no_args_is_help=True,
    epilog="Examples: metaclust data list; metaclust data get omniglot; metaclust data show reviews.csv",
)
Root = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the local copies; else METACLUST_DATA, else the user's data folder.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines: JSON on the standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


@data.command("list", epilog="Example: metaclust data list --json")
def list_data(root: Root = None, as_json: AsJson = False) -> None:
    """The named data sets, and which of them are here."""
    from metaclust.data.datasets.cards import CARDS
    from metaclust.data.datasets.places import available

    where = {name: available(name, root) for name in CARDS}
    if as_json:
        typer.echo(json.dumps([{**asdict(card), "here": where[name]} for name, card in CARDS.items()], indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("name", "kind", "rows", "categories", "licence", "here"):
        table.add_column(
            column, justify="right" if column in ("rows", "categories") else "left", no_wrap=column == "name"
        )
    for name, card in CARDS.items():
        numbers = [f"{count:,}" if count else "" for count in (card.rows, card.categories)]
        table.add_row(name, card.kind, *numbers, card.licence, "yes" if where[name] else "no")
    Console().print(table)
    typer.echo(
        "`metaclust data show NAME` tells about one, `metaclust data get NAME` fetches it or says where to get it."
    )


@data.command("get", epilog="Example: metaclust data get omniglot --root data")
def get_data(
    name: Annotated[str, typer.Argument(help="A name from `metaclust data list`.")],
    root: Root = None,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set, or say where to get it and where to put it. What is here already is only checked."""
    from metaclust.data.datasets.named import load_dataset
    from metaclust.data.datasets.places import available

    part: Literal["background", "both"] = "both" if name == "omniglot" else "background"
    found = load_dataset(name, root, part=part, download=True, progress=not quiet)
    typer.echo(f"{name}: {len(found):,} rows, {len(found.categories):,} categories; {available(name, root)}")


@data.command("show", epilog="Example: metaclust data show tickets.csv --label topic")
def show_data(
    what: Annotated[str, typer.Argument(help="A named data set, or the path of a file or folder of your own.")],
    label: Annotated[str | None, typer.Option(help="The column of the labels.", show_default=False)] = None,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """The card of a named data set; of your own file or folder, what it would be read as."""
    from metaclust.data.datasets.cards import CARDS
    from metaclust.data.datasets.places import available

    if what in CARDS:
        facts = {**asdict(CARDS[what]), "here": available(what, root)}
    else:
        from metaclust.data.readers.sources import read_data

        rows = read_data(what, label=label, progress=False)
        facts = {
            "source": rows.source,
            "kind": rows.kind,
            "rows": len(rows),
            "categories": None if rows.labels is None else len(set(rows.labels)),
            "notes": list(rows.notes),
        }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for key, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else "; ".join(value) if isinstance(value, list) else value
        typer.echo(f"{key:11}{'-' if value is None else shown}")
