"""A lock has one holder at a time, who is named; a killed holder leaves it free."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metaclust._util.files import remove_unfinished
from metaclust._util.locks import InUseError, held, lock_beside, writing

HOLD = """
import sys
from metaclust._util.locks import writing
with writing(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def start(target: Path) -> "subprocess.Popen[str]":
    """Return a process that holds the lock of a file until its input ends."""
    holder = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", HOLD, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_second_process_is_refused_and_the_first_one_named(tmp_path: Path) -> None:
    target = tmp_path / "m.safetensors"
    with start(target) as holder:
        for _ in range(2):
            with pytest.raises(InUseError, match=rf"{target} is being written by process {holder.pid} on .*: wait"):
                writing(target).__enter__()
        holder.communicate("")
    assert holder.returncode == 0
    assert list(tmp_path.iterdir()) == []
    with writing(target):
        assert [path.name for path in tmp_path.iterdir()] == [".m.safetensors.lock"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="without SIGKILL")
def test_a_killed_process_blocks_nobody(tmp_path: Path) -> None:
    target = tmp_path / "m.safetensors"
    with start(target) as holder:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert lock_beside(target).exists()
        with writing(target):
            assert f"process {os.getpid()} on " in lock_beside(target).read_text()
    assert list(tmp_path.iterdir()) == []


def test_another_path_to_the_same_folder_is_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with writing(tmp_path / "real" / "c.csv"):
        for other in (tmp_path / "link" / "c.csv", tmp_path / "real" / ".." / "real" / "c.csv"):
            with pytest.raises(InUseError, match=f"process {os.getpid()} "):
                writing(other).__enter__()
        with writing(tmp_path / "real" / "d.csv"):
            pass


def test_if_one_of_several_is_in_use_none_is_held(tmp_path: Path) -> None:
    free, used = tmp_path / "a", tmp_path / "b"
    with writing(used), pytest.raises(InUseError, match="b is being written"):
        writing(free, used).__enter__()
    with writing(free):
        pass


def test_an_error_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), held(tmp_path / "lock", tmp_path):
        raise ZeroDivisionError
    with held(tmp_path / "lock", tmp_path):
        pass


def test_a_lock_never_writes_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    lock_beside(tmp_path / "m").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="m"):
        writing(tmp_path / "m").__enter__()
    assert (tmp_path / "precious").read_text() == "mine"


def of_another_user(monkeypatch: pytest.MonkeyPatch, lock: Path, removable: bool = True) -> None:
    """Let a lock be one that can be read but not written and, as in /tmp, perhaps not be removed."""
    opened, unlinked, foreign = os.open, os.unlink, lock.lstat()

    def is_foreign(path: object) -> bool:
        return str(path) == str(lock) and lock.exists() and os.path.samestat(lock.lstat(), foreign)

    def opening(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_RDWR and not flags & os.O_EXCL and is_foreign(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, flags, *rest, **options)

    def unlinking(path: Any, **options: Any) -> None:
        if not removable and is_foreign(path):
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        unlinked(path, **options)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "unlink", unlinking)


@pytest.mark.skipif(sys.platform == "win32", reason="without owners")
def test_the_holder_is_named_even_if_its_lock_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "m.safetensors"
    with start(target) as holder:
        of_another_user(monkeypatch, lock_beside(target))
        with pytest.raises(InUseError, match=rf"is being written by process {holder.pid} on "):
            writing(target).__enter__()
        assert lock_beside(target).exists()
        holder.communicate("")


@pytest.mark.skipif(sys.platform == "win32", reason="without owners")
def test_a_lock_that_a_killed_process_of_another_user_left_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "m.safetensors"
    lock_beside(target).write_text("process 1 on elsewhere\n")
    of_another_user(monkeypatch, lock_beside(target))
    with writing(target):
        assert f"process {os.getpid()} on " in lock_beside(target).read_text()
        with pytest.raises(InUseError, match=f"process {os.getpid()} on "):
            writing(target).__enter__()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="without owners")
def test_a_lock_of_another_user_that_cannot_be_removed_is_named_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "m.safetensors"
    lock = lock_beside(target)
    lock.write_text("process 1 on elsewhere\n")
    of_another_user(monkeypatch, lock, removable=False)
    owned = f"its lock {lock} belongs to {lock.owner()} and cannot be opened: have it removed"
    with pytest.raises(PermissionError, match=f"^cannot write {target}: {owned}"):
        writing(target).__enter__()
    assert lock.read_text() == "process 1 on elsewhere\n"


def test_an_unfinished_folder_that_may_not_be_read_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / ".labels.csv.abcd1234"
    private.mkdir()
    listed = Path.iterdir

    def refusing(folder: Path) -> Iterator[Path]:
        if folder == private:
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", refusing)
    with writing(tmp_path / "labels.csv"):
        assert private.is_dir()


def test_what_a_killed_process_left_of_a_file_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left, others = tmp_path / ".c.csv.ab_d1234", [".c.csv.ab_d12345", ".d.csv.ab_d1234", ".c.csv.other123"]
    for name in (left.name, *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.csv").write_text("half")
    (left / ".tmpG3OkY7").write_text("half")
    (tmp_path / ".c.csv.other123" / "mine.txt").write_text("precious")
    (tmp_path / ".c.csv.a_file_1").write_text("precious")
    with writing(tmp_path / "c.csv"):
        assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, ".c.csv.a_file_1"])


def test_a_file_system_without_locks_is_announced_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("metaclust._util.locks.FileLock.acquire", refuse)
    with pytest.warns(match="without locks: let no other process write it"), writing(tmp_path / "labels.csv"):
        (tmp_path / "labels.csv").write_text("written")
    assert (tmp_path / "labels.csv").read_text() == "written"


def test_unfinished_files_may_vanish_while_they_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".labels.csv.abcd1234").mkdir()
    listed = Path.iterdir

    def vanishing(folder: Path) -> Iterator[Path]:
        if folder != tmp_path:
            raise FileNotFoundError(folder)
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", vanishing)
    remove_unfinished(tmp_path / "labels.csv")
