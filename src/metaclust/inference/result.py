"""What clustering gives back: the clusters, how sure each row is of its own, and a place for further rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from metaclust.data.readers.arrays import names_of
from metaclust.data.rows import Rows
from metaclust.mixture.components import Components


@dataclass(frozen=True)
class Start:
    """Where one of the starts of the inference ended: how many clusters, and the bound of the evidence."""

    clusters: int
    bound: float
    score: float | None = None
    """How good the learned choice thinks it is, where that chose: bounds at different weights do not compare."""


def label_scores(known: Sequence[str], labels: NDArray[np.int64]) -> dict[str, float]:
    """ARI, NMI and ACC of clusters against known categories."""
    table = contingency_matrix(known, labels)
    return {
        "ari": float(adjusted_rand_score(known, labels)),
        "nmi": float(normalized_mutual_info_score(known, labels)),
        "acc": float(table[linear_sum_assignment(-table)].sum() / len(labels)),
    }


@dataclass(frozen=True, eq=False)
class Clustering:
    """Clusters of rows, numbered from 0 by size."""

    labels: NDArray[np.int64]
    """The most probable cluster of each row."""
    confidence: NDArray[np.float64]
    """How sure each row is of its cluster: the probability of it."""
    representations: NDArray[np.float32]
    """(rows, S): what the model made of the rows, and what was clustered."""
    components: Components
    bound: float
    """The evidence lower bound: of two clusterings of the same rows, the one with the higher bound fits better."""
    starts: tuple[Start, ...]
    """Where each start of the inference ended, the best among them."""
    ids: list[str]
    threshold: float = 0.0
    """Rows less sure of their cluster than this are marked unsure."""
    categories: list[str] | None = None
    """The known category of each row, where there is one."""
    about: dict[str, Any] = field(default_factory=dict)
    """How it was made: data, model, settings, time."""
    rows: Rows | None = None
    """The rows themselves, where they are at hand: the report shows them."""
    model: Any = None
    """The model that made it: a MetaClusterer."""

    @property
    def n_clusters(self) -> int:
        return len(self.components.weights)

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.components.weights

    @property
    def means(self) -> NDArray[np.float64]:
        return self.components.means

    @property
    def precisions(self) -> NDArray[np.float64]:
        return self.components.precisions

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows in each cluster."""
        return np.bincount(self.labels, minlength=self.n_clusters)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """(rows, clusters); each row adds up to 1. Computed when it is asked for."""
        return self.components.probabilities(self.representations)

    @property
    def unsure(self) -> NDArray[np.bool_]:
        """Rows whose confidence is below the threshold; they keep their most probable label."""
        return self.confidence < self.threshold

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        sizes = self.sizes.tolist()
        shown = ", ".join(str(size) for size in sizes[:10]) + (", ..." if len(sizes) > 10 else "")
        return f"Clustering of {len(self):,} rows in {self.n_clusters} clusters ({shown})"

    def typical(self, cluster: int, count: int = 10) -> NDArray[np.int64]:
        """The rows of a cluster that are nearest to its mean, nearest first."""
        members = self._members(cluster)
        distance = np.square(self.representations[members] - self.means[cluster]).sum(1)
        return members[np.argsort(distance, kind="stable")[:count]]

    def least_sure(self, cluster: int, count: int = 10) -> NDArray[np.int64]:
        """The rows of a cluster that are least sure of it, least sure first."""
        members = self._members(cluster)
        return members[np.argsort(self.confidence[members], kind="stable")[:count]]

    def _members(self, cluster: int) -> NDArray[np.int64]:
        if not 0 <= cluster < self.n_clusters:
            raise ValueError(f"cluster={cluster!r}: there are the clusters 0 to {self.n_clusters - 1}")
        return np.flatnonzero(self.labels == cluster)

    def assign(self, X: Any) -> Clustering:  # noqa: N803 - scikit-learn's name
        """Further rows in the clusters found here; nothing is fitted again.

        The result has the same clusters under the same numbers, with the further rows in them.
        """
        if self.model is None:
            raise ValueError(
                "assign needs the model that encodes the rows: pass it as "
                "dataclasses.replace(clustering, model=MetaClusterer.load(path))"
            )
        rows, z = self.model.represent(X)
        labels, confidence = self.components.assigned(z)
        return replace(
            self,
            labels=labels,
            confidence=confidence,
            representations=z,
            ids=rows.ids,
            categories=rows.labels,
            rows=rows,
            about={**self.about, "data": rows.source, "rows": len(rows), "assigned": True},
        )

    def scores(self, y: Any = None) -> dict[str, float]:
        """How well the clusters are the categories ``y`` (those of the rows, if they have some).

        ARI and NMI; ACC, the share of rows that are right under the best matching of clusters and categories; the
        number of clusters minus the number of categories.
        """
        known = self.categories if y is None else names_of(y, len(self), "y")
        if known is None:
            raise ValueError("y=None: the rows have no known categories to compare with; pass them as y")
        return {**label_scores(known, self.labels), "k_error": float(self.n_clusters - len(set(known)))}

    def to_frame(self) -> pl.DataFrame:
        """A row each: id, cluster, confidence, unsure, and the known category if there is one.

        ``.to_pandas()`` makes it a data frame of pandas, where that is installed.
        """
        columns: dict[str, Sequence[Any] | NDArray[Any]] = {
            "id": self.ids,
            "cluster": self.labels,
            "confidence": self.confidence,
            "unsure": self.unsure,
        }
        if self.categories is not None:
            columns["category"] = self.categories
        return pl.DataFrame(columns)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Everything but the rows themselves, with the model: one safetensors file."""
        from metaclust.inference.result_file import save_clustering

        save_clustering(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], device: str = "auto") -> Clustering:
        """What :meth:`save` wrote."""
        from metaclust.inference.result_file import load_clustering

        return load_clustering(path, device)

    def report(self, path: str | os.PathLike[str], *, rows: Rows | None = None, force: bool = False) -> Any:
        """Write the report: one HTML file that needs no network."""
        from metaclust.report import write_report

        return write_report(self if rows is None else replace(self, rows=rows), path, force=force)
