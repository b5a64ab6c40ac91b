"""A small task of a training step from its representations to its continuous ARI, and back: loops that numba compiles.

A training step on vectors is small: hundreds of operations on some hundred rows, which torch spends more time calling
than computing. Here a task is one call there, and one back. What belongs to a row is float32, with the rows side by
side: x is (features, rows), r is (components, rows). ``n`` is the number of rows, of which the arrays may have more.

All of it is in this one file: numba keeps what it has compiled until the file that a function is in has changed, and
does not look at the files of those that it calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, no_type_check

import numpy as np
from numba import njit, prange

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    # NaN and infinity stay what they are: training stops at them.
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """The function as machine code, which is kept on disk, where there is a place for it."""
    try:
        return njit(cache=True, **options, **OPTIONS)(function)
    except RuntimeError:  # No folder can be written to: compiled again in every process.
        return njit(**options, **OPTIONS)(function)


def in_threads(function: Callable[..., Any]) -> Any:
    return compiled(function, parallel=True)


ZERO = np.float32(0)
LOG_2PI = math.log(2 * math.pi)
LOG2_E = np.float32(1 / math.log(2))
LEAST = np.float32(-126)
"""The exponent of two of the smallest number that is not zero, but for denormal ones."""
ANY = np.float32(1e-30)
"""The weight of a row on a seed when the next one is drawn: only where there are no others."""


# Products and the softmax.


@compiled
@no_type_check
def products(a, b, n, out):
    """out[k, f] = sum_j a[k, j] b[f, j]; two rows of a and four of b at a time, which stay in registers."""
    many, width = a.shape[0], b.shape[0]
    twos, fours = many - many % 2, width - width % 4
    for f in range(0, fours, 4):
        for k in range(0, twos, 2):
            c0, c1, c2, c3, d0, d1, d2, d3 = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
            for j in range(n):
                p, q = a[k, j], a[k + 1, j]
                b0, b1, b2, b3 = b[f, j], b[f + 1, j], b[f + 2, j], b[f + 3, j]
                c0 += p * b0
                c1 += p * b1
                c2 += p * b2
                c3 += p * b3
                d0 += q * b0
                d1 += q * b1
                d2 += q * b2
                d3 += q * b3
            out[k, f], out[k, f + 1], out[k, f + 2], out[k, f + 3] = c0, c1, c2, c3
            out[k + 1, f], out[k + 1, f + 1], out[k + 1, f + 2], out[k + 1, f + 3] = d0, d1, d2, d3
    for k in range(many):
        for f in range(0 if k >= twos else fours, width):
            total = ZERO
            for j in range(n):
                total += a[k, j] * b[f, j]
            out[k, f] = total


@compiled
@no_type_check
def add_combined(w, x, n, out):
    """out[k, j] += sum_f w[k, f] x[f, j]."""
    many, width = w.shape
    twos, fours = many - many % 2, width - width % 4
    for k in range(0, twos, 2):
        for f in range(0, fours, 4):
            v0, v1, v2, v3 = w[k, f], w[k, f + 1], w[k, f + 2], w[k, f + 3]
            w0, w1, w2, w3 = w[k + 1, f], w[k + 1, f + 1], w[k + 1, f + 2], w[k + 1, f + 3]
            for j in range(n):
                x0, x1, x2, x3 = x[f, j], x[f + 1, j], x[f + 2, j], x[f + 3, j]
                out[k, j] += v0 * x0 + v1 * x1 + v2 * x2 + v3 * x3
                out[k + 1, j] += w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3
    for k in range(many):
        for f in range(0 if k >= twos else fours, width):
            w0 = w[k, f]
            for j in range(n):
                out[k, j] += w0 * x[f, j]


@compiled
@no_type_check
def copy(x, out):
    """Without the words of an error about shapes, which take seconds to compile."""
    for k in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[k, j] = x[k, j]


@compiled
@no_type_check
def row_sums(x, n, out):
    for k in range(x.shape[0]):
        total = ZERO
        for j in range(n):
            total += x[k, j]
        out[k] = total


@compiled
@no_type_check
def softmax(scores, n, total, power):
    """Over the components, in place; returns the largest scores, ``total`` gets the sums of the exponentials less them.

    The exponential is 2^(whole + rest): the whole power by its bits, that of the rest, at most half, by a polynomial.
    """
    largest = np.empty(n, np.float32)
    exact = power.view(np.float32)
    for j in range(n):
        largest[j] = scores[0, j]
        total[j] = ZERO
    for k in range(1, scores.shape[0]):
        for j in range(n):
            largest[j] = scores[k, j] if scores[k, j] > largest[j] else largest[j]
    for k in range(scores.shape[0]):
        for j in range(n):
            x = (scores[k, j] - largest[j]) * LOG2_E
            x = LEAST if x < LEAST else x  # So that NaN stays.
            whole = np.int32(x - np.float32(0.5))
            power[j] = (whole + np.int32(127)) << np.int32(23)
            t = x - np.float32(whole)
            p = np.float32(1.5252733e-5)
            p = p * t + np.float32(1.5403530e-4)
            p = p * t + np.float32(1.3333558e-3)
            p = p * t + np.float32(9.6181291e-3)
            p = p * t + np.float32(5.5504109e-2)
            p = p * t + np.float32(2.4022651e-1)
            p = p * t + np.float32(6.9314718e-1)
            scores[k, j] = p * t + np.float32(1)
        for j in range(n):
            value = scores[k, j] * exact[j]
            scores[k, j] = value
            total[j] += value
    for j in range(n):
        power[j] = 0
        exact[j] = np.float32(1) / total[j]
    for k in range(scores.shape[0]):
        for j in range(n):
            scores[k, j] *= exact[j]
    return largest


@compiled
@no_type_check
def through_softmax(r, change, n, total):
    """The gradient before a softmax from that after it, in place."""
    for j in range(n):
        total[j] = ZERO
    for k in range(r.shape[0]):
        for j in range(n):
            total[j] += r[k, j] * change[k, j]
    for k in range(r.shape[0]):
        for j in range(n):
            change[k, j] = r[k, j] * (change[k, j] - total[j])


# The networks f_U, g_U and f_R: see `TaskNetwork` for the formulas. ``weights`` and ``biases`` are those of the nine
# layers, in order: parts of one array.


@compiled
@no_type_check
def taken(values, first, rows, columns):
    """A matrix out of many numbers."""
    return values[first : first + rows * columns].reshape(rows, columns)


@compiled
@no_type_check
def layers_of(flat, width, hidden, columns):
    """Weights and biases out of all numbers of the networks."""
    square, each = hidden * hidden, hidden * hidden + hidden
    # The second layer of f_U; the last of f_R.
    second = hidden * width + hidden
    later = second + 5 * each
    last = later + hidden * (width + hidden) + hidden + each
    weights = (
        taken(flat, 0, hidden, width),
        taken(flat, second, hidden, hidden),
        taken(flat, second + each, hidden, hidden),
        taken(flat, second + 2 * each, hidden, hidden),
        taken(flat, second + 3 * each, hidden, hidden),
        taken(flat, second + 4 * each, hidden, hidden),
        taken(flat, later, hidden, width + hidden),
        taken(flat, last - each, hidden, hidden),
        taken(flat, last, columns, hidden),
    )
    biases = (
        flat[second - hidden : second],
        flat[second + square : second + each],
        flat[second + each + square : second + 2 * each],
        flat[second + 2 * each + square : second + 3 * each],
        flat[second + 3 * each + square : second + 4 * each],
        flat[second + 4 * each + square : later],
        flat[last - each - hidden : last - each],
        flat[last - hidden : last],
        flat[last + columns * hidden : last + columns * hidden + columns],
    )
    return weights, biases


@compiled
@no_type_check
def layer(weight, bias, x, n, rectified, out):
    """out = weight x + bias of n rows, and where ``rectified`` not below zero."""
    for k in range(weight.shape[0]):
        each = bias[k]
        for j in range(n):
            out[k, j] = each
    add_combined(weight, x, n, out)
    if rectified:
        for k in range(weight.shape[0]):
            for j in range(n):
                out[k, j] = ZERO if out[k, j] < ZERO else out[k, j]  # So that NaN stays.


@compiled
@no_type_check
def layer_back(weight, slope, n, reached, out):
    """The gradient before the rectified units that gave ``reached``, from that after a layer that read them."""
    for k in range(out.shape[0]):
        for j in range(n):
            out[k, j] = ZERO
    add_combined(weight.T, slope, n, out)
    for k in range(out.shape[0]):
        for j in range(n):
            out[k, j] = out[k, j] if reached[k, j] > ZERO else ZERO


@compiled
@no_type_check
def slopes(slope, x, n, of_weight, of_bias):
    """What a layer that read ``x`` gives its weight and its bias."""
    products(slope, x, n, of_weight)
    row_sums(slope, n, of_bias)


@compiled
@no_type_check
def single(weight, bias, x, rectified, out):
    """:func:`layer` of one row."""
    for k in range(weight.shape[0]):
        total = ZERO
        for f in range(weight.shape[1]):
            total += weight[k, f] * x[f]
        total += bias[k]
        out[k] = ZERO if rectified and total < ZERO else total


@compiled
@no_type_check
def single_back(weight, slope, x, of_weight, of_bias, out):
    """What a layer that read the one row ``x`` gives its weight, its bias and the row."""
    for f in range(weight.shape[1]):
        out[f] = ZERO
    for k in range(weight.shape[0]):
        each = slope[k]
        of_bias[k] = each
        for f in range(weight.shape[1]):
            of_weight[k, f] = each * x[f]
            out[f] += each * weight[k, f]


@compiled
@no_type_check
def network_there(z, n, weights, biases, by_row, by_task, logits):
    """Writes the ``logits``, and what the layers gave: ``by_row``, (4, hidden, rows), has the two hidden layers of f_U
    and of f_R, ``by_task``, (5, hidden), the mean over the rows, what f_U gives, and the layers of g_U."""
    width, hidden = z.shape[0], by_task.shape[1]
    mean, g0, g1, g2, u = by_task[0], by_task[1], by_task[2], by_task[3], by_task[4]
    layer(weights[0], biases[0], z, n, True, by_row[0])
    layer(weights[1], biases[1], by_row[0], n, True, by_row[1])
    row_sums(by_row[1], n, mean)
    for k in range(hidden):
        mean[k] /= np.float32(max(n, 1))
    # The last layer of f_U is linear, so it may come after the mean; of f_R's first, u's part is the same for all rows.
    single(weights[2], biases[2], mean, False, g0)
    single(weights[3], biases[3], g0, True, g1)
    single(weights[4], biases[4], g1, True, g2)
    single(weights[5], biases[5], g2, False, u)
    of_task = np.empty(hidden, np.float32)
    of_z, of_u = np.ascontiguousarray(weights[6][:, :width]), np.ascontiguousarray(weights[6][:, width:])
    single(of_u, biases[6], u, False, of_task)
    layer(of_z, of_task, z, n, True, by_row[2])
    layer(weights[7], biases[7], by_row[2], n, True, by_row[3])
    layer(weights[8], biases[8], by_row[3], n, False, logits)


@compiled
@no_type_check
def network_back(z, n, weights, by_row, by_task, slope, of_z, of_weights, of_biases):
    """From the gradient in the logits that in z, added, and those in weights and biases."""
    width, hidden = z.shape[0], by_task.shape[1]
    d2, d1 = np.empty(by_row[0].shape, np.float32), np.empty(by_row[0].shape, np.float32)
    mean, g0, g1, g2, u = by_task[0], by_task[1], by_task[2], by_task[3], by_task[4]
    one, other = np.empty(hidden, np.float32), np.empty(hidden, np.float32)
    layer_back(weights[8], slope, n, by_row[3], d2)
    layer_back(weights[7], d2, n, by_row[2], d1)
    slopes(slope, by_row[3], n, of_weights[8], of_biases[8])
    slopes(d2, by_row[2], n, of_weights[7], of_biases[7])
    weight_z, weight_u = np.ascontiguousarray(weights[6][:, :width]), np.ascontiguousarray(weights[6][:, width:])
    of_weight_z, of_weight_u = np.empty_like(weight_z), np.empty_like(weight_u)
    slopes(d1, z, n, of_weight_z, one)
    add_combined(weight_z.T, d1, n, of_z)
    single_back(weight_u, one, u, of_weight_u, of_biases[6], other)
    copy(of_weight_z, of_weights[6][:, :width])
    copy(of_weight_u, of_weights[6][:, width:])
    single_back(weights[5], other, g2, of_weights[5], of_biases[5], one)
    for k in range(hidden):
        one[k] = one[k] if g2[k] > ZERO else ZERO
    single_back(weights[4], one, g1, of_weights[4], of_biases[4], other)
    for k in range(hidden):
        other[k] = other[k] if g1[k] > ZERO else ZERO
    single_back(weights[3], other, g0, of_weights[3], of_biases[3], one)
    single_back(weights[2], one, mean, of_weights[2], of_biases[2], other)
    for k in range(hidden):
        each = other[k] / np.float32(max(n, 1))
        for j in range(n):
            d2[k, j] = each if by_row[1, k, j] > ZERO else ZERO
    layer_back(weights[1], d2, n, by_row[0], d1)
    slopes(d2, by_row[0], n, of_weights[1], of_biases[1])
    slopes(d1, z, n, of_weights[0], of_biases[0])
    add_combined(weights[0].T, d1, n, of_z)


# The steps of the spherical mixture: see `mixture/loop.py` for the formulas. What is computed for each component alone
# is in double precision. ``prior`` is (alpha, mean precision, shape, rate).


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


# The continuous ARI by comparing all pairs: see `objectives`. For a column of assignments,
# sum_{n<n'} |r_n - r_n'| = sum_n r_n (rows below - rows above), among all rows and among those of a category. Of some
# hundred rows, counting them, eight pairs at a time, takes less time than a sort.


@compiled
@no_type_check
def add_below(values, n, first, last, out):
    """Count, for each value, those from ``first`` to ``last`` that are below it."""
    fours = last - (last - first) % 4
    for i in range(first, fours, 4):
        a, b, c, d = values[i], values[i + 1], values[i + 2], values[i + 3]
        for j in range(n):
            v = values[j]
            out[j] += np.int32(v > a) + np.int32(v > b) + np.int32(v > c) + np.int32(v > d)
    for i in range(fours, last):
        a = values[i]
        for j in range(n):
            out[j] += np.int32(values[j] > a)


@compiled
@no_type_check
def below(values, n, ends, part, every, same):
    """How many of all, and of its own category, are below each value; returns how many pairs are not equal."""
    for j in range(n):
        every[j] = 0
    first = 0
    for last in ends:
        for j in range(n):
            part[j] = 0
        add_below(values, n, first, last, part)
        for j in range(n):
            every[j] += part[j]
        for j in range(first, last):
            same[j] = part[j]
        first = last
    pairs = 0
    for j in range(n):
        pairs += every[j]
    return pairs


@compiled
@no_type_check
def orders(values, n, ends, scratch, every, same):
    """For each value, how many of all, and of its own category, are below it, less those above."""
    pairs = below(values, n, ends, scratch[0], every, same)
    if 2 * pairs == n * (n - 1):
        # All differ: those that are not below are above.
        first = 0
        for last in ends:
            for j in range(first, last):
                same[j] = 2 * same[j] + 1 - np.int32(last - first)
            first = last
        for j in range(n):
            every[j] = 2 * every[j] + 1 - np.int32(n)
        return
    for j in range(n):
        scratch[1].view(np.float32)[j] = -values[j]
    below(scratch[1].view(np.float32), n, ends, scratch[0], scratch[2], scratch[3])
    for j in range(n):
        every[j] -= scratch[2, j]
        same[j] -= scratch[3, j]


@compiled
@no_type_check
def pair_index(r, n, ends, slope):
    """The index, and its derivative in ``r``; the rows of category c are those up to ``ends[c]``, in order."""
    columns = r.shape[0]
    every, same = np.empty((columns, n), np.int32), np.empty((columns, n), np.int32)
    scratch = np.empty((4, n), np.int32)
    same_pairs, first = 0.0, 0
    for last in ends:
        same_pairs += 0.5 * (last - first) * (last - first - 1.0)
        first = last
    other_pairs = 0.5 * n * (n - 1.0) - same_pairs
    apart, within = 0.0, 0.0
    for k in range(columns):
        orders(r[k], n, ends, scratch, every[k], same[k])
        for j in range(n):
            within += 0.5 * same[k, j] * float(r[k, j])
            apart += 0.5 * (every[k, j] - same[k, j]) * float(r[k, j])
    denominator = other_pairs * (other_pairs - apart + same_pairs - within) + (apart + within) * same_pairs
    if denominator <= 0:
        # No pair is wrong: one row, or one category in one cluster, or all rows alone.
        for k in range(columns):
            for j in range(n):
                slope[k, j] = ZERO
        return 1.0
    index = 2 * (apart * same_pairs - other_pairs * within) / denominator
    common = index * (same_pairs - other_pairs)
    of_apart = np.float32(0.5 * (2 * same_pairs - common) / denominator)
    of_within = np.float32(0.5 * (-2 * other_pairs - common) / denominator)
    for k in range(columns):
        for j in range(n):
            slope[k, j] = of_apart * np.float32(every[k, j] - same[k, j]) + of_within * np.float32(same[k, j])
    return index


# A task.


@compiled
@no_type_check
def fitting(index, mask, y, rows):
    """Whether the loops, which check nothing, may read such tasks: categories are numbered, and no row is in twice."""
    seen = np.zeros(rows, np.bool_)
    for b in range(len(y)):
        for j in range(y.shape[1]):
            if mask[b, j]:
                place = index[b, j]
                if y[b, j] < 0 or y[b, j] >= y.shape[1] or place < 0 or place >= rows or seen[place]:
                    return False
                seen[place] = True
    return True


@compiled
@no_type_check
def rows_of(index, mask, y, rows):
    """The places of a task's rows, those of a category one after another; returns where each category ends."""
    many = 0
    for j in range(len(y)):
        if mask[j]:
            many = max(many, y[j] + 1)
    ends = np.zeros(many, np.int64)
    for j in range(len(y)):
        if mask[j]:
            ends[y[j]] += 1
    place = 0
    for c in range(many):
        # Where the category starts; where it ends, once its rows are placed.
        ends[c], place = place, place + ends[c]
    for j in range(len(y)):
        if mask[j]:
            rows[ends[y[j]]] = index[j]
            ends[y[j]] += 1
    return ends


@compiled
@no_type_check
def features(z, rows, n, x):
    """x = (1, ||z||^2, z), a row of z in each column."""
    for j in range(n):
        x[0, j], x[1, j] = np.float32(1), ZERO
    for s in range(z.shape[1]):
        for j in range(n):
            value = z[rows[j], s]
            x[s + 2, j] = value
            x[1, j] += value * value


@compiled
@no_type_check
def kept_size(rows, width, hidden, components, steps, indices):
    """How many numbers are kept of a task for the way back."""
    of_rows = 4 * hidden + (steps + 2 + indices) * components
    return of_rows * rows + 5 * hidden + 2 * steps * components * (width + 2)


@compiled
@no_type_check
def kept_parts(kept, rows, width, hidden, components, steps, indices):
    """What the layers of the networks gave by row and by task; the assignments of the best start and of all steps; what
    the steps read and found; the derivatives of the indices."""
    task = 4 * hidden * rows
    start = task + 5 * hidden
    r = start + components * rows
    sums = r + (steps + 1) * components * rows
    weights = sums + steps * components * (width + 2)
    slopes = weights + steps * components * (width + 2)
    return (
        kept[:task].reshape(4, hidden, rows),
        kept[task:start].reshape(5, hidden),
        kept[start:r].reshape(components, rows),
        kept[r:sums].reshape(steps + 1, components, rows),
        kept[sums:weights].reshape(steps, components, width + 2),
        kept[weights:slopes].reshape(steps, components, width + 2),
        kept[slopes:].reshape(indices, components, rows),
    )


@compiled
@no_type_check
def there(b, sizes, z, index, mask, y, draws, numbers, flat, prior, optimal, kept, best, found):
    """The indices of task ``b``: of the last ones of the assignments that the networks and the steps give.

    ``sizes`` are those of the hidden layers, the number of components and of steps.
    """
    hidden, components, steps = sizes
    width, most = z.shape[1], y.shape[1]
    weights, biases = layers_of(flat, width, hidden, components)
    parts = kept_parts(kept[b], most, width, hidden, components, steps, len(found))
    by_row, by_task, start, r, sums, made, slope = parts
    rows = np.empty(most, np.int64)
    ends = rows_of(index[b], mask[b], y[b], rows)
    n = ends[-1] if len(ends) else 0
    x = np.empty((width + 2, most), np.float32)
    features(z, rows, n, x)
    network_there(x[2:], n, weights, biases, by_row, by_task, r[0])
    total, power = np.empty(most, np.float32), np.empty(most, np.int32)
    softmax(r[0], n, total, power)
    best[b] = steps_there(b, x, n, draws, numbers, prior, optimal, r[0], r[1:], start, sums, made)
    first = steps + 1 - len(found)
    for i in range(len(found)):
        found[i, b] = pair_index(r[first + i], n, ends, slope[i])


@compiled
@no_type_check
def back(b, sizes, z, index, mask, y, flat, prior, optimal, limit, kept, best, gradient, of_z, of_flat, of_prior):
    """From the gradient in the indices of task ``b`` those in z, of which the norm is at most ``limit`` if it is
    positive, and its part of those in the networks and the prior."""
    hidden, components, steps = sizes
    width, most = z.shape[1], y.shape[1]
    weights, _ = layers_of(flat, width, hidden, components)
    of_weights, of_biases = layers_of(of_flat[b], width, hidden, components)
    parts = kept_parts(kept[b], most, width, hidden, components, steps, len(gradient))
    by_row, by_task, start, r, sums, made, slope = parts
    rows = np.empty(most, np.int64)
    ends = rows_of(index[b], mask[b], y[b], rows)
    n = ends[-1] if len(ends) else 0
    x, of_x = np.empty((width + 2, most), np.float32), np.zeros((width + 2, most), np.float32)
    features(z, rows, n, x)
    slopes = np.zeros((steps + 1, components, most), np.float32)
    first = steps + 1 - len(gradient)
    for i in range(len(gradient)):
        each = gradient[i, b]
        for k in range(components):
            for j in range(n):
                slopes[first + i, k, j] = each * slope[i, k, j]
    of_start = steps_back(x, n, r[1:], start, sums, made, slopes[1:], prior, optimal, of_x, of_prior[b])
    own = slopes[0]
    # Seeds pass no gradient.
    if best[b] == 0:
        for k in range(components):
            for j in range(n):
                own[k, j] += of_start[k, j]
    total = np.empty(most, np.float32)
    through_softmax(r[0], own, n, total)
    network_back(x[2:], n, weights, by_row, by_task, own, of_x[2:], of_weights, of_biases)
    square = 0.0
    for s in range(width):
        for j in range(n):
            value = of_x[s + 2, j] + np.float32(2) * x[s + 2, j] * of_x[1, j]
            of_x[s + 2, j] = value
            square += float(value) * float(value)
    scale = np.float32(limit / max(math.sqrt(square), limit)) if limit > 0 else np.float32(1)
    for j in range(n):
        for s in range(width):
            of_z[rows[j], s] = scale * of_x[s + 2, j]


@compiled
@no_type_check
def owners(mask, threads):
    """Which thread has which task: the larger tasks are divided first."""
    sizes = np.empty(len(mask), np.int64)
    for b in range(len(mask)):
        sizes[b] = np.sum(mask[b])
    owner, load = np.empty(len(mask), np.int64), np.zeros(threads, np.int64)
    for _ in range(len(mask)):
        largest = np.argmax(sizes)
        least = np.argmin(load)
        owner[largest] = least
        load[least] += sizes[largest] + 1
        sizes[largest] = -1
    return owner


@in_threads
@no_type_check
def there_all(threads, sizes, z, index, mask, y, draws, numbers, flat, prior, optimal, kept, best, found):
    """:func:`there` of all tasks, each by the thread that owns it."""
    owner = owners(mask, threads)
    for i in prange(threads):
        for b in range(len(owner)):
            if owner[b] == i:
                there(b, sizes, z, index, mask, y, draws, numbers, flat, prior, optimal, kept, best, found)


@in_threads
@no_type_check
def back_all(
    threads, sizes, z, index, mask, y, flat, prior, optimal, limit, kept, best, slopes, of_z, of_flat, of_prior
):
    """:func:`back` of all tasks, each by the thread that owns it."""
    owner = owners(mask, threads)
    for i in prange(threads):
        for b in range(len(owner)):
            if owner[b] == i:
                back(
                    b,
                    sizes,
                    z,
                    index,
                    mask,
                    y,
                    flat,
                    prior,
                    optimal,
                    limit,
                    kept,
                    best,
                    slopes,
                    of_z,
                    of_flat,
                    of_prior,
                )
