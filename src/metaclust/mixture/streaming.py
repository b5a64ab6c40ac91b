"""Variational Bayes over rows that come in blocks: one pass over them a step, memory that does not grow with them.

With ``batch_rows`` the parameters are updated after every so many rows: the statistics of each batch are remembered,
and those of the one just seen replace its old ones (Hughes and Sudderth, Memoized online variational inference for
Dirichlet process mixture models, 2013). The bound stays exact and still never falls.
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
from metaclust.mixture.products import Products
from metaclust.mixture.sticks import Sticks, expected_log_weights, sticks_kl, update_sticks
from metaclust.mixture.threads import over_blocks


@runtime_checkable
class Source(Protocol):
    """Rows that can be gone through again and again, with what each counts."""

    def blocks(self, size: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        """(n, s) rows and, unless all count as one, their (n,) weights; n is at most ``size``."""


@dataclass(frozen=True)
class Memo:
    """All that inference has to remember of the rows between two passes; what a stopped fit goes on from."""

    features: Float[Tensor, "m k f"]
    """The sums of each batch of rows."""
    entropy: Float[Tensor, "m"]
    """The entropy of the assignments of each batch."""
    rows: int
    parameters: Any
    """Those that the last update started from: an update of theta reads the last a and b."""


@runtime_checkable
class Inferred(Protocol):
    """Where inference came to: a :class:`BlockPosterior`, or what is kept of one."""

    @property
    def parameters(self) -> Any: ...
    @property
    def sticks(self) -> Sticks: ...


@dataclass(frozen=True)
class BlockPosterior:
    """Where a pass over the rows ended."""

    parameters: Any
    sticks: Sticks
    weights: Float[Tensor, "k f"]
    """The score weights: E[log pi_k] + E[log N(z | k)] is their product with the features."""
    bound: float
    """The evidence lower bound of z, every constant included."""
    memo: Memo


Sums = Callable[[Tensor, Tensor | None], tuple[BlockSums, int]]
"""What a batch of rows adds at given score weights, and its number of rows.

The second argument are the sums of features of the components, None at the start: see :func:`product_dtype`.
"""


@runtime_checkable
class Passes(Protocol):
    """What inference needs to know: the components, and a way to go through the rows, wherever they are."""

    @property
    def products(self) -> Products: ...
    @property
    def transform(self) -> Map: ...
    @property
    def alpha(self) -> Tensor: ...
    def batches(self, components: int) -> Iterator[Sums]:
        """One for each batch of rows, in turn; one in all where parameters are updated after all rows."""


@dataclass(frozen=True)
class Setting:
    """Rows that are gone through here, in threads."""

    source: Source
    products: Products
    transform: Map
    alpha: Float[Tensor, ""]
    batch_rows: int | None = None
    float32: bool = True
    """Whether products may be computed in float32 where that is precise enough; sums are in float64 always."""
    advance: Callable[[int], object] = lambda rows: None
    """Called with the number of rows of every block that is done."""

    def batches(self, components: int) -> Iterator[Sums]:
        """The blocks of each batch in turn."""

        def numbered() -> Iterator[tuple[int, Tensor, Tensor | None]]:
            first = 0
            for x, row_weights in self.source.blocks(block_size(components)):
                yield first // self.batch_rows if self.batch_rows else 0, x, row_weights
                first += len(x)

        for _, batch in groupby(numbered(), key=lambda block: block[0]):
            yield partial(self.sums, ((x, row_weights) for _, x, row_weights in batch))

    def sums(
        self,
        batch: Iterable[tuple[Tensor, Tensor | None]],
        weights: Float[Tensor, "k f"],
        features: Float[Tensor, "k f"] | None,
    ) -> tuple[BlockSums, int]:
        dtype = product_dtype(self.float32, weights, features)
        return summed(batch, self.products, self.transform, weights, dtype, self.advance)


def product_dtype(float32: bool, weights: Float[Tensor, "k f"], features: Float[Tensor, "k f"] | None) -> torch.dtype:
    """float32 if that is allowed and precise enough for components with these sums of features."""
    enough = float32 and features is not None and rounding(weights, features) <= TRUSTED
    return torch.float32 if enough else torch.float64


def summed(
    blocks: Iterable[tuple[Tensor, Tensor | None]],
    products: Products,
    transform: Map,
    weights: Float[Tensor, "k f"],
    dtype: torch.dtype,
    advance: Callable[[int], object] = lambda rows: None,
) -> tuple[BlockSums, int]:
    """What blocks of rows, with what these count, add at these score weights; and the number of rows."""
    total, rows = BlockSums.zero(weights), 0

    def make() -> Worker:
        return Worker(products, transform, weights, dtype, block_size(len(weights)))

    def each(worker: Worker, x: Tensor, row_weights: Tensor | None) -> tuple[BlockSums, int]:
        return worker.sums(x, row_weights), len(x)

    for sums, count in over_blocks(make, each, blocks):
        total, rows = total + sums, rows + count
        advance(count)
    return total, rows


def first_memo(setting: Passes, weights: Float[Tensor, "k f"], previous: Any) -> Memo:
    """The statistics of assignments by given score weights; ``previous`` are the parameters to update."""
    parts = [sums(weights, None) for sums in setting.batches(len(weights))]
    features = torch.stack([sums.features for sums, _ in parts])
    return Memo(features, features.new_zeros(len(parts)), sum(rows for _, rows in parts), previous)


def largest_first(memo: Memo) -> Memo:
    """Components with more rows first, as their weights fall in expectation; all still have the same parameters."""
    order = memo.features[..., 0].sum(0).argsort(descending=True, stable=True)
    return replace(memo, features=memo.features[:, order])


def block_steps(setting: Passes, memo: Memo) -> Iterator[BlockPosterior]:
    """The posterior after one pass over the rows, two passes, and so on without end; nothing is checked.

    A pass is a step of :func:`metaclust.mixture.vb_steps` with assignments that ``memo`` has the statistics of.
    """
    while True:
        features, entropy = list(memo.features), list(memo.entropy)
        total, parameters, rows = memo.features.sum(0), memo.parameters, 0
        for number, pass_over in enumerate(setting.batches(len(total))):
            sticks, parameters, weights = updated(setting, total, parameters)
            sums, count = pass_over(weights, total)
            rows += count
            if number >= len(features):
                break
            total = total + (sums.features - features[number])
            features[number] = sums.features
            entropy[number] = sums.evidence - (sums.features * weights).sum()
        if rows != memo.rows or number + 1 != len(features):
            raise ValueError(f"X has {rows:,} rows in this pass and had {memo.rows:,} before: it must not change")
        memo = Memo(torch.stack(features), torch.stack(entropy), rows, parameters)
        kl = sticks_kl(sticks, setting.alpha).sum() + setting.products.family.kl(parameters).sum()
        bound = float((memo.features.sum(0) * weights).sum() + memo.entropy.sum() - kl)
        yield BlockPosterior(parameters, sticks, weights, bound, memo)


def updated(setting: Passes, total: Float[Tensor, "k f"], previous: Any) -> tuple[Sticks, Any, Float[Tensor, "k f"]]:
    """The sticks, the parameters and the score weights that follow from the statistics."""
    statistics = setting.products.read(total)
    sticks = update_sticks(statistics.count, setting.alpha)
    parameters = setting.products.family.update(statistics, previous)
    return sticks, parameters, score_weights(setting.products, parameters, sticks)


def score_weights(products: Products, parameters: Any, sticks: Sticks) -> Float[Tensor, "k f"]:
    """E[log pi_k] counts with the feature that is one."""
    weights = products.weights(parameters).clone()
    weights[:, 0] += expected_log_weights(sticks)
    return weights
