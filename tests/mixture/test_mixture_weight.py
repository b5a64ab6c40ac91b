"""Variational Bayes of rows that count as less than one: bounds and convergence under a weight."""

import math
from itertools import islice

import numpy as np
import pytest
import torch
from scipy import special

from metaclust.mixture import component_family, vb_steps
from metaclust.mixture.inference import run

ALPHA = torch.tensor(0.7, dtype=torch.float64)
FAMILIES = [("spherical", "unit"), ("spherical", "optimal"), ("full", "unit")]
families = pytest.mark.parametrize(("components", "mean_covariance"), FAMILIES)


def problem(n=30, s=3, k=4, seed=0):
    """Rows around three places, and the logits of a start."""
    generator = torch.Generator().manual_seed(seed)
    places = 4 * torch.randn(3, s, generator=generator, dtype=torch.float64)
    z = places[torch.arange(n) % 3] + torch.randn(n, s, generator=generator, dtype=torch.float64)
    return z, torch.randn(n, k, generator=generator, dtype=torch.float64)


def posterior_after(steps, z, logits, family, weight=1.0, mask=None):
    return next(islice(vb_steps(z, logits, family, ALPHA, mask, weight), steps - 1, None))


def beta_kl(a, b, alpha):
    """KL(Beta(a, b) || Beta(1, alpha))."""
    return (
        special.betaln(1, alpha)
        - special.betaln(a, b)
        + (a - 1) * special.psi(a)
        + (b - alpha) * special.psi(b)
        + (1 + alpha - a - b) * special.psi(a + b)
    )


def spherical_terms(z, parameters):
    """E[log N(z | k)] of every row, and the KL of every component from N(0, I) and Gamma(1, 1); a loop."""
    theta, s, a, b = (getattr(parameters, name).numpy() for name in ("theta", "s", "a", "b"))
    width = z.shape[1]
    scores, kls = np.empty((len(z), len(a))), np.empty(len(a))
    for k in range(len(a)):
        for n, row in enumerate(z):
            square = ((row - theta[k]) ** 2).sum() + width * s[k]
            log_beta = special.psi(a[k]) - math.log(b[k])
            scores[n, k] = 0.5 * width * (log_beta - math.log(2 * math.pi)) - 0.5 * a[k] / b[k] * square
        mean = 0.5 * (width * s[k] + theta[k] @ theta[k] - width - width * math.log(s[k]))
        gamma = (a[k] - 1) * special.psi(a[k]) - special.gammaln(a[k]) + math.log(b[k]) + a[k] * (1 / b[k] - 1)
        kls[k] = mean + gamma
    return scores, kls


def full_terms(z, parameters):
    """The same for Normal-Wishart components with nu0 = S + 1, W0^-1 = (S + 1) I and kappa0 = 1."""
    theta, kappa, a, b = (getattr(parameters, name).numpy() for name in ("theta", "kappa", "a", "b"))
    width = z.shape[1]
    nu = width + 1
    scores, kls = np.empty((len(z), len(a))), np.empty(len(a))
    for k in range(len(a)):
        inverse = np.linalg.inv(b[k])
        log_det = sum(special.psi((a[k] - i) / 2) for i in range(width))
        log_det += width * math.log(2) - np.linalg.slogdet(b[k])[1]
        for n, row in enumerate(z):
            square = width / kappa[k] + a[k] * (row - theta[k]) @ inverse @ (row - theta[k])
            scores[n, k] = 0.5 * (log_det - width * math.log(2 * math.pi) - square)

        def log_normaliser(degrees, scale_log_det):
            return -0.5 * degrees * (scale_log_det + width * math.log(2)) - special.multigammaln(degrees / 2, width)

        mean = 0.5 * (width * (math.log(kappa[k]) - 1 + 1 / kappa[k]) + a[k] * theta[k] @ inverse @ theta[k])
        wishart = log_normaliser(a[k], -np.linalg.slogdet(b[k])[1]) - log_normaliser(nu, -width * math.log(nu))
        wishart += 0.5 * (a[k] - nu) * log_det + 0.5 * a[k] * (np.trace(nu * inverse) - width)
        kls[k] = mean + wishart
    return scores, kls


@families
@pytest.mark.parametrize("weight", [0.01, 0.3, 1.0])
def test_the_bound_is_the_weighted_evidence_minus_the_kls(components, mean_covariance, weight):
    z, logits = problem()
    posterior = posterior_after(4, z, logits, component_family(components, mean_covariance), weight)
    terms = full_terms if components == "full" else spherical_terms
    scores, kls = terms(z.numpy(), posterior.parameters)
    gamma1, gamma2 = posterior.sticks.gamma1.numpy(), posterior.sticks.gamma2.numpy()
    for k in range(scores.shape[1]):
        scores[:, k] += special.psi(gamma1[k]) - special.psi(gamma1[k] + gamma2[k])
        scores[:, k] += sum(special.psi(gamma2[j]) - special.psi(gamma1[j] + gamma2[j]) for j in range(k))
    sticks = sum(beta_kl(one, two, float(ALPHA)) for one, two in zip(gamma1, gamma2, strict=True))
    expected = weight * sum(special.logsumexp(row) for row in scores) - sticks - kls.sum()
    assert float(posterior.exact_bound) == pytest.approx(expected, rel=1e-10, abs=1e-9)


@families
@pytest.mark.parametrize("weight", [0.01, 0.1, 0.5, 1.0])
def test_the_bound_never_falls_over_the_steps(components, mean_covariance, weight):
    # With s_k fixed to 1 the updates are still coordinate ascent.
    for seed in range(5):
        z, logits = problem(40, 2, 6, seed)
        steps = vb_steps(z, logits, component_family(components, mean_covariance), ALPHA, None, weight)
        bounds = np.array([float(posterior.exact_bound) for posterior in islice(steps, 40)])
        assert (np.diff(bounds) >= -1e-10 * np.abs(bounds[:-1]) - 1e-12).all()
        assert bounds[-1] > bounds[0]


@families
def test_rows_that_count_one_are_rows_without_a_weight(components, mean_covariance):
    z, logits = problem()
    family = component_family(components, mean_covariance)
    plain = next(islice(vb_steps(z, logits, family, ALPHA), 6, None))
    weighted = posterior_after(7, z, logits, family, 1.0)
    assert torch.equal(plain.scores, weighted.scores)
    assert torch.equal(plain.exact_bound, weighted.exact_bound)


@families
@pytest.mark.parametrize("copies", [2, 3, 10])
def test_copies_that_count_their_share_are_the_row_itself(components, mean_covariance, copies):
    z, logits = problem()
    family = component_family(components, mean_covariance)
    one = posterior_after(10, z, logits, family)
    many = posterior_after(10, z.repeat(copies, 1), logits.repeat(copies, 1), family, 1 / copies)
    torch.testing.assert_close(many.assignments[: len(z)], one.assignments, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(many.assignments[-len(z) :], one.assignments, rtol=1e-9, atol=1e-11)
    for name in ("theta", "a", "b"):
        torch.testing.assert_close(
            getattr(many.parameters, name), getattr(one.parameters, name), rtol=1e-10, atol=1e-10
        )
    torch.testing.assert_close(many.sticks.gamma2, one.sticks.gamma2, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(many.exact_bound, one.exact_bound, rtol=1e-11, atol=1e-9)


def test_copies_that_count_their_share_converge_at_the_same_step():
    z, logits = problem(60, 2, 6, seed=3)
    family = component_family("spherical", "optimal")
    one = run(vb_steps(z, logits, family, ALPHA), 200, 1e-5)
    many = run(vb_steps(z.repeat(50, 1), logits.repeat(50, 1), family, ALPHA, None, 0.02), 200, 1e-5)
    assert int(many.steps) == int(one.steps)
    torch.testing.assert_close(many.exact_bound, one.exact_bound, rtol=1e-9, atol=1e-9)


def test_padding_has_no_influence_under_a_weight():
    z, logits = problem()
    family = component_family("spherical", "optimal")
    mask = torch.ones(len(z) + 5, dtype=torch.bool)
    mask[-5:] = False
    padded = posterior_after(
        5, torch.cat((z, 99 * torch.ones(5, 3))), torch.cat((logits, torch.zeros(5, 4))), family, 0.2, mask
    )
    plain = posterior_after(5, z, logits, family, 0.2)
    torch.testing.assert_close(padded.exact_bound, plain.exact_bound)
    torch.testing.assert_close(padded.assignments[:-5], plain.assignments)


def test_a_row_that_counts_less_says_less_of_the_parameters():
    """The counts of all clusters add up to weight times the rows."""
    z, logits = problem()
    posterior = posterior_after(3, z, logits, component_family("spherical"), 0.25)
    assert float((posterior.sticks.gamma1 - 1).sum()) == pytest.approx(0.25 * len(z))
    assert float((posterior.parameters.a - 1).sum()) == pytest.approx(0.25 * len(z) * z.shape[1] / 2)
    torch.testing.assert_close(posterior.assignments.sum(-1), torch.ones(len(z), dtype=torch.float64))
