"""The continuous ARI of many rows: how time grows with the number of rows, and the peak of memory."""

from __future__ import annotations

import torch

from benchmarks.measure import interleaved, peak_memory
from metaclust import soft_ari

COLUMNS = 50
MEMORY = f"""
import torch
from metaclust import soft_ari
torch.manual_seed(0)
r = torch.randn(200_000, {COLUMNS}).softmax(-1).requires_grad_()
soft_ari(r, torch.randint(40, (200_000,))).backward()
"""


def main(rows: int = 100_000, rounds: int = 5) -> None:
    """Forward and backward at twice the rows against once, in one run."""
    torch.manual_seed(0)
    problems = {}
    for n in (rows, 2 * rows):
        r = torch.randn(n, COLUMNS).softmax(-1).requires_grad_()
        problems[n] = (r, torch.randint(40, (n,)))

    def step(n: int) -> None:
        r, y = problems[n]
        r.grad = None
        soft_ari(r, y).backward()

    seconds = interleaved({str(n): lambda _, n=n: step(n) for n in problems}, rounds, warm_up=1)  # type: ignore[misc]
    small, large = seconds.values()
    print(f"soft_ari, K' = {COLUMNS}, forward and backward: N = {rows:,} {small:.2f} s, N = {2 * rows:,} {large:.2f} s")
    print(f"  time ratio {large / small:.2f} (N log N would be {2 * (1 + 1 / 16.6):.2f}, N^2 4)")
    print(f"  peak memory of a process at N = 200,000: {peak_memory(MEMORY):.2f} GB")


if __name__ == "__main__":
    main()
