"""Files are replaced whole; one that cannot be replaced is named, with what to do."""

import errno
from pathlib import Path
from typing import Any

import pytest

from metaclust._util import files
from metaclust._util.files import remove_finished, replacing


def refuse_replacing(monkeypatch: pytest.MonkeyPatch, times: int) -> list[Path]:
    """Let a file be open in another program on Windows, for so many attempts to replace it; return the attempts."""
    attempts: list[Path] = []
    replace = Path.replace

    def replacing_open(source: Path, target: Any) -> Path:
        attempts.append(source)
        if len(attempts) <= times:
            raise PermissionError(errno.EACCES, "Access is denied", str(target))
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", replacing_open)
    monkeypatch.setattr(files, "REPLACE_ATTEMPTS", 3)
    monkeypatch.setattr(files, "REPLACE_PAUSE", 0.0)
    return attempts


def test_a_file_that_is_open_for_a_moment_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = refuse_replacing(monkeypatch, 2)
    (tmp_path / "notes.txt").write_text("old")
    with replacing(tmp_path / "notes.txt") as path:
        path.write_text("new")
    assert len(attempts) == 3
    assert (tmp_path / "notes.txt").read_text() == "new"


def test_a_file_that_stays_open_is_named_and_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = refuse_replacing(monkeypatch, 100)
    target = tmp_path / "notes.txt"
    target.write_text("old")
    message = rf"^cannot replace {target} \(Access is denied\): close the programs that have it open"
    with pytest.raises(PermissionError, match=message), replacing(target) as path:
        path.write_text("new")
    assert len(attempts) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert target.read_text() == "old"


def test_a_folder_of_finished_work_that_cannot_be_removed_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Access is denied", str(folder / "metrics.jsonl"))

    monkeypatch.setattr("shutil.rmtree", refuse)
    with pytest.warns(UserWarning, match=r"m.safetensors is written, but .*run cannot be removed \(Access is denied\)"):
        remove_finished(tmp_path / "run", "m.safetensors")
