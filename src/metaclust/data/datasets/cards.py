"""A card for each named data set, as cards.toml has them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from metaclust.data.kinds import Kind


@dataclass(frozen=True, kw_only=True)
class Card:
    """Source, licence, size and citation of a data set, and how to get it."""

    name: str
    kind: Kind
    about: str
    rows: int | None = None
    """None where it depends on the copy you have."""
    categories: int | None = None
    source: str
    licence: str
    citation: str
    how: str = (
        "put a file data.jsonl.gz (or .jsonl, .csv, .csv.gz, .parquet) with the columns text and label into the folder"
    )
    """What to put into the folder of the local copy."""

    @property
    def folder(self) -> str:
        """The folder of a local copy, in the root."""
        return {"web-directory": "web_directory", "patents-ipc": "patents"}.get(self.name, self.name)


TABLES = tomllib.loads(Path(__file__).with_name("cards.toml").read_text(encoding="utf-8"))
CARDS = {name: Card(name=name, **card) for name, card in TABLES.items()}
