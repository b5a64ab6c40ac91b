"""A short run of the fuzzers of data files, and the files that failed once: each is refused or read as sound rows."""

import os
import subprocess
import sys
from pathlib import Path

import fuzz_inputs
import pytest

HERE = Path(__file__).parent
FILES = 2000


def outcomes(*arguments: str) -> list[int]:
    """Run the fuzzers as a program of their own; return the numbers of files, of those refused and of those loaded."""
    source = os.pathsep.join((str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(HERE / "fuzz.py"), *arguments],
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [int(count) for count in done.stdout.splitlines()[1].split()[1:4]]


@pytest.mark.parametrize("kind", fuzz_inputs.NAMES)
def test_damaged_data_files_are_refused_or_read_as_sound_rows(kind):
    files, refused, loaded = outcomes(kind, "--files", str(FILES))
    assert files == refused + loaded == FILES
    # Most changes are noticed, and some change nothing that matters.
    assert refused > FILES / 3
    assert loaded > FILES / 50


@pytest.mark.parametrize("kind", fuzz_inputs.NAMES)
def test_data_files_that_failed_once_do_not_fail_again(kind):
    kept = list((HERE / "regressions" / kind).glob("*"))
    files, refused, loaded = outcomes(kind, "--kept") if kept else (0, 0, 0)
    assert files == refused + loaded == len(kept)
