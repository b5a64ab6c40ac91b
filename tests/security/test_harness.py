"""The fuzzing harness itself: it must see what it is there to see."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent / "fuzz.py"
FAULTS = """
import os
import sys
from itertools import count

from harness import BadResult, FuzzKind, register


def attempt(path):
    way = path.read_bytes()
    if way == b"refuse":
        raise ValueError(f"{path}: refused")
    if way == b"nameless":
        raise ValueError("refused")
    if way == b"unsafe":
        raise ValueError(f"{path}: pass allow_pickle=True")
    if way == b"other":
        raise KeyError("other")
    if way == b"nan":
        raise BadResult("NaN")
    if way == b"memory":
        bytearray(2**31)
    if way == b"abort":
        os.abort()
    while way == b"hang":
        pass


WAYS = [b"refuse", b"sound", b"nameless", b"unsafe", b"other", b"nan", b"memory", b"abort", b"hang"]
# A worker that is started again after a death goes on with the next file.
numbers = count(int(sys.argv[sys.argv.index("--work") + 1]) if "--work" in sys.argv else 0)
mutate = lambda content, random: WAYS[next(numbers)]
register(FuzzKind("faults", ".bin", lambda: [b"seed"], mutate, attempt, (ValueError,)))
"""


def run(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(FUZZ), *arguments],
        env={**os.environ, "METACLUST_FUZZ_FOLDER": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def test_every_kind_of_failure_is_seen_and_its_file_is_kept_and_read_again(tmp_path):
    (tmp_path / "fuzz_faults.py").write_text(FAULTS)
    code, lines = run(tmp_path, "faults", "--files", "9")
    assert code == 1
    assert " ".join(lines[0].split()) == "kind files refused loaded error bad result hang abort peak MB"
    assert lines[1].split()[:8] == ["faults", "9", "1", "1", "4", "1", "1", "1"]
    kept = list((tmp_path / "regressions" / "faults").iterdir())
    failing = {b"nameless", b"unsafe", b"other", b"nan", b"memory", b"abort", b"hang"}
    assert {path.read_bytes() for path in kept} == failing
    code, lines = run(tmp_path, "faults", "--kept")
    assert code == 1
    assert lines[1].split()[:8] == ["faults", "7", "0", "0", "4", "1", "1", "1"]


WAITING = """
from pathlib import Path
from time import sleep

from harness import FOLDER, FuzzKind, register


def attempt(path):
    content = path.read_bytes()
    path.write_bytes(b"changed")
    if content == b"0":
        raise KeyError("one that is kept")
    if content == b"2":
        (FOLDER / "reached").touch()
        sleep(60)


numbers = iter(range(1000))
register(FuzzKind("waiting", ".bin", lambda: [b"seed"], lambda *_: b"%d" % next(numbers), attempt, ()))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_shows_what_it_has_counted(tmp_path, number):
    (tmp_path / "fuzz_waiting.py").write_text(WAITING)
    # As a shell starts a program in the background.
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, str(FUZZ), "waiting", "--files", "1000"]
    environment = {**os.environ, "METACLUST_FUZZ_FOLDER": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as run:  # noqa: S603
        while not (tmp_path / "reached").exists():
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(number)
        told, _ = run.communicate(timeout=30)
    assert run.returncode == 130
    assert told.splitlines()[1].split()[:8] == ["waiting", "2", "0", "1", "1", "0", "0", "0"]
    # The file as it was before it was read; that which was being read is no failure.
    assert [path.read_bytes() for path in (tmp_path / "regressions" / "waiting").iterdir()] == [b"0"]


def test_files_that_are_refused_or_sound_are_no_failure(tmp_path):
    (tmp_path / "fuzz_faults.py").write_text(FAULTS)
    code, lines = run(tmp_path, "faults", "--files", "2")
    assert code == 0
    assert lines[1].split()[:8] == ["faults", "2", "1", "1", "0", "0", "0", "0"]
    assert not (tmp_path / "regressions").exists()
