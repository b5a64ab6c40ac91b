"""Mixed tables on the command line: what is shown of each column, and a model from training to its clusters."""

import json

import polars as pl
import pytest
from commands import run
from customer_table import customers


@pytest.fixture
def table(tmp_path):
    customers(80).write_csv(tmp_path / "customers.csv")
    return str(tmp_path / "customers.csv")


def test_show_tells_what_each_column_is_used_as(table):
    code, out, _ = run("data", "show", table, "--label", "segment", "--json")
    assert code == 0
    lines = {line["column"]: line for line in json.loads(out)["columns"]}
    assert {name: line["treatment"] for name, line in lines.items()} == {
        "customer_id": "id",
        "zip": "drop",
        "age": "number",
        "plan": "category",
        "business": "number",
        "since": "date",
        "note": "text",
        "segment": "label",
    }
    assert lines["plan"] == {
        "column": "plan",
        "type": "String",
        "treatment": "category",
        "distinct": 3,
        "gaps": 12,
        "example": "pro",
        "why": "",
    }
    out = run("data", "show", table, "--label", "segment").out
    header, *rows = out.splitlines()[out.splitlines().index("") + 1 :]
    assert header.split() == ["column", "type", "treatment", "distinct", "gaps", "example", "why"]
    assert rows[0].split()[:4] == ["customer_id", "Int64", "id", "80"]


@pytest.mark.filterwarnings("default::metaclust.DataWarning")
def test_show_takes_the_options_that_its_errors_name(table, tmp_path):
    code, _, err = run("data", "show", table, "--missing", "error")
    assert code == 2
    assert "--missing auto" in err
    dropped = run("data", "show", table, "--missing", "drop", "--json")
    assert "left out 25 rows with an empty cell, first row 0" in dropped.err
    assert json.loads(dropped.out)["rows"] == 55
    treated = run("data", "show", table, "--treat", "zip=category,note=drop", "--json").out
    lines = {line["column"]: line["treatment"] for line in json.loads(treated)["columns"]}
    assert (lines["zip"], lines["note"]) == ("category", "drop")
    (tmp_path / "stray.csv").write_text("age,b\n" + "1,2\n" * 9 + "old,3\n")
    code, _, err = run("data", "show", str(tmp_path / "stray.csv"))
    assert "row 9 (counting from 0), column 'age': 'old' is not a number" in err
    assert "(--columns), or how they are read with treat= (--treat)" in err
    assert (
        json.loads(run("data", "show", str(tmp_path / "stray.csv"), "--columns", "b", "--json").out)["kind"]
        == "vectors"
    )
    code, _, err = run("data", "show", table, "--treat", "zip")
    assert (code, err) == (2, "metaclust: --treat zip: give NAME=TREATMENT, such as --treat zip=category\n")


def test_a_model_of_a_table_clusters_a_later_file(table, tmp_path):
    model, out = str(tmp_path / "model.safetensors"), str(tmp_path / "clusters.csv")
    steps = ("--pretrain-steps", "3", "--steps", "1", "--encoder", "network", "--choose", "bound", "--quiet")
    code, _, err = run("train", table, "--label", "segment", "--treat", "zip=drop", "--out", model, *steps)
    assert (code, err) == (0, "")
    customers(50).drop("zip", "segment").write_parquet(tmp_path / "new.parquet")
    code, _, err = run(
        "cluster", model, str(tmp_path / "new.parquet"), "--out", out, "--report", f"{out}.html", "--quiet"
    )
    assert (code, err) == (0, "")
    assert pl.read_csv(out).columns[-5:] == ["age", "plan", "business", "since", "note"]
    customers(50).drop("plan").write_csv(tmp_path / "less.csv")
    code, _, err = run("cluster", model, str(tmp_path / "less.csv"), "--quiet")
    assert code == 2
    assert "less.csv has no column 'plan', which the model was trained on: its columns are 'customer_id'" in err
