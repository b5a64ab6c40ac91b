"""train, cluster and evaluate: from files to a model, to tables, and the same as from Python."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest
from commands import run, write_numbers
from PIL import Image

from metaclust import Clustering, DataWarning, MetaClusterer, read_data

WORDS = [
    "river",
    "stone",
    "apple",
    "cloud",
    "engine",
    "violin",
    "harbour",
    "candle",
    "forest",
    "copper",
    "garden",
    "sea",
]
READ = {"csv": pl.read_csv, "jsonl": pl.read_ndjson, "parquet": pl.read_parquet}


def write_images(path, categories, rows=6):
    """Each category is a pattern of 4 by 4 squares."""
    for category in categories:
        drawn = np.random.default_rng([2, category])
        (path / f"k{category}").mkdir(parents=True)
        pattern = 200 * drawn.integers(0, 2, (4, 4)).repeat(4, 0).repeat(4, 1)
        for i in range(rows):
            pixels = np.clip(pattern + drawn.normal(0, 15, (16, 16)), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(path / f"k{category}" / f"{i}.png")
    return path


def write_texts(path, categories, rows=8):
    """Each category has three words of the same twelve."""
    lines = []
    for category in categories:
        drawn = np.random.default_rng([4, category])
        own = drawn.choice(WORDS, 3, replace=False)
        lines += [{"text": " ".join(drawn.choice(own, 9)), "kind": f"k{category}"} for _ in range(rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


KINDS = {
    "numbers": (write_numbers, ".csv", ("--label", "kind"), 30),
    "images": (write_images, "", (), 60),
    "text": (write_texts, ".jsonl", ("--label", "kind"), 150),
}


class Trained:
    """A model of one kind that the command line trained, and data of categories it has not seen."""

    def __init__(self, kind, folder):
        write, ending, self.label, steps = KINDS[kind]
        self.known = write(folder / f"known{ending}", range(7))
        self.new = write(folder / f"new{ending}", range(7, 11))
        self.model = folder / "model.safetensors"
        settings = ("--pretrain-steps", steps, "--steps", 1, "--encoder", "network", "--choose", "bound")
        self.printed = run("train", self.known, *self.label, "--out", self.model, *settings, "--json")

    @cache  # noqa: B019 - three models, each as long as its tests
    def clustering(self, **changes):
        """The same from Python."""
        model = MetaClusterer.load(self.model).set_params(progress=False, **changes)
        label = self.label[1] if self.label else None
        return model.cluster(read_data(self.new, label=label, like=model.preparation_, progress=False))


@pytest.fixture(scope="module", params=KINDS)
def trained(request, tmp_path_factory):
    return Trained(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    return Trained("numbers", tmp_path_factory.mktemp("numbers"))


def test_train_writes_a_model_and_says_what_it_learned_from(trained):
    code, out, err = trained.printed
    facts = json.loads(out)
    assert code == 0
    assert facts["model"] == str(trained.model)
    assert facts["categories"] == 7
    assert facts["rows"] == len(read_data(trained.known, progress=False))
    assert MetaClusterer.load(trained.model).categories_ == [f"k{i}" for i in range(7)]
    assert "If this is interrupted, resume with: metaclust train" in err
    assert not trained.model.with_name(f"{trained.model.name}.run").exists()


@pytest.mark.parametrize("ending", READ)
def test_the_table_of_clusters_is_what_python_gives(trained, ending, tmp_path):
    table = tmp_path / f"clusters.{ending}"
    code, out, _ = run("cluster", trained.model, trained.new, *trained.label, "--out", table, "--json")
    facts, frame, expected = json.loads(out), READ[ending](table), trained.clustering()
    assert code == 0
    assert expected.n_clusters > 1
    # What came in is beside the result: the columns of tables, here without that of the ids.
    came = [*"abcd", "kind"] if trained.new.suffix == ".csv" else ["text", "kind"] if trained.new.suffix else []
    assert frame.columns == [
        "id",
        "cluster",
        "name",
        "new",
        "confidence",
        "unsure",
        "novelty",
        "outlier",
        "category",
        *came,
    ]
    assert frame["id"].cast(pl.String).to_list() == expected.ids
    assert frame["cluster"].to_list() == expected.labels.tolist()
    assert frame["confidence"].to_list() == expected.confidence.tolist()
    assert frame["unsure"].to_list() == expected.unsure.tolist()
    assert frame["category"].to_list() == expected.categories
    assert facts == {
        "clusters": expected.n_clusters,
        "rows": len(expected),
        "sizes": expected.sizes.tolist(),
        "unsure rows": int(expected.unsure.sum()),
        **expected.scores(),
        "table": str(table),
    }
    assert [path.name for path in tmp_path.iterdir()] == [table.name]


def test_assign_gives_the_clusters_of_python_to_further_rows(trained, tmp_path):
    clustering, table = tmp_path / "new.clustering", tmp_path / "clusters.csv"
    assert run("cluster", trained.model, trained.new, *trained.label, "--save", clustering).code == 0
    code, out, _ = run("assign", clustering, trained.known, *trained.label, "--out", table, "--json")
    facts, frame = json.loads(out), pl.read_csv(table)
    loaded = Clustering.load(clustering)
    label = trained.label[1] if trained.label else None
    rows = read_data(trained.known, label=label, like=loaded.model.preparation_, progress=False)
    expected = loaded.assign(rows)
    assert code == 0
    assert frame["cluster"].to_list() == expected.labels.tolist()
    assert frame["confidence"].to_list() == pytest.approx(expected.confidence.tolist())
    scores = {name: value for name, value in expected.scores().items() if name != "k_error"}
    assert facts == {
        "clusters": expected.n_clusters,
        "clusters with rows": len(set(expected.labels.tolist())),
        "rows": len(rows),
        "sizes": expected.sizes.tolist(),
        "unsure rows": int(expected.unsure.sum()),
        **scores,
        "table": str(table),
    }


def test_rows_below_the_confidence_that_is_asked_for_are_unsure(numbers, tmp_path):
    clustering, table, again = (tmp_path / name for name in ("new.clustering", "clusters.jsonl", "again.clustering"))
    assert run("cluster", numbers.model, numbers.new, "--save", clustering).code == 0
    options = ("--confidence", 0.99, "--out", table, "--save", again, "--report", tmp_path / "more.html")
    assert run("assign", clustering, numbers.known, *options, "-q").code == 0
    frame = pl.read_ndjson(table)
    assert frame["unsure"].to_list() == [confidence < 0.99 for confidence in frame["confidence"]]
    assert Clustering.load(again).labels.tolist() == frame["cluster"].to_list()
    assert (tmp_path / "more.html").exists()


def test_assign_says_what_is_wrong(numbers, tmp_path):
    clustering = tmp_path / "new.clustering"
    assert run("cluster", numbers.model, numbers.new, "--save", clustering).code == 0
    for options, message in (
        (("--confidence", 2), "--confidence 2.0: it must be at least 0 and at most 1"),
        (
            ("--embedding-model", "x"),
            "embedding_model='x': " + str(clustering) + " has no sentence embeddings; omit it",
        ),
        (("--out", clustering), "would be overwritten: choose another path"),
    ):
        code, out, err = run("assign", clustering, numbers.known, *options)
        assert (code, out) == (2, "")
        assert message in err
    replace(Clustering.load(clustering), model=None).save(tmp_path / "bare.clustering")
    code, _, err = run("assign", tmp_path / "bare.clustering", numbers.known)
    assert code == 2
    assert "was saved without its model" in err


def test_evaluate_gives_the_scores_of_the_clustering(trained):
    code, out, _ = run("evaluate", trained.model, trained.new, *trained.label, "--json")
    expected = trained.clustering()
    found = {"clusters": expected.n_clusters, "categories": 4, "rows": len(expected)}
    assert code == 0
    assert json.loads(out) == {**found, **expected.scores()}


def test_another_process_finds_the_same_clusters(numbers, tmp_path):
    command = [sys.executable, "-m", "metaclust", "cluster", numbers.model, numbers.new, "--out", "c.csv"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)  # noqa: S603
    assert pl.read_csv(tmp_path / "c.csv")["cluster"].to_list() == numbers.clustering().labels.tolist()
    assert done.stdout.startswith(f"clusters     {numbers.clustering().n_clusters}\nrows         40\n")


def test_well_parted_categories_are_found_in_every_task(numbers):
    code, out, _ = run("evaluate", numbers.model, numbers.new, *numbers.label, "--tasks", 3, "--json", "-q")
    assert code == 0
    assert json.loads(out) == {"tasks": 3, "ari": 1.0, "nmi": 1.0, "acc": 1.0, "k_error": 0.0}


def test_evaluate_says_which_categories_were_seen_in_training(numbers):
    code, out, _ = run("evaluate", numbers.model, numbers.known, *numbers.label, "--json")
    assert code == 0
    assert json.loads(out)["seen in training"] == "7 of 7 categories"


def test_settings_of_the_command_reach_the_clustering(numbers):
    options = ("--min-cluster-size", 15, "--restarts", 3, "--confidence", 1, "--seed", 5, "--max-clusters", 9)
    code, out, _ = run("cluster", numbers.model, numbers.new, *options, "--json", "--quiet")
    expected = numbers.clustering(min_cluster_size=15, restarts=3, confidence=1.0, seed=5, max_clusters=9)
    facts = json.loads(out)
    assert code == 0
    assert expected.about["restarts"] == 3
    assert expected.about["max_clusters"] == 9
    assert facts["sizes"] == expected.sizes.tolist()
    assert min(facts["sizes"]) >= 15
    assert facts["unsure rows"] == int((expected.confidence < 1).sum())
    assert "ari" not in facts


def test_a_saved_clustering_and_a_report_are_written(numbers, tmp_path):
    saved, report = tmp_path / "saved.safetensors", tmp_path / "report.html"
    code, out, _ = run("cluster", numbers.model, numbers.new, "--save", saved, "--report", report, "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["clustering"], facts["report"]) == (str(saved), str(report))
    assert report.stat().st_size > 0
    loaded = Clustering.load(saved)
    assert loaded.labels.tolist() == numbers.clustering().labels.tolist()
    assert loaded.assign(read_data(numbers.new, progress=False)).labels.tolist() == loaded.labels.tolist()


def test_train_is_told_which_columns_to_use(numbers, tmp_path):
    out = tmp_path / "m.safetensors"
    settings = (
        "--choose",
        "bound",
        "--pretrain-steps",
        1,
        "--steps",
        0,
        "--max-clusters",
        4,
        "--seed",
        3,
        "--label",
        "kind",
    )
    assert run("train", numbers.known, "--columns", "d,b", "--out", out, *settings).code == 0
    model = MetaClusterer.load(out)
    assert model.preparation_.columns == ("d", "b")
    assert (model.max_clusters, model.seed, model.pretrain_steps, model.steps) == (4, 3, 1, 0)


def test_quiet_commands_print_nothing_on_standard_error(numbers, tmp_path):
    settings = ("--choose", "bound", "--pretrain-steps", 1, "--steps", 1, *numbers.label)
    for command in (
        ("train", numbers.known, "--out", tmp_path / "m.safetensors", *settings),
        ("cluster", numbers.model, numbers.new, "--out", tmp_path / "c.csv", "--report", tmp_path / "r.html"),
        ("evaluate", numbers.model, numbers.new, *numbers.label),
    ):
        code, out, err = run(*command, "--quiet")
        assert (code, err) == (0, "")
        assert out.endswith("\n")


@pytest.mark.filterwarnings("default::metaclust.DataWarning")
def test_the_examples_of_the_help_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"tickets": range(7), "new": range(7, 11), "more": range(7, 11), "labelled": range(7, 11)}
    for name, categories in names.items():
        texts = pl.read_ndjson(write_texts(tmp_path / "texts.jsonl", categories))
        texts.rename({"kind": "topic"}).write_csv(f"{name}.csv")
    pl.DataFrame({"zip": [10115, 20095] * 9, "segment": ["a", "b", "b"] * 6, "n": range(18)}).write_csv("customers.csv")
    (tmp_path / "shards").mkdir()
    pl.read_csv("new.csv").write_parquet("shards/part-0.parquet")
    short = ("--pretrain-steps", 5, "--steps", 1, "--encoder", "network", "--choose", "bound")
    for command in (("train",), ("data", "show"), ("cluster",), ("assign",), ("evaluate",)):
        for line in run(*command, "--help").out.partition("Example")[2].splitlines():
            start, name, arguments = line.partition("metaclust ")
            if name and "torchrun" not in start:
                printed = run(*shlex.split(arguments), *(short if command == ("train",) else ()))
                assert printed.code == 0, printed.err
    written = {path.name for path in tmp_path.iterdir()}
    assert {"tickets.safetensors", "clusters.csv", "clusters.html", "labels", "more-clusters.csv"} <= written


def test_quiet_suppresses_warnings_and_only_where_it_is_given(numbers):
    command = ("cluster", numbers.model, numbers.new, "--max-clusters", 2)
    assert run(*command, "-q").err == ""
    # Here warnings are errors, unless a quiet command has changed that for good.
    with pytest.raises(DataWarning, match="all 2 clusters are in use"):
        run(*command)


def test_steps_that_are_not_given_are_those_of_the_estimator(numbers, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(MetaClusterer, "fit", lambda self, *_, **__: given.append(self.get_params()) or self)
    monkeypatch.setattr(MetaClusterer, "save", lambda *_: pytest.fail("stop here"))
    for options in ((), ("--steps", 3), ("--pretrain-steps", 0)):
        with pytest.raises(pytest.fail.Exception, match="stop here"):
            run("train", numbers.known, *numbers.label, "--out", tmp_path / "m", *options, "-q")
    default = MetaClusterer().get_params()
    names = ("pretrain_steps", "steps", "text", "seed")
    assert [{name: one[name] for name in names if one[name] != default[name]} for one in given] == [
        {},
        {"steps": 3},
        {"pretrain_steps": 0},
    ]


def test_messages_are_on_standard_error_and_results_on_standard_output(numbers):
    code, out, err = run("cluster", numbers.model, numbers.new)
    assert code == 0
    assert "40 vectors of 4; numbers from columns 'a', 'b', 'c', 'd'" in err
    assert [line.split()[0] for line in out.splitlines()] == ["clusters", "rows", "sizes", "unsure"]


def test_a_warning_is_one_line_without_source_code(numbers):
    """In a process of its own: here warnings are errors."""
    command = [sys.executable, "-m", "metaclust", "cluster", numbers.model, numbers.new, "--max-clusters", "2"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    assert "all 2 clusters are in use, so there may be more" in done.stderr
    assert "return " not in done.stderr
    assert ".py" not in done.stderr
