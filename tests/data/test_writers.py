"""Tables of labels: formulas are no formulas in a .csv, and a failed write leaves what was there."""

import csv
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclust.data.rows import DataWarning
from metaclust.data.writers import without_formulas, write_table

FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1+1"]  # noqa: RUF001
PLAIN = ["-5", "+1.5e3", "-.5", "a=1", "", "'quoted", "7-3", "word"]


def cells_of(path: Path) -> tuple[list[str], list[str]]:
    """Return the columns of a .csv as Python reads it."""
    with path.open(newline="", encoding="utf-8") as file:
        _, *lines = csv.reader(file)
    return [line[0] for line in lines], [line[1] for line in lines]


def test_formulas_are_texts_in_a_csv_only(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": [*FORMULAS, *PLAIN], "cluster": range(-3, len(FORMULAS) + len(PLAIN) - 3)})
    with pytest.warns(DataWarning, match=r"labels.csv: texts in 'id' .* apostrophe; pass raw_cells=True"):
        write_table(frame, tmp_path / "labels.csv")
    ids, clusters = cells_of(tmp_path / "labels.csv")
    assert ids == [*("'" + text for text in FORMULAS), *PLAIN]
    assert clusters == [str(number) for number in frame["cluster"]]
    write_table(frame, tmp_path / "labels.csv", raw_cells=True)
    assert cells_of(tmp_path / "labels.csv")[0] == [*FORMULAS, *PLAIN]
    write_table(frame, tmp_path / "labels.parquet")
    write_table(frame, tmp_path / "labels.jsonl")
    for back in (pl.read_parquet(tmp_path / "labels.parquet"), pl.read_ndjson(tmp_path / "labels.jsonl")):
        assert back["id"].to_list() == frame["id"].to_list()


@given(st.lists(st.text(min_size=1), min_size=1))
def test_no_cell_begins_as_a_formula_unless_it_is_a_number(texts: list[str]) -> None:
    for before, after in zip(texts, without_formulas(pl.DataFrame({"id": texts}))["id"], strict=True):
        assert after in (before, "'" + before)
        if after[0] in "=+-@\t\r\n":
            assert np.isfinite(float(after))


@pytest.fixture
def small_files() -> Iterator[None]:
    """Let no file grow beyond 20,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_a_write_that_fails_names_the_file_and_leaves_it(
    ending: str, tmp_path: Path, small_files: None, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"labels{ending}"
    path.write_bytes(b"mine")
    frame = pl.DataFrame({"x": np.random.default_rng(0).normal(size=100_000)})
    with pytest.raises(OSError, match=rf"labels{ending} could not be written \(.*File too large.*: make room"):
        write_table(frame, path)
    assert path.read_bytes() == b"mine"
    assert list(tmp_path.iterdir()) == [path]
