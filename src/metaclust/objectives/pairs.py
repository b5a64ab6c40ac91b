"""Counts of the rows below and above each value, by sorting: the coefficients of the continuous ARI."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

INDEX_BITS = 20
CATEGORY_BITS = 10
"""A 64-bit sort key holds the category, the 32 bits of the value, and the row."""


def pair_coefficients(
    values: Float[Tensor, "b k n"], category: Int[Tensor, "b n"], present: Bool[Tensor, "b n"], size: Int[Tensor, "b c"]
) -> tuple[Int[Tensor, "b k n"], Int[Tensor, "b k n"]]:
    """Return (rows below - rows above) for each value, among all rows and within its category; 0 for padding."""
    packed = values.dtype == torch.float32 and values.device.type == "cpu"
    fits = values.shape[-1] < 1 << INDEX_BITS and size.shape[-1] < 1 << CATEGORY_BITS
    middle, middle_same = (packed_middles if packed and fits else sorted_middles)(values, category, present)
    absent = ~present[:, None]
    every = middle - present.sum(-1, dtype=torch.int32)[:, None, None]
    before = (2 * size.cumsum(-1) - size).to(torch.int32)
    same = middle_same - before.gather(-1, category)[:, None]
    return every.masked_fill_(absent, 0), same.masked_fill_(absent, 0)


def packed_middles(
    values: Float[Tensor, "b k n"], category: Int[Tensor, "b n"], present: Bool[Tensor, "b n"]
) -> tuple[Int[Tensor, "b k n"], Int[Tensor, "b k n"]]:
    """:func:`sorted_middles` by sorting integers once, which numpy does with vector instructions."""
    rows = values.shape[-1]
    # Adding zero turns -0 into 0; the bits of floats then sort like the floats, with negative ones reversed.
    bits = (values.detach() + 0.0).masked_fill(~present[:, None], float("inf")).view(torch.int32).numpy()
    if bits.min(initial=0) < 0:
        bits = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)
    keys = np.empty((2, *bits.shape), dtype=np.int64)
    np.left_shift(bits, INDEX_BITS, out=keys[0], dtype=np.int64)
    keys[0] |= np.arange(rows)
    np.add(keys[0], (category.numpy() << (INDEX_BITS + 32))[:, None], out=keys[1])
    keys.sort(-1)
    order = keys & ((1 << INDEX_BITS) - 1)
    keys >>= INDEX_BITS
    first = np.empty(keys.shape, dtype=bool)
    first[..., 0] = True
    np.not_equal(keys[..., 1:], keys[..., :-1], out=first[..., 1:])
    start = np.flatnonzero(first).astype(np.int32)
    end = np.empty_like(start)
    end[:-1], end[-1] = start[1:], first.size
    middle = np.repeat(start + end, end - start).reshape(-1, rows)
    middle -= np.arange(0, 2 * first.size, 2 * rows, dtype=np.int32)[:, None]
    every, same = scatter(torch.from_numpy(order), torch.from_numpy(middle.reshape(keys.shape))).unbind(0)
    return every, same


def sorted_middles(
    values: Float[Tensor, "b k n"], category: Int[Tensor, "b n"], present: Bool[Tensor, "b n"]
) -> tuple[Int[Tensor, "b k n"], Int[Tensor, "b k n"]]:
    """Return start + end of each value's run of equal values in sorted order.

    Once among all rows sorted by value, and once sorted by category, then by value.
    """
    rows = values.shape[-1]
    absent = ~present[:, None]
    ordered, order = values.masked_fill(absent, float("inf")).sort(-1)
    changes = ordered[..., 1:] != ordered[..., :-1]
    middle, rank = tie_middles(changes)
    every = scatter(order, middle)
    # Second sort: by category, then by value. The rank among all values replaces the value, so that the key is one
    # exact integer.
    key = category[:, None].expand_as(order).gather(-1, order) * rows + rank
    key.masked_fill_(absent.expand_as(order).gather(-1, order), torch.iinfo(key.dtype).max)
    key, order_again = key.sort(-1)
    middle, _ = tie_middles(key[..., 1:] != key[..., :-1])
    return every, scatter(order.gather(-1, order_again), middle)


def tie_middles(changes: Bool[Tensor, "b k m"]) -> tuple[Int[Tensor, "b k n"], Int[Tensor, "b k n"]]:
    """Return start + end of the run of equal values at each sorted position, and its start."""
    rows = changes.shape[-1] + 1
    place = torch.arange(rows, dtype=torch.int32, device=changes.device)
    start = functional.pad(place[1:] * changes, (1, 0)).cummax(-1).values
    end = functional.pad(place[1:].where(changes, rows), (0, 1), value=rows).flip(-1).cummin(-1).values.flip(-1)
    return start + end, start


def scatter(order: Int[Tensor, "*b n"], values: Int[Tensor, "*b n"]) -> Int[Tensor, "*b n"]:
    """Undo a sort: put each value where its row was."""
    return torch.empty_like(values).scatter_(-1, order, values)
