"""`metaclust data`: list, fetch and inspect data sets."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any, Literal, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from metaclust._util.terminal import printable
from metaclust.cli.options import (
    AsJson,
    Ids,
    Kind,
    Label,
    MaxBytes,
    Missing,
    Quiet,
    Root,
    SelectedColumns,
    TextColumn,
    Treat,
    comma_separated,
    example,
    treatments,
)

data = typer.Typer(
    help="List, fetch and inspect data sets.",
    no_args_is_help=True,
    epilog=example("metaclust data list", "metaclust data get omniglot", "metaclust data show tickets.csv"),
)


@data.command("list", epilog=example("metaclust data list --json"))
def list_data(root: Root = None, as_json: AsJson = False) -> None:
    """List the named data sets and which of them are available."""
    from metaclust.data.datasets.cards import CARDS
    from metaclust.data.datasets.places import available

    where = {name: available(name, root) for name in CARDS}
    if as_json:
        typer.echo(json.dumps([{**asdict(card), "here": where[name]} for name, card in CARDS.items()], indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("name", "kind", "rows", "categories", "licence", "available"):
        table.add_column(
            column, justify="right" if column in ("rows", "categories") else "left", no_wrap=column == "name"
        )
    for name, card in CARDS.items():
        numbers = [f"{count:,}" if count else "" for count in (card.rows, card.categories)]
        table.add_row(name, card.kind, *numbers, card.licence, "yes" if where[name] else "no")
    Console().print(table)
    typer.echo(
        "`metaclust data show NAME` describes a data set; `metaclust data get NAME` downloads it or says how to get it."
    )


@data.command("get", epilog=example("metaclust data get omniglot --root data"))
def get_data(
    name: Annotated[str, typer.Argument(help="Name in `metaclust data list`.")],
    root: Root = None,
    quiet: Quiet = False,
) -> None:
    """Download a data set.

    If that is not possible, says where to get it and where to put it. A local copy is only checked.
    """
    from metaclust.data.datasets.named import load_dataset
    from metaclust.data.datasets.places import available

    part: Literal["background", "both"] = "both" if name == "omniglot" else "background"
    found = load_dataset(name, root, part=part, download=True, progress=not quiet)
    typer.echo(f"{name}: {len(found):,} rows, {len(found.categories):,} categories; {available(name, root)}")


@data.command(
    "show",
    epilog=example(
        "metaclust data show tickets.csv --label topic",
        "metaclust data show customers.csv --label segment --treat zip=category",
    ),
)
def show_data(
    what: Annotated[str, typer.Argument(help="Name of a data set, or path of a file or folder.")],
    label: Label = None,
    kind: Kind = "auto",
    text_column: TextColumn = None,
    columns: SelectedColumns = None,
    treat: Treat = None,
    ids: Ids = None,
    missing: Missing = "auto",
    max_bytes: MaxBytes = None,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Describe a named data set, or how a file or folder would be read; of a table, each column."""
    from metaclust.data.datasets.cards import CARDS
    from metaclust.data.datasets.places import available

    if what in CARDS:
        facts = {**asdict(CARDS[what]), "here": available(what, root)}
    else:
        from metaclust.data.readers.described import column_lines
        from metaclust.data.readers.sources import read_data

        rows = read_data(
            what,
            label=label,
            kind=kind,
            text=text_column,
            columns=comma_separated(columns),
            treat=cast("Any", treatments(treat)),
            ids=ids,
            missing=cast("Any", missing),
            max_bytes=max_bytes,
            progress=False,
        )
        lines = [asdict(line) for line in column_lines(rows)]
        facts = {
            "source": rows.source,
            "kind": rows.kind,
            "rows": len(rows),
            "categories": None if rows.labels is None else len(set(rows.labels)),
            "notes": list(rows.notes),
        }
        facts |= {"columns": lines} if lines else {}
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    lines = facts.pop("columns", [])
    for key, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else "; ".join(value) if isinstance(value, list) else value
        typer.echo(f"{key:11}{'-' if value is None else printable(shown)}")
    if lines:
        typer.echo("")
        show_columns(lines)


def show_columns(lines: list[dict[str, Any]]) -> None:
    """Print a table with a line for each column."""
    table = Table(box=None, pad_edge=False)
    for name in lines[0]:
        table.add_column(name, justify="right" if name in ("distinct", "gaps") else "left", overflow="fold")
    for line in lines:
        cells = ["-" if cell is None else f"{cell:,}" if isinstance(cell, int) else cell for cell in line.values()]
        table.add_row(*(Text(printable(cell)) for cell in cells))
    Console().print(table)
