"""A VB step over all rows: ours in blocks, scikit-learn's, and the least that has to be computed, side by side.

The least is one product of the features with the weights, 2 to the power of it, and one product with the features
again, in float32 and in the same blocks: no features are made, nothing is normalised, no bound is computed.
"""

from __future__ import annotations

import warnings
from collections import deque
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture

from benchmarks.measure import interleaved
from benchmarks.report import Row, machine, markdown
from metaclust.data.streams import ArrayStream
from metaclust.mixture.blocks import Map, block_size
from metaclust.mixture.families import FAMILIES, component_family
from metaclust.mixture.rows import WeightedRows
from metaclust.mixture.streaming import BlockMixture, LocalPasses, block_steps, first_memo
from metaclust.mixture.threads import over_blocks

Covariance = Literal["spherical", "full"]
SLOW = 3e9
"""Rows times components times columns (squared for full covariances) of which one round is enough."""


def rows(short: bool = False) -> list[Row]:
    """N = 1e5, 1e6; S = 10, 64; K' = 10, 50, 200; both covariances."""
    sizes = [(2000, 3, 4)] if short else [(n, s, k) for n in (10**5, 10**6) for s in (10, 64) for k in (10, 50, 200)]
    kinds: tuple[Covariance, ...] = ("spherical", "full")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [compare(kind, *size, rounds=1 if short else None) for kind in kinds for size in sizes]


def compare(covariance: Covariance, n: int, s: int, k: int, rounds: int | None = None) -> Row:
    """The medians of one step, interleaved: all three, then ours and the least alone, for scikit-learn's step takes
    long, and gives so much memory back that the next one is slower."""
    x, centres = problem(n, s, k)
    cost = n * k * s * (s if covariance == "full" else 1)
    rounds = rounds or (1 if cost > 100 * SLOW else 3 if cost > SLOW else 7)
    two = {"ours": ours(x, centres, covariance), "least": least(n, s, k, covariance)}
    warm_up = 1 if rounds > 1 else 0
    seconds = interleaved({"scikit-learn": theirs(x, covariance, k), **two}, rounds, warm_up)
    alone = interleaved(two, 3 * rounds, warm_up)
    return Row(
        f"VB step, {covariance}",
        f"N = {n:,}, S = {s}, K' = {k}",
        {
            **{f"{name}, s": value for name, value in seconds.items()},
            **{f"{name}, alone, s": value for name, value in alone.items()},
            "scikit-learn / ours": seconds["scikit-learn"] / seconds["ours"],
            "ours / least": alone["ours"] / alone["least"],
        },
    )


def problem(n: int, s: int, k: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows around k centres in float32, and the centres."""
    generator = np.random.default_rng(0)
    centres = 2 * generator.normal(size=(k, s)).astype(np.float32)
    x = centres[generator.integers(0, k, n)]
    return x + generator.normal(size=(n, s)).astype(np.float32), centres


def ours(x: NDArray[np.float32], centres: NDArray[np.float32], covariance: Covariance):  # type: ignore[no-untyped-def]
    """One pass after another, each with its update and its bound."""
    width, kind = x.shape[1], FAMILIES[covariance]
    family = component_family(covariance, "optimal", kind.default_prior(width))
    transform = Map(torch.zeros(width), kind.scale(torch.eye(width, dtype=torch.float64)))
    mixture = BlockMixture(family, transform, torch.tensor(1.0, dtype=torch.float64))
    passes = LocalPasses(WeightedRows(ArrayStream(x), width), mixture)
    prior = family.start(family.features(torch.zeros((0, width), dtype=torch.float64)), len(centres))
    weights = family.score_weights(family.around(torch.from_numpy(centres).double(), 1.0))
    steps = block_steps(passes, first_memo(passes, weights, prior))
    return lambda _: next(steps)


def theirs(x: NDArray[np.float32], covariance: Covariance, k: int):  # type: ignore[no-untyped-def]
    """The body of its loop: E step, M step, bound."""
    mixture = BayesianGaussianMixture(
        n_components=k, covariance_type=covariance, init_params="random_from_data", random_state=0
    )
    # Set up by a fit to few rows: its own start takes longer than a step.
    mixture.set_params(max_iter=1, tol=1e300).fit(x[: max(4 * k, 1000)])

    def step(_: int) -> None:
        evidence, log_r = mixture._e_step(x)
        mixture._m_step(x, log_r)
        mixture._compute_lower_bound(log_r, evidence)

    return step


def least(n: int, s: int, k: int, covariance: Covariance):  # type: ignore[no-untyped-def]
    """In as many threads as ours, too."""
    number = component_family(covariance).feature_count(s)
    size = min(n, block_size(k, number))
    weights, features = torch.full((k, number), 1e-3), torch.full((number, size), 1e-3)

    def one(arrays: tuple[torch.Tensor, torch.Tensor], count: int) -> None:
        scores, sums = arrays[0][:, :count], arrays[1]
        torch.mm(weights, features[:, :count], out=scores)
        scores.exp2_()
        torch.mm(scores, features[:, :count].T, out=sums)

    def step(_: int) -> None:
        blocks = ((min(size, n - first),) for first in range(0, n, size))
        deque(over_blocks(lambda: (torch.empty((k, size)), torch.empty((k, number))), one, blocks), maxlen=0)

    return step


if __name__ == "__main__":
    print(markdown(rows(), machine()))
