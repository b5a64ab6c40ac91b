"""The mixture against a second derivation, written as loops over rows and components."""

import math

import numpy as np
import pytest
import torch
from scipy.special import digamma

from metaclust.mixture import Prior
from metaclust.mixture.families.base import PSEUDO_ROWS

STEPS = 10
PROBLEMS = 200


def softmax_rows(scores):
    r = np.zeros_like(scores)
    for n, row in enumerate(scores):
        weights = [math.exp(score - max(row)) for score in row]
        r[n] = [weight / sum(weights) for weight in weights]
    return r


def stick_breaking(count, alpha):
    """E[log pi_k] for eta_k ~ Beta(1 + N_k, alpha + rows in later components)."""
    log_weights, log_left = [], 0.0
    for k in range(len(count)):
        gamma1, gamma2 = 1 + count[k], alpha + sum(count[k + 1 :])
        log_weights.append(log_left + digamma(gamma1) - digamma(gamma1 + gamma2))
        log_left += digamma(gamma2) - digamma(gamma1 + gamma2)
    return log_weights


def column_groups(fit, width):
    """The columns that share a precision: all of them in spherical components, none in diagonal ones."""
    return [list(range(width))] if fit.precision_axes == 0 else [[column] for column in range(width)]


def factorized(z, r, alpha, optimal, prior, groups):
    """q(mu_k) q(beta_k) with a precision for each group of columns."""
    (rows, width), components = z.shape, r.shape[1]
    theta, s = np.zeros((components, width)), np.ones((components, len(groups)))
    a, b = np.full((components, len(groups)), prior.shape), np.full((components, len(groups)), prior.rate)
    for _ in range(STEPS):
        count = [sum(r[n, k] for n in range(rows)) for k in range(components)]
        log_weights = stick_breaking(count, alpha)
        scores = np.zeros_like(r) + log_weights
        for k in range(components):
            for g, group in enumerate(groups):
                beta = a[k, g] / b[k, g]
                precision = prior.mean_precision + beta * count[k]
                theta[k, group] = beta * sum(r[n, k] * z[n, group] for n in range(rows)) / precision
                s[k, g] = 1 / precision if optimal else 1
                square = [sum((z[n, group] - theta[k, group]) ** 2) + len(group) * s[k, g] for n in range(rows)]
                a[k, g] = prior.shape + len(group) / 2 * count[k]
                b[k, g] = prior.rate + sum(r[n, k] * square[n] for n in range(rows)) / 2
                log_precision = digamma(a[k, g]) - math.log(b[k, g]) - math.log(2 * math.pi)
                for n in range(rows):
                    scores[n, k] += len(group) / 2 * log_precision - a[k, g] / b[k, g] / 2 * square[n]
        r = softmax_rows(scores)
    return r, theta, a[:, 0], b, log_weights


def full(z, r, alpha, prior):
    (rows, width), components = z.shape, r.shape[1]
    theta = np.zeros((components, width))
    a, b = np.zeros(components), np.zeros((components, width, width))
    degrees = width - 1 + 2 * prior.shape
    for _ in range(STEPS):
        count = [sum(r[n, k] for n in range(rows)) for k in range(components)]
        log_weights = stick_breaking(count, alpha)
        scores = np.zeros_like(r)
        for k in range(components):
            kappa = prior.mean_precision + count[k]
            theta[k] = sum(r[n, k] * z[n] for n in range(rows)) / kappa
            a[k] = degrees + count[k]
            b[k] = degrees * prior.rate / prior.shape * np.eye(width)
            b[k] += prior.mean_precision * np.outer(theta[k], theta[k])
            for n in range(rows):
                b[k] += r[n, k] * np.outer(z[n] - theta[k], z[n] - theta[k])
            scale = np.linalg.inv(b[k])
            log_det = sum(digamma((a[k] + 1 - i) / 2) for i in range(1, width + 1))
            log_det += width * math.log(2) + math.log(np.linalg.det(scale))
            for n in range(rows):
                square = a[k] * (z[n] - theta[k]) @ scale @ (z[n] - theta[k]) + width / kappa
                scores[n, k] = log_weights[k] + (log_det - width * math.log(2 * math.pi) - square) / 2
        r = softmax_rows(scores)
    return r, theta, a, b, log_weights


def em(z, r, groups):
    """Maximum likelihood when every component also owns PSEUDO_ROWS rows with mean 0 and covariance I."""
    (rows, width), components = z.shape, r.shape[1]
    theta, covariance = np.zeros((components, width)), np.zeros((components, width, width))
    for _ in range(STEPS):
        count = [PSEUDO_ROWS + sum(r[n, k] for n in range(rows)) for k in range(components)]
        log_weights = [math.log(count[k] / sum(count)) for k in range(components)]
        scores = np.zeros_like(r)
        for k in range(components):
            theta[k] = sum(r[n, k] * z[n] for n in range(rows)) / count[k]
            scatter = PSEUDO_ROWS * (np.eye(width) + np.outer(theta[k], theta[k]))
            for n in range(rows):
                scatter += r[n, k] * np.outer(z[n] - theta[k], z[n] - theta[k])
            covariance[k] = scatter / count[k]
            if groups is not None:
                variance = np.diagonal(covariance[k]).copy()
                for group in groups:
                    variance[group] = variance[group].mean()
                covariance[k] = np.diag(variance)
            precision = np.linalg.inv(covariance[k])
            log_det = math.log(np.linalg.det(2 * math.pi * covariance[k]))
            for n in range(rows):
                square = (z[n] - theta[k]) @ precision @ (z[n] - theta[k])
                scores[n, k] = log_weights[k] - (log_det + square) / 2
        r = softmax_rows(scores)
    if groups is None:
        return r, theta, np.array(count), np.array(count)[:, None, None] * covariance, log_weights
    a = len(groups[0]) / 2 * np.array(count)
    b = a[:, None] * np.array([[covariance[k, group[0], group[0]] for group in groups] for k in range(components)])
    return r, theta, a, b, log_weights


def brute_force(fit, z, logits, alpha, prior):
    r, groups = softmax_rows(logits), None if fit.precision_axes == 2 else column_groups(fit, z.shape[1])
    if fit.em:
        return em(z, r, groups)
    if groups is None:
        return full(z, r, alpha, prior)
    return factorized(z, r, alpha, fit.mean_covariance == "optimal", prior, groups)


def problem(seed, em):
    """Rows, logits and alpha. EM gets enough rows for no component to shrink onto a point, where rounding grows."""
    rng = np.random.default_rng(seed)
    width = rng.integers(1, 4)
    rows = rng.integers(20, 30) if em else rng.integers(1, 12)
    components = rng.integers(1, 4) if em else rng.integers(1, 6)
    scale, alpha = 10 ** rng.uniform(-1, 1, 2)
    z = scale * rng.normal(size=(rows, width)) + rng.normal(size=width)
    return z, rng.normal(size=(rows, components)) * (1 if em else 10 ** rng.uniform(-1, 1)), alpha


def compare(posterior, expected, seed):
    r, theta, a, b, log_weights = expected
    np.testing.assert_allclose(posterior.r, r, rtol=0, atol=1e-10, err_msg=f"r, problem {seed}")
    for name, value in {"theta": theta, "a": a, "b": b, "log_weights": log_weights}.items():
        ours = getattr(posterior, name).numpy().reshape(np.shape(value))
        np.testing.assert_allclose(ours, value, rtol=1e-10, atol=1e-10, err_msg=f"{name}, problem {seed}")


@pytest.mark.parametrize("block", range(4))
def test_ten_steps_equal_the_loops(fit, block):
    for seed in range(block * PROBLEMS // 4, (block + 1) * PROBLEMS // 4):
        z, logits, alpha = problem(seed, fit.em)
        posterior = fit(torch.tensor(z), torch.tensor(logits), alpha=alpha, steps=STEPS)
        compare(posterior, brute_force(fit, z, logits, alpha, Prior()), seed)


def test_ten_steps_under_another_prior_equal_the_loops(vb_fit):
    for seed in range(PROBLEMS // 4):
        z, logits, alpha = problem(seed, em=False)
        prior = Prior(*(10 ** np.random.default_rng([seed, 1]).uniform(-1.5, 1.5, 3)))
        posterior = vb_fit(torch.tensor(z), torch.tensor(logits), alpha=alpha, steps=STEPS, prior=prior)
        compare(posterior, brute_force(vb_fit, z, logits, alpha, prior), seed)
