"""What is made in the background is what would have been made at once."""

import threading

import pytest

from metaclust._util.prefetch import Ahead


def test_each_step_is_made_once_and_none_beyond_the_last():
    made = []
    with Ahead(lambda step: made.append(step) or 10 * step, last=5) as ahead:
        assert [ahead.take(step) for step in range(2, 5)] == [20, 30, 40]
    assert made == [2, 3, 4]


def test_the_next_one_is_made_while_the_present_one_is_used():
    second = threading.Event()
    with Ahead(lambda step: second.set() if step == 1 else None, last=2) as ahead:
        ahead.take(0)
        assert second.wait(60)


def test_steps_may_be_left_out():
    with Ahead(lambda step: step, last=10) as ahead:
        assert [ahead.take(step) for step in (0, 5, 6, 3)] == [0, 5, 6, 3]


def test_an_error_comes_with_its_own_step():
    with Ahead(lambda step: 1 // (3 - step), last=10) as ahead:
        assert ahead.take(2) == 1
        with pytest.raises(ZeroDivisionError):
            ahead.take(3)
