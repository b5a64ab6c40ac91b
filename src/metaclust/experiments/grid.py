"""Runs a grid of trials, in one process or several, one JSON line each; finished trials are not run again."""

from __future__ import annotations

import json
import multiprocessing
import os
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
from metaclust.experiments.lab import Lab
from metaclust.experiments.records import Record, append_record, commit, read_records
from metaclust.experiments.trials import EXPERIMENTS, Trial


class GridError(RuntimeError):
    """A trial failed; those before it are in the results file."""


def missing_trials(trials: Sequence[Trial], records: Sequence[Record], budget: Budget) -> list[Trial]:
    """Return the trials that have no record."""
    done = {identity_of(record) for record in records}
    return [trial for trial in trials if identity_of(trial.identity(budget.name)) not in done]


def identity_of(record: Record) -> str:
    """Return what tells a record from those of other trials."""
    keys = ("experiment", "dataset", "method", "split", "setting", "budget")
    return json.dumps({key: record[key] for key in keys}, sort_keys=True)


def run_trial(trial: Trial, lab: Lab, progress: bool = False) -> Record:
    """Run one trial and return its record."""
    started = time.perf_counter()
    measured = EXPERIMENTS[trial.experiment].measure(trial, lab, progress)
    return {
        **trial.identity(lab.budget.name),
        **measured,
        "seed": trial.split,
        "seconds": round(time.perf_counter() - started, 3),
        "threads": torch.get_num_threads(),
        "commit": commit(),
        "versions": versions(),
    }


def run_grid(
    trials: Sequence[Trial],
    lab: Lab,
    path: Path,
    *,
    workers: int = 1,
    progress: bool = False,
    on_record: Callable[[Record], None] = lambda _: None,
) -> list[Record]:
    """Run the trials that are not in the file yet and return all its records; ``on_record`` is called with new ones."""
    todo = missing_trials(trials, read_records(path), lab.budget)
    records = run_in_turn(todo, lab, progress) if workers == 1 else run_in_processes(todo, lab, workers)
    for record in records:
        append_record(path, record)
        on_record(record)
    return read_records(path)


def run_in_turn(trials: Sequence[Trial], lab: Lab, progress: bool) -> Iterator[Record]:
    for trial in trials:
        yield run_trial(trial, lab, progress)


def run_in_processes(trials: Sequence[Trial], lab: Lab, workers: int) -> Iterator[Record]:
    """Start processes that take one trial after another, each with its share of the threads."""
    context = multiprocessing.get_context("spawn")
    todo: Any = context.Queue()
    done: Any = context.Queue()
    for trial in trials:
        todo.put(trial)
    threads = max(1, (os.cpu_count() or 1) // workers)
    arguments = (todo, done, lab.protocol.name, lab.budget, lab.folder.parent, lab.root, threads)
    processes = [context.Process(target=work, args=arguments, daemon=True) for _ in range(min(workers, len(trials)))]
    for process in processes:
        todo.put(None)
        process.start()
    try:
        for _ in range(len(trials)):
            yield next_record(done, processes)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def next_record(done: Any, processes: Sequence[Any]) -> Record:
    """Wait for the next record, but not for a worker that has died, for example of too little memory."""
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
    """Run trials in a worker process until there are no more."""
    Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    lab = Lab(dataset, budget, folder, root)
    with threadpool_limits(threads):
        while (trial := todo.get()) is not None:
            try:
                done.put((run_trial(trial, lab), None))
            except Exception:
                done.put((None, f"{trial} failed:\n{traceback.format_exc()}"))
                return


def end_with_parent() -> None:
    """End this worker when the process that started it ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
