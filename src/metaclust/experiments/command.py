"""The command `metaclust experiment`: run a grid of trials, then write its table and figure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from metaclust._util.files import write_text
from metaclust._util.progress import Bar
from metaclust.experiments.budgets import BUDGETS, Budget
from metaclust.experiments.discovery import run_discovery
from metaclust.experiments.figures import figure_of, new_figure, save
from metaclust.experiments.grid import missing_trials, run_grid
from metaclust.experiments.lab import Lab
from metaclust.experiments.paper import SAYS
from metaclust.experiments.problems import PROTOCOLS
from metaclust.experiments.records import Record, read_records
from metaclust.experiments.tables import table_of
from metaclust.experiments.trials import EXPERIMENTS

__all__ = ["run_discovery", "run_experiment"]


def run_experiment(
    name: str,
    dataset: str,
    *,
    splits: int = 10,
    budget: str = "standard",
    out: str | os.PathLike[str] = "results",
    runs: str | os.PathLike[str] = "runs",
    root: str | os.PathLike[str] | None = None,
    workers: int = 1,
    threads: int | None = None,
    methods: Sequence[str] | None = None,
    progress: bool = True,
    render_only: bool = False,
) -> dict[str, Any]:
    """Run the missing trials of an experiment, then write its table and figure; return where they are.

    Results go to OUT/DATASET/NAME.jsonl (.md, .csv, .png, .svg), fitted methods to ``runs``.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"{name!r} is not an experiment: choose one of {', '.join(EXPERIMENTS)}")
    if budget not in BUDGETS:
        raise ValueError(f"--budget {budget}: choose one of {', '.join(BUDGETS)}")
    for option, value in (("--splits", splits), ("--workers", workers), ("--threads", threads)):
        if value is not None and value < 1:
            raise ValueError(f"{option} {value}: it must be 1 or more")
    # A missing matplotlib is reported now, not after hours.
    new_figure()
    lab = Lab(dataset, BUDGETS[budget], runs, root)
    folder = Path(out) / lab.protocol.name
    path = folder / f"{name}.jsonl"
    console = Console(stderr=True, quiet=not progress, soft_wrap=True, highlight=False)
    if not render_only:
        trials = EXPERIMENTS[name].trials(lab.protocol.name, splits, lab)
        if methods is not None:
            known = {trial.method for trial in trials}
            unknown = sorted(set(methods) - known)
            if unknown:
                raise ValueError(f"--methods {', '.join(unknown)}: {name} has {', '.join(sorted(known))}")
            trials = [trial for trial in trials if trial.method in methods]
        console.print(f"{name} on {lab.protocol.name}: {EXPERIMENTS[name].about}", markup=False)
        console.print(str(lab.budget), markup=False)
        if threads is not None:
            torch.set_num_threads(threads)
        done = len(trials) - len(missing_trials(trials, read_records(path), lab.budget))
        with GridBar(f"{name}, {lab.protocol.name}", len(trials), done=done, enabled=progress) as bar:
            run_grid(trials, lab, path, workers=workers, on_record=bar.tell)
    records = [record for record in read_records(path) if record["budget"] == budget]
    if not records:
        raise FileNotFoundError(f"{path} has no results with the budget {budget}: run the experiment first")
    return {"results": str(path), **write(name, records, lab.protocol.name, lab.budget, folder)}


def write(name: str, records: Sequence[Record], dataset: str, budget: Budget, folder: Path) -> dict[str, Any]:
    """Write the table in Markdown and CSV and the figure in PNG and SVG; return where they are."""
    written: dict[str, Any] = {}
    stem = folder / name
    figure = figure_of(name, records, dataset)
    lines = [f"# {name}, {dataset}", "", EXPERIMENTS[name].about, "", command_of(name, records, dataset, budget)]
    if figure is not None:
        written["figures"] = [str(path) for path in save(figure, stem)]
        lines += ["", f"![{EXPERIMENTS[name].about}]({name}.png)"]
    table = table_of(name, records, dataset)
    if table is not None:
        lines += ["", table.markdown().rstrip()]
        write_text(stem.with_name(f"{name}.csv"), table.csv())
        written["csv"] = str(stem.with_name(f"{name}.csv"))
    elif name in SAYS:
        lines += ["", f"The paper: {SAYS[name]}."]
    write_text(stem.with_name(f"{name}.md"), "\n".join(lines) + "\n")
    return {"table": str(stem.with_name(f"{name}.md")), **written}


def command_of(name: str, records: Sequence[Record], dataset: str, budget: Budget) -> str:
    """Return the command and the commits behind the numbers."""
    splits = 1 + max(record["split"] for record in records)
    commits = sorted({str(record["commit"]) for record in records})
    paper = PROTOCOLS[dataset].paper
    about = f"{budget.name}: {budget.test_tasks} piles a split" if name == "worth" else str(budget)
    stands = f" ({dataset} is, or stands in for, the paper's {paper})" if paper else ""
    return (
        f"    metaclust experiment {name} --dataset {dataset} --splits {splits} --budget {budget.name}\n\n"
        f"{len(records)} lines in {name}.jsonl, commit {', '.join(commits)}{stands}. Budget {about}."
    )


class GridBar(Bar):
    """The progress of the whole grid."""

    def tell(self, record: Record) -> None:
        """Count a trial that has ended."""
        ari = record.get("test", {}).get("ari")
        last = f"{record['method']}, split {record['split']}" + ("" if ari is None else f": ARI {ari:.3f}")
        self.advance(facts=last)
