"""Known and new categories, labels of some rows, links and updates on the command line."""

import csv
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import run

from metaclust import Clustering
from metaclust.data.readers.tables import read_pairs
from metaclust.data.rows import DataError

WIDTH = 5
SETTINGS = ("--pretrain-steps", 20, "--encoder", "residual", "-q")


def write_rows(path: Path, categories: list[int], rows: int, seed: int, labelled: int = 0) -> pl.DataFrame:
    """A table of far-apart categories; the first so many rows of each have their label."""
    means = 7 * np.random.default_rng(11).normal(size=(99, WIDTH))
    index = np.repeat(categories, rows)
    x = means[index] + np.random.default_rng(seed).normal(size=(len(index), WIDTH))
    topic = [f"c{c}" if place % rows < labelled else "" for place, c in enumerate(index)]
    frame = pl.DataFrame({"id": [f"{path.stem}-{i}" for i in range(len(x))]})
    frame = frame.with_columns(*(pl.Series(f"x{i}", x[:, i]) for i in range(WIDTH)), pl.Series("topic", topic))
    frame.write_csv(path)
    return frame


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("living")
    write_rows(folder / "known.csv", list(range(14)), 20, 0, labelled=20)
    assert run("train", folder / "known.csv", "--label", "topic", "--out", folder / "model", *SETTINGS).code == 0
    return folder / "model"


@pytest.fixture(scope="module")
def clustering(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    write_rows(folder / "one.csv", [0, 1, 2, 50, 51, 52], 10, 1)
    done = run("cluster", model, folder / "one.csv", "--save", folder / "saved", "--out", folder / "out.csv", "-q")
    assert done.code == 0, done.err
    return folder / "saved"


def test_the_table_says_which_rows_are_new(clustering: Path) -> None:
    found = pl.read_csv(clustering.parent / "out.csv")
    saved = Clustering.load(clustering)
    assert found.columns[:5] == ["id", "cluster", "name", "new", "confidence"]
    assert found["name"].to_list() == [saved.names[label] for label in saved.labels]
    assert found["new"].to_list() == saved.is_new[saved.labels].tolist()
    known = found["id"].str.split("-").list.last().cast(pl.Int64) < 30
    assert (found["new"] != known).mean() > 0.9


def test_known_categories_are_counted_or_ignored(model: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "pile.csv", [3, 4, 60, 61], 12, 2)
    facts = json.loads(run("cluster", model, tmp_path / "pile.csv", "--json", "-q").out)
    assert facts["known categories"] + facts["new categories"] == facts["clusters"]
    assert facts["rows of new categories"] < 48
    ignored = json.loads(run("cluster", model, tmp_path / "pile.csv", "--known", "ignore", "--json", "-q").out)
    assert "known categories" not in ignored


@pytest.mark.usefixtures("_without_type_checks")
def test_another_word_for_what_is_known_is_refused(model: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "pile.csv", [3, 4], 5, 2)
    refused = run("cluster", model, tmp_path / "pile.csv", "--known", "maybe", "-q")
    assert refused.code != 0
    assert "known='maybe': it must be 'auto', 'use' or 'ignore'" in refused.err


def test_labels_and_links_of_files_hold(model: Path, tmp_path: Path) -> None:
    frame = write_rows(tmp_path / "pile.csv", [3, 4, 60, 61, 62], 12, 2, labelled=2)
    (tmp_path / "must.csv").write_text("one,two\npile-5,pile-30\n\n")
    (tmp_path / "cannot.tsv").write_text("one\ttwo\tnote\npile-40\tpile-41\tno\n")
    done = run(
        *("cluster", model, tmp_path / "pile.csv", "--partial-label", "topic", "--out", tmp_path / "out.csv", "-q"),
        *("--must-link", tmp_path / "must.csv", "--cannot-link", tmp_path / "cannot.tsv"),
    )
    assert done.code == 0, done.err
    found = pl.read_csv(tmp_path / "out.csv").join(frame, on="id", suffix="_in", validate="1:1")
    said = found.filter(pl.col("topic_in") != "")
    assert (said["name"] == said["topic_in"]).all()
    cluster = dict(zip(found["id"], found["cluster"], strict=True))
    assert cluster["pile-5"] == cluster["pile-30"]
    assert cluster["pile-40"] != cluster["pile-41"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--partial-label", "topic", "--label", "x0"), "--partial-label topic: labels are read from one column; omit"),
        (("--must-link", "missing.csv"), "missing.csv: there is no such file"),
        (("--must-link", "pile.parquet"), "pile.parquet: give a .csv or .tsv file with a header and two columns"),
        (("--engine", "local", "--partial-label", "topic"), "--partial-label"),
    ],
)
def test_what_cannot_be_said_is_refused(
    model: Path, tmp_path: Path, options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "pile.csv", [3, 4], 5, 2)
    done = run("cluster", model, "pile.csv", *options, "-q")
    assert done.code != 0
    assert message in done.err


def test_pairs_are_read_as_they_are_written(tmp_path: Path) -> None:
    rows = [["007", "a,b"], [" 1 ", 'say "x"']]
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["one", "two"], *rows])
    assert read_pairs(tmp_path / "pairs.csv") == [["007", "a,b"], ["1", 'say "x"']]
    (tmp_path / "short.csv").write_text("one,two\na,b\nc,\n")
    with pytest.raises(DataError, match=r"^short.csv: pair 1 below the header lacks an id: give two in each line$"):
        read_pairs(tmp_path / "short.csv")


def test_further_rows_join_the_clusters_and_the_file_is_written_anew(clustering: Path, tmp_path: Path) -> None:
    before = clustering.read_bytes()
    old = Clustering.load(clustering)
    frame = write_rows(tmp_path / "two.csv", [0, 50, 70], 6, 3)
    done = run("update", clustering, tmp_path / "two.csv", "--save", tmp_path / "new", "--out", tmp_path / "out.csv")
    assert done.code == 0, done.err
    assert clustering.read_bytes() == before
    new = Clustering.load(tmp_path / "new")
    assert new.labels[:60].tolist() == old.labels.tolist()
    assert new.names[: old.n_clusters] == old.names
    assert new.ids == [*old.ids, *frame["id"]]
    table = pl.read_csv(tmp_path / "out.csv")
    assert table["id"].to_list() == frame["id"].to_list()
    assert table["cluster"].to_list() == new.labels[60:].tolist()
    assert table["x0"].to_list() == frame["x0"].to_list()
    assert (new.labels[72:] >= old.n_clusters).mean() > 0.8


def test_several_files_may_replace_the_clustering(clustering: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.write_bytes(clustering.read_bytes())
    for number in (1, 2):
        write_rows(tmp_path / f"{number}.csv", [0, 51], 4, number)
    done = run("update", saved, tmp_path / "1.csv", tmp_path / "2.csv", "--in-place", "--json", "-q")
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"] == 76
    assert len(Clustering.load(saved)) == 76


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "update writes a clustering file: name it with --save, or replace the old one with --in-place"),
        (("--save", "other", "--in-place"), "--save other: omit it, or omit --in-place"),
        (("one.csv", "--in-place", "--out", "out.csv"), "--out holds the rows of one file"),
        (("--save", "one.csv"), "one.csv"),
    ],
)
def test_an_update_that_cannot_be_written_is_refused(
    clustering: Path, tmp_path: Path, options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = clustering.read_bytes()
    Path("saved").write_bytes(content)
    write_rows(tmp_path / "one.csv", [0, 51], 4, 1)
    done = run("update", "saved", "one.csv", *options, "-q")
    assert done.code != 0
    assert message in done.err
    assert Path("saved").read_bytes() == content


@pytest.mark.filterwarnings("default::metaclust.DataWarning")
def test_rows_that_are_there_already_are_not_counted_twice(clustering: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.write_bytes(clustering.read_bytes())
    write_rows(tmp_path / "two.csv", [0, 51], 4, 2)
    for rows in (68, 68):
        done = run("update", saved, tmp_path / "two.csv", "--in-place", "--json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["rows"] == rows
    assert "8 of 8 rows are in the clustering already, by their ids, and left out: 'two-0'" in done.err
    refused = run("update", saved, tmp_path / "two.csv", "--in-place", "--out", tmp_path / "out.csv", "-q")
    assert refused.code != 0
    assert "has all of these rows already: omit --out and --report, or add --again" in refused.err
    assert run("update", saved, tmp_path / "two.csv", "--in-place", "--again", "-q").code == 0
    assert len(Clustering.load(saved)) == 76


def test_a_link_to_a_clustering_stays_a_link(clustering: Path, tmp_path: Path) -> None:
    saved, link = tmp_path / "saved", tmp_path / "link"
    saved.write_bytes(clustering.read_bytes())
    link.symlink_to(saved)
    write_rows(tmp_path / "two.csv", [0, 51], 4, 2)
    assert run("update", link, tmp_path / "two.csv", "--in-place", "-q").code == 0
    assert link.is_symlink()
    assert len(Clustering.load(saved)) == 68


def test_contradictory_pairs_are_named_by_their_ids(model: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "pile.csv", [3, 4], 5, 2)
    for name in ("must", "cannot"):
        (tmp_path / f"{name}.csv").write_text("one,two\npile-1,pile-2\n")
    links = ("--must-link", tmp_path / "must.csv", "--cannot-link", tmp_path / "cannot.csv")
    refused = run("cluster", model, tmp_path / "pile.csv", *links, "-q")
    assert refused.code != 0
    assert "cannot_link: rows 'pile-1' and 'pile-2' have to be apart, but must_link puts them together" in refused.err
