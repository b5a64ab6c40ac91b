"""One block of rows: its contribution to the statistics and to the bound, at given score weights.

Everything with many rows calls this, on one machine or on many: a worker gets the score weights and the rows of one
block, and its results add up. No (rows, components) array outlives a block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from metaclust.mixture.families import Family

LOG2_E = math.log2(math.e)
LEAST = -115.0
"""Smaller powers of two count as this one: below 2^-126 float32 is slow, and nothing is that improbable."""
CACHE = 1 << 21
"""Bytes of the scores of a block."""
FEATURES = 1 << 27
"""Bytes of the features of a block, in float64: rows with very many features come in smaller blocks."""
MOST_CHUNKS = 64
CHUNK = 512
"""Rows that are summed in the precision of the products; longer sums are in float64."""
TRUSTED = 1e-3
"""The largest rounding error of a score at which products are computed in float32.

The bound is then within a millionth of that in float64, and only labels that are tied differ
(tests/mixture/test_estimator_blocks.py).
"""


@dataclass(frozen=True)
class Map:
    """The affine map from rows to what the mixture is fitted to: z = scale (x - centre)."""

    centre: Float[Tensor, "s"]
    scale: Float[Tensor, ""] | Float[Tensor, "s"] | Float[Tensor, "s s"]
    """A number, a number for each column, or a matrix."""

    @property
    def is_matrix(self) -> bool:
        return self.scale.ndim == 2

    def __call__(self, x: Float[Tensor, "n s"], out: Float[Tensor, "s n"]) -> None:
        """Write z, transposed, to ``out``. The difference is in the higher precision: rows may be far from zero."""
        centre = self.centre.to(torch.promote_types(self.centre.dtype, out.dtype))[:, None]
        scale = self.scale.to(out.dtype)
        if self.is_matrix:
            torch.mm(scale, (x.T - centre).to(out.dtype), out=out)
        else:
            torch.sub(x.T, centre, out=out)
            out.mul_(scale[..., None])

    def inverse(self, z: Float[Tensor, "k s"]) -> Float[Tensor, "k s"]:
        """The rows x that are mapped to z, in float64."""
        scale = self.scale.double()
        shifted = torch.linalg.solve(scale, z.T).T if self.is_matrix else z / scale
        return self.centre.double() + shifted

    @property
    def log_volume(self) -> float:
        """log |dz / dx|, which turns a log density of z into one of x."""
        if self.is_matrix:
            return float(torch.linalg.slogdet(self.scale).logabsdet)
        return float(self.scale.log().expand(len(self.centre)).sum())


@dataclass(frozen=True)
class BlockSums:
    """The contribution of blocks of rows; two add up with ``a + b``."""

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
    """Processes blocks of at most ``size`` rows at given score weights; its arrays are reused for every block."""

    def __init__(
        self, family: Family, transform: Map, weights: Float[Tensor, "k f"], dtype: torch.dtype, size: int
    ) -> None:
        # In powers of two, which are several times faster to compute than powers of e.
        self.family, self.transform, self.weights = family, transform, (LOG2_E * weights).to(dtype)
        self.lost = weights - self.weights.double() / LOG2_E
        self.features = torch.empty((weights.shape[1], size), dtype=dtype)
        self.scores = torch.empty((len(weights), size), dtype=dtype)
        self.ones = torch.ones(len(weights), dtype=dtype)

    def score(self, x: Float[Tensor, "n s"]) -> tuple[Tensor, Tensor]:
        """(f, n) features and (k, n) scores to the base two, overwritten by the next block."""
        n = len(x)
        features, scores = self.features[:, :n], self.scores[:, :n]
        self.transform(x, self.family.place(features))
        self.family.fill(features)
        torch.mm(self.weights, features, out=scores)
        return features, scores

    def sums(self, x: Float[Tensor, "n s"], row_weights: Float[Tensor, "n"] | None = None) -> BlockSums:
        """The sums of a block. Assignments are normalized by dividing the features, of which there are fewer."""
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
        # Add what the evidence lost by rounding the weights, to first order: the only error that does not average out.
        return BlockSums(sums, evidence.sum() / LOG2_E + (sums * self.lost).sum())

    def log_evidence(self, x: Float[Tensor, "n s"]) -> Float[Tensor, "n"]:
        """log sum_k exp(score_nk)."""
        _, scores = self.score(x)
        return (scores / LOG2_E).logsumexp(0)

    def labels(self, x: Float[Tensor, "n s"]) -> Tensor:
        """The most probable component of each row; -1 for a row so far away that no score is a number."""
        _, scores = self.score(x)
        return scores.argmax(0).where(scores.amax(0).isfinite(), -1)

    def probabilities(self, x: Float[Tensor, "n s"]) -> Float[Tensor, "n k"]:
        """The probability of each component for each row."""
        return (self.score(x)[1] / LOG2_E).softmax(0).T


def summed_products(one: Float[Tensor, "k n"], other: Float[Tensor, "f n"]) -> Float[Tensor, "k f"]:
    """one @ other.T, where only chunks of rows are summed in float32 and the chunks in float64."""
    full = one.shape[1] // CHUNK
    whole = full * CHUNK
    first = one[:, :whole].unflatten(1, (full, CHUNK)).transpose(0, 1)
    second = other[:, :whole].unflatten(1, (full, CHUNK)).permute(1, 2, 0)
    sums = torch.bmm(first, second).sum(0, dtype=torch.float64)
    return sums if whole == one.shape[1] else sums + (one[:, whole:] @ other[:, whole:].T).double()


def block_size(components: int, features: int) -> int:
    """The number of rows of a block whose scores, in float32, fit in the cache, and whose features are not too many."""
    rows = CHUNK * max(1, min(MOST_CHUNKS, CACHE // (4 * components * CHUNK)))
    return max(1, min(rows, FEATURES // (8 * features)))


def rounding(weights: Float[Tensor, "k f"], features: Float[Tensor, "k f"]) -> float:
    """The rounding error of float32 in the score of a typical row: the machine epsilon times the sum of its terms."""
    count = features[:, :1]
    terms = (weights * features / count.clamp_min(1e-12)).abs().sum(1)
    live = count[:, 0] >= 1
    return float(torch.finfo(torch.float32).eps * terms.where(live, 0).max())
