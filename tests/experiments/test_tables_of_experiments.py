"""Tables and figures from records that are made up, so that every number in them is known."""

import csv
import io

import numpy as np
import pytest
from scipy.stats import ttest_rel

from metaclust.experiments import paper
from metaclust.experiments.figures import figure_of, save
from metaclust.experiments.tables import probability, table_of
from metaclust.experiments.trials import ABLATIONS, EXPERIMENTS
from metaclust.training.evaluation import mean_error


def record(experiment, method, split, ari, *, s=10, t=10, steps=None, number=578, **more):
    setting = {"s": s, "t": t, "categories": None, "test_steps": steps}
    scores = {"ari": ari, "ari_error": 0.01, "k_error": 0.5, "tasks": 100}
    return {
        "experiment": experiment,
        "dataset": "omniglot",
        "method": method,
        "split": split,
        "setting": setting,
        "test": scores,
        "own_start": {**scores, "ari": ari - 0.1},
        "training_categories": number,
        **more,
    }


def rows_of(table):
    return list(csv.DictReader(io.StringIO(table.csv())))


def test_table1_has_means_errors_significance_and_the_papers_results():
    ours, proto, given_k = [0.91, 0.90, 0.93], [0.80, 0.81, 0.79], [0.97, 0.98, 0.99]
    records = [
        record("table1", method, split, ari)
        for method, aris in (("ours", ours), ("proto", proto), ("ours + kmeans-true-k", given_k))
        for split, ari in enumerate(aris)
    ]
    table = table_of("table1", records, "omniglot")
    first, second, third = rows_of(table)
    assert float(first["ari"]) == pytest.approx(np.mean(ours))
    assert float(first["standard_error"]) == pytest.approx(np.std(ours, ddof=1) / np.sqrt(3))
    assert float(first["paper"]) == 0.869
    assert float(second["p_against_ours"]) == pytest.approx(ttest_rel(ours, proto).pvalue)
    assert third["method"] == "ours + kmeans-true-k"
    text = table.markdown()
    # Ours is the best: what is given K is not ranked.
    assert "| Ours | **0.913 ± 0.009** | 0.50 | 0.813 |" in text
    assert "| Proto | 0.800 ± 0.006 |" in text
    assert "| Ours + KMeans, given K | 0.980 ± 0.006 |" in text


def test_the_ablation_has_both_widths_and_both_kinds_of_inference():
    records = [
        record("ablation", method, split, 0.8 - 0.02 * i - (0.2 if s == 2 else 0) + 0.01 * split * (i % 2), s=s)
        for s in (10, 2)
        for i, method in enumerate(ABLATIONS)
        for split in range(3)
    ]
    text = table_of("ablation", records, "omniglot").markdown()
    line = next(line for line in text.splitlines() if line.startswith("| w/o f_R"))
    assert "0.835 ± 0.023" in line
    assert "0.582 ± 0.008" in line
    assert line.count("|") == 8
    assert "**0.800 ± 0.000** | **0.700 ± 0.000** | 0.869 ± 0.009" in text


@pytest.mark.parametrize(
    ("experiment", "vary"),
    [
        ("vb-steps-train", lambda value: {"t": value}),
        ("vb-steps-test", lambda value: {"steps": value}),
        ("categories", lambda value: {"number": value}),
    ],
)
def test_curves_are_ordered_by_what_varies(experiment, vary, tmp_path):
    records = [
        record(experiment, "ours", split, 0.5 + value / 100, **vary(value)) for value in (10, 1, 3) for split in (0, 1)
    ]
    table = table_of(experiment, records, "omniglot")
    assert [row[0] for row in table.rows] == ["1", "3", "10"]
    assert [row[1][:5] for row in table.rows] == ["0.510", "0.530", "0.600"]
    assert [row[2][:5] for row in table.rows] == ["0.410", "0.430", "0.500"]
    assert paper.SAYS[experiment] in table.markdown()
    png, svg = save(figure_of(experiment, records, "omniglot"), tmp_path / experiment)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_text().lstrip().startswith("<?xml")
    before = png.read_bytes(), svg.read_bytes()
    save(figure_of(experiment, records, "omniglot"), tmp_path / experiment)
    assert (png.read_bytes(), svg.read_bytes()) == before


def test_the_time_of_ours_holds_that_of_the_proto_it_begins_with():
    seconds = {"training_seconds": 20.0, "test_seconds_a_task": 0.1}
    records = [
        record("time", "proto", 0, 0.8, **seconds, step_seconds=0.04, proto_step_seconds=0.04, step_ratio=1.0),
        record("time", "ours", 0, 0.9, **seconds, step_seconds=0.05, proto_step_seconds=0.04, step_ratio=1.25),
        record("time", "pca", 0, 0.3, **seconds),
    ]
    ours, proto, pca = rows_of(table_of("time", records, "omniglot"))
    assert (float(ours["training_seconds"]), float(proto["training_seconds"])) == (40.0, 20.0)
    assert float(ours["step_ratio_to_proto"]) == 1.25
    assert float(ours["paper_ratio_to_proto"]) == pytest.approx(23564 / 7891)
    assert pca["step_ratio_to_proto"] == ""


def test_t_sne_has_a_figure_and_no_table(tmp_path):
    maps = [
        {"task": i, "points": np.random.default_rng(i).normal(size=(30, 2)).tolist(), "labels": [0, 1, 2] * 10}
        | {"categories": ["a", "b", "c"]}
        for i in range(2)
    ]
    records = [record("tsne", method, 0, 0.5, maps=maps) for method in ("ours", "proto", "ae", "triplet")]
    assert table_of("tsne", records, "omniglot") is None
    assert len(save(figure_of("tsne", records, "omniglot"), tmp_path / "tsne")) == 2


def test_one_split_has_no_error_and_no_significance():
    mean, error = mean_error([0.5])
    assert mean == 0.5
    assert np.isnan(error)
    assert probability({0: 0.9}, {0: 0.1}) == 0.0
    table = table_of("table1", [record("table1", "ours", 0, 0.9), record("table1", "proto", 0, 0.8)], "omniglot")
    assert "| Ours | **0.900** |" in table.markdown()


def test_the_papers_tables_are_complete():
    assert {len(row) for row in paper.TABLE1.values()} == {9}
    assert {len(row) for row in paper.ABLATION.values()} == {5}
    for (dataset, s), row in paper.ABLATION.items():
        if s == 10:
            assert row["ours"][0] == paper.TABLE1[dataset]["ours"]
    assert set(paper.SAYS) < set(EXPERIMENTS)
