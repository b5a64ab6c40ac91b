"""The steps of the spherical mixture in a small task, there and back: see `mixture/loop.py` for the formulas.

What is computed for each component alone is in double precision. ``prior`` is (alpha, mean precision, shape, rate).
"""

from __future__ import annotations

import math
from typing import no_type_check

import numpy as np

from metaclust.compiled.loops import ZERO, add_combined, compiled, copy, products, softmax, through_softmax

LOG_2PI = math.log(2 * math.pi)
ANY = np.float32(1e-30)
"""The weight of a row on a seed when the next one is drawn: only where there are no others."""


@compiled
@no_type_check
def digamma(x):
    found = 0.0
    while x < 8.0:
        found -= 1.0 / x
        x += 1.0
    one = 1.0 / x
    two = one * one
    series = 1 / 12 - two * (1 / 120 - two * (1 / 252 - two * (1 / 240 - two * (1 / 132 - two * (691 / 32760)))))
    return found + math.log(x) - 0.5 * one - two * series


@compiled
@no_type_check
def trigamma(x):
    found = 0.0
    while x < 8.0:
        found += 1.0 / (x * x)
        x += 1.0
    one = 1.0 / x
    two = one * one
    series = 1 / 6 - two * (1 / 30 - two * (1 / 42 - two * (1 / 30 - two * (5 / 66 - two * (691 / 2730)))))
    return found + one + 0.5 * two + one * two * series


@compiled
@no_type_check
def seeded_start(x, n, draws, number, r, nearest, total, power):
    """Soft assignments around ``number`` rows, drawn one after another, far from those drawn before."""
    for j in range(n):
        nearest[j] = np.float32(1)
    for k in range(number):
        reached = ZERO
        for j in range(n):
            reached += nearest[j] + ANY
            total[j] = reached
        goal = np.float32(draws[k]) * reached
        seed = 0
        while seed < n - 1 and total[seed] < goal:
            seed += 1
        for j in range(n):
            r[k, j] = ZERO
        for f in range(2, x.shape[0]):
            at = x[f, seed]
            for j in range(n):
                r[k, j] += (x[f, j] - at) * (x[f, j] - at)
        for j in range(n):
            distance = r[k, j]
            nearest[j] = distance if k == 0 else min(nearest[j], distance)
            r[k, j] = np.float32(-0.5) * distance
    softmax(r[:number], n, total, power)
    for k in range(number, r.shape[0]):
        for j in range(n):
            r[k, j] = ZERO


@compiled
@no_type_check
def weights_of(sums, beta, prior, optimal, weights):
    """What one step finds for each component; ``beta`` is replaced. See `Spherical.update` and `score_weights`."""
    alpha, l0, a0, b0 = prior
    components, width = sums.shape[0], sums.shape[1] - 2
    half = 0.5 * width
    later = 0.0
    for k in range(components):
        later += sums[k, 0]
    before = 0.0
    for k in range(components):
        n, q = float(sums[k, 0]), float(sums[k, 1])
        p = 0.0
        for f in range(2, sums.shape[1]):
            p += float(sums[k, f]) * float(sums[k, f])
        later = max(later - n, 0.0) if k < components - 1 else 0.0
        whole = digamma(1 + n + alpha + later)
        log_weight = digamma(1 + n) - whole + before
        before += digamma(alpha + later) - whole
        shrink = 1 / (l0 + beta[k] * n)
        w = beta[k] * shrink
        s = shrink if optimal else 1.0
        a = a0 + half * n
        b = b0 + 0.5 * max(q + (w * w * n - 2 * w) * p, 0.0) + half * n * s
        new = a / b
        constant = half * (digamma(a) - math.log(b) - LOG_2PI - new * s)
        weights[k, 0] = constant - 0.5 * new * w * w * p + log_weight
        weights[k, 1] = -0.5 * new
        for f in range(2, sums.shape[1]):
            weights[k, f] = new * w * sums[k, f]
        beta[k] = new


@compiled
@no_type_check
def divergence(sums, beta, prior, optimal):
    """The summed KL of sticks and components after a step that read ``sums`` and started at ``beta``."""
    alpha, l0, a0, b0 = prior
    components, width = sums.shape[0], sums.shape[1] - 2
    half = 0.5 * width
    found, later = 0.0, 0.0
    for k in range(components - 1, -1, -1):
        n, q = float(sums[k, 0]), float(sums[k, 1])
        p = 0.0
        for f in range(2, sums.shape[1]):
            p += float(sums[k, f]) * float(sums[k, f])
        g1, g2 = 1 + n, alpha + later
        later += n
        found += math.lgamma(g1 + g2) - math.lgamma(g1) - math.lgamma(g2) - math.log(alpha)
        found += (g1 - 1) * digamma(g1) + (g2 - alpha) * digamma(g2) + (1 + alpha - g1 - g2) * digamma(g1 + g2)
        shrink = 1 / (l0 + beta[k] * n)
        w = beta[k] * shrink
        s = shrink if optimal else 1.0
        a = a0 + half * n
        b = b0 + 0.5 * max(q + (w * w * n - 2 * w) * p, 0.0) + half * n * s
        found += 0.5 * l0 * w * w * p + half * (l0 * s - 1 - math.log(l0 * s))
        found += math.lgamma(a0) - math.lgamma(a) + (a - a0) * digamma(a)
        found += a0 * (math.log(b) - math.log(b0)) + a * (b0 - b) / b
    return found


@compiled
@no_type_check
def steps_there(b, x, n, draws, numbers, prior, optimal, own, r, start, sums, weights):
    """The steps from the assignments ``own`` or, where those from seeds reach a better bound, from the best of them.

    ``draws`` are those of `starts.seed_draws`. Writes ``r``, the assignments after each step, ``start``, those that the
    steps started at, and what each step read and found. Returns which start was best, 0 for ``own``.
    """
    steps, components, rows = r.shape
    nearest, total = np.empty(rows, np.float32), np.empty(rows, np.float32)
    power = np.empty(rows, np.int32)
    path = np.empty((2, steps + 1, components, rows), np.float32)
    read = np.empty((2, steps, components, x.shape[0]), np.float32)
    made = np.empty((2, steps, components, x.shape[0]), np.float32)
    beta, beta_before = np.empty(components), np.empty(components)
    best, reached = 0, -np.inf
    now, kept = 0, 1
    for i in range(len(numbers) + 1):
        if i == 0:
            copy(own, path[now, 0])
        else:
            column = draws[:, (i - 1) * (draws.shape[1] // len(numbers)) + b]
            seeded_start(x, n, column, numbers[i - 1], path[now, 0], nearest, total, power)
        beta.fill(prior[2] / prior[3])
        largest = nearest
        for t in range(steps):
            products(path[now, t], x, n, read[now, t])
            for k in range(components):
                beta_before[k] = beta[k]
            weights_of(read[now, t], beta, prior, optimal, made[now, t])
            for k in range(components):
                for j in range(n):
                    path[now, t + 1, k, j] = ZERO
            add_combined(made[now, t], x, n, path[now, t + 1])
            largest = softmax(path[now, t + 1], n, total, power)
        bound = 0.0
        if len(numbers):
            for j in range(n):
                bound += float(largest[j]) + math.log(float(total[j]))
            bound -= divergence(read[now, steps - 1], beta_before, prior, optimal)
        if i == 0 or bound > reached:
            best, reached = i, bound
            now, kept = kept, now
    copy(path[kept, 0], start)
    for t in range(steps):
        copy(path[kept, t + 1], r[t])
        copy(read[kept, t], sums[t])
        copy(made[kept, t], weights[t])
    return best


@compiled
@no_type_check
def component_derivative(n, q, p, beta, half, prior, optimal, out):
    """How (C, beta', D) change with n, q, p, beta, l0, a0, b0, as `loop.component_derivatives` has it; returns D."""
    _, l0, a0, b0 = prior
    shrink = 1 / (l0 + beta * n)
    w = beta * shrink
    raw = q + (w * w * n - 2 * w) * p
    s = shrink if optimal else 1.0
    a = a0 + half * n
    b = b0 + 0.5 * max(raw, 0.0) + half * n * s
    new = a / b
    square = shrink * shrink
    slope = trigamma(a)
    for v in range(7):
        d_shrink, d_w, d_raw, d_a = 0.0, 0.0, 0.0, 0.0
        d_ns, d_b0, d_p = 0.0, 0.0, 0.0
        if v == 0:
            d_shrink, d_w, d_raw, d_a, d_ns = -beta * square, -w * w, w * w * p, half, s
        elif v == 1:
            d_raw = 1.0
        elif v == 2:
            d_raw, d_p = w * w * n - 2 * w, 1.0
        elif v == 3:
            d_shrink, d_w = -n * square, l0 * square
        elif v == 4:
            d_shrink, d_w = -square, -w * shrink
        elif v == 5:
            d_a = 1.0
        else:
            d_b0 = 1.0
        d_raw = d_raw - 2 * p * l0 * shrink * d_w if raw > 0 else 0.0
        if optimal:
            d_ns += n * d_shrink
        d_b = 0.5 * d_raw + half * d_ns + d_b0
        d_new = (d_a - new * d_b) / b
        d_c = half * (slope * d_a - d_b / b - s * d_new)
        if optimal:
            d_c -= half * new * d_shrink
        d_c -= 0.5 * w * w * p * d_new + new * w * p * d_w + 0.5 * new * w * w * d_p
        out[0, v], out[1, v], out[2, v] = d_c, d_new, w * d_new + new * d_w
    return new * w


@compiled
@no_type_check
def steps_back(x, n, r, start, sums, weights, slopes, prior, optimal, of_x, of_prior):
    """From the gradients in the assignments after each step, ``slopes``, those in x, added, and in the prior.

    Returns the gradient in the assignments that the steps started at.
    """
    steps, components, rows = r.shape
    width = x.shape[0] - 2
    half = 0.5 * width
    total = np.empty(rows, np.float32)
    change = np.zeros((components, rows), np.float32)
    weight = np.empty((components, width + 2), np.float32)
    moved = np.empty((components, width + 2), np.float32)
    local = np.empty((3, 7))
    beta, along, scale = np.zeros(components), np.empty(components), np.empty(components)
    out = np.empty((components, 7))
    for t in range(steps - 1, -1, -1):
        for k in range(components):
            for j in range(n):
                change[k, j] += slopes[t, k, j]
        through_softmax(r[t], change, n, total)
        add_combined(weights[t].T, change, n, of_x)
        products(change, x, n, weight)
        later, after = 0.0, 0.0
        for k in range(components):
            later += sums[t, k, 0]
            after += weight[k, 0]
        common, below = 0.0, 0.0
        for k in range(components):
            n_k, q = float(sums[t, k, 0]), float(sums[t, k, 1])
            p, inner = 0.0, 0.0
            for f in range(2, width + 2):
                p += float(sums[t, k, f]) * float(sums[t, k, f])
                inner += float(weight[k, f]) * float(sums[t, k, f])
            beta_before = prior[2] / prior[3] if t == 0 else -2 * float(weights[t - 1, k, 1])
            scale[k] = component_derivative(n_k, q, p, beta_before, half, prior, optimal, local)
            constant = float(weight[k, 0])
            second = beta[k] - 0.5 * float(weight[k, 1])
            for v in range(7):
                out[k, v] = constant * local[0, v] + second * local[1, v] + inner * local[2, v]
            beta[k] = out[k, 3]
            # The sticks: E[log pi_m] changes with N_k by common[min(k, m)], and by psi'(gamma_k1) for m = k.
            later = max(later - n_k, 0.0) if k < components - 1 else 0.0
            common -= trigamma(1 + n_k + prior[0] + later)
            if k:
                below += along[k - 1] * float(weight[k - 1, 0])
                after -= float(weight[k - 1, 0])
            along[k] = common
            out[k, 0] += below + common * after + trigamma(1 + n_k) * constant
            of_prior[0] += constant * common
            common += trigamma(prior[0] + later)
            for v in range(3):
                of_prior[v + 1] += out[k, 4 + v]
            moved[k, 0], moved[k, 1] = out[k, 0], out[k, 1]
            for f in range(2, width + 2):
                moved[k, f] = scale[k] * weight[k, f] + 2 * out[k, 2] * sums[t, k, f]
        add_combined(moved.T, start if t == 0 else r[t - 1], n, of_x)
        for k in range(components):
            for j in range(n):
                change[k, j] = ZERO
        add_combined(moved, x, n, change)
    # The first step starts at beta = shape / rate.
    for k in range(components):
        of_prior[2] += beta[k] / prior[3]
        of_prior[3] -= beta[k] * prior[2] / (prior[3] * prior[3])
    return change
