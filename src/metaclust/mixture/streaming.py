"""Variational Bayes over rows that come in blocks: one pass a step, memory that does not grow with the rows.

With ``batch_rows`` the parameters are updated after every batch of so many rows: the statistics of each batch are
stored, and those of a batch just seen replace its old ones (Hughes and Sudderth, Memoized online variational inference
for Dirichlet process mixture models, 2013). The bound stays exact and still never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from metaclust.mixture.blocks import TRUSTED, BlockSums, Map, Worker, block_size, rounding
from metaclust.mixture.families import Family
from metaclust.mixture.step import score_weights, vb_step
from metaclust.mixture.sticks import Sticks, sticks_kl
from metaclust.mixture.threads import over_blocks


@dataclass(frozen=True)
class BlockMixture:
    """The mixture that is fitted to blocks of rows, and how it is computed."""

    family: Family
    transform: Map
    alpha: Float[Tensor, ""]
    float32: bool = True
    """Whether products may be computed in float32 if that is precise enough; sums are always in float64."""
    batch_rows: int | None = None
    """Update after every batch of so many rows; None: after all rows."""


@runtime_checkable
class Source(Protocol):
    """Weighted rows that can be iterated over any number of times."""

    def blocks(self, size: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        """(n, s) rows, n at most ``size``, and their (n,) weights, or None if all weights are one."""


BatchSums = Callable[[Tensor, Tensor | None], tuple[BlockSums, int]]
"""The sums of a batch of rows at given score weights, and its number of rows.

The second argument is the sums of features of the components, None at the start: see :func:`product_dtype`.
"""


@runtime_checkable
class Passes(Protocol):
    """A mixture, and a way to go through the rows, wherever they are."""

    @property
    def mixture(self) -> BlockMixture: ...
    def batches(self, components: int) -> Iterator[BatchSums]:
        """One function for each batch of rows, in order."""


@dataclass(frozen=True)
class LocalPasses:
    """Passes over rows in this process, with threads."""

    source: Source
    mixture: BlockMixture
    advance: Callable[[int], object] = lambda rows: None
    """Called with the number of rows of every block that is done."""

    def batches(self, components: int) -> Iterator[BatchSums]:
        batch_rows, family = self.mixture.batch_rows, self.mixture.family
        size = block_size(components, family.feature_count(len(self.mixture.transform.centre)))

        def numbered() -> Iterator[tuple[int, Tensor, Tensor | None]]:
            first = 0
            for x, row_weights in self.source.blocks(size):
                yield first // batch_rows if batch_rows else 0, x, row_weights
                first += len(x)

        for _, batch in groupby(numbered(), key=lambda block: block[0]):
            yield partial(self.sums, ((x, row_weights) for _, x, row_weights in batch))

    def sums(
        self,
        batch: Iterable[tuple[Tensor, Tensor | None]],
        weights: Float[Tensor, "k f"],
        features: Float[Tensor, "k f"] | None,
    ) -> tuple[BlockSums, int]:
        """The sums of a batch, and its number of rows."""
        mixture, dtype = self.mixture, product_dtype(self.mixture.float32, weights, features)
        return sum_blocks(batch, mixture.family, mixture.transform, weights, dtype, self.advance)


def product_dtype(float32: bool, weights: Float[Tensor, "k f"], features: Float[Tensor, "k f"] | None) -> torch.dtype:
    """float32 if that is allowed and precise enough for components with these sums of features."""
    enough = float32 and features is not None and rounding(weights, features) <= TRUSTED
    return torch.float32 if enough else torch.float64


def sum_blocks(
    blocks: Iterable[tuple[Tensor, Tensor | None]],
    family: Family,
    transform: Map,
    weights: Float[Tensor, "k f"],
    dtype: torch.dtype,
    advance: Callable[[int], object] = lambda rows: None,
) -> tuple[BlockSums, int]:
    """The sums of blocks of weighted rows at these score weights, and the number of rows."""
    total, rows = BlockSums.zero(weights), 0

    def make() -> Worker:
        return Worker(family, transform, weights, dtype, block_size(*weights.shape))

    def each(worker: Worker, x: Tensor, row_weights: Tensor | None) -> tuple[BlockSums, int]:
        return worker.sums(x, row_weights), len(x)

    for sums, count in over_blocks(make, each, blocks):
        total, rows = total + sums, rows + count
        advance(count)
    return total, rows


@dataclass(frozen=True)
class Memo:
    """What inference stores about the rows between two passes; a stopped fit resumes from it."""

    features: Float[Tensor, "m k f"]
    """The sums of the features of each batch of rows."""
    entropy: Float[Tensor, "m"]
    """The entropy of the assignments of each batch."""
    rows: int
    parameters: Any
    """The parameters that the next update starts from: an update of theta reads the previous a and b."""


@dataclass(frozen=True)
class BlockPosterior:
    """The posterior after passes over the rows."""

    parameters: Any
    sticks: Sticks
    bounds: tuple[float, ...]
    """The evidence lower bound of z after each pass, including every constant."""
    converged: bool = False


def first_memo(passes: Passes, weights: Float[Tensor, "k f"], previous: Any) -> Memo:
    """The statistics of the assignments by given score weights; ``previous`` are the parameters to update."""
    parts = [sums(weights, None) for sums in passes.batches(len(weights))]
    features = torch.stack([sums.features for sums, _ in parts])
    return Memo(features, features.new_zeros(len(parts)), sum(rows for _, rows in parts), previous)


def largest_first(memo: Memo) -> Memo:
    """Components sorted by size, as their expected weights decrease; all must still have the same parameters."""
    order = memo.features[..., 0].sum(0).argsort(descending=True, stable=True)
    return replace(memo, features=memo.features[:, order])


def block_steps(passes: Passes, memo: Memo, bounds: tuple[float, ...] = ()) -> Iterator[tuple[BlockPosterior, Memo]]:
    """Yield the posterior and the memo after each pass over the rows, without end and without checks.

    A pass is a step of :func:`metaclust.mixture.vb_steps` from the assignments whose statistics are in ``memo``.
    ``bounds`` are those of earlier passes.
    """
    family, alpha = passes.mixture.family, passes.mixture.alpha
    while True:
        features, entropy = list(memo.features), list(memo.entropy)
        total, parameters, rows = memo.features.sum(0), memo.parameters, 0
        for number, batch_sums in enumerate(passes.batches(len(total))):
            sticks, parameters = vb_step(family, family.read(total), parameters, alpha)
            weights = score_weights(family, parameters, sticks)
            sums, count = batch_sums(weights, total)
            rows += count
            if number >= len(features):
                break
            total = total + (sums.features - features[number])
            features[number] = sums.features
            entropy[number] = sums.evidence - (sums.features * weights).sum()
        if rows != memo.rows or number + 1 != len(features):
            raise ValueError(f"X has {rows:,} rows in this pass and had {memo.rows:,} before: it must not change")
        memo = Memo(torch.stack(features), torch.stack(entropy), rows, parameters)
        kl = sticks_kl(sticks, alpha).sum() + family.kl(parameters).sum()
        bound = float((memo.features.sum(0) * weights).sum() + memo.entropy.sum() - kl)
        bounds = (*bounds, bound)
        yield BlockPosterior(parameters, sticks, bounds), memo
