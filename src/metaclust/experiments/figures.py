"""Figures of results, PNG and SVG. Needs matplotlib: pip install "metaclust[experiments]"."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metaclust._util.files import replacing
from metaclust.experiments import paper
from metaclust.experiments.problems import protocol_of
from metaclust.experiments.records import Record
from metaclust.experiments.tables import AXES, by_split, title_of
from metaclust.experiments.trials import SHOWN
from metaclust.training.evaluation import mean_error

BLUE, ORANGE, GREY = "#2f6db3", "#d2762b", "#777777"


def new_figure(columns: int = 1, rows: int = 1, size: tuple[float, float] = (5.6, 3.6)) -> tuple[Any, Any]:
    """Return a figure without a window, and its axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('figures need matplotlib: pip install "metaclust[experiments]"') from error
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure: Any, stem: Path) -> list[Path]:
    """Write both formats, without dates, so that the same figure is the same file."""
    from matplotlib import rc_context

    paths = []
    for ending, about in ((".png", {"Software": None}), (".svg", {"Date": None})):
        path = stem.with_name(stem.name + ending)
        with replacing(path) as unfinished, rc_context({"svg.hashsalt": "metaclust"}):
            figure.savefig(unfinished, format=ending[1:], dpi=150, metadata=about)
        paths.append(path)
    return paths


def curve_figure(experiment: str, records: Sequence[Record], dataset: str) -> Any:
    """Plot the test ARI over one number, with standard errors, and the paper's ARI as a line."""
    what, value = AXES[experiment]
    points = sorted({number for record in records if (number := value(record)) is not None})
    figure, axes = new_figure()
    axis = axes[0, 0]
    lines = (("test", "ten starts, to convergence", BLUE, "o"), ("own_start", "own start, T steps", ORANGE, "s"))
    if experiment == "vb-steps-test":
        lines = (("test", "the best of ten starts", BLUE, "o"), ("own_start", "from the own start", ORANGE, "s"))
    for kind, label, colour, mark in lines:
        found = [
            mean_error(list(by_split([record for record in records if value(record) == point], kind).values()))
            for point in points
        ]
        means, errors = np.array(found).T
        axis.errorbar(points, means, np.nan_to_num(errors), label=label, color=colour, marker=mark, capsize=3)
    name = protocol_of(dataset).paper or ""
    if name in paper.TABLE1:
        axis.axhline(
            paper.TABLE1[name]["ours"], color=GREY, linestyle=":", label=f"the paper's {name}, at its settings"
        )
    axis.set_xscale("log")
    axis.set_xticks(points, [f"{point:,}" for point in points])
    axis.minorticks_off()
    axis.set_xlabel(what)
    axis.set_ylabel("test ARI")
    axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]), top=1.0)
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize="small")
    return figure


def bars(records: Sequence[Record], dataset: str) -> Any:
    """Plot Table 1 as bars, with the paper's results beside ours."""
    published = paper.TABLE1.get(protocol_of(dataset).paper or "", {})
    methods = [name for name in published or () if any(record["method"] == name for record in records)]
    methods = methods or list(dict.fromkeys(record["method"] for record in records if " + " not in record["method"]))
    found = [
        mean_error(list(by_split([record for record in records if record["method"] == method]).values()))
        for method in methods
    ]
    means, errors = np.array(found).T
    figure, axes = new_figure(size=(7.2, 3.4))
    axis = axes[0, 0]
    place = np.arange(len(methods))
    axis.bar(place - 0.2, means, 0.38, yerr=np.nan_to_num(errors), color=BLUE, label=f"here, {dataset}", capsize=2)
    if published:
        values = [published[method] for method in methods]
        axis.bar(place + 0.2, values, 0.38, color=GREY, label=f"the paper, {protocol_of(dataset).paper}")
    axis.set_xticks(place, [title_of(method) for method in methods])
    axis.set_ylabel("test ARI")
    axis.set_ylim(0, 1)
    axis.grid(axis="y", alpha=0.25)
    axis.legend(frameon=False)
    return figure


def maps(records: Sequence[Record], dataset: str) -> Any:
    """Plot the t-SNE maps of two test tasks, one row each, the methods side by side; colour is the category."""
    chosen = [record for name in SHOWN for record in records if record["method"] == name]
    tasks = len(chosen[0]["maps"])
    figure, axes = new_figure(len(chosen), tasks, (2.6 * len(chosen), 2.7 * tasks))
    for column, record in enumerate(chosen):
        for row, one in enumerate(record["maps"]):
            axis = axes[row, column]
            points = np.array(one["points"])
            axis.scatter(points[:, 0], points[:, 1], c=one["labels"], cmap="tab10", vmin=0, vmax=9, s=9, linewidths=0)
            axis.set_xticks([])
            axis.set_yticks([])
            if row == 0:
                axis.set_title(title_of(record["method"]))
            if column == 0:
                axis.set_ylabel(f"task {row + 1}: {len(one['categories'])} categories")
    return figure


def figure_of(experiment: str, records: Sequence[Record], dataset: str) -> Any | None:
    """Return the figure of an experiment; some have only a table."""
    if experiment in AXES:
        return curve_figure(experiment, records, dataset)
    if experiment == "tsne":
        return maps(records, dataset)
    if experiment == "table1":
        return bars(records, dataset)
    return None
