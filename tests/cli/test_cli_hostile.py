"""What the command line prints of hostile files, and its limit of bytes."""

import gzip
import json

import pytest
from commands import run


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_names_and_cells_cannot_send_escapes_to_the_terminal(tmp_path):
    (tmp_path / "\x1b[2Jrows.csv").write_text("a\x1b]0;title\x07,b\n1,2\n3,\x1b[31mred\n")
    for option in ([], ["--json"]):
        code, out, err = run("data", "show", "\x1b[2Jrows.csv", *option)
        assert code in (0, 2)
        assert (out + err).replace("\n", "").isprintable()
        assert "\\x1b" in out + err or "\\u001b" in out + err


def test_the_limit_of_bytes_can_be_lowered_and_raised(tmp_path):
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 1000))
    code, _, err = run("data", "show", "rows.csv.gz", "--max-bytes", "500")
    assert code == 2
    assert err.startswith("metaclust: rows.csv.gz holds 4,004 bytes of data or more, above the limit (500).")
    assert "--max-bytes" in err
    code, out, _ = run("data", "show", "rows.csv.gz", "--max-bytes", "500000", "--json")
    assert (code, json.loads(out)["rows"]) == (0, 1000)
    assert run("data", "show", "rows.csv.gz", "--max-bytes", "0").err.startswith("metaclust: max_bytes=0: it must be")


def test_raw_cells_need_a_csv(tmp_path):
    code, _, err = run("cluster", "m.safetensors", "rows.csv", "--out", "c.parquet", "--raw-cells")
    assert (code, err) == (2, "metaclust: --raw-cells applies to --out with a .csv file only: omit it\n")
