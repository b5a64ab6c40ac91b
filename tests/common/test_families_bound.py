"""The bound: it never falls, it is the sum of its terms, and it stays below the exact log evidence."""

import itertools
import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import betaln, digamma
from torch.distributions import Beta, Categorical, Gamma, MixtureSameFamily, MultivariateNormal, kl_divergence

from metaclust.mixture import Prior, variational_bayes
from metaclust.mixture.families.base import PSEUDO_ROWS

TASKS, SHAPES, STEPS = 50, 20, 10


def batch(seed, rows_per_component=0):
    """50 padded problems of one shape; each has its own scale, offset, number of rows and alpha."""
    rng = np.random.default_rng(seed)
    components, width = rng.integers(1, 9), rng.integers(1, 6)
    fewest = 1 + rows_per_component * components
    rows = fewest + rng.integers(1, 30)
    scale = 10 ** rng.uniform(-2, 2, (TASKS, 1, 1))
    z = scale * (rng.normal(size=(TASKS, rows, width)) + 3 * rng.normal(size=(TASKS, 1, width)))
    logits = 3 * rng.normal(size=(TASKS, rows, components))
    mask = np.arange(rows) < rng.integers(fewest, rows + 1, (TASKS, 1))
    return tuple(map(torch.tensor, (z, logits, 10 ** rng.uniform(-3, 3, TASKS), mask)))


def largest_fall(posteriors):
    """The largest fall of the bound from one step to the next, relative to the bound where that is above 1."""
    bounds = torch.stack([posterior.exact_bound for posterior in islice(posteriors, STEPS)])
    assert bounds.shape == (STEPS, TASKS)
    assert (bounds[-1] > bounds[0]).any()
    return ((bounds[:-1] - bounds[1:]) / bounds[:-1].abs().clamp_min(1)).max()


@pytest.mark.parametrize("seed", range(SHAPES))
def test_no_step_of_vb_lowers_the_bound(vb_fit, seed):
    assert largest_fall(vb_fit.steps(*batch(seed))) <= 1e-10


@pytest.mark.parametrize("seed", range(SHAPES // 4))
def test_no_step_of_vb_lowers_the_bound_under_a_prior_for_each_task(vb_fit, seed):
    prior = Prior(*torch.tensor(10 ** np.random.default_rng([seed, 3]).uniform(-1, 1, (3, TASKS))))
    assert largest_fall(replace(vb_fit, prior=prior).steps(*batch(seed))) <= 1e-10


@pytest.mark.parametrize("seed", range(SHAPES))
def test_no_step_of_em_lowers_the_likelihood(em_fit, seed):
    assert largest_fall(em_fit.steps(*batch(seed, rows_per_component=10))) <= 1e-10


@pytest.mark.parametrize("seed", range(SHAPES))
def test_where_em_shrinks_onto_single_rows_only_rounding_lowers_the_likelihood(em_fit, seed):
    """A component that owns one row has a precision of 1e5 and more, and rounding is magnified as much."""
    assert largest_fall(em_fit.steps(*batch(seed))) <= 1e-8


def small_problem(seed, rows=6, components=3, width=2):
    rng = np.random.default_rng(seed)
    z = 10 ** rng.uniform(-1, 1) * rng.normal(size=(rows, width))
    return torch.tensor(z), torch.tensor(rng.normal(size=(rows, components))), 10 ** rng.uniform(-1, 1)


def expected_log_det(dof, scale):
    width = len(scale)
    return sum(digamma((dof - i) / 2) for i in range(width)) + width * math.log(2) + np.linalg.slogdet(scale)[1]


def wishart_kl(dof, scale, prior_dof, prior_scale):
    """From scipy's entropy and density: -H(q) - E_q[log p], whose log density is linear in Lambda and log |Lambda|."""
    width = len(scale)
    expected_trace = np.trace(np.linalg.solve(prior_scale, dof * scale))
    more = expected_log_det(dof, scale) - np.linalg.slogdet(prior_scale)[1]
    at_scale = stats.wishart.logpdf(prior_scale, prior_dof, prior_scale)
    density = at_scale + (prior_dof - width - 1) / 2 * more + (width - expected_trace) / 2
    return -stats.wishart.entropy(dof, scale) - density


def component_terms(z, posterior, k, prior):
    """(E[log N(z_n | k)] for each row, KL of the component's parameters from their prior)."""
    parameters, width = posterior.parameters, z.shape[-1]
    theta, a, b = parameters.theta[k], parameters.a[k], parameters.b[k]
    eye, zero = torch.eye(width, dtype=z.dtype), torch.zeros(width, dtype=z.dtype)
    if posterior.family.precision_axes == 2:
        scale, kappa = b.inverse(), parameters.kappa[k]
        precision, covariance, log_det = a * scale, b / (a * kappa), expected_log_det(a.item(), scale.numpy())
        wide = MultivariateNormal(zero, kappa / prior.mean_precision * covariance)
        dof = width - 1 + 2 * prior.shape
        prior_scale = np.eye(width) * prior.shape / (prior.rate * dof)
        kl = kl_divergence(MultivariateNormal(theta, covariance), wide)
        kl = kl + wishart_kl(a.item(), scale.numpy(), dof, prior_scale)
    else:
        # b is one number, or one for each column.
        precision, covariance = a / b * eye, parameters.s[k] * eye
        log_det = float((torch.digamma(a) - b.log()).expand(width).sum())
        gamma = Gamma(*torch.tensor([prior.shape, prior.rate], dtype=z.dtype))
        wide = MultivariateNormal(zero, eye / prior.mean_precision)
        kl = kl_divergence(MultivariateNormal(theta, covariance), wide) + kl_divergence(Gamma(a, b), gamma).sum()
    square = torch.stack([(row - theta) @ precision @ (row - theta) for row in z]) + (precision @ covariance).trace()
    return 0.5 * (log_det - width * math.log(2 * math.pi) - square), kl


def some_prior(seed):
    return Prior(*(10 ** np.random.default_rng([seed, 2]).uniform(-1, 1, 3)))


@pytest.mark.parametrize("papers", [True, False], ids=["paper's prior", "other prior"])
@pytest.mark.parametrize("seed", range(12))
def test_the_bound_of_vb_is_the_sum_of_its_terms(vb_fit, seed, papers):
    z, logits, alpha = small_problem(seed, components=1 + seed % 4, width=1 + seed % 3)
    components = Prior() if papers else some_prior(seed)
    posterior = vb_fit(z, logits, alpha=alpha, steps=3, prior=components)
    prior = Beta(torch.ones((), dtype=z.dtype), torch.tensor(alpha, dtype=z.dtype))
    total, log_left = 0.0, 0.0
    for k in range(logits.shape[-1]):
        gamma1, gamma2 = posterior.sticks.gamma1[k], posterior.sticks.gamma2[k]
        whole = digamma((gamma1 + gamma2).item())
        log_weight, log_left = log_left + digamma(gamma1.item()) - whole, log_left + digamma(gamma2.item()) - whole
        log_likelihood, kl = component_terms(z, posterior, k, components)
        r = posterior.r[:, k]
        total += (r * (log_weight + log_likelihood - r.log())).sum() - kl - kl_divergence(Beta(gamma1, gamma2), prior)
    torch.testing.assert_close(posterior.bound, total, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_of_em_is_the_log_likelihood_with_the_pseudo_rows(em_fit, seed):
    z, logits, _ = small_problem(seed, rows=12, components=1 + seed % 3, width=1 + seed % 3)
    posterior = em_fit(z, logits, steps=3)
    b, a, width = posterior.b, posterior.a, z.shape[-1]
    eye = torch.eye(width, dtype=z.dtype)
    if em_fit.precision_axes == 2:
        covariance = b / a[:, None, None]
    else:
        covariance = (b.reshape(len(a), -1) / a[:, None])[:, None] * eye
    components = MultivariateNormal(posterior.theta, covariance)
    standard = MultivariateNormal(torch.zeros(width, dtype=z.dtype), eye)
    cross_entropy = kl_divergence(standard, components) + standard.entropy()
    pseudo = PSEUDO_ROWS * (posterior.weights.log() - cross_entropy).sum()
    rows = MixtureSameFamily(Categorical(posterior.weights), components).log_prob(z).sum()
    torch.testing.assert_close(posterior.bound, rows + pseudo, rtol=1e-9, atol=1e-9)


def log_evidence_full(z):
    """Normal-Wishart evidence of one component: the chain of Student-t predictive densities."""
    width, total = z.shape[-1], 0.0
    for n in range(len(z)):
        seen, kappa, dof = z[:n], 1 + n, width + 1 + n
        mean = seen.sum(0) / kappa
        inverse_scale = (width + 1) * np.eye(width) + seen.T @ seen - kappa * np.outer(mean, mean)
        shape = inverse_scale * (kappa + 1) / (kappa * (dof - width + 1))
        total += stats.multivariate_t.logpdf(z[n], mean, shape, df=dof - width + 1)
    return total


def log_evidence_spherical(z):
    """One component: mu integrated out in closed form (rows are correlated by it), beta by quadrature."""
    rows = len(z)
    if rows == 0:
        return 0.0

    def density(beta):
        covariance = np.eye(rows) / beta + 1
        return math.exp(sum(stats.multivariate_normal.logpdf(column, cov=covariance) for column in z.T) - beta)

    return math.log(integrate.quad(density, 0, 60, limit=200)[0])


def log_evidence(fit, z, components, alpha):
    """Exact, by the sum over all assignments of rows to components; diagonal ones have independent columns."""

    def component(z):
        if fit.precision_axes == 1:
            return sum(log_evidence_spherical(column[:, None]) for column in z.T)
        return (log_evidence_full if fit.precision_axes else log_evidence_spherical)(z)

    terms = []
    for v in itertools.product(range(components), repeat=len(z)):
        count = np.bincount(v, minlength=components)
        later = count[::-1].cumsum()[::-1] - count
        weight = sum(betaln(1 + count, alpha + later) - betaln(1, alpha))
        terms.append(weight + sum(component(z[np.array(v) == k]) for k in range(components)))
    return np.logaddexp.reduce(terms)


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_below_the_exact_log_evidence(vb_fit, seed):
    z, logits, alpha = small_problem(seed, rows=3, components=2, width=1 + seed % 2)
    bound = vb_fit(z, logits, alpha=alpha, steps=50).bound
    evidence = log_evidence(vb_fit, z.numpy(), 2, alpha)
    assert evidence - 10 < bound < evidence


@pytest.mark.parametrize("seed", range(6))
def test_one_full_component_has_the_exact_log_evidence_as_its_bound(seed):
    z, logits, alpha = small_problem(seed, rows=5, components=1, width=1 + seed % 3)
    bound = variational_bayes(z, logits, alpha=alpha, components="full").bound
    evidence = log_evidence_full(z.numpy()) + betaln(6, alpha) - betaln(1, alpha)
    assert bound.item() == pytest.approx(evidence, rel=1e-10)


def test_freeing_the_covariance_of_the_means_raises_the_bound():
    z, logits, alpha = zip(*(small_problem(seed, components=1) for seed in range(20)), strict=True)
    problems = torch.stack(z), torch.stack(logits), 100, torch.tensor(alpha)
    unit, optimal = (variational_bayes(*problems, mean_covariance=m).bound for m in ("unit", "optimal"))
    assert (optimal > unit).all()
