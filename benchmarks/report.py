"""Reports of benchmarks: JSON and a Markdown table, with the machine and the versions of packages."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import groupby
from pathlib import Path

import torch

from metaclust._util.files import write_text


@dataclass(frozen=True)
class Row:
    """One row of a table: values that were measured side by side in one run."""

    benchmark: str
    setting: str
    figures: dict[str, float]
    """The measured values by column, such as "ours, s" or "scikit-learn / ours"."""


def machine() -> dict[str, str]:
    """Return the processor, the load and the versions of packages."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "threads of torch": str(torch.get_num_threads()),
        "load when it ended": load,
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("torch", "scikit-learn", "numpy", "polars")},
    }


def markdown(rows: list[Row], about: dict[str, str]) -> str:
    """Return one table for each benchmark, then the machine."""
    parts = []
    for name, group in groupby(rows, key=lambda row: row.benchmark):
        members = list(group)
        columns = list(dict.fromkeys(column for row in members for column in row.figures))
        parts.append(f"### {name}\n")
        parts.append("| | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
        for row in members:
            entries = [f"{row.figures[column]:.3g}" if column in row.figures else "" for column in columns]
            parts.append(f"| {row.setting} | " + " | ".join(entries) + " |")
        parts.append("")
    parts.append(", ".join(f"{name} {value}" for name, value in about.items()) + "\n")
    return "\n".join(parts)


def write(rows: list[Row], about: dict[str, str], folder: Path) -> None:
    """Write benchmarks.json and benchmarks.md."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "benchmarks.json": json.dumps({"machine": about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n",
        "benchmarks.md": markdown(rows, about),
    }
    for name, text in content.items():
        write_text(folder / name, text)
