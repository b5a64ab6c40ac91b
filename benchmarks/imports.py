"""How long it takes to import metaclust, against torch and scikit-learn alone, and how long `metaclust --help`."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import interleaved

IMPORTS = {
    "torch and scikit-learn": "import torch, sklearn.cluster, sklearn.mixture, sklearn.metrics",
    "import metaclust": "import metaclust",
    "from metaclust import MetaClusterer": "from metaclust import MetaClusterer",
    "metaclust --help": "import sys; sys.argv = ['metaclust', '--help']; from metaclust.cli import main; main()",
}


def main(rounds: int = 5) -> None:
    """The medians of fresh processes."""
    seconds = interleaved(
        {name: lambda _, code=code: run(code) for name, code in IMPORTS.items()},  # type: ignore[misc]
        rounds,
        warm_up=1,
    )
    alone = seconds["torch and scikit-learn"]
    for name, value in seconds.items():
        print(f"{name}: {value:.2f} s, {value / alone:.2f} of torch and scikit-learn alone")


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)  # noqa: S603


if __name__ == "__main__":
    main()
