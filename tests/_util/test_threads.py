"""Work in one thread: helper threads come back afterwards, and results do not depend on their number."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from metaclust import InfiniteGaussianMixture
from metaclust._util.threads import one_thread, one_torch_thread


@pytest.fixture
def _three_threads():
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("_three_threads")
@pytest.mark.parametrize("context", [one_thread, one_torch_thread])
def test_threads_come_back(context):
    with context():
        assert torch.get_num_threads() == 1
        if context is one_thread:
            assert {pool["num_threads"] for pool in threadpool_info()} == {1}
    assert torch.get_num_threads() == 3
    with pytest.raises(ZeroDivisionError), context():
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3


def fitted(x):
    return InfiniteGaussianMixture(6, max_iter=3, tol=0.5).fit(x)


def test_a_fit_is_the_same_for_any_number_of_threads(request):
    x = np.random.default_rng(0).normal(size=(60_000, 6)).astype(np.float32)
    expected = fitted(x)
    request.getfixturevalue("_three_threads")
    found = fitted(x)
    assert found.lower_bounds_ == expected.lower_bounds_
    np.testing.assert_array_equal(found.means_, expected.means_)


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_of_two_users_at_once_the_last_one_gives_the_threads_back():
    with threadpool_limits(2, user_api="blas"), ExitStack() as first, ExitStack() as second:
        before = blas_threads()
        assert set(before) == {2}
        first.enter_context(one_thread())
        second.enter_context(one_thread())
        first.close()
        assert set(blas_threads()) == {1}
        second.close()
        assert blas_threads() == before
