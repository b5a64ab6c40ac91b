"""Tables of results: Markdown for reading, CSV for further use."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_rel

from metaclust.experiments import paper
from metaclust.experiments.methods import METHODS
from metaclust.experiments.problems import protocol_of
from metaclust.experiments.records import Record
from metaclust.experiments.trials import ABLATIONS, TABLE1, TABLE1_BASELINES, TIMED, WITH_BASELINES
from metaclust.experiments.worth import TESTS, facts
from metaclust.inference.baselines import BASELINES
from metaclust.training.evaluation import mean_error, mean_error_text

SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class ResultsTable:
    """The entries of a table as text, and the same as numbers."""

    header: list[str]
    rows: list[list[str]]
    numbers: list[dict[str, Any]]
    notes: list[str]

    def markdown(self) -> str:
        lines = [f"| {' | '.join(self.header)} |", "|---" * len(self.header) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)]) + "\n"

    def csv(self) -> str:
        text = io.StringIO()
        fields = list(dict.fromkeys(key for row in self.numbers for key in row))
        writer = csv.DictWriter(text, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.numbers)
        return text.getvalue()


def title_of(method: str) -> str:
    """Return the name of a method in tables."""
    name, _, baseline = method.partition(" + ")
    return METHODS[name].title + (f" + {BASELINES[baseline].title}" if baseline else "")


def is_given_k(method: str) -> bool:
    """Return whether a method is given the number of categories: an upper mark that is not ranked with the others."""
    _, _, baseline = method.partition(" + ")
    return bool(baseline) and BASELINES[baseline].given_k


def by_split(records: Sequence[Record], kind: str = "test", score: str = "ari") -> dict[int, float]:
    """Return a score of each split."""
    return {record["split"]: record[kind][score] for record in records if kind in record}


def shown(values: Sequence[float], bold: bool = False) -> str:
    """Return the mean and standard error as text."""
    text = mean_error_text(values)
    return f"**{text}**" if bold else text


def split_scores(record: Record) -> dict[str, Any]:
    """Return the scores of one split, for the table of numbers."""
    test, own = record["test"], record["own_start"]
    return {"split": record["split"], "ari": test["ari"], "own_start_ari": own["ari"], "k_error": test["k_error"]}


def formatted(facts: dict[str, Any], forms: dict[str, str]) -> list[str]:
    """Return some of the facts as text by their format specifications; those that are None are empty."""
    return ["" if facts[name] is None else format(facts[name], form) for name, form in forms.items()]


def not_worse(scores: dict[str, dict[int, float]]) -> set[str]:
    """Return the method with the best mean, and those not significantly different from it by a paired t-test."""
    full = {name: values for name, values in scores.items() if values}
    if not full:
        return set()
    best = max(full, key=lambda name: float(np.mean(list(full[name].values()))))
    return {name for name, values in full.items() if name == best or probability(full[best], values) >= SIGNIFICANCE}


def probability(first: dict[int, float], second: dict[int, float]) -> float:
    """Return the p-value of the difference over splits (paired t-test, two-sided); 0 for fewer than two splits."""
    common = sorted(first.keys() & second.keys())
    a, b = (np.array([values[split] for split in common]) for values in (first, second))
    if len(common) < 2:
        return 0.0
    if np.allclose(a, b):
        return 1.0
    if np.ptp(a - b) == 0:
        return 0.0
    found: NDArray[np.float64] = ttest_rel(a, b).pvalue
    return float(found)


def table1(records: Sequence[Record], dataset: str) -> ResultsTable:
    """Return Table 1: rows are methods, with the paper's ARI beside ours."""
    published = paper.TABLE1.get(protocol_of(dataset).paper or "", {})
    order = [*TABLE1, *(f"{name} + {baseline}" for name in WITH_BASELINES for baseline in TABLE1_BASELINES)]
    groups = {method: [record for record in records if record["method"] == method] for method in order}
    groups = {method: group for method, group in groups.items() if group}
    scores = {method: by_split(group) for method, group in groups.items()}
    most = max(len(values) for values in scores.values())
    # Rows whose splits are not all done are not ranked either.
    ranked = {name: values for name, values in scores.items() if not is_given_k(name) and len(values) == most}
    best = not_worse(ranked)
    rows: list[list[str]] = []
    numbers: list[dict[str, Any]] = []
    for method, group in groups.items():
        values = list(scores[method].values())
        own = [] if " + " in method else list(by_split(group, "own_start").values())
        mean, error = mean_error(values)
        compared = "ours" in scores and method != "ours" and len(values) > 1
        facts = {
            "method": method,
            "ari": mean,
            "standard_error": error,
            "k_error": float(np.mean(list(by_split(group, score="k_error").values()))),
            "own_start_ari": float(np.mean(own)) if own else None,
            "p_against_ours": probability(scores["ours"], scores[method]) if compared else None,
            "splits": len(values),
            "paper": published.get(method),
            **{f"split_{split}": ari for split, ari in sorted(scores[method].items())},
        }
        forms = {"k_error": ".2f", "own_start_ari": ".3f", "p_against_ours": ".2g", "splits": "d", "paper": ".3f"}
        rows.append([title_of(method), shown(values, method in best), *formatted(facts, forms)])
        numbers.append(facts)
    notes = [
        "Test ARI, mean and standard error over splits; in bold what is not significantly different (5%, paired t-test "
        "over splits) from the best. Rows given K are not ranked. K off: the mean of |K found - K|. Own start: "
        "T steps from the method's own start, the paper's inference; else ten starts to convergence, the best bound. "
        "p: of the difference to ours."
    ]
    header = ["method", "test ARI", "K off", "own start", "p", "splits", f"paper ({protocol_of(dataset).paper})"]
    return ResultsTable(header, rows, numbers, notes)


def ablation(records: Sequence[Record], dataset: str) -> ResultsTable:
    """Return the table of ablations: rows are methods, columns the width of z."""
    name = protocol_of(dataset).paper or ""
    header, rows, numbers = ["variant"], [], []
    groups = {
        (s, method): [r for r in records if r["method"] == method and r["setting"]["s"] == s]
        for s in (10, 2)
        for method in ABLATIONS
    }
    best = {
        (kind, s): not_worse({method: by_split(groups[s, method], kind) for method in ABLATIONS})
        for kind in ("test", "own_start")
        for s in (10, 2)
    }
    for s in (10, 2):
        header += [f"S = {s}: ten starts", f"S = {s}: own start", f"paper ({name})"]
    for method in ABLATIONS:
        row = [title_of(method)]
        for s in (10, 2):
            group = groups[s, method]
            published = paper.ABLATION.get((name, s), {}).get(method)
            for kind in ("test", "own_start"):
                values = list(by_split(group, kind).values())
                row.append(shown(values, method in best[kind, s]) if values else "")
            row.append("" if published is None else f"{published[0]:.3f} ± {published[1]:.3f}")
            numbers += [{"method": method, "s": s, **split_scores(record)} for record in group]
        rows.append(row)
    splits = len({record["split"] for record in records})
    notes = [
        f"Test ARI, mean and standard error over {splits} splits; bold as in the paper: not significantly different "
        "from the best of the column. Own start: T steps from the variant's own start, the paper's inference. Ten "
        "starts: nine more from k-means++ seeds, each to convergence, the best bound."
    ]
    return ResultsTable(header, rows, numbers, notes)


def curve(
    records: Sequence[Record], dataset: str, what: str, value: Callable[[Record], float | None], experiment: str
) -> ResultsTable:
    """Return a table over the one number that varies."""
    points = sorted({number for record in records if (number := value(record)) is not None})
    rows, numbers = [], []
    for point in points:
        group = [record for record in records if value(record) == point]
        both = [list(by_split(group, kind).values()) for kind in ("test", "own_start")]
        rows.append([f"{point:,}", *(shown(values) for values in both), str(len(group))])
        numbers += [{what: point, **split_scores(record)} for record in group]
    name = protocol_of(dataset).paper or ""
    note = f"Test ARI, mean and standard error over splits. The paper ({name}, a figure without numbers): "
    if name in paper.TABLE1:
        note += f"{paper.TABLE1[name]['ours']:.3f} at its settings; "
    return ResultsTable(
        [what, "ten starts", "own start", "splits"], rows, numbers, [f"{note}{paper.SAYS[experiment]}."]
    )


def time(records: Sequence[Record], dataset: str) -> ResultsTable:
    """Return the table of seconds, and their ratio to Proto's."""
    name = protocol_of(dataset).paper or ""
    published = paper.TIME.get(name, {})
    rows, numbers = [], []
    proto = [record["training_seconds"] for record in records if record["method"] == "proto"]
    for method in TIMED:
        group = [record for record in records if record["method"] == method]
        if not group:
            continue
        ratios = [record["step_ratio"] for record in group if "step_ratio" in record]
        step = [record["step_seconds"] for record in group if "step_seconds" in record]
        training = float(np.mean([record["training_seconds"] for record in group]))
        # Ours begins with a Proto that is trained already: its time counts too.
        begins = method in ("ours", "paper-recipe") and bool(proto)
        facts: dict[str, Any] = {
            "method": method,
            "training_seconds": training + (float(np.mean(proto)) if begins else 0.0),
            "step_seconds": float(np.median(step)) if step else None,
            "step_ratio_to_proto": float(np.median(ratios)) if ratios else None,
            "paper_ratio_to_proto": published[method] / published["proto"] if method in published else None,
            "paper_training_seconds": published.get(method),
            "test_seconds_a_task": float(np.mean([record["test_seconds_a_task"] for record in group])),
        }
        forms = {"step_ratio_to_proto": ".2f", "paper_ratio_to_proto": ".2f", "paper_training_seconds": ",.0f"}
        milliseconds = f"{1000 * facts['step_seconds']:.0f}" if step else ""
        others = formatted(facts, {**forms, "test_seconds_a_task": ".3f"})
        rows.append([title_of(method), f"{facts['training_seconds']:.0f}", milliseconds, *others])
        numbers.append(facts)
    header = ["method", "training, s", "step, ms", "step / Proto's", "paper: training / Proto's", "paper: training, s"]
    notes = [
        "Training: validation and, for ours, the Proto it begins with included. Step: the median over steps that were "
        "measured in turn with Proto's. VaDE is trained within the test. The paper's test seconds of ours: "
        f"{paper.TEST_SECONDS.get(name, '-')}."
    ]
    return ResultsTable([*header, "test of a task, s"], rows, numbers, notes)


def worth(records: Sequence[Record], dataset: str) -> ResultsTable:
    """Return the table of ours and Proto with the same encoder, pipeline and time."""
    numbers = [{"test": test, **facts(records, test), "splits": len(records)} for test in TESTS]
    forms = {"ours": ".3f", "proto": ".3f", "difference": "", "p": ".2g", "time": ".2f", "splits": "d"}
    rows = [[TESTS[one["test"]], *formatted(one, forms)] for one in numbers]
    header = ["test", "ours", "Proto", "ours - Proto", "p", "CPU time of Proto / ours", "splits"]
    note = (
        "Test ARI of unseen categories, no number given; the difference with its standard error over splits; p: of a "
        "paired t-test over all tasks."
    )
    return ResultsTable(header, rows, numbers, [note])


def table_of(experiment: str, records: Sequence[Record], dataset: str) -> ResultsTable | None:
    """Return the table of an experiment; t-SNE has none."""
    if experiment == "table1":
        return table1(records, dataset)
    if experiment == "ablation":
        return ablation(records, dataset)
    if experiment == "time":
        return time(records, dataset)
    if experiment == "worth":
        return worth(records, dataset)
    if experiment in AXES:
        what, value = AXES[experiment]
        return curve(records, dataset, what, value, experiment)
    return None


AXES: dict[str, tuple[str, Callable[[Record], float | None]]] = {
    "vb-steps-train": ("steps in training", lambda record: record["setting"]["t"]),
    "vb-steps-test": ("steps at the test", lambda record: record["setting"]["test_steps"]),
    "categories": ("training categories", lambda record: record["training_categories"]),
}
