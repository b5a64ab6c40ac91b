"""Runs a grid of cells, in one process or several, one JSON line each; cells that are done are not done again."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty
from threading import Thread
from typing import Any

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from metaclust._util.tensors import versions
from metaclust.experiments.budgets import Budget
from metaclust.experiments.cells import EXPERIMENTS, Cell
from metaclust.experiments.lab import Lab

Record = dict[str, Any]


class GridError(RuntimeError):
    """A cell failed; those before it are in the results file."""


def read_records(path: Path) -> list[Record]:
    """The lines of a results file. A last line that was cut short by a kill is left out, and out of the file."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        beside = path.with_suffix(".part")
        beside.write_bytes(whole)
        beside.replace(path)
    records = []
    for number, line in enumerate(whole.decode().splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not JSON ({error}): repair or remove it") from error
        records.append(record)
    return records


def append_record(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def missing_cells(cells: Sequence[Cell], records: Sequence[Record], budget: Budget) -> list[Cell]:
    done = {identity_of(record) for record in records}
    return [cell for cell in cells if identity_of(cell.identity(budget.name)) not in done]


def identity_of(record: Record) -> str:
    keys = ("experiment", "dataset", "method", "split", "setting", "budget")
    return json.dumps({key: record[key] for key in keys}, sort_keys=True)


def run_cell(cell: Cell, lab: Lab, progress: bool = False) -> Record:
    """Measure one cell."""
    started = time.perf_counter()
    measured = EXPERIMENTS[cell.experiment].measure(cell, lab, progress)
    return {
        **cell.identity(lab.budget.name),
        **measured,
        "seed": cell.split,
        "seconds": round(time.perf_counter() - started, 3),
        "threads": torch.get_num_threads(),
        "commit": commit(),
        "versions": versions(),
    }


def run_grid(
    cells: Sequence[Cell],
    lab: Lab,
    path: Path,
    *,
    workers: int = 1,
    progress: bool = False,
    tell: Callable[[Record], None] = lambda _: None,
) -> list[Record]:
    """Measure the cells that are not in the file yet; returns all its records."""
    todo = missing_cells(cells, read_records(path), lab.budget)
    records = in_turn(todo, lab, progress) if workers == 1 else side_by_side(todo, lab, workers)
    for record in records:
        append_record(path, record)
        tell(record)
    return read_records(path)


def in_turn(cells: Sequence[Cell], lab: Lab, progress: bool) -> Iterator[Record]:
    for cell in cells:
        yield run_cell(cell, lab, progress)


def side_by_side(cells: Sequence[Cell], lab: Lab, workers: int) -> Iterator[Record]:
    """Processes that take one cell after another, each with its share of the threads."""
    context = multiprocessing.get_context("spawn")
    todo: Any = context.Queue()
    done: Any = context.Queue()
    for cell in cells:
        todo.put(cell)
    threads = max(1, (os.cpu_count() or 1) // workers)
    arguments = (todo, done, lab.protocol.name, lab.budget, lab.folder.parent, lab.root, threads)
    processes = [context.Process(target=work, args=arguments, daemon=True) for _ in range(min(workers, len(cells)))]
    for process in processes:
        todo.put(None)
        process.start()
    try:
        for _ in range(len(cells)):
            yield next_record(done, processes)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def next_record(done: Any, processes: Sequence[Any]) -> Record:
    """What a worker puts there. One that died without a word, say for want of memory, must not be waited for."""
    while True:
        try:
            record, error = done.get(timeout=1)
        except Empty:
            dead = [process.exitcode for process in processes if process.exitcode not in (None, 0)]
            if dead:
                raise GridError(f"a worker ended with exit code {dead[0]}: run again with fewer workers") from None
            continue
        if error is not None:
            raise GridError(error)
        return record  # type: ignore[no-any-return]


def work(todo: Any, done: Any, dataset: str, budget: Budget, folder: Path, root: Any, threads: int) -> None:
    """A worker process."""
    Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    lab = Lab(dataset, budget, folder, root)
    with threadpool_limits(threads):
        while (cell := todo.get()) is not None:
            try:
                done.put((run_cell(cell, lab), None))
            except Exception:
                done.put((None, f"{cell} failed:\n{traceback.format_exc()}"))
                return


def end_with_parent() -> None:
    """A worker whose parent was killed has nobody to work for."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def commit() -> str | None:
    """Of the working copy that this file is in; None where it is installed without one."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
