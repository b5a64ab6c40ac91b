"""The fuzzing harness: damaged files of each kind are read in worker processes with limits, and outcomes are counted.

A kind of file is registered by a module ``fuzz_*.py`` beside this one; ``fuzz.py`` imports all of them::

    from harness import BadResult, FuzzKind, damaged, register

    def seeds() -> list[bytes]:
        return [b"a,b\\n1,2\\n3,4\\n"]           # the content of small real files, the same in every process

    def attempt(path: Path) -> None:
        rows = read_data(path)                 # may raise one of `refusals`: the file is refused
        if not np.isfinite(rows.values).all():
            raise BadResult("values that are not finite")

    register(FuzzKind("csv", ".csv", seeds, damaged, attempt, refusals=(DataError,)))

Allowed outcomes are a refusal (an error of ``refusals`` with a message that names the file, is short, and does not
advise unsafe options) and a return of ``attempt``, which should use what it read and raise :class:`BadResult` for a
result that must not be. Anything else is a failure: other exceptions, more memory than ``HEADROOM``, more CPU time than
``CPU_SECONDS``, the death of the process. A mutation is drawn from (seed, kind, number of the file) alone, so that a
failure can be repeated; failing files are also kept under regressions/<kind>/, one for each place of failure, and the
ordinary tests read them again. ``mutate`` may be :func:`damaged` (bytes only) or a function that knows the format and
falls back on it.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("METACLUST_FUZZ_FOLDER", HERE))
"""Where the modules that register kinds are, and the files that failed; workers inherit it."""
HEADROOM = 768 * 2**20
"""Bytes of address space that reading one file may take beyond what the process has after reading all seeds."""
CPU_SECONDS, WALL_SECONDS = 5, 120
"""The time that reading one file may take; the clock only ends what waits for something."""
LONGEST_MESSAGE = 3000
LARGEST_KEPT = 300_000
COPY = "copy"
"""The name, in the folder of a worker, of a copy of the file that it reads."""
CRASHES = 20
"""After so many deaths of workers a kind is given up."""
OUTCOMES = ("refused", "loaded", "error", "bad result", "hang", "abort")
ALLOWED = ("refused", "loaded")
REPOSITORY = HERE.parents[1]
STATUS = Path("/proc/self/status")


class BadResult(Exception):  # noqa: N818 - the harness's own verdict
    """A file was read without an error, but the result is not finite, not in range or contradicts itself."""


@dataclass(frozen=True)
class FuzzKind:
    """A kind of file: how small real ones are made, how they are damaged, and how they are read."""

    name: str
    suffix: str
    seeds: Callable[[], Sequence[bytes]]
    mutate: Callable[[bytes, Random], bytes]
    attempt: Callable[[Path], None]
    refusals: tuple[type[Exception], ...]
    names_file: bool = True
    """Whether the message of a refusal must contain the name of the file."""


KINDS: dict[str, FuzzKind] = {}
WORKERS: set[subprocess.Popen[str]] = set()
"""The workers that are running."""
STOPPED = Event()
"""Set where the run is interrupted: no worker is started any more."""


def register(kind: FuzzKind) -> None:
    """Add a kind to those that are fuzzed."""
    KINDS[kind.name] = kind


def import_kinds() -> None:
    """Import all modules that register kinds."""
    sys.path.insert(0, str(FOLDER))
    for path in sorted(FOLDER.glob("fuzz_*.py")):
        importlib.import_module(path.stem)


def damaged(content: bytes, random: Random) -> bytes:
    """Return the content with flipped bits, changed, removed, repeated or inserted bytes, or cut short."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
        place = random.randrange(len(data) + 1)
        length = random.choice((1, 1, 2, 4, 8, 64, 1000))
        way = random.randrange(7)
        if way <= 1 and data:
            data[place % len(data)] ^= 1 << random.randrange(8)
        elif way == 2:
            data[place : place + length] = random.randbytes(length)
        elif way == 3:
            data[place : place + length] = random.choice((b"\0", b"\xff", b"0", b"9")) * length
        elif way == 4:
            del data[place : place + length]
        elif way == 5:
            data[place:place] = data[place : place + length] if random.random() < 0.5 else random.randbytes(length)
        elif random.random() < 0.4:
            del data[place:]
    return bytes(data)


@dataclass
class Tally:
    """The outcomes of one kind."""

    kind: str
    outcomes: Counter[str] = field(default_factory=Counter)
    peak: int = 0
    """Bytes of resident memory beyond what the process had after reading all seeds."""
    failures: dict[str, str] = field(default_factory=dict)
    """One file, by number or name, for each place of failure."""

    @property
    def files(self) -> int:
        return self.outcomes.total()

    @property
    def failed(self) -> int:
        return self.files - sum(self.outcomes[name] for name in ALLOWED)

    def add(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.peak = max(self.peak, other.peak)
        self.failures = {**other.failures, **self.failures}


def mutated(kind: FuzzKind, seeds: Sequence[bytes], seed: int, number: int) -> bytes:
    """Return the content of one damaged file."""
    random = Random(f"{seed} {kind.name} {number}")  # noqa: S311 - not for secrets
    return kind.mutate(seeds[random.randrange(len(seeds))], random)


def outcome_of(kind: FuzzKind, path: Path) -> tuple[str, str]:
    """Read one file; return the outcome and, for a failure, where it happened."""
    try:
        kind.attempt(path)
    except kind.refusals as error:
        complaint = wrong_message(kind, path, str(error))
        return ("refused", "") if complaint is None else ("error", f"{type(error).__name__}: {complaint}")
    except BadResult as error:
        return "bad result", str(error)
    except Exception as error:
        return "error", signature(error)
    return "loaded", ""


def wrong_message(kind: FuzzKind, path: Path, message: str) -> str | None:
    """Return what is wrong with the message of a refusal, if anything."""
    if kind.names_file and path.name not in message:
        return f"the message does not name the file: {message[:80]}"
    if len(message) > LONGEST_MESSAGE:
        return f"a message of {len(message)} characters: {message[:80]}"
    if "allow_pickle" in message or "trust_remote_code" in message:
        return f"the message advises what is unsafe: {message[:80]}"
    return None


def signature(error: BaseException) -> str:
    """Return the type of an error, and the function of the package and the last one that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "metaclust" in Path(frame.filename).parts]
    places = [f"{Path(frame.filename).stem}.{frame.name}" for frame in (own[-1:] + frames[-1:])]
    words = re.sub(r"\d+", "#", str(error)).partition("\n")[0][:60]
    return f"{type(error).__name__} in {' > '.join(dict.fromkeys(places))}: {words}"


def work(kind: FuzzKind, seed: int, numbers: range, scratch: Path) -> None:
    """Read damaged files one after another under the limits, and print a line for each: what a worker does."""
    warnings.simplefilter("ignore")
    seeds = list(kind.seeds())
    path = scratch / f"file{kind.suffix}"
    for number, content in enumerate(seeds):
        path.write_bytes(content)
        if (outcome := outcome_of(kind, path))[0] != "loaded":
            raise RuntimeError(f"seed {number} of kind {kind.name!r} does not load: {outcome}")
    before = limit_memory()
    for number in numbers:
        report(number, mutated(kind, seeds, seed, number), kind, scratch, before)


def replay(kind: FuzzKind, paths: Sequence[Path], scratch: Path) -> None:
    """Read given files under the limits: what a worker does with files that failed once."""
    warnings.simplefilter("ignore")
    for content in kind.seeds():
        (scratch / f"file{kind.suffix}").write_bytes(content)
        outcome_of(kind, scratch / f"file{kind.suffix}")
    before = limit_memory()
    for number, path in enumerate(paths):
        report(number, path.read_bytes(), kind, scratch, before)


def report(number: int, content: bytes, kind: FuzzKind, scratch: Path, before: int) -> None:
    """Read one file, and print a line about it."""
    path = scratch / f"file{kind.suffix}"
    # What reads a file may also write it: this copy is the one to keep.
    for target in (path, scratch / COPY):
        target.write_bytes(content)
    # The default action of both signals ends the process, whatever it is in.
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
    outcome, place = outcome_of(kind, path)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if outcome not in ALLOWED:
        keep(kind, content, place)
    peak = status("VmHWM") - before
    sys.stdout.write(f"{number}\t{outcome}\t{peak}\t{place!r}\n")
    sys.stdout.flush()


def limit_memory() -> int:
    """Limit the address space to what there is and the headroom; return the resident memory in kB."""
    limit = status("VmSize") * 1024 + HEADROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The peak of resident memory is counted anew from here.
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def status(name: str) -> int:
    """Return a figure of this process, in kB."""
    return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))


def keep(kind: FuzzKind, content: bytes, place: str) -> None:
    """Keep a failing file, if it is small and the first of its place of failure."""
    folder = FOLDER / "regressions" / kind.name
    words = re.sub(r"\W+", "-", place)[:50].strip("-")
    target = folder / f"{words}-{hashlib.sha256(place.encode()).hexdigest()[:8]}{kind.suffix}"
    if not target.exists() and len(content) <= LARGEST_KEPT:
        folder.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def fuzz(kind: FuzzKind, seed: int, numbers: range, tally: Tally) -> None:
    """Read damaged files in a worker process, which is started again after each that it does not survive.

    The tally grows with every file, so that an interrupted run has one, too.
    """
    while tally.files < len(numbers) and tally.outcomes["hang"] + tally.outcomes["abort"] < CRASHES:
        if STOPPED.is_set():
            return
        left = numbers[tally.files :]
        run_worker(kind, tally, ["--seed", str(seed), "--work", str(left.start), str(left.stop)], len(left))


def replay_kept(kind: FuzzKind) -> Tally:
    """Read the files under regressions/<kind>/ again."""
    tally = Tally(kind.name)
    kept = sorted((FOLDER / "regressions" / kind.name).glob(f"*{kind.suffix}"))
    while tally.files < len(kept):
        left = kept[tally.files :]
        run_worker(kind, tally, ["--replay", *map(str, left)], len(left))
    return tally


def run_worker(kind: FuzzKind, tally: Tally, arguments: list[str], expected: int) -> None:
    """Run one worker to its end, or to the file it dies of, and add the outcomes to the tally."""
    done = 0
    with tempfile.TemporaryDirectory() as scratch, (Path(scratch) / "errors").open("w+") as errors:
        command = [sys.executable, str(HERE / "fuzz.py"), kind.name, "--scratch", scratch, *arguments]
        # In a session of its own: what interrupts the run ends a worker through stop_workers alone.
        worker = subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=REPOSITORY, start_new_session=True
        )
        WORKERS.add(worker)
        if STOPPED.is_set():
            worker.kill()
        if worker.stdout is None:
            raise RuntimeError("the worker has no output")
        for line in worker.stdout:
            number, outcome, peak, place = line.rstrip("\n").split("\t")
            done += 1
            tally.outcomes[outcome] += 1
            tally.peak = max(tally.peak, int(peak) * 1024)
            if outcome not in ALLOWED:
                tally.failures.setdefault(f"{outcome}: {place}", number)
        code = worker.wait()
        WORKERS.discard(worker)
        if STOPPED.is_set():
            return
        if code > 0 or (code == 0) != (done == expected):
            errors.seek(0)
            raise RuntimeError(f"the worker for {kind.name!r} failed with code {code}:\n{errors.read()[-3000:]}")
        if code < 0:
            death = signal.Signals(-code).name
            outcome = "hang" if death in ("SIGPROF", "SIGALRM") else "abort"
            tally.outcomes[outcome] += 1
            tally.failures.setdefault(f"{outcome}: {death}", str(tally.files - 1))
            content = (Path(scratch) / COPY).read_bytes()
            keep(kind, content, f"{death} {hashlib.sha256(content).hexdigest()[:8]}")


def stop_workers() -> None:
    """End all workers, and start no more: the file that one of them is reading is not counted."""
    STOPPED.set()
    for worker in list(WORKERS):
        worker.kill()


def table(tallies: Sequence[Tally]) -> str:
    """Return the outcomes of all kinds as lines of text."""
    lines = [f"{'kind':<14}{'files':>8}" + "".join(f"{name:>11}" for name in OUTCOMES) + f"{'peak MB':>9}"]
    for tally in tallies:
        counts = "".join(f"{tally.outcomes[name]:>11}" for name in OUTCOMES)
        lines.append(f"{tally.kind:<14}{tally.files:>8}{counts}{tally.peak / 2**20:>9.0f}")
    for tally in tallies:
        lines += [f"{tally.kind}: {place} (file {number})" for place, number in tally.failures.items()]
    return "\n".join(lines)
