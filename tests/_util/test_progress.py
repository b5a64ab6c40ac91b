"""Progress: a bar on a terminal, plain lines elsewhere, nothing where it is switched off."""

import io
import threading
from collections.abc import Callable

import pytest
from rich.console import Console

from metaclust._util import progress
from metaclust._util.progress import Bar, RowsBar, TrainingBar, Waiting


class Clock:
    """Time that passes only when a test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeTimer:
    """A timer that goes off when a test calls ``action``."""

    made: "list[FakeTimer]" = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, seconds: float, action: Callable[[], None]) -> None:
        self.seconds, self.action, self.cancelled, self.started = seconds, action, False, False
        FakeTimer.made.append(self)

    def start(self) -> None:
        self.started = True

    def cancel(self) -> None:
        self.cancelled = True

    def join(self) -> None:
        assert self.cancelled


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _timers(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeTimer.made.clear()
    monkeypatch.setattr(threading, "Timer", FakeTimer)


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard error, redirected to a file; forcing colours must not make it a terminal."""
    written = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=written, force_terminal=True))
    return written


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    shown = Terminal()
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=shown, force_interactive=True, width=100))
    return shown


def go_off() -> None:
    FakeTimer.made[-1].action()


def test_a_training_prints_a_line_at_its_start_every_thirty_seconds_and_at_its_end(file: io.StringIO) -> None:
    clock = Clock()
    with TrainingBar(4000, 0, clock=clock) as bar:
        assert file.getvalue() == "metaclust: training 0/4000\n"
        for step in range(1, 31):
            clock.now += 1.0
            bar.update(step, {"phase": "proto", "loss": 0.5}, None, -1.0)
        assert file.getvalue().count("\n") == 1
        assert FakeTimer.made[-1].seconds == progress.INTERVAL == 30
        go_off()
        bar.update(3000, {"phase": "ari", "loss": 0.5}, 0.871, 0.871)
        go_off()
        clock.now += 690.0
        bar.update(4000, {"phase": "ari", "loss": 0.5}, 0.85, 0.871)
    assert file.getvalue().splitlines()[1:] == [
        "metaclust: proto 30/4000, loss 0.500, 1 h 6 min left",
        "metaclust: ari 3000/4000, loss 0.500, val. ARI 0.871, 10 s left",
        "metaclust: ari 4000/4000, loss 0.500, val. ARI 0.850 (best 0.871), 12 min in total",
    ]
    assert FakeTimer.made[-1].cancelled
    assert len(FakeTimer.made) == 3


def test_a_line_that_is_due_after_the_end_is_not_printed(file: io.StringIO) -> None:
    with Bar("learning to choose", 3, clock=Clock()) as bar:
        bar.advance()
    before = file.getvalue()
    go_off()
    assert (
        file.getvalue()
        == before
        == "metaclust: learning to choose 0/3\nmetaclust: learning to choose 1/3, 0 s in total\n"
    )
    assert len(FakeTimer.made) == 1


def test_the_time_passed_is_shown_until_the_time_left_is_known(file: io.StringIO) -> None:
    clock = Clock()
    with Bar("learning the prior", 3, clock=clock) as bar:
        for _ in range(2):
            clock.now += 40.0
            bar.advance()
            go_off()
    assert file.getvalue().splitlines()[1:3] == [
        "metaclust: learning the prior 1/3, 40 s so far",
        "metaclust: learning the prior 2/3, 40 s left",
    ]


def test_passes_over_rows_say_how_fast_they_are(file: io.StringIO) -> None:
    clock = Clock()
    with RowsBar(10_000, clock=clock) as bar:
        bar.phase("pass 1")
        for _ in range(2):
            clock.now += 2.0
            bar.advance(2500)
        go_off()
        bar.phase("pass 2")
    assert file.getvalue().splitlines() == [
        "metaclust: start 0/10000",
        "metaclust: pass 1, 5000/10000, 1,250 rows/s, 4 s left",
        "metaclust: pass 2, 0/10000, 1,250 rows/s, 4 s in total",
    ]


def test_lines_hold_no_control_characters_whatever_a_file_is_called(file: io.StringIO) -> None:
    with Bar("reading \x1b[31mred\n.csv", 2_500_000, unit="bytes", clock=Clock()) as bar:
        bar.set(1_250_000)
    assert file.getvalue().splitlines() == [
        "metaclust: reading \\x1b[31mred .csv 0.0/2.5 MB",
        "metaclust: reading \\x1b[31mred .csv 1.2/2.5 MB, 0 s in total",
    ]


def test_waiting_prints_after_a_second_and_then_as_other_bars(file: io.StringIO) -> None:
    clock = Clock()
    with Waiting("clustering", clock=clock):
        assert file.getvalue() == ""
        assert FakeTimer.made[0].seconds == progress.DELAY == 1
        clock.now += 1.0
        go_off()
        clock.now += 30.0
        go_off()
        clock.now += 29.0
    assert file.getvalue().splitlines() == [
        "metaclust: clustering",
        "metaclust: clustering, 31 s so far",
        "metaclust: clustering, 60 s in total",
    ]


@pytest.mark.parametrize("where", ["file", "screen"])
def test_work_that_is_soon_done_shows_nothing(where: str, request: pytest.FixtureRequest) -> None:
    shown = request.getfixturevalue(where)
    with Waiting("reading rows", 20) as bar:
        bar.advance(20)
    assert shown.getvalue() == ""
    assert FakeTimer.made[0].cancelled


@pytest.mark.parametrize("where", ["file", "screen"])
def test_a_bar_that_is_off_shows_nothing(where: str, request: pytest.FixtureRequest) -> None:
    shown = request.getfixturevalue(where)
    for bar in (
        Waiting("reading rows", enabled=False),
        Bar("fitting", 3, enabled=False),
        RowsBar(3, enabled=False),
    ):
        with bar:
            bar.advance()
    assert shown.getvalue() == ""
    assert not FakeTimer.made


def test_a_terminal_shows_a_bar_after_a_while(screen: Terminal) -> None:
    with Waiting("reading rows", 20) as bar:
        bar.advance(5)
        assert screen.getvalue() == ""
        go_off()
        bar.set(15)
        bar.progress.refresh()
        assert "reading rows" in screen.getvalue()
        assert "15/20" in screen.getvalue()
        assert "metaclust:" not in screen.getvalue()
    assert len(FakeTimer.made) == 1


@pytest.mark.parametrize("where", ["file", "screen"])
def test_a_bar_ends_with_the_work_that_failed(where: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(where)
    bar = Waiting("reading rows")
    with pytest.raises(KeyError), bar:
        raise KeyError(go_off())
    assert not bar.progress.live.is_started
    assert FakeTimer.made[-1].cancelled
