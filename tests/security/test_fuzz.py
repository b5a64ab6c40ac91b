"""A short run of the fuzzers, and the files that failed once: each is refused, or what it gives is sound."""

import os
import subprocess
import sys
from pathlib import Path

import fuzz_inputs
import pytest

HERE = Path(__file__).parent
MODELS = ("model", "clustering", "fit-state", "run", "shards", "method")
KINDS = (*MODELS, *fuzz_inputs.NAMES)
GROUPS = (MODELS[:2], MODELS[2:], *(fuzz_inputs.NAMES[first::3] for first in range(3)))
"""Kinds that share a process: importing takes longer than reading the files."""
FILES = 2000


def outcomes(*arguments: str) -> dict[str, list[int]]:
    """Run the fuzzers as a program of their own, since the tests' checks of types would make them slow.

    Returns the columns of the table of outcomes by kind.
    """
    source = os.pathsep.join((str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(HERE / "fuzz.py"), *arguments],
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    return {name: [int(count) for count in counts] for name, *counts in rows}


@pytest.mark.parametrize("kinds", GROUPS, ids=" ".join)
def test_damaged_files_are_refused_or_what_they_give_is_sound(kinds):
    found = outcomes(*kinds, "--files", str(FILES))
    assert tuple(found) == kinds
    for kind, (files, refused, loaded, *failures) in found.items():
        assert files == refused + loaded == FILES
        assert failures[:4] == [0, 0, 0, 0]
        # Most changes are noticed, and some change nothing that matters. Any bytes are sounds.
        assert refused > FILES / (5 if kind == "wav" else 3)
        assert loaded > FILES / 50


def test_files_that_failed_once_do_not_fail_again():
    kept = {kind: len(list((HERE / "regressions" / kind).glob("*"))) for kind in KINDS}
    for kind, (files, refused, loaded, *_) in outcomes(*KINDS, "--kept").items():
        assert files == refused + loaded == kept[kind]
    assert {folder.name for folder in (HERE / "regressions").iterdir()} <= set(KINDS)
