"""A table, in Markdown, of the Omniglot experiments.

python -m metaclust.experiments.summary results/omniglot.jsonl results/collapse.jsonl
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from metaclust.experiments.records import read_records, shown_title


def protocol_table(records: list[dict[str, Any]]) -> str:
    """Return test ARI and |K found - K| by method: each split, and the mean over splits."""
    records = sorted(records, key=lambda record: record["split"])
    splits = " | ".join(f"split {record['split']}" for record in records)
    lines = [
        f"| test ARI (mean of abs(K found - K)) | {splits} | mean |",
        "|---" * (len(records) + 2) + "|",
    ]
    for method in records[0]["test"]:
        rows = [record["test"][method] for record in records]
        entries = [f"{row['ari']:.3f} ({row['k_error']:.2f})" for row in rows]
        mean = f"**{np.mean([row['ari'] for row in rows]):.3f}** ({np.mean([row['k_error'] for row in rows]):.2f})"
        lines.append(f"| {shown_title(method)} | {' | '.join(entries)} | {mean} |")
    for name, key in (("validation ARI of the Proto start", "proto_validation_ari"), ("best", "best_validation_ari")):
        entries = [f"{record[key]:.3f}" for record in records]
        lines.append(f"| {name} | {' | '.join(entries)} | {np.mean([record[key] for record in records]):.3f} |")
    minutes = [record["training_seconds"] / 60 for record in records]
    lines.append(f"| minutes of training | {' | '.join(f'{m:.1f}' for m in minutes)} | {np.mean(minutes):.1f} |")
    return "\n".join(lines)


def collapse_table(records: list[dict[str, Any]]) -> str:
    """Return validation ARI before and after the steps on the continuous ARI, by seed."""
    lines = ["| seed | Proto start | lowest after it | at the end | held |", "|---|---|---|---|---|"]
    for record in sorted(records, key=lambda record: record["seed"]):
        lowest = min(ari for _, ari in record["validations"][1:])
        lines.append(
            f"| {record['seed']} | {record['proto_validation_ari']:.3f} | {lowest:.3f} | "
            f"{record['last_validation_ari']:.3f} | {'yes' if record['held'] else 'NO'} |"
        )
    return "\n".join(lines)


def main(paths: list[str]) -> None:
    tables = {"protocol": protocol_table, "collapse": collapse_table}
    for path in paths:
        records = read_records(Path(path))
        for experiment, table in tables.items():
            chosen = [record for record in records if record["experiment"] == experiment]
            if chosen:
                print(table(chosen), end="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
