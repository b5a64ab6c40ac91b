"""Products and the softmax of a small task, as loops that numba compiles.

A training step on vectors is small: hundreds of operations on some hundred rows, which torch spends more time calling
than computing. Here a task is one call, from its representations to its continuous ARI, and one back. What belongs to a
row is float32, with the rows side by side: x is (features, rows), r is (components, rows). ``n`` is the number of rows,
of which the arrays may have more.
"""

from __future__ import annotations

import math
from typing import Any, no_type_check

import numpy as np
from numba import njit

OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    # NaN and infinity stay what they are: training stops at them.
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}
compiled = njit(**OPTIONS)
in_threads = njit(parallel=True, **OPTIONS)

ZERO = np.float32(0)
LOG2_E = np.float32(1 / math.log(2))
LEAST = np.float32(-126)
"""The exponent of two of the smallest number that is not zero, but for denormal ones."""


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
