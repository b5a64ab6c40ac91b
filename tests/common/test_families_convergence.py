"""When inference stops, and what does not change its result."""

from itertools import islice, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

MAXIMUM = 100


def problem(seed, rows=15, components=3, width=2):
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(rows, width, generator=generator, dtype=torch.float64)
    return z, torch.randn(rows, components, generator=generator, dtype=torch.float64)


def first_small_change(bounds, tol, rows):
    """The step that changes the bound by no more than tol (rows + |bound|), or the last one."""
    for step, (old, new) in enumerate(pairwise(bounds), start=2):
        if abs(new - old) <= tol * (rows + abs(old)):
            return step
    return len(bounds)


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("seed", range(4))
def test_a_task_stops_at_its_first_step_within_the_tolerance(fit, seed, tol):
    z, logits = problem(seed)
    posteriors = list(islice(fit.steps(z, logits), MAXIMUM))
    expected = first_small_change([p.bound.item() for p in posteriors], tol, len(z))
    stopped = fit(z, logits, steps=MAXIMUM, tol=tol)
    assert stopped.steps == expected
    assert torch.equal(stopped.r, posteriors[expected - 1].r)
    assert torch.equal(stopped.bound, posteriors[expected - 1].bound)


def batch(tasks):
    return tuple(torch.stack(x) for x in zip(*(problem(seed) for seed in range(tasks)), strict=True))


def test_every_task_of_a_batch_stops_by_itself(fit):
    z, logits = batch(8)
    together = fit(z, logits, steps=MAXIMUM, tol=1e-5).steps
    assert together.tolist() == [fit(z[i], logits[i], steps=MAXIMUM, tol=1e-5).steps.item() for i in range(8)]
    assert len(together.unique()) > 1


def test_a_tighter_tolerance_takes_no_fewer_steps_and_none_more_than_allowed(fit):
    z, logits = batch(8)
    taken = torch.stack([fit(z, logits, steps=MAXIMUM, tol=tol).steps for tol in (1e-1, 1e-3, 1e-5, 1e-7, 0.0)])
    assert (taken.diff(dim=0) >= 0).all()
    assert (taken[0] >= 2).all()
    assert (taken[-1] <= MAXIMUM).all()
    assert (taken[0] < taken[-2]).all()


@pytest.mark.parametrize("tol", [None, 0.0])
def test_the_number_of_steps_is_the_one_asked_for(fit, tol):
    z, logits = problem(0)
    assert fit(z, logits, steps=3, tol=tol).steps == 3
    assert fit(z, logits, steps=1, tol=tol).steps == 1


@given(seed=st.integers(0, 2**20), rows=st.integers(8, 20), order=st.randoms(use_true_random=False))
def test_reordered_rows_have_reordered_assignments(fit, seed, rows, order):
    z, logits = problem(seed, rows, components=2)
    permutation = order.sample(range(rows), rows)
    ours = fit(z[permutation], logits[permutation], steps=5)
    theirs = fit(z, logits, steps=5)
    torch.testing.assert_close(ours.r, theirs.r[permutation], rtol=0, atol=1e-9)
    torch.testing.assert_close(ours.bound, theirs.bound, rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 2**20), rows=st.integers(8, 20))
def test_em_does_not_depend_on_the_order_of_components(em_fit, seed, rows):
    z, logits = problem(seed, rows, components=2)
    ours, theirs = em_fit(z, logits.flip(-1), steps=5), em_fit(z, logits, steps=5)
    torch.testing.assert_close(ours.r.flip(-1), theirs.r, rtol=0, atol=1e-9)
    torch.testing.assert_close(ours.theta.flip(-2), theirs.theta, rtol=1e-8, atol=1e-8)
