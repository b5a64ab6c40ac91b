"""The networks f_U, g_U and f_R of a small task, there and back: see `TaskNetwork` for the formulas.

``weights`` and ``biases`` are those of the nine layers, in order: parts of one array.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from metaclust.compiled.loops import ZERO, add_combined, compiled, copy, products, row_sums


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
