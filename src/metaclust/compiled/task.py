"""A small task from its representations to its continuous ARI, and back."""

from __future__ import annotations

import math
from typing import no_type_check

import numpy as np
from numba import prange

from metaclust.compiled.loops import ZERO, compiled, in_threads, softmax, through_softmax
from metaclust.compiled.network import layers_of, network_back, network_there
from metaclust.compiled.pairs import pair_index
from metaclust.compiled.steps import steps_back, steps_there


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
