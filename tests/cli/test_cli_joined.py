"""Tables of clusters that are joined to what came in, and training tables with rows without a label."""

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from commands import run, write_numbers

from metaclust import Clustering, DataWarning, MetaClusterer, read_data
from metaclust.data.writers import write_table

SETTINGS = ("--pretrain-steps", 20, "--steps", 1, "--encoder", "network", "--choose", "bound", "-q")
READ = {"csv": pl.read_csv, "jsonl": pl.read_ndjson, "parquet": pl.read_parquet}
RESULT = ["id", "cluster", "name", "new", "confidence", "unsure", "novelty", "outlier"]
FEATURES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    known = write_numbers(folder / "known.csv", range(7))
    assert run("train", known, "--label", "kind", "--out", folder / "model", *SETTINGS).code == 0
    return folder / "model"


@pytest.fixture(scope="module")
def clustering(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clustering")
    write_numbers(folder / "new.csv", range(7, 11))
    assert run("cluster", model, folder / "new.csv", "--save", folder / "saved", "-q").code == 0
    return folder / "saved"


def table_of(folder: Path, ending: str) -> tuple[Path, pl.DataFrame]:
    """A table with columns of many types beside those of the model, and keys that are not in order."""
    frame = pl.read_csv(write_numbers(folder / "numbers.csv", range(7, 11))).drop("id", "kind")
    count = len(frame)
    frame = frame.with_columns(
        ticket=np.random.default_rng(0).permutation(count) + 100,
        note=pl.Series([None if i % 5 == 0 else f"line {i}, of\n{count}" for i in range(count)]),
        price=pl.Series([None if i % 7 == 0 else i / 4 for i in range(count)]),
        cluster=pl.Series([f"mine {i}" for i in range(count)]),
        open=pl.Series([i % 2 == 0 for i in range(count)]),
    )
    path = folder / f"table.{ending}"
    write_table(frame, path)
    return path, frame


@pytest.mark.parametrize("ending", READ)
@pytest.mark.parametrize("out", READ)
@pytest.mark.parametrize("command", ["cluster", "assign"])
def test_the_table_of_clusters_joins_to_the_one_that_came_in(
    model: Path, clustering: Path, tmp_path: Path, ending: str, out: str, command: str
) -> None:
    path, frame = table_of(tmp_path, ending)
    source = model if command == "cluster" else clustering
    before = source.read_bytes()
    done = run(command, source, path, "--ids", "ticket", "--out", tmp_path / f"out.{out}", "-q")
    assert done.code == 0
    assert source.read_bytes() == before
    found = READ[out](tmp_path / f"out.{out}")
    assert found.columns == [*RESULT, *FEATURES, "ticket", "note", "price", "cluster_input", "open"]
    assert (
        found.select([*frame.columns[:-2], "cluster_input", "open"]).rename({"cluster_input": "cluster"}).equals(frame)
    )
    # The rows of the join are those of the result, in the order of the input.
    joined = frame.join(found.select(pl.col("ticket"), number="cluster"), on="ticket", validate="1:1", how="left")
    python = MetaClusterer.load(model).set_params(progress=False)
    rows = frame.select(FEATURES)
    expected = python.cluster(rows) if command == "cluster" else Clustering.load(clustering).assign(rows)
    assert joined["number"].to_list() == expected.labels.tolist()
    assert found["id"].cast(pl.Int64).to_list() == frame["ticket"].to_list()


def test_pandas_joins_on_the_id_of_any_file(model: Path, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas", reason="no pandas")
    path, frame = table_of(tmp_path, "csv")
    for keep, left in (("none", []), ("note,price", ["note", "price"])):
        options = ("--ids", "ticket", "--keep", keep, "--out", tmp_path / "out.csv", "--force", "-q")
        assert run("cluster", model, path, *options).code == 0
        found = pd.read_csv(tmp_path / "out.csv")
        assert list(found.columns) == [*RESULT, *left]
        joined = pd.read_csv(path).merge(
            found, left_on="ticket", right_on="id", validate="1:1", suffixes=("", "_found")
        )
        assert joined["id"].tolist() == frame["ticket"].to_list()
        expected = MetaClusterer.load(model).set_params(progress=False).cluster(frame.select(FEATURES)).labels
        assert joined["cluster_found"].tolist() == expected.tolist()


def test_ids_that_are_numbers_stay_numbers_also_in_the_clustering(model: Path, tmp_path: Path) -> None:
    path, frame = table_of(tmp_path, "parquet")
    options = ("--ids", "ticket", "--keep", "none", "--save", tmp_path / "saved", "--out", tmp_path / "out.parquet")
    assert run("cluster", model, path, *options, "-q").code == 0
    found = pl.read_parquet(tmp_path / "out.parquet")
    assert found["id"].equals(frame["ticket"].alias("id"))
    assert Clustering.load(tmp_path / "saved").to_frame().equals(found)


def test_cells_of_a_csv_are_kept_as_they_are_written(model: Path, tmp_path: Path) -> None:
    lines = write_numbers(tmp_path / "numbers.csv", range(7, 11)).read_text().splitlines()
    cells = ["007", "-0", "+3", "12345678901234567890123456789012345678901", "", "1", "true", "x,y", '"', "é"]
    with (tmp_path / "table.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*lines[0].split(",")[:-1], "zip", "code", "count", "said"])
        for i, line in enumerate(lines[1:]):
            writer.writerow([*line.split(",")[:-1], f"{i:05d}", cells[i % len(cells)], i, ["", "?", "n/a"][i % 3]])
    assert run("cluster", model, tmp_path / "table.csv", "--out", tmp_path / "out.csv", "-q").code == 0
    read = {}
    for name in ("table", "out"):
        with (tmp_path / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            read[name] = list(csv.DictReader(file))
    for name in ("id", "zip", "code", "count", "said", *FEATURES):
        assert [row[name] for row in read["out"]] == [row[name] for row in read["table"]]
    assert run("cluster", model, tmp_path / "table.csv", "--out", tmp_path / "out.parquet", "-q").code == 0
    types = pl.read_parquet(tmp_path / "out.parquet").schema
    assert [types[name] for name in ("zip", "count")] == [pl.String, pl.Int64]


def test_rows_that_were_left_out_are_not_in_the_table(model: Path, tmp_path: Path) -> None:
    path, frame = table_of(tmp_path, "parquet")
    frame = frame.with_columns(a=pl.when(pl.int_range(pl.len()) % 4 == 1).then(None).otherwise(pl.col("a")))
    frame.write_parquet(path)
    done = run("cluster", model, path, "--missing", "drop", "--out", tmp_path / "out.parquet", "-q")
    assert done.code == 0
    found = pl.read_parquet(tmp_path / "out.parquet")
    kept = frame.drop_nulls("a")
    assert len(found) == len(kept) == 30
    assert found.select("ticket", "note", "price").equals(kept.select("ticket", "note", "price"))


def test_lists_are_json_in_a_csv_and_lists_elsewhere(model: Path, tmp_path: Path) -> None:
    path, frame = table_of(tmp_path, "parquet")
    tags = [[f"t{i}", "é"] if i % 3 else None for i in range(len(frame))]
    frame.with_columns(tags=pl.Series(tags), spent=pl.duration(seconds=1)).write_parquet(path)
    for ending, read in READ.items():
        assert run("cluster", model, path, "--out", tmp_path / f"out.{ending}", "-q").code == 0
        found = read(tmp_path / f"out.{ending}")["tags"].to_list()
        cells = [None if cell is None else json.loads(cell) for cell in found] if ending == "csv" else found
        assert cells == tags


def test_columns_that_a_format_cannot_hold_are_named_before_anything_is_clustered(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, frame = table_of(tmp_path, "parquet")
    raw = pl.Series([b"\xff"] * len(frame))
    frame.with_columns(raw=raw, parts=pl.Series([[b"\xff"]] * len(frame))).write_parquet(path)
    for ending in ("csv", "jsonl"):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            done = run("cluster", model, path, "--out", tmp_path / f"out.{ending}")
        assert done.code == 0
        assert (
            f"table.parquet has bytes or objects in 'raw', 'parts', which out.{ending} cannot hold: left out"
            in done.err
        )
        assert READ[ending](tmp_path / f"out.{ending}").columns[-1] == "open"
    assert run("cluster", model, path, "--out", tmp_path / "out.parquet", "-q").code == 0
    assert pl.read_parquet(tmp_path / "out.parquet")["raw"].equals(raw.alias("raw"))

    def clustered(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(MetaClusterer, "cluster", clustered)
    done = run("cluster", model, path, "--keep", "raw", "--out", tmp_path / "again.csv")
    assert done.code == 2
    assert "'raw', which again.csv cannot hold: leave that out of --keep, or write .parquet" in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--keep", "note, nothing", "--out", "o.csv"), "table.csv has no column 'nothing': its columns are 'a', 'b'"),
        (("--keep", "note,,price", "--out", "o.csv"), "--keep note,,price: there is an empty name"),
        (("--keep", "note"), "--keep applies to the table of clusters: name its file with --out, or omit it"),
        (("--ids", "nothing", "--out", "o.csv"), "table.csv has no column 'nothing'"),
        (
            ("--keep", "note", "--engine", "local", "--out", "o"),
            "--keep does not apply to shards: omit it, or --engine",
        ),
    ],
)
def test_columns_that_cannot_be_kept_are_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    path, _ = table_of(tmp_path, "csv")
    monkeypatch.chdir(tmp_path)
    done = run("cluster", model, path, *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not (tmp_path / "o.csv").exists()


def test_ids_of_an_array_file_may_be_named_and_columns_of_it_not(model: Path, tmp_path: Path) -> None:
    frame = pl.read_csv(write_numbers(tmp_path / "numbers.csv", range(7, 11)))
    x, keys = frame.select(FEATURES).to_numpy(), np.array([f"key {i}" for i in range(len(frame))])
    np.savez(tmp_path / "new.npz", X=x, keys=keys)
    out = tmp_path / "out.csv"
    assert run("cluster", model, tmp_path / "new.npz", "--ids", "keys", "--out", out, "-q").code == 0
    assert pl.read_csv(out)["id"].to_list() == keys.tolist()
    done = run("cluster", model, tmp_path / "new.npz", "--keep", "keys", "--out", tmp_path / "other.csv")
    assert done.code == 2
    assert "'keep': new.npz is an array, for which this has no meaning; leave it out" in done.err
    assert (
        run("cluster", model, tmp_path / "new.npz", "--keep", "none", "--out", tmp_path / "other.csv", "-q").code == 0
    )


def test_several_keeps_are_one(model: Path, tmp_path: Path) -> None:
    path, _ = table_of(tmp_path, "csv")
    options = ("--keep", "price", "--keep", "note,ticket", "--out", tmp_path / "out.jsonl", "-q")
    assert run("cluster", model, path, *options).code == 0
    assert pl.read_ndjson(tmp_path / "out.jsonl").columns == [*RESULT, "price", "note", "ticket"]


def test_names_of_columns_are_no_formulas_in_a_csv(tmp_path: Path) -> None:
    frame = pl.DataFrame({"=1+1": [1], "a": ["=2"], "-5": [2]})
    with pytest.warns(DataWarning, match=r"texts in 'a', '=1\+1' that a spreadsheet"):
        write_table(frame, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "'=1+1,a,-5\n1,'=2,2\n"
    write_table(frame, tmp_path / "raw.csv", raw_cells=True)
    assert (tmp_path / "raw.csv").read_text() == "=1+1,a,-5\n1,=2,2\n"


@pytest.mark.parametrize("ending", READ)
@pytest.mark.parametrize("numbered", [False, True])
def test_rows_without_a_label_are_left_out_of_training_and_counted(tmp_path: Path, ending: str, numbered: bool) -> None:
    frame = pl.read_csv(write_numbers(tmp_path / "known.csv", range(7)))
    gone = pl.int_range(pl.len()) % 3 == 0
    if numbered:
        # Numbers, as scikit-learn has them: -1 is no category.
        codes = pl.col("kind").str.strip_chars("k").cast(pl.Int64)
        partial = frame.with_columns(kind=pl.when(gone).then(-1).otherwise(codes))
    else:
        partial = frame.with_columns(kind=pl.when(gone).then(None).otherwise(pl.col("kind")))
    write_table(partial, tmp_path / f"partial.{ending}")
    write_table(partial.filter(~gone), tmp_path / f"complete.{ending}")
    models = {}
    for name in ("partial", "complete"):
        out = tmp_path / f"{name}.model"
        settings = SETTINGS[:-1]
        done = run("train", tmp_path / f"{name}.{ending}", "--label", "kind", "--out", out, *settings)
        assert done.code == 0
        models[name] = MetaClusterer.load(out)
        remark = "24 of 70 rows have no label and were left out of the training"
        assert (remark in done.err) == (name == "partial")
        assert (remark in models[name].decisions_) == (name == "partial")
    one, other = models["partial"], models["complete"]
    assert one.categories_ == other.categories_
    assert one.decisions_[1:] == other.decisions_
    x = np.random.default_rng(0).normal(size=(5, 4))
    names = pl.DataFrame(x, FEATURES)
    assert np.array_equal(one.transform(names), other.transform(names))


def test_a_column_of_partial_labels_is_read_beside_the_rows(model: Path, tmp_path: Path) -> None:
    path, frame = table_of(tmp_path, "parquet")
    known = [3 if i % 4 == 0 else None for i in range(len(frame))]
    frame.with_columns(known=pl.Series(known)).write_parquet(path)
    rows = read_data(path, label="known", partial=True, columns=[*FEATURES], progress=False)
    assert rows.columns == (*FEATURES,)
    assert rows.labels is None
    assert rows.partial == ["" if number is None else "3" for number in known]
    like = MetaClusterer.load(model).preparation_
    rows = read_data(path, label="known", partial=True, like=like, progress=False)
    assert rows.partial == ["" if number is None else "3" for number in known]
