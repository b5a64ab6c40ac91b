"""Commands that are killed at random moments: nothing is lost, and what is resumed ends bit for bit the same.

    python -m benchmarks.kills --kills 100

Each command runs in a forked process, which needs no imports, and is killed by SIGKILL after a random part of the time
that it takes. After each kill every target must be what it was or complete. After some kills the command is resumed, or
repeated where there is nothing to resume, until it ends, and must have written what it writes without kills.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metaclust import InfiniteGaussianMixture, MetaClusterer, report
from metaclust._util.tensors import read_tensors
from metaclust.cli import commands
from metaclust.cli.app import app
from metaclust.scale import DaskEngine, cluster_shards
from metaclust.training import plan, prior

IMPORTED = (MetaClusterer, DaskEngine, commands, report)
"""Imported once, before processes are forked."""
OLD = b"what was there before"
SHORT = ("--label", "kind", "--pretrain-steps", "60", "--steps", "8", "--encoder", "network", "--choose", "bound")
MIXTURE: dict[str, Any] = {"max_components": 8, "max_iter": 25, "tol": 0}


@dataclass
class Case:
    """A command that is killed: how it starts, how it goes on, and what it writes."""

    name: str
    start: Callable[[Path], object]
    resume: Callable[[Path], object]
    targets: tuple[str, ...]
    digest: Callable[[Path, str], str]
    """A hash of what is written, without what is different in each run, such as seconds."""
    expected: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    kills: int = 0
    ended: int = 0
    lost: int = 0
    differing: int = 0
    finished: int = 0


def forked(call: Callable[[Path], object], folder: Path, kill_after: float | None = None) -> int:
    """Run a call, for a folder, in a forked process; return its exit code, -9 if it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                warnings.simplefilter("ignore")
                call(folder)
            code = 0
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    if kill_after is not None:
        limit = time.monotonic() + kill_after
        while time.monotonic() < limit:
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                break
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def command(*words: str) -> Callable[[Path], object]:
    """Return a command line, which is run in a folder."""

    def call(folder: Path) -> None:
        os.chdir(folder)
        sys.argv = ["metaclust", *words]
        app(list(words), standalone_mode=False)

    return call


def of_bytes(folder: Path, name: str) -> str:
    return hashlib.sha256((folder / name).read_bytes()).hexdigest()


def of_clustering(folder: Path, name: str) -> str:
    """Return a hash of a table, a report or a clustering, the last two without the seconds that it took."""
    if name.endswith(".csv"):
        return of_bytes(folder, name)
    if name.endswith(".html"):
        text = (folder / name).read_text(encoding="utf-8")
        return "whole" if text.rstrip().endswith("</html>") else "half"
    tensors, header = read_tensors(folder / name, "clustering")
    header["about"].pop("seconds")
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for key in sorted(tensors):
        digest.update(tensors[key].numpy().tobytes())
    return digest.hexdigest()


def of_labels(folder: Path, name: str) -> str:
    """Return a hash of the labels of all shards and of the bound."""
    facts = json.loads((folder / name / "_result.json").read_text())
    digest = hashlib.sha256(json.dumps([facts["bound"], facts["sizes"], facts["passes"]]).encode())
    for path in sorted((folder / name).glob("*.parquet")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def fit_shards(engine: str, **options: Any) -> Callable[[Path], object]:
    def call(folder: Path) -> None:
        mixture = InfiniteGaussianMixture(**MIXTURE)
        cluster_shards(mixture, folder / "shards", folder / "labels", engine=engine, **options)

    return call


def fit_mixture(folder: Path) -> None:
    """Fit with a state, and write what was fitted."""
    mixture = InfiniteGaussianMixture(**MIXTURE).fit(folder / "rows.npy", state=folder / "state", resume=True)
    unfinished = folder / "unfinished.npy"
    np.save(unfinished, np.concatenate([mixture.means_.ravel(), mixture.weights_, mixture.lower_bounds_]))
    unfinished.replace(folder / "fitted.npy")


def cases(dask: bool) -> list[Case]:
    train = ("train", "known.csv", "--out", "x.safetensors", *SHORT, "--quiet", "--force")
    outputs = ("--out", "c.csv", "--report", "r.html", "--save", "s.safetensors")
    again = command("cluster", "m.safetensors", "known.csv", *outputs, "--quiet", "--force")
    found = [
        Case("train", command(*train), command(*train, "--resume"), ("x.safetensors",), of_bytes),
        Case("cluster", again, again, ("c.csv", "r.html", "s.safetensors"), of_clustering),
        Case("mixture with state", fit_mixture, fit_mixture, ("fitted.npy",), of_bytes),
        Case("shards, driver", fit_shards("local"), fit_shards("local", resume=True), ("labels",), of_labels),
    ]
    if dask:
        options = {"workers": 2}
        resumed = fit_shards("dask", resume=True, **options)
        found.append(Case("shards, driver of Dask", fit_shards("dask", **options), resumed, ("labels",), of_labels))
    return found


def write_data(folder: Path) -> None:
    """Write the small data that all commands read, and a model."""
    drawn = np.random.default_rng(0)
    lines = ["a,b,c,kind"]
    for category in range(8):
        rows = 4 * drawn.normal(size=3) + drawn.normal(size=(12, 3))
        lines += [f"{','.join(map(str, row.round(4)))},k{category}" for row in rows]
    (folder / "known.csv").write_text("\n".join(lines) + "\n")
    rows = (4 * drawn.normal(size=(6, 4)))[drawn.integers(0, 6, 12_000)] + drawn.normal(size=(12_000, 4))
    np.save(folder / "rows.npy", rows)
    (folder / "shards").mkdir()
    for place, part in enumerate(np.array_split(rows, 6)):
        np.save(folder / "shards" / f"{place}.npy", part)
    train = command("train", "known.csv", "--out", "m.safetensors", *SHORT, "--quiet")
    if forked(train, folder) != 0:
        raise SystemExit("the model could not be trained")


def fresh(data: Path, place: Path, case: Case) -> Path:
    """Return a new folder with the data, and old files where the command will write."""
    folder = Path(tempfile.mkdtemp(dir=place))
    shutil.copytree(data, folder, dirs_exist_ok=True)
    for name in case.targets:
        if "." in name:
            (folder / name).write_bytes(OLD)
    return folder


def lost(case: Case, folder: Path) -> list[str]:
    """Return the targets that are neither as they were nor complete."""
    bad = []
    for name in case.targets:
        target = folder / name
        if "." in name:
            if target.exists() and target.read_bytes() == OLD:
                continue
        elif not (target / "_result.json").exists():
            # Until a run over shards is finished: no label that is cut short, and no other names.
            known = {f"{place}.parquet" for place in range(6)} | {"_run", "_lock"}
            names = {path.name for path in target.iterdir()} if target.exists() else set()
            whole = all((target / part).read_bytes()[-4:] == b"PAR1" for part in names if part.endswith(".parquet"))
            if names <= known and whole:
                continue
        try:
            if case.digest(folder, name) == case.expected[name]:
                continue
        except (OSError, ValueError):
            pass
        bad.append(name)
    return bad


def measure(case: Case, data: Path, place: Path) -> None:
    """Run a command without kills, for what it writes and how long it takes."""
    folder = fresh(data, place, case)
    started = time.monotonic()
    if forked(case.start, folder) != 0:
        raise SystemExit(f"{case.name} failed without any kill")
    case.seconds = time.monotonic() - started
    case.expected = {name: case.digest(folder, name) for name in case.targets}


def kill_often(case: Case, data: Path, place: Path, kills: int, draw: random.Random) -> None:
    """Kill a command ``kills`` times, up to three times before it may end."""
    while case.kills < kills:
        folder = fresh(data, place, case)
        call, left = case.start, min(3, kills - case.kills)
        while left:
            done = forked(call, folder, draw.uniform(0, case.seconds))
            if done == 0:
                case.ended += 1
                break
            case.kills += 1
            left -= 1
            case.lost += len(lost(case, folder))
            call = goes_on(case, folder)
        else:
            if forked(call, folder) != 0:
                case.differing += 1
                continue
        case.finished += 1
        case.differing += any(case.digest(folder, name) != case.expected[name] for name in case.targets)
        case.lost += len(list(folder.glob(".*")))
        shutil.rmtree(folder)


def goes_on(case: Case, folder: Path) -> Callable[[Path], object]:
    """Return how a killed command goes on: one that had finished by then is started again."""
    finished = case.targets == ("labels",) and (folder / "labels" / "_result.json").exists()
    if finished and not (folder / "labels" / "_run").exists():
        return lambda _: None
    return case.resume


def kill_workers(data: Path, place: Path, kills: int, draw: random.Random) -> Case:
    """Kill workers of Dask while they cluster shards; the labels must be those of one process."""
    case = Case("shards, workers of Dask", fit_shards("local"), fit_shards("local"), ("labels",), of_labels)
    measure(case, data, place)
    folder = fresh(data, place, case)

    class Killer:
        engine: DaskEngine
        chance = 0.0

        def phase(self, name: str) -> None:
            self.chance = 0.15

        def advance(self, rows: int) -> None:
            alive = [nanny.pid for nanny in self.engine.cluster.workers.values() if nanny.pid]
            if alive and draw.random() < self.chance and case.kills < kills:
                self.chance = 0.0
                os.kill(draw.choice(alive), signal.SIGKILL)
                case.kills += 1

    with DaskEngine(2) as engine:
        while case.kills < kills:
            killer = Killer()
            killer.engine = engine
            mixture = InfiniteGaussianMixture(**MIXTURE)
            cluster_shards(mixture, folder / "shards", folder / "labels", engine=engine, report=killer)
            case.finished += 1
            case.differing += of_labels(folder, "labels") != case.expected["labels"]
            shutil.rmtree(folder / "labels")
    return case


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="number of kills of all commands together")
    parser.add_argument("--no-dask", action="store_true", help="leave out Dask, which starts processes")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    # Priors are compared on few tasks: that takes most of the time, and writes nothing.
    plan.VALIDATION_TASKS, prior.PRIOR_TASKS = 8, 2
    warnings.simplefilter("ignore")
    draw = random.Random(options.seed)  # noqa: S311
    with tempfile.TemporaryDirectory() as scratch:
        place, data = Path(scratch), Path(scratch) / "data"
        data.mkdir()
        write_data(data)
        print(
            "| command | seconds | kills | ended before | finished | lost | differing |\n|---|---|---|---|---|---|---|"
        )
        found = cases(dask=not options.no_dask)
        # Dask's processes take long to start.
        shares = (
            [options.kills // 5] * 4 + [options.kills // 10] * 2 if not options.no_dask else [options.kills // 4] * 4
        )
        for case, share in zip(found, shares, strict=False):
            measure(case, data, place)
            kill_often(case, data, place, share, draw)
            show(case)
        if not options.no_dask:
            found.append(kill_workers(data, place, shares[-1], draw))
            show(found[-1])
    return int(any(case.lost or case.differing for case in found))


def show(case: Case) -> None:
    counts = (case.kills, case.ended, case.finished, case.lost, case.differing)
    print(f"| {case.name} | {case.seconds:.1f} | {' | '.join(map(str, counts))} |", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
