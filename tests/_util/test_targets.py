"""What cannot or may not be written is refused before the work."""

import os
import stat
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from metaclust import CheckpointError, InfiniteGaussianMixture, MetaClusterer
from metaclust._util import targets
from metaclust._util.targets import check_file, check_new_folder, check_space, same
from metaclust.mixture.rows import StreamRows

Usage = namedtuple("Usage", "total used free")


def test_a_file_that_can_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    check_file(tmp_path / "new.csv", force=False, inputs=[tmp_path / "old.csv"])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "new.csv").write_text("old")
    with pytest.raises(
        FileExistsError,
        match=r"new.csv already exists: choose another path, or pass force=True",
    ):
        check_file(tmp_path / "new.csv", force=False)
    check_file(tmp_path / "new.csv", force=True)
    assert (tmp_path / "new.csv").read_text() == "old"


def test_what_is_read_is_never_a_target(tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("a")
    (tmp_path / "link.csv").symlink_to(data)
    os.link(data, tmp_path / "hard.csv")
    (tmp_path / "sub").mkdir()
    for target in (data, tmp_path / "link.csv", tmp_path / "hard.csv", tmp_path / "sub" / ".." / "data.csv"):
        with pytest.raises(ValueError, match=r"is read as .*data\.csv, and would be overwritten: choose another path"):
            check_file(target, force=True, inputs=[tmp_path / "m", data])
    assert not same(data, tmp_path / "m")


def test_other_things_than_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder: give the path of a file"):
        check_file(tmp_path, force=True)
    with pytest.raises(FileNotFoundError, match=r"no does not exist; create it first"):
        check_file(tmp_path / "no" / "c.csv", force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match=r"c.csv does not exist"):
        check_file(tmp_path / "file" / "c.csv" / "d.csv", force=True)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe is a device or a pipe: give the path of a file"):
        check_file(tmp_path / "pipe", force=True)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_link_to_nothing_is_there(tmp_path: Path) -> None:
    (tmp_path / "c.csv").symlink_to(tmp_path / "gone")
    with pytest.raises(FileExistsError, match="already exists"):
        check_file(tmp_path / "c.csv", force=False)


AS_NOBODY = """
import os, tempfile
from pathlib import Path
from metaclust._util.targets import check_file, check_new_folder
if os.getuid() == 0:
    os.setuid(65534)
with tempfile.TemporaryDirectory(dir="/tmp") as place:
    closed, open_ = Path(place, "closed"), Path(place, "open")
    open_.mkdir()
    closed.mkdir(mode=0o555)
    (open_ / "c.csv").write_text("mine")
    (open_ / "c.csv").chmod(0o444)
    for check in (
        lambda: check_file(open_ / "c.csv", True),
        lambda: check_file(closed / "c.csv", True),
        lambda: check_new_folder(closed / "results"),
    ):
        try:
            check()
            print("fine")
        except PermissionError as error:
            print(str(error).replace(place, ""))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="without modes of files")
def test_what_is_read_only_is_refused() -> None:
    """In a process of a user who is not root, for root may write anything."""
    done = subprocess.run([sys.executable, "-c", AS_NOBODY], capture_output=True, text=True, check=True)  # noqa: S603
    file, in_folder, folder = done.stdout.splitlines()
    assert file == "/open/c.csv is read-only: make it writable or choose another path"
    assert in_folder == (
        "cannot write /closed/c.csv: the folder /closed does not let files be made (Permission denied); choose another"
    )
    assert folder == in_folder.replace("c.csv", "results")


def test_a_folder_that_is_to_be_made_is_tried(tmp_path: Path) -> None:
    check_new_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match=r"cannot write to the folder .*file/a: .*file is a file"):
        check_new_folder(tmp_path / "file" / "a")


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets.shutil, "disk_usage", lambda _: Usage(9e9, 0, 50_000_000))
    check_space(tmp_path, 30_000_000, "the run")
    with pytest.raises(OSError, match=r"the run in .* needs about 57 MB, but 50 MB are free: make room"):
        check_space(tmp_path, 40_000_000, "the run")


def test_fits_and_reports_try_their_targets_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(MetaClusterer, "_rows", lambda *_, **__: pytest.fail("rows were read"))
    with pytest.raises(NotADirectoryError, match=r"file is a file; choose another"):
        MetaClusterer().fit([[0.0]], [0], folder=tmp_path / "file" / "run")
    monkeypatch.setattr(StreamRows, "survey", lambda *_: pytest.fail("rows were read"))
    with pytest.raises(CheckpointError, match=r"cannot write .*state: the folder .*no is not there; create it first"):
        InfiniteGaussianMixture(2).fit([[0.0], [1.0]], state=tmp_path / "no" / "state")
