"""The continuous ARI of a small task, and its derivative, by comparing all pairs: see `objectives`.

For a column of assignments, sum_{n<n'} |r_n - r_n'| = sum_n r_n (rows below - rows above), among all rows and among
those of a category. Of some hundred rows, counting them, eight pairs at a time, takes less time than a sort.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from metaclust.compiled.loops import ZERO, compiled


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
