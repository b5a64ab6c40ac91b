"""One block of rows: what it adds to the statistics and to the bound, at given parameters.

The function that everything with many rows calls, on one machine or on many: it is told the score weights, sees the
rows of its block only, and what it gives adds up. No (rows, components) array outlives a block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from metaclust.mixture.products import Products

LOG2_E = math.log2(math.e)
LEAST = -115.0
"""The least power of two that is told from zero: below 2^-126 float32 is slow, and nothing is that improbable."""
CACHE = 1 << 21
"""Bytes of the scores of a block."""
MOST_CHUNKS = 64
CHUNK = 512
"""Rows that are added up in the precision of the products; longer sums are in float64."""
TRUSTED = 1e-3
"""How far a score may be off by the rounding of float32 for products to be computed in it.

The bound is then within a millionth of that in float64, and labels differ in ties only
(tests/test_infinite_mixture_blocks.py).
"""


@dataclass(frozen=True)
class Map:
    """How rows become what the mixture is fitted to: z = (x - centre) scale, or scale (x - centre) for a matrix."""

    centre: Float[Tensor, "s"]
    scale: Float[Tensor, ""] | Float[Tensor, "s s"]

    def __call__(self, x: Float[Tensor, "n s"], out: Float[Tensor, "s n"]) -> None:
        """Transposed. The difference is taken in the higher precision, for rows may be far from zero."""
        centre = self.centre.to(torch.promote_types(self.centre.dtype, out.dtype))[:, None]
        if self.scale.ndim == 0:
            torch.sub(x.T, centre, out=out)
            out.mul_(float(self.scale))
        else:
            torch.mm(self.scale.to(out.dtype), (x.T - centre).to(out.dtype), out=out)

    @property
    def log_volume(self) -> float:
        """log |dz / dx|: what a density of z gains to be one of x."""
        if self.scale.ndim == 0:
            return float(len(self.centre) * self.scale.log())
        return float(torch.linalg.slogdet(self.scale).logabsdet)


@dataclass(frozen=True)
class BlockSums:
    """What blocks add; two add up with ``a + b``."""

    features: Float[Tensor, "k f"]
    """sum_n w_n r_nk features_n: the statistics, in float64."""
    evidence: Float[Tensor, ""]
    """sum_n w_n log sum_k exp(score_nk), in float64."""

    def __add__(self, other: BlockSums) -> BlockSums:
        if not isinstance(other, BlockSums):
            return NotImplemented
        return BlockSums(self.features + other.features, self.evidence + other.evidence)

    @staticmethod
    def zero(weights: Float[Tensor, "k f"]) -> BlockSums:
        return BlockSums(torch.zeros_like(weights), weights.new_zeros(()))


class Worker:
    """Sees blocks at one setting of the score weights; its arrays are used again for every block."""

    def __init__(
        self, products: Products, transform: Map, weights: Float[Tensor, "k f"], dtype: torch.dtype, size: int
    ) -> None:
        # In powers of two, which are several times faster to compute than those of e.
        self.products, self.transform, self.weights = products, transform, (LOG2_E * weights).to(dtype)
        self.lost = weights - self.weights.double() / LOG2_E
        self.features = torch.empty((weights.shape[1], size), dtype=dtype)
        self.scores = torch.empty((len(weights), size), dtype=dtype)
        self.ones = torch.ones(len(weights), dtype=dtype)

    def score(self, x: Float[Tensor, "n s"]) -> tuple[Tensor, Tensor]:
        """(f, n) features and (k, n) scores in powers of two, overwritten by the next block."""
        n = len(x)
        features, scores = self.features[:, :n], self.scores[:, :n]
        self.transform(x, self.products.place(features))
        self.products.fill(features)
        torch.mm(self.weights, features, out=scores)
        return features, scores

    def sums(self, x: Float[Tensor, "n s"], row_weights: Float[Tensor, "n"] | None = None) -> BlockSums:
        """What a block adds. The assignments are normalised by dividing the features: there are fewer of them."""
        features, scores = self.score(x)
        top = scores.amax(0)
        scores.sub_(top).clamp_(min=LEAST).exp2_()
        total = torch.mv(scores.T, self.ones)
        evidence = top.double() + total.log2().double()
        share = total.reciprocal_()
        if row_weights is not None:
            share = share * row_weights.to(share.dtype)
            evidence = evidence * row_weights
        features.mul_(share)
        sums = summed_products(scores, features)
        # What rounding the weights took from the evidence, to first order: the only error that does not average out.
        return BlockSums(sums, evidence.sum() / LOG2_E + (sums * self.lost).sum())

    def log_evidence(self, x: Float[Tensor, "n s"]) -> Float[Tensor, "n"]:
        """log sum_k exp(score_nk)."""
        _, scores = self.score(x)
        return (scores / LOG2_E).logsumexp(0)

    def labels(self, x: Float[Tensor, "n s"]) -> Tensor:
        """The most probable component of each row."""
        return self.score(x)[1].argmax(0)

    def probabilities(self, x: Float[Tensor, "n s"]) -> Float[Tensor, "n k"]:
        return (self.score(x)[1] / LOG2_E).softmax(0).T


def summed_products(one: Float[Tensor, "k n"], other: Float[Tensor, "f n"]) -> Float[Tensor, "k f"]:
    """one @ other.T in float64: float32 adds up few rows only."""
    full = one.shape[1] // CHUNK
    whole = full * CHUNK
    first = one[:, :whole].unflatten(1, (full, CHUNK)).transpose(0, 1)
    second = other[:, :whole].unflatten(1, (full, CHUNK)).permute(1, 2, 0)
    sums = torch.bmm(first, second).sum(0, dtype=torch.float64)
    return sums if whole == one.shape[1] else sums + (one[:, whole:] @ other[:, whole:].T).double()


def block_size(components: int) -> int:
    """Rows of a block whose scores, in float32, fit the cache."""
    return CHUNK * max(1, min(MOST_CHUNKS, CACHE // (4 * components * CHUNK)))


def rounding(weights: Float[Tensor, "k f"], features: Float[Tensor, "k f"]) -> float:
    """How far float32 may be off the score of a component's typical row: its precision times the terms added up."""
    count = features[:, :1]
    terms = (weights * features / count.clamp_min(1e-12)).abs().sum(1)
    live = count[:, 0] >= 1
    return float(torch.finfo(torch.float32).eps * terms.where(live, 0).max())
