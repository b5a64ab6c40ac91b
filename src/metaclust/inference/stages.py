"""The three stages between representations and clusters, as protocols, and what they hand to each other.

    initialise: sample, numbers of clusters -> initial assignments
    refine:     sample, initial assignments -> candidate clusterings
    select:     sample, candidates          -> scores, the best of them

A stage is replaced by passing another object; :class:`metaclust.inference.pipeline.Pipeline` runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust.mixture import Posterior
from metaclust.mixture.posterior import one_task
from metaclust.mixture.seeding import EMPTY, fit_columns
from metaclust.model.clustering_model import ClusteringModel

if TYPE_CHECKING:
    from metaclust.inference.links import Links

Labels = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """Rows that are clustered together, around their mean: where they lie says nothing about their clusters."""

    z: Floats
    mean: Floats
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What stages found out about the rows, for other stages."""
    links: Links | None = None
    """Which rows have to be together or apart."""

    @classmethod
    def of(cls, z: NDArray[Any], mean: Floats | None = None, links: Links | None = None) -> Sample:
        """Center rows, on ``mean`` where it is that of more rows than these."""
        rows = np.asarray(z, np.float64)
        mean = rows.mean(0) if mean is None else mean
        return cls(rows - mean, mean, links=links)

    def __len__(self) -> int:
        return len(self.z)


@dataclass(frozen=True)
class Initial:
    """Assignments that inference starts from; soft ones have ``logits`` (rows, clusters)."""

    labels: Labels
    logits: Tensor | None = None

    @classmethod
    def soft(cls, logits: Tensor) -> Initial:
        """Assignments by the softmax of ``logits``."""
        return cls(in_order(logits.argmax(-1).cpu().numpy()), logits)

    @property
    def clusters(self) -> int:
        return int(self.labels.max()) + 1 if self.logits is None else self.logits.shape[-1]

    def as_logits(self, clusters: int) -> Tensor:
        """Logits with as many columns as there may be clusters; those of absent clusters are far below any other."""
        if self.logits is not None:
            return fit_columns(self.logits.double(), clusters)
        logits = torch.full((len(self.labels), clusters), EMPTY, dtype=torch.float64)
        logits[torch.arange(len(self.labels)), torch.from_numpy(self.labels)] = 0
        return logits


@dataclass(frozen=True)
class Candidate:
    """Where inference went from one initial assignment."""

    labels: Labels
    """Numbered from 0 in the order of each cluster's first row."""
    bound: float
    weight: float
    """How much each row counts in the bound."""
    variance_factor: float
    """The variance that was expected of clusters, as a multiple of that of the model's prior."""
    ends: Posterior
    """The posteriors, without their rows, of this candidate and of others that were refined in one batch."""
    place: int
    """Its index among them."""

    @property
    def clusters(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def posterior(self) -> Posterior:
        """The posterior of this candidate alone, without its rows."""
        own: Posterior = one_task(self.ends, self.place)
        return own


@runtime_checkable
class Initialiser(Protocol):
    """Proposes assignments to start from, for each of several numbers of clusters."""

    def __call__(
        self, model: ClusteringModel, sample: Sample, numbers: Sequence[int], generator: np.random.Generator
    ) -> list[Initial]: ...


@runtime_checkable
class Refiner(Protocol):
    """Runs inference."""

    def __call__(self, model: ClusteringModel, sample: Sample, initial: Sequence[Initial]) -> list[Candidate]:
        """Return where each of the assignments leads when every row counts, each partition once."""

    def bounds(
        self, model: ClusteringModel, sample: Sample, clusterings: Sequence[Labels], weight: float
    ) -> list[float]:
        """Return the evidence lower bound of each clustering where each row counts as ``weight`` rows."""


@runtime_checkable
class Selector(Protocol):
    """Scores candidates, and selects one of them."""

    @property
    def name(self) -> str: ...
    def scores(self, model: ClusteringModel, sample: Sample, candidates: Sequence[Candidate]) -> Floats: ...
    def choose(self, candidates: Sequence[Candidate], scores: Floats) -> int:
        """Return the place of the candidate that is taken, by the scores of all."""

    def finish(self, model: ClusteringModel, sample: Sample, best: Candidate, refine: Refiner) -> Candidate:
        """Return the candidate that was selected, or a better one made from it."""


def in_order(labels: NDArray[Any]) -> Labels:
    """Renumber a partition from 0 in the order of the first row of each cluster."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]
