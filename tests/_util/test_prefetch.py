"""Prefetched values are those that would have been computed on demand."""

import threading

import pytest

from metaclust._util.prefetch import Prefetcher


def test_each_step_is_computed_once_and_none_at_or_after_the_end():
    made = []
    with Prefetcher(lambda step: made.append(step) or 10 * step, stop=5) as values:
        assert [values.take(step) for step in range(2, 5)] == [20, 30, 40]
    assert made == [2, 3, 4]


def test_the_next_value_is_computed_while_the_current_one_is_used():
    second = threading.Event()
    with Prefetcher(lambda step: second.set() if step == 1 else None, stop=2) as values:
        values.take(0)
        assert second.wait(60)


def test_steps_may_be_skipped():
    with Prefetcher(lambda step: step, stop=10) as values:
        assert [values.take(step) for step in (0, 5, 6, 3)] == [0, 5, 6, 3]


def test_an_error_is_raised_at_its_own_step():
    with Prefetcher(lambda step: 1 // (3 - step), stop=10) as values:
        assert values.take(2) == 1
        with pytest.raises(ZeroDivisionError):
            values.take(3)
