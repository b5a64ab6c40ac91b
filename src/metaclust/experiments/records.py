"""Results files: one JSON object a line, appended to as trials finish."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from metaclust._util.files import replacing

Record = dict[str, Any]

OLD_TITLES = {"KMeans told the true K": "KMeans, given K", "KMeans told K": "KMeans, given K"}
"""Names of methods that results files keep, and what tables show in their place."""


def read_records(path: Path) -> list[Record]:
    """Return the lines of a results file; a last line that was cut short by a kill is removed from the file."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with replacing(path) as unfinished:
            unfinished.write_bytes(whole)
    records = []
    for number, line in enumerate(whole.decode().splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not JSON ({error}): repair or remove it") from error
        records.append(record)
    return records


def append_record(path: Path, record: Record) -> None:
    """Add a line to a results file, and wait until it is on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def shown_title(method: str) -> str:
    """Return the name to show for a method of a results file.

    >>> shown_title("ours + KMeans told the true K"), shown_title("HDBSCAN")
    ('ours + KMeans, given K', 'HDBSCAN')
    """
    for old, new in OLD_TITLES.items():
        method = method.replace(old, new)
    return method


def commit() -> str | None:
    """Return the commit of the working copy that holds this file; None for an installed package."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
