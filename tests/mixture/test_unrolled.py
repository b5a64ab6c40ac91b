"""The written-out derivative of the steps: against automatic differentiation and against finite differences."""

from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclust.mixture import Prior, vb_steps
from metaclust.mixture.families.spherical import Spherical
from metaclust.mixture.inference import softmax_of
from metaclust.mixture.unrolled import assignments, follow

STEPS = 4


def written_out(z, logits, mask, family, alpha, steps=STEPS):
    features = family.features(z.masked_fill(~mask[..., None], 0), mask)
    r = softmax_of(logits).mT
    path = follow(features, r[:, None], family, alpha, steps)
    return (
        assignments(features, r, family, alpha, *path.of(torch.zeros(len(z), dtype=torch.int64))).mT * mask[..., None]
    )


def automatic(z, logits, mask, family, alpha, steps=STEPS):
    posteriors = islice(vb_steps(z, logits, family, alpha, mask), steps)
    return torch.stack([posterior.assignments for posterior in posteriors]) * mask[..., None]


def problem(tasks=3, rows=9, width=4, columns=5, seed=0, dtype=torch.float64, spread=2.0):
    generator = torch.Generator().manual_seed(seed)
    z = spread * torch.randn((tasks, rows, width), generator=generator, dtype=dtype)
    logits = 2 * torch.randn((tasks, rows, columns), generator=generator, dtype=dtype)
    mask = torch.arange(rows) < torch.randint(1, rows + 1, (tasks, 1), generator=generator)
    return z.requires_grad_(), logits.requires_grad_(), mask


def prior_of(values, learned=True):
    return Prior(*(torch.tensor(value, dtype=torch.float64, requires_grad=learned) for value in values))


@pytest.mark.parametrize("mean_covariance", ["unit", "optimal"])
@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 6),
    st.tuples(*[st.floats(0.05, 20)] * 4),
    st.integers(0, 9),
)
def test_gradients_are_those_of_automatic_differentiation(
    mean_covariance, tasks, rows, width, columns, steps, numbers, seed
):
    z, logits, mask = problem(tasks, rows, width, columns, seed)
    alpha = torch.tensor(numbers[0], dtype=torch.float64, requires_grad=True)
    prior = prior_of(numbers[1:])
    leaves = (z, logits, alpha, *vars(prior).values())
    family = Spherical(prior, mean_covariance)
    expected = automatic(z, logits, mask, family, alpha, steps)
    found = written_out(z, logits, mask, family, alpha, steps)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    weight = torch.randn(expected.shape, dtype=expected.dtype, generator=torch.Generator().manual_seed(seed))
    for ours, theirs in zip(
        torch.autograd.grad((found * weight).sum(), leaves),
        torch.autograd.grad((expected * weight).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8 * (1 + float(theirs.abs().max())))


@pytest.mark.parametrize("mean_covariance", ["unit", "optimal"])
def test_gradients_are_those_of_finite_differences(mean_covariance):
    z, logits, mask = problem(2, 5, 2, 3)
    alpha, numbers = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ([0.7], [1.3, 0.8, 1.9]))

    def every(z, logits, alpha, numbers):
        return written_out(z, logits, mask, Spherical(Prior(*numbers.unbind()), mean_covariance), alpha[0], 3)

    assert torch.autograd.gradcheck(every, (z, logits, alpha, numbers))


def test_the_prior_may_be_one_for_each_task():
    z, logits, mask = problem()
    rates = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    alpha = torch.tensor(1.0, dtype=torch.float64)
    family = Spherical(Prior(torch.ones(3).double(), torch.ones(3).double(), rates), "optimal")
    ours, theirs = (
        torch.autograd.grad(steps(z, logits, mask, family, alpha)[-1, ..., 0].sum(), rates)[0]
        for steps in (written_out, automatic)
    )
    assert (ours != 0).all()
    torch.testing.assert_close(ours, theirs)


def test_without_a_learned_prior_only_rows_and_start_get_a_gradient():
    z, logits, mask = problem()
    alpha = torch.tensor(1.0, dtype=torch.float64)
    ours, theirs = (
        torch.autograd.grad(
            steps(z, logits, mask, Spherical(mean_covariance="optimal"), alpha).square().sum(), (z, logits)
        )
        for steps in (written_out, automatic)
    )
    torch.testing.assert_close(ours, theirs)
    assert (ours[0][~mask] == 0).all()


def test_float32_is_enough_for_clusters_some_widths_apart():
    z, logits, mask = problem(4, 60, 8, 5, spread=1.0)
    far = torch.arange(60) % 4
    with torch.no_grad():
        z += 30 * far[:, None]
    alpha = torch.tensor(1.0, dtype=torch.float64)
    family = Spherical(mean_covariance="optimal")
    exact = automatic(z, logits, mask, family, alpha)
    narrow_z, narrow_logits = (value.detach().float().requires_grad_() for value in (z, logits))
    narrow = written_out(narrow_z, narrow_logits, mask, family, alpha)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow.double(), exact, rtol=0, atol=2e-3)


def test_each_start_of_a_task_has_its_own_path_and_the_bounds_differ_as_they_do_in_full():
    z, logits, mask = problem(3, 12, 4, 5)
    others = logits.detach().flip(-1) * torch.tensor([0.1, 1.0, 3.0])[:, None, None]
    family, alpha = Spherical(mean_covariance="optimal"), torch.tensor(1.5, dtype=torch.float64)
    features = family.features(z.detach().masked_fill(~mask[..., None], 0), mask)
    starts = torch.stack((softmax_of(logits.detach()).mT, softmax_of(others).mT), 1)
    path = follow(features, starts, family, alpha, STEPS)
    ends = [
        list(islice(vb_steps(z.detach(), start, family, alpha, mask), STEPS))[-1] for start in (logits.detach(), others)
    ]
    bounds = torch.stack([end.exact_bound for end in ends], 1)
    torch.testing.assert_close(path.bound[:, 0] - path.bound[:, 1], bounds[:, 0] - bounds[:, 1])
    chosen = torch.tensor([0, 1, 1])
    tasks = torch.arange(3)
    r = assignments(features, starts[tasks, chosen], family, alpha, *path.of(chosen))[-1].mT
    expected = torch.stack([end.assignments for end in ends])[chosen, tasks]
    torch.testing.assert_close(r * mask[..., None], expected * mask[..., None])


def test_the_backward_pass_saves_one_assignment_a_step():
    z, logits, mask = problem(2, 400, 3, 4)
    alpha = torch.tensor(1.0, dtype=torch.float64)
    kept = {}
    for steps in (5, 10):
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.numel()) or t, lambda t: t):
            written_out(z, logits, mask, Spherical(mean_covariance="optimal"), alpha, steps)
        kept[steps] = sum(sizes)
    # Sums and weights are small; the rows' part grows by rows x components for each further step.
    assert kept[10] - kept[5] <= 5 * 2 * (400 * 4 + 2 * 4 * 5)
