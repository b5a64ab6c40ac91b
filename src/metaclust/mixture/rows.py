"""Rows that a mixture can be fitted to, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util.progress import RowsBar
from metaclust.data.streams import RowStream, in_blocks
from metaclust.data.survey import Moments, Survey, check_width, survey
from metaclust.mixture.streaming import BlockMixture, LocalPasses, Passes


@dataclass(frozen=True)
class WeightedRows:
    """A stream of rows with their weights, as a source of blocks."""

    stream: RowStream
    width: int
    weights: Tensor | None = None

    def blocks(self, size: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        first = 0
        for x in in_blocks(self.stream.arrays(), size):
            check_width(x, first, self.width, self.stream.name)
            yield x, None if self.weights is None else self.weights[first : first + len(x)]
            first += len(x)


@runtime_checkable
class Progress(Protocol):
    """Receives the progress of a fit, as :class:`metaclust._util.progress.RowsBar` does."""

    def phase(self, name: str) -> None: ...
    def advance(self, rows: int) -> None: ...


@runtime_checkable
class FitRows(Protocol):
    """Rows that a mixture can be fitted to, wherever they are."""

    @property
    def name(self) -> str: ...
    def survey(self, most: int, seed: int, moments: Moments = "mean") -> Survey:
        """The first pass, with a sample of at most ``most`` rows, and these moments of all rows."""

    def progress(self, rows: int, wanted: bool) -> AbstractContextManager[Progress | None]:
        """The receiver of the progress of the passes that follow."""

    def passes(self, mixture: BlockMixture, width: int, progress: Progress | None) -> Passes:
        """The passes over rows of this width."""


@dataclass(frozen=True)
class StreamRows:
    """The rows of a stream, processed in this process."""

    stream: RowStream
    width: int | None = None
    """The required number of columns, if known."""
    weights: NDArray[np.float64] | None = None

    @property
    def name(self) -> str:
        return self.stream.name

    def survey(self, most: int, seed: int, moments: Moments = "mean") -> Survey:
        return survey(self.stream, self.weights, most, seed, self.width, moments)

    def progress(self, rows: int, wanted: bool) -> AbstractContextManager[Progress | None]:
        return RowsBar(rows) if wanted else nullcontext()

    def passes(self, mixture: BlockMixture, width: int, progress: Progress | None) -> Passes:
        weights = None if self.weights is None else torch.from_numpy(self.weights)
        source = WeightedRows(self.stream, width, weights)
        return LocalPasses(source, mixture) if progress is None else LocalPasses(source, mixture, progress.advance)
