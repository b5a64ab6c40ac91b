"""The time to import metaclust and to run `metaclust --help`, against torch and scikit-learn alone."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import interleaved
from benchmarks.report import Row, machine, markdown

IMPORTS = {
    "torch and scikit-learn": "import torch, sklearn.cluster, sklearn.mixture, sklearn.metrics",
    "import metaclust": "import metaclust",
    "from metaclust import MetaClusterer": "from metaclust import MetaClusterer",
    "metaclust --help": "import sys; sys.argv = ['metaclust', '--help']; from metaclust.cli.app import main; main()",
}


def rows(short: bool = False) -> list[Row]:
    """Return the medians over fresh processes."""
    seconds = interleaved(
        {name: lambda _, code=code: run(code) for name, code in IMPORTS.items()},  # type: ignore[misc]
        rounds=1 if short else 5,
        warm_up=0 if short else 1,
    )
    alone = seconds["torch and scikit-learn"]
    return [
        Row("Import and start-up", name, {"seconds": value, "of torch and scikit-learn alone": value / alone})
        for name, value in seconds.items()
    ]


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)  # noqa: S603


if __name__ == "__main__":
    print(markdown(rows(), machine()))
