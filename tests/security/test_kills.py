"""A few kills of each command; `python -m benchmarks.kills` has more, and kills Dask's processes too."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(sys.platform == "win32", reason="without fork and SIGKILL")
def test_killed_commands_lose_nothing_and_end_with_the_same_results() -> None:
    command = [sys.executable, "-m", "benchmarks.kills", "--kills", "8", "--no-dask"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    found = {}
    for line in done.stdout.splitlines()[2:]:
        name, _, kills, _, finished, lost, differing = (cell.strip() for cell in line.strip("|").split("|"))
        found[name] = (int(kills), int(finished) > 0, int(lost), int(differing))
    commands = ("train", "cluster", "mixture with state", "shards, driver")
    assert found == dict.fromkeys(commands, (2, True, 0, 0)), done.stderr
    assert done.returncode == 0
