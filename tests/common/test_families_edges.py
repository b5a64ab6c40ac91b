"""Extreme problems stay finite, forward and backward; wrong arguments are named."""

import re

import pytest
import torch

from metaclust.mixture import FAMILIES, component_family, expectation_maximization, variational_bayes

OUTPUTS = ("r", "theta", "a", "b", "log_weights", "weights", "bound")
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def draw(rows, components, width):
    return torch.randn(rows, width, dtype=torch.float64), torch.randn(rows, components, dtype=torch.float64)


def one_far_row():
    z, logits = draw(8, 3, 2)
    z[0] = 1e6
    return z, logits


def rows_at(value):
    z, logits = draw(6, 3, 2)
    return torch.full_like(z, value), logits


def moved(scale, offset):
    z, logits = draw(8, 3, 2)
    return z * scale + offset, logits


def hard(high, low):
    z, logits = draw(6, 3, 2)
    return z, torch.where(torch.arange(3) == torch.arange(6)[:, None] % 3, high, low) + 0 * logits


EDGES = {
    "empty components": lambda: draw(3, 9, 2),
    "more columns than rows": lambda: draw(3, 2, 8),
    "one row": lambda: draw(1, 3, 2),
    "one component": lambda: draw(6, 1, 2),
    "one column": lambda: draw(6, 3, 1),
    "one of each": lambda: draw(1, 1, 1),
    "equal rows": lambda: rows_at(1.7),
    "rows at zero": lambda: rows_at(0.0),
    "equal far rows": lambda: rows_at(1e6),
    "one far row": one_far_row,
    "all rows far": lambda: moved(1, 1e6),
    "all rows far apart": lambda: moved(1e6, 0),
    "logits of 1e4": lambda: hard(1e4, -1e4),
    "equal logits": lambda: hard(-1e4, -1e4),
}


@DTYPES
@pytest.mark.parametrize("edge", EDGES)
def test_edges_are_finite_forward_and_backward_for_tiny_and_huge_alpha(fit, edge, dtype):
    z, logits = (x.to(dtype).expand(3, *x.shape).clone().requires_grad_() for x in EDGES[edge]())
    alpha = torch.tensor([1e-6, 1.0, 1e6], dtype=dtype, requires_grad=True)
    posterior = fit(z, logits, alpha=alpha)
    inputs = (z, logits) if fit.em else (z, logits, alpha)
    for name in OUTPUTS:
        value = getattr(posterior, name)
        assert value.dtype == dtype, name
        assert value.isfinite().all(), name
        gradients = torch.autograd.grad(value.sum(), inputs, retain_graph=True, materialize_grads=True)
        assert all(gradient.isfinite().all() for gradient in gradients), name
    assert (posterior.r >= 0).all()
    torch.testing.assert_close(posterior.r.sum(-1), torch.ones(z.shape[:-1], dtype=dtype))


def test_single_precision_rows_give_what_double_precision_ones_do(fit):
    z, logits = draw(20, 3, 2)
    single, double = fit(z.float(), logits.float()), fit(z, logits)
    for name in OUTPUTS:
        torch.testing.assert_close(getattr(single, name).double(), getattr(double, name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_single_precision_rows_are_fitted_in_double_precision(fit, offset):
    z, logits = (x.float() for x in moved(1, offset))
    single, double = fit(z, logits), fit(z.double(), logits.double())
    for name in OUTPUTS:
        assert torch.equal(getattr(single, name), getattr(double, name).float()), name


@pytest.mark.parametrize("alpha", [1e-12, 1e-6])
def test_the_last_components_weight_is_exact_for_a_tiny_alpha(alpha):
    z, logits = draw(12, 2, 2)
    posterior = variational_bayes(z, logits, steps=1, alpha=alpha)
    first, second = logits.softmax(-1).sum(0)
    gamma1, gamma2 = 1 + first, alpha + second
    expected = torch.digamma(gamma2) - torch.digamma(gamma1 + gamma2)
    expected += torch.digamma(1 + second) - torch.digamma(1 + second + alpha)
    torch.testing.assert_close(posterior.log_weights[1], expected, rtol=0, atol=1e-9)


Z, LOGITS = torch.zeros(5, 2), torch.zeros(5, 3)
NAN = Z.clone().index_fill_(0, torch.tensor([3]), float("nan"))
WRONG = {
    "z of integers": ((Z.long(), LOGITS), {}, TypeError, "z is torch.int64"),
    "z a list": ((Z.tolist(), LOGITS), {}, TypeError, "z is list"),
    "logits of integers": ((Z, LOGITS.long()), {}, TypeError, "logits is torch.int64"),
    "z 1-D": ((Z[:, 0], LOGITS), {}, ValueError, "z has shape (5,): it needs at least two axes"),
    "logits 1-D": ((Z, LOGITS[:, 0]), {}, ValueError, "logits has shape (5,)"),
    "rows disagree": ((Z, LOGITS[:4]), {}, ValueError, "z has shape (5, 2) and logits (4, 3)"),
    "tasks disagree": ((Z[None], LOGITS), {}, ValueError, "all axes but the last must agree"),
    "mask of integers": ((Z, LOGITS), {"mask": torch.ones(5).long()}, ValueError, "mask is torch.int64"),
    "mask too short": ((Z, LOGITS), {"mask": torch.ones(4).bool()}, ValueError, "pass booleans of shape (5,)"),
    "z with NaN": ((NAN, LOGITS), {}, ValueError, "z holds NaN or infinity"),
    "z with infinity": ((Z - float("inf"), LOGITS), {}, ValueError, "z holds NaN or infinity"),
    "logits with NaN": ((Z, LOGITS * float("nan")), {}, ValueError, "logits holds NaN or infinity"),
    "no rows": ((Z[:0], LOGITS[:0]), {}, ValueError, "there must be at least one row"),
    "no columns": ((Z[:, :0], LOGITS), {}, ValueError, "there must be at least one row"),
    "no components": ((Z, LOGITS[:, :0]), {}, ValueError, "there must be at least one row"),
    "no steps": ((Z, LOGITS), {"steps": 0}, ValueError, "steps=0"),
    "steps True": ((Z, LOGITS), {"steps": True}, ValueError, "steps=True"),
    "steps 1.5": ((Z, LOGITS), {"steps": 1.5}, ValueError, "steps=1.5"),
    "tol negative": ((Z, LOGITS), {"tol": -1e-3}, ValueError, "tol=-0.001"),
    "tol NaN": ((Z, LOGITS), {"tol": float("nan")}, ValueError, "tol=nan"),
    "components unknown": ((Z, LOGITS), {"components": "diag"}, ValueError, "components='diag'"),
}
WRONG_FOR_VB = {
    "alpha 0": ((Z, LOGITS), {"alpha": 0.0}, ValueError, "alpha=0.0"),
    "alpha negative": ((Z, LOGITS), {"alpha": -1.0}, ValueError, "alpha=-1.0"),
    "alpha NaN": ((Z, LOGITS), {"alpha": float("nan")}, ValueError, "alpha=nan"),
    "alpha infinite": ((Z, LOGITS), {"alpha": float("inf")}, ValueError, "alpha=inf"),
    "one alpha 0": ((Z[None], LOGITS[None]), {"alpha": torch.zeros(1)}, ValueError, "alpha=tensor([0.])"),
    "mean_covariance": ((Z, LOGITS), {"mean_covariance": "free"}, ValueError, "mean_covariance='free'"),
}


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize("method", [variational_bayes, expectation_maximization])
@pytest.mark.parametrize(("arguments", "options", "error", "message"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_named(method, arguments, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        method(*arguments, **options)


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(("arguments", "options", "error", "message"), WRONG_FOR_VB.values(), ids=WRONG_FOR_VB)
def test_wrong_arguments_of_vb_are_named(arguments, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        variational_bayes(*arguments, **options)


@pytest.mark.usefixtures("_without_type_checks")
def test_an_unknown_family_is_named_with_those_there_are():
    with pytest.raises(ValueError, match=re.escape(f"components='diag': choose one of {tuple(FAMILIES)}")):
        component_family("diag")


def test_nan_in_rows_the_mask_leaves_out_is_no_error(fit):
    posterior = fit(NAN, LOGITS, mask=torch.tensor([True, True, True, False, True]))
    assert posterior.r[3].eq(0).all()
    assert posterior.bound.isfinite()
