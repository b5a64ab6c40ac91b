"""A short run of the fuzzers, and the files that failed once: each is refused, or what it gives is sound."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KINDS = ("model", "clustering", "fit-state", "run")
FILES = 2000


def fuzz(*arguments: str) -> list[str]:
    """Run the fuzzers as a program of their own: the tests' checks of types would make them slow."""
    source = os.pathsep.join((str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(HERE / "fuzz.py"), *arguments],
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[1].split()


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_or_what_they_give_is_sound(kind):
    name, files, refused, loaded, *failures = fuzz(kind, "--files", str(FILES), "--seed", "0")
    assert (name, int(files)) == (kind, FILES)
    assert failures[:4] == ["0", "0", "0", "0"]
    # Most changes are noticed, and some change nothing that matters.
    assert int(refused) > FILES / 2
    assert int(loaded) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_failed_once_do_not_fail_again(kind):
    kept = list((HERE / "regressions" / kind).glob("*"))
    name, files, refused, loaded, *_ = fuzz(kind, "--kept")
    assert (name, int(files)) == (kind, len(kept))
    assert int(refused) + int(loaded) == len(kept)
