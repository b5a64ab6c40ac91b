"""Dropout that draws many bits at a time, and rectified linear units that it is part of."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from metaclust._util.distributed import Part, Processes, dividing
from metaclust.model.layers import DROPOUT_BLOCK, ReLUDropout, SharedDropout, drop_


@given(
    rows=st.integers(0, 40), width=st.integers(1, 7), share=st.floats(0.01, 0.99), seed=st.integers(0, 2**32), cut=...
)
def test_what_is_drawn_for_a_part_of_the_rows_is_what_is_drawn_for_it_among_all(
    rows: int, width: int, share: float, seed: int, cut: bool
) -> None:
    first, last = (rows // 3, rows - rows // 4) if cut else (0, rows)
    torch.manual_seed(seed)
    every = torch.ones(rows, width)
    drop_(every, share)
    torch.manual_seed(seed)
    own = torch.ones(last - first, width)
    drop_(own, share, Part(first, last, rows))
    assert torch.equal(own, every[first:last])


def test_parts_that_begin_and_end_within_blocks() -> None:
    rows, width = 5, DROPOUT_BLOCK // 2 + 3
    torch.manual_seed(0)
    every = torch.ones(rows, width)
    drop_(every, 0.5)
    for first, last in ((0, 2), (2, 3), (3, 5)):
        torch.manual_seed(0)
        own = torch.ones(last - first, width)
        drop_(own, 0.5, Part(first, last, rows))
        assert torch.equal(own, every[first:last])


@pytest.mark.parametrize("share", [0.1, 0.5, 0.003])
def test_the_share_is_kept_and_so_is_the_mean(share: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(1000, 1000)
    drop_(x, share)
    dropped = float((x == 0).double().mean())
    # Four standard deviations of a mean over a million draws.
    assert abs(dropped - share) < 4 * np.sqrt(share * (1 - share) / x.numel()) + 1e-5
    torch.testing.assert_close(x.max(), torch.tensor(1 / (1 - share)), rtol=1e-4, atol=0)
    columns = (x == 0).double().mean(0)
    assert columns.std() == pytest.approx(np.sqrt(share * (1 - share) / 1000), rel=0.1)


def test_other_draws_in_every_call_and_none_without_training() -> None:
    layer = SharedDropout(0.5)
    x = torch.randn(50, 40)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), x)
    assert torch.equal(SharedDropout(0.0)(x), x)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_rectified_and_dropped_is_what_torch_makes_of_it_with_the_same_draws(share: float) -> None:
    start = torch.randn(30, 8, dtype=torch.float64)
    weights = nn.Linear(8, 6).double()
    x = start.clone().requires_grad_()
    torch.manual_seed(1)
    y = ReLUDropout(share)(weights(x))
    slope = torch.randn_like(y)
    (y * slope).sum().backward()
    found, of_weights = x.grad, weights.weight.grad
    torch.manual_seed(1)
    kept = torch.ones(30, 6, dtype=torch.float64)
    if share:
        drop_(kept, share)
    x = start.clone().requires_grad_()
    weights.zero_grad()
    expected = functional.relu(weights(x)) * kept
    (expected * slope).sum().backward()
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(found, x.grad)
    torch.testing.assert_close(of_weights, weights.weight.grad)


@pytest.mark.parametrize("layer", [SharedDropout(0.4), ReLUDropout(0.4)])
def test_of_a_step_that_is_divided_the_own_part_is_taken(layer: nn.Module) -> None:
    x = torch.randn(10, 6) + 3
    torch.manual_seed(2)
    every = layer(x.clone())
    torch.manual_seed(2)
    with dividing(Processes(1, 2), Part(4, 10, 10)):
        own = layer(x[4:].clone())
    assert torch.equal(own, every[4:])
    assert 0 < float((every == 0).double().mean()) < 1
