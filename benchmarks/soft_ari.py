"""The continuous ARI of many rows: time against all pairs of rows, growth of time, peak memory."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.measure import interleaved, peak_memory
from benchmarks.report import Row, machine, markdown
from metaclust import soft_ari

COLUMNS = 50
MEMORY = """
import torch
from metaclust import soft_ari
torch.manual_seed(0)
r = torch.randn({n}, {columns}).softmax(-1).requires_grad_()
soft_ari(r, torch.randint(40, ({n},))).backward()
"""


def rows(short: bool = False) -> list[Row]:
    """Time forward and backward passes."""
    small, large, rounds = (100, 1000, 1) if short else (2000, 100_000, 5)
    r, y = problem(small)
    seconds = interleaved(
        {"ours": lambda _: step(soft_ari, r, y), "all pairs": lambda _: step(by_pairs, r, y)}, rounds, warm_up=1
    )
    values = {f"{name}, s": value for name, value in seconds.items()}
    pairs = Row(
        "Continuous ARI, forward and backward",
        f"N = {small:,}, K' = {COLUMNS}",
        {**values, "all pairs / ours": seconds["all pairs"] / seconds["ours"]},
    )
    problems = {n: problem(n) for n in (large, 2 * large)}
    grown = interleaved(
        {str(n): lambda _, n=n: step(soft_ari, *problems[n]) for n in problems},  # type: ignore[misc]
        rounds,
        warm_up=1,
    )
    once, twice = grown.values()
    growth = Row(
        "Continuous ARI, forward and backward",
        f"N = {large:,}, K' = {COLUMNS}",
        {
            "ours, s": once,
            "ours at twice the rows / ours": twice / once,
            "the same of N log N": 2 * math.log(2 * large) / math.log(large),
            "peak memory of the process at twice the rows, GB": peak_memory(
                MEMORY.format(n=2 * large, columns=COLUMNS)
            ),
        },
    )
    return [pairs, growth]


def problem(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    r = torch.randn(n, COLUMNS, generator=generator).softmax(-1).requires_grad_()
    return r, torch.randint(40, (n,), generator=generator)


def step(score, r: Tensor, y: Tensor) -> None:  # type: ignore[no-untyped-def]
    r.grad = None
    score(r, y).backward()


Distances = Callable[[Tensor], Tensor]
"""(rows, K) -> (rows, rows): summed absolute differences."""


def torch_distances(r: Tensor) -> Tensor:
    return torch.cdist(r, r, p=1)


def broadcast_distances(r: Tensor) -> Tensor:
    """Return the distances by way of all (rows, rows, K) differences, as in the formula."""
    return (r[:, None] - r).abs().sum(-1)


def by_pairs(r: Tensor, y: Tensor, distances: Distances = torch_distances) -> Tensor:
    """Return the continuous ARI by the distance of every pair of rows, as in the paper (with its erratum)."""
    apart = 0.5 * distances(r)
    same = y[:, None] == y
    above = torch.ones_like(apart).triu(1)
    n1, n2 = ((1 - apart) * same * above).sum(), (apart * same * above).sum()
    n3, n4 = ((1 - apart) * ~same * above).sum(), (apart * ~same * above).sum()
    return 2 * (n1 * n4 - n2 * n3) / ((n1 + n2) * (n2 + n4) + (n1 + n3) * (n3 + n4))


if __name__ == "__main__":
    print(markdown(rows(), machine()))
