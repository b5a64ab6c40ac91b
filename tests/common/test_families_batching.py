"""A batch equals the loop over its tasks, and padding neither gives nor takes."""

import pytest
import torch

LENGTHS = (9, 5, 1, 12)
COMPONENTS, WIDTH = 4, 2
OUTPUTS = ("r", "theta", "a", "b", "log_weights", "weights", "bound")


def ragged_tasks():
    scales = (1.0, 0.2, 1.0, 5.0)
    z = [scale * torch.randn(n, WIDTH, dtype=torch.float64) for n, scale in zip(LENGTHS, scales, strict=True)]
    return z, [torch.randn(n, COMPONENTS, dtype=torch.float64) for n in LENGTHS]


def padded(tasks, filler):
    batch = torch.full((len(tasks), max(LENGTHS) + 1, tasks[0].shape[-1]), filler, dtype=torch.float64)
    for row, task in zip(batch, tasks, strict=True):
        row[: len(task)] = task
    return batch.requires_grad_()


def loss(posterior):
    """Some function of every output, for its gradient."""
    return sum(torch.sin(getattr(posterior, name)).sum() for name in OUTPUTS)


MASK = torch.arange(max(LENGTHS) + 1) < torch.tensor(LENGTHS)[:, None]
ALPHA = torch.tensor([0.3, 1.0, 2.0, 7.0], dtype=torch.float64)


@pytest.mark.parametrize("options", [{"steps": 5}, {"steps": 60, "tol": 1e-4}], ids=["steps", "tol"])
@pytest.mark.parametrize("filler", [0.0, 1e9, float("nan"), float("inf")])
def test_a_padded_batch_equals_the_loop_over_its_tasks(fit, filler, options):
    all_z, all_logits = ragged_tasks()
    z, logits = padded(all_z, filler), padded(all_logits, filler)
    batch = fit(z, logits, alpha=ALPHA, mask=MASK, **options)
    grad_z, grad_logits = torch.autograd.grad(loss(batch), (z, logits))
    for i, n in enumerate(LENGTHS):
        one_z, one_logits = all_z[i].clone().requires_grad_(), all_logits[i].clone().requires_grad_()
        one = fit(one_z, one_logits, alpha=ALPHA[i], **options)
        expected_z, expected_logits = torch.autograd.grad(loss(one), (one_z, one_logits))
        for name in OUTPUTS:
            ours = getattr(batch, name)[i]
            ours = ours[:n] if name == "r" else ours
            torch.testing.assert_close(ours, getattr(one, name), rtol=1e-8, atol=1e-10)
        assert batch.steps[i] == one.steps
        torch.testing.assert_close(grad_z[i, :n], expected_z, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(grad_logits[i, :n], expected_logits, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("filler", [1e9, float("nan")])
def test_padding_has_no_assignment_no_gradient_and_no_influence(fit, filler):
    all_z, all_logits = ragged_tasks()
    zeros = fit(padded(all_z, 0.0), padded(all_logits, 0.0), alpha=ALPHA, mask=MASK, steps=5)
    z, logits = padded(all_z, filler), padded(all_logits, filler)
    posterior = fit(z, logits, alpha=ALPHA, mask=MASK, steps=5)
    for name in OUTPUTS:
        assert torch.equal(getattr(posterior, name), getattr(zeros, name))
    assert (posterior.r[~MASK] == 0).all()
    grad_z, grad_logits = torch.autograd.grad(loss(posterior), (z, logits))
    assert (grad_z[~MASK] == 0).all()
    assert (grad_logits[~MASK] == 0).all()
    assert (grad_z[MASK] != 0).any()
    assert (grad_logits[MASK] != 0).any()


def test_a_mask_of_present_rows_changes_nothing(fit):
    z, logits = torch.randn(8, 2, dtype=torch.float64), torch.randn(8, 3, dtype=torch.float64)
    masked, plain = fit(z, logits, mask=torch.ones(8, dtype=torch.bool)), fit(z, logits)
    for name in OUTPUTS:
        assert torch.equal(getattr(masked, name), getattr(plain, name))


def test_several_task_axes_equal_the_loop(fit):
    z, logits = torch.randn(2, 3, 7, 2, dtype=torch.float64), torch.randn(2, 3, 7, 4, dtype=torch.float64)
    batch = fit(z, logits, steps=5)
    assert batch.steps.shape == batch.bound.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            one = fit(z[i, j], logits[i, j], steps=5)
            for name in OUTPUTS:
                torch.testing.assert_close(getattr(batch, name)[i, j], getattr(one, name), rtol=1e-8, atol=1e-10)


def test_alpha_broadcasts_over_the_task_axes(vb_fit):
    z, logits = torch.randn(2, 3, 7, 2, dtype=torch.float64), torch.randn(2, 3, 7, 4, dtype=torch.float64)
    alpha = torch.tensor([[0.1], [10.0]], dtype=torch.float64)
    narrow, wide = vb_fit(z, logits, alpha=alpha), vb_fit(z, logits, alpha=alpha.expand(2, 3))
    for name in OUTPUTS:
        torch.testing.assert_close(getattr(narrow, name), getattr(wide, name))
    assert narrow.r.shape == (2, 3, 7, 4)
    assert not torch.allclose(narrow.r, vb_fit(z, logits, alpha=0.1).r)


def test_inference_does_not_change_its_inputs(fit):
    z, logits = torch.randn(3, 6, 2), torch.randn(3, 6, 4)
    before = z.clone(), logits.clone()
    fit(z, logits, mask=torch.tensor([True] * 4 + [False] * 2).expand(3, 6))
    assert torch.equal(z, before[0])
    assert torch.equal(logits, before[1])
