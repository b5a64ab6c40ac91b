"""Gradients of inference against finite differences."""

import pytest
import torch

from metaclust.mixture import Prior


def inputs(seed, rows, components, width):
    generator = torch.Generator().manual_seed(seed)
    sizes = ((rows, width), (rows, components))
    return tuple(torch.randn(size, generator=generator, dtype=torch.float64, requires_grad=True) for size in sizes)


MASKS = pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])


@MASKS
@pytest.mark.parametrize("seed", range(2))
def test_vb_gradients_equal_finite_differences(vb_fit, seed, masked):
    z, logits = inputs(seed, rows=5, components=3, width=2)
    alpha = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([True, True, False, True, True]) if masked else None

    def outputs(z, logits, alpha):
        posterior = vb_fit(z, logits, alpha=alpha, steps=3, mask=mask)
        return posterior.r, posterior.bound, posterior.theta, posterior.weights, posterior.b

    assert torch.autograd.gradcheck(outputs, (z, logits, alpha))


@MASKS
@pytest.mark.parametrize("seed", range(2))
def test_em_gradients_equal_finite_differences(em_fit, seed, masked):
    z, logits = inputs(seed, rows=9, components=2, width=2)
    mask = (torch.arange(9) != 4) if masked else None

    def outputs(z, logits):
        posterior = em_fit(z, logits, steps=3, mask=mask)
        return posterior.r, posterior.bound, posterior.theta, posterior.weights, posterior.b

    assert torch.autograd.gradcheck(outputs, (z, logits))


def test_each_task_has_its_own_alpha_and_its_gradient(vb_fit):
    z, logits = (x.detach() for x in inputs(0, rows=6, components=3, width=2))
    alpha = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64, requires_grad=True)
    batch = vb_fit(z.expand(3, -1, -1), logits.expand(3, -1, -1), alpha=alpha, steps=3).bound
    (together,) = torch.autograd.grad(batch.sum(), alpha)
    alone = [vb_fit(z, logits, alpha=a, steps=3).bound for a in alpha]
    (apart,) = torch.autograd.grad(sum(alone), alpha)
    torch.testing.assert_close(batch, torch.stack(alone))
    torch.testing.assert_close(together, apart)
    assert (apart != 0).all()


def test_gradients_in_the_prior_equal_finite_differences(vb_fit):
    z, logits = (x.detach() for x in inputs(0, rows=5, components=3, width=2))
    logs = tuple(torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (-0.5, 0.4, 1.1))

    def outputs(*logs):
        posterior = vb_fit(z, logits, steps=3, prior=Prior(*(value.exp() for value in logs)))
        return posterior.r, posterior.bound, posterior.theta, posterior.b

    assert torch.autograd.gradcheck(outputs, logs)
