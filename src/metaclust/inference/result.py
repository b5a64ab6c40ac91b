"""The result of clustering: the clusters, the confidence of each row, and the assignment of further rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from metaclust.data.input_table import Index
from metaclust.data.labels import read_labels
from metaclust.data.readers.arrays import names_of
from metaclust.data.rows import DataError, DataWarning, Rows, listed
from metaclust.inference.confidence import ClusterFacts, Confidence
from metaclust.inference.edits import (
    Edit,
    Given,
    History,
    State,
    dissolving,
    merging,
    moving,
    renaming,
    replayed,
    rows_given,
    splitting,
)
from metaclust.inference.frames import result_frame
from metaclust.inference.links import agreeing
from metaclust.inference.numbers import interval
from metaclust.inference.owned import fixed, owned_fields
from metaclust.inference.said import said_names, undone
from metaclust.inference.select import LearnedSelector
from metaclust.inference.settle import is_placeholder, with_new_names
from metaclust.inference.tally import Tally
from metaclust.mixture.components import Components
from metaclust.mixture.outcome import check_components, check_finite, check_labels, check_probabilities
from metaclust.model.clustering_model import ClusteringModel


@dataclass(frozen=True)
class Start:
    """The outcome of one start of the inference: its number of clusters and its evidence lower bound."""

    clusters: int
    bound: float
    score: float | None = None
    """The learned selector's score, if it chose: bounds computed with different weights are not comparable."""
    selected: bool = False
    """Whether this candidate was taken; files of earlier versions do not say."""


def label_scores(known: Sequence[str], labels: NDArray[np.int64]) -> dict[str, float]:
    """Return the ARI, NMI and ACC of clusters against known categories."""
    table = contingency_matrix(known, labels)
    return {
        "ari": float(adjusted_rand_score(known, labels)),
        "nmi": float(normalized_mutual_info_score(known, labels)),
        "acc": float(table[linear_sum_assignment(-table)].sum() / len(labels)),
    }


@dataclass(frozen=True, eq=False)
class Clustering:
    """The clusters of a set of rows, numbered from 0 in order of decreasing size.

    Attributes
    ----------
    labels : ndarray of shape (rows,)
        The most probable cluster of each row; read-only.
    confidence : ndarray of shape (rows,)
        The probability that this is the right cluster, calibrated on categories that the encoder had not seen; where
        the bound selected, the probability of the cluster under the mixture.
    representations : ndarray of shape (rows, S)
        The rows as encoded by the model; these were clustered.
    components : Components
        The fitted mixture, one component for each cluster.
    bound : float
        The evidence lower bound: of two clusterings of the same rows, the one with the higher bound fits better.
    starts : tuple of Start
        The outcome of each start of the inference, including the best.
    ids : list of str
        The identifier of each row.
    threshold : float
        Confidence threshold: rows below it are marked unsure.
    categories : list of str or None
        The known category of each row, if there is one.
    about : dict
        How the clustering was made: data, model, settings, time.
    rows : Rows or None
        The rows themselves, if available; the report shows them.
    model : MetaClusterer or None
        The model that made the clustering.
    k_probabilities : dict of int to float
        The probability of each number of clusters; empty where the bound selected.
    facts : ClusterFacts or None
        What is known of each cluster, by which the confidence of rows is computed.
    names : list of str
        The name of each cluster: a category of the training, a label of some rows, a name that a person gave, or "new"
        with a number.
    is_new : ndarray of shape (clusters,)
        Whether each cluster is of no category that the model was trained on.
    novelty : ndarray of shape (rows,)
        The probability that each row is of no category that the model was trained on, calibrated on categories that
        the encoder had not seen; 1 for all rows where known categories were not looked for.
    outlier_probability : ndarray of shape (rows,)
        The probability that each row belongs nowhere, calibrated likewise; 0 for all where that was not learned, and
        for rows that were assigned.
    tally : Tally or None
        The statistics of the rows of each cluster, by which clusters are updated.
    history : History
        What has been changed by hand, and the clusters as they were before.
    given : Given
        Rows that were labelled or linked when the clusters were found.
    index : Index or None
        What the ids were in the table that came in: strings, whole numbers, the index of a pandas data frame.

    Arrays, ``names`` and ``ids`` are read-only, and nothing that was passed changes the clustering when it is changed.
    """

    labels: NDArray[np.int64]
    confidence: NDArray[np.float64]
    representations: NDArray[np.float32]
    components: Components
    bound: float
    starts: tuple[Start, ...]
    ids: list[str]
    threshold: float = 0.0
    categories: list[str] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    rows: Rows | None = None
    model: Any = None
    k_probabilities: dict[int, float] = field(default_factory=dict)
    facts: ClusterFacts | None = None
    names: list[str] = field(default_factory=list)
    is_new: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, bool))
    novelty: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    outlier_probability: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    tally: Tally | None = None
    history: History = field(default_factory=History.unknown)
    given: Given = field(default_factory=Given.unknown)
    index: Index | None = None

    def __post_init__(self) -> None:
        """Raise DataError that names the row if the outcome is not what it must be."""
        name = str(self.about.get("data", "the rows"))
        check_components(self.components, self.bound, name)
        check_finite(self.representations, name)
        check_labels(self.labels, self.n_clusters, name)
        check_probabilities(self.confidence, name)
        # Of results whose known categories were not looked for.
        rows, clusters = len(self.labels), self.n_clusters
        missing: dict[str, Any] = {
            "names": with_new_names([None] * clusters),
            "is_new": np.ones(clusters, bool),
            "novelty": np.ones(rows),
            "outlier_probability": np.zeros(rows),
            "history": History(np.arange(clusters), clusters),
            "given": Given.none(rows),
        }
        for field_name, value in missing.items():
            if not len(getattr(self, field_name)):
                object.__setattr__(self, field_name, value)
        # Sizes, scores and files are derived from them, and would no longer fit were they changed by mistake.
        for field_name, value in owned_fields(self).items():
            object.__setattr__(self, field_name, value)
        if self.index is None and self.rows is not None and self.rows.table is not None:
            object.__setattr__(self, "index", self.rows.table.index)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what was pickled, of which arrays can be written to."""
        self.__dict__.update(state)
        for field_name, value in owned_fields(self).items():
            object.__setattr__(self, field_name, value)

    @property
    def n_clusters(self) -> int:
        """The number of clusters."""
        return len(self.components.weights)

    @property
    def weights(self) -> NDArray[np.float64]:
        """The expected share of the rows in each cluster."""
        return self.components.weights

    @property
    def means(self) -> NDArray[np.float64]:
        """The mean of each cluster, of shape (clusters, S)."""
        return self.components.means

    @property
    def precisions(self) -> NDArray[np.float64]:
        """The precision of each cluster: a number, a vector or a matrix, depending on the components."""
        return self.components.precisions

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows in each cluster."""
        return np.bincount(self.labels, minlength=self.n_clusters)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The probability of each cluster for each row, of shape (rows, clusters); computed on each access."""
        return self.components.probabilities(self.representations)

    @property
    def cluster_confidence(self) -> NDArray[np.float64]:
        """The mean confidence of the rows of each cluster; 0 for a cluster without rows."""
        return np.bincount(self.labels, self.confidence, self.n_clusters) / np.maximum(self.sizes, 1)

    def k_interval(self, level: float = 0.9) -> tuple[int, int]:
        """Return an interval that holds the true number of clusters with a probability of about ``level``.

        Parameters
        ----------
        level : float, default=0.9
            The probability, above 0 and below 1; of all intervals, the one that comes nearest to it is returned, made
            longer if need be to hold the number found.
        """
        if not 0 < level < 1:
            raise ValueError(f"level={level!r}: it must be above 0 and below 1")
        if not self.k_probabilities and self.about.get("updates"):
            raise ValueError("the probabilities of numbers of clusters are those of rows before the update")
        if not self.k_probabilities:
            raise ValueError("the number of clusters was selected by the bound, which gives no probabilities of others")
        low, high = interval(self.k_probabilities, level)
        return min(low, self.n_clusters), max(high, self.n_clusters)

    @property
    def unsure(self) -> NDArray[np.bool_]:
        """Whether the confidence of each row is below the threshold; unsure rows keep their most probable label."""
        return self.confidence < self.threshold

    @property
    def outlier(self) -> NDArray[np.bool_]:
        """Whether each row probably belongs nowhere; such rows keep the label of the nearest cluster."""
        return self.outlier_probability > 0.5

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        sizes = self.sizes.tolist()
        shown = ", ".join(str(size) for size in sizes[:10]) + (", ..." if len(sizes) > 10 else "")
        return f"Clustering of {len(self):,} rows in {self.n_clusters} clusters ({shown})"

    def typical(self, cluster: int, count: int = 10) -> NDArray[np.int64]:
        """Return the indices of the rows of a cluster that are nearest to its mean, nearest first.

        Parameters
        ----------
        cluster : int
            The number of the cluster.
        count : int, default=10
            The largest number of rows to return.
        """
        members = self._members(cluster)
        distance = np.square(self.representations[members] - self.means[cluster]).sum(1)
        return members[np.argsort(distance, kind="stable")[:count]]

    def least_sure(self, cluster: int, count: int = 10) -> NDArray[np.int64]:
        """Return the indices of the rows of a cluster with the lowest confidence, lowest first.

        Parameters
        ----------
        cluster : int
            The number of the cluster.
        count : int, default=10
            The largest number of rows to return.
        """
        members = self._members(cluster)
        return members[np.argsort(self.confidence[members], kind="stable")[:count]]

    def _members(self, cluster: int) -> NDArray[np.int64]:
        if not 0 <= cluster < self.n_clusters:
            raise ValueError(f"cluster={cluster!r}: clusters are numbered 0 to {self.n_clusters - 1}")
        return np.flatnonzero(self.labels == cluster)

    def assign(self, X: Any) -> Clustering:  # noqa: N803 - scikit-learn's name
        """Assign further rows to these clusters, without fitting again.

        Parameters
        ----------
        X : array, data frame, list or Rows
            The further rows, in any form that :meth:`MetaClusterer.cluster` accepts.

        Returns
        -------
        Clustering
            The further rows in the same clusters, with the same numbers.
        """
        if self.model is None:
            raise ValueError(
                "assign needs the model that encodes the rows: pass it as "
                "dataclasses.replace(clustering, model=MetaClusterer.load(path))"
            )
        rows, z = self.model.represent(X)
        if self.facts is None:
            labels, confidence = self.components.assigned(z)
        else:
            model = self.model.model_
            network = LearnedSelector.for_model(model).network
            judge = Confidence(self.components, self.facts, network, model.expected_variance)
            labels, confidence = judge.assigned(z, further=True)
        return replace(
            self,
            labels=fixed(labels),
            confidence=fixed(confidence),
            representations=fixed(z),
            novelty=self.is_new[labels].astype(np.float64),
            outlier_probability=np.zeros(len(labels)),
            history=History.unknown(),
            given=Given.unknown(),
            ids=rows.ids,
            categories=rows.labels,
            rows=rows,
            index=None,
            about={**self.about, "data": rows.source, "rows": len(rows), "assigned": True},
        )

    def update(
        self,
        X: Any,  # noqa: N803 - scikit-learn's name
        y: Any = None,
        *,
        known: Literal["auto", "use", "ignore"] = "auto",
        relabel: bool = False,
        again: bool = False,
    ) -> Clustering:
        """Add further rows: to the clusters that are there, and to new ones where they fit none of them.

        Clusters keep their numbers and names; new ones come after them. What is known of a cluster is updated by its
        further rows, and nothing is fitted again: the time hardly depends on the rows seen before. There may be more
        clusters than the ``max_clusters`` that they were found with.

        Parameters
        ----------
        X : array, data frame, list or Rows, or an iterator or a list of them
            The further rows, in any form that :meth:`MetaClusterer.cluster` accepts; chunks are added one after
            another.
        y : array-like of shape (rows,), optional
            The cluster or category of some of them, by name; None for all others. By default those that rows of
            ``read_data(partial=True)`` bring along.
        known : {"auto", "use", "ignore"}
            Whether rows may also be of categories of the training of which there were no rows before; "auto" is what
            the clusters were found with.
        relabel : bool, default=False
            Whether rows that were there before may go to other clusters; those that a person has placed never do.
        again : bool, default=False
            Count rows once more whose id a row has that is there already. By default they are left out, with a
            warning. Ids that only count rows from 0 do not say which rows are the same.

        Returns
        -------
        Clustering
            All rows, those that were there before first. This clustering stays as it is.
        """
        from metaclust.inference.update import updated

        return updated(self, X, y, known=known, relabel=relabel, again=again)

    def since(self, first: int, rows: Rows | None = None) -> Clustering:
        """Return the rows from number ``first`` on alone, as those of the last update, in the same clusters.

        ``rows`` are these rows, for a report. What is returned can be shown and written, and not be edited.
        """
        parts = ("labels", "confidence", "novelty", "outlier_probability", "representations", "ids")
        some = {name: getattr(self, name)[first:] for name in parts}
        if not len(some["ids"]):
            raise ValueError(f"first={first}: there are {len(self)} rows, give a number below that")
        return replace(
            self,
            **some,
            categories=None if self.categories is None else self.categories[first:],
            rows=rows,
            history=History.unknown(),
            given=Given.unknown(),
            index=None,
            about={**self.about, "rows": len(some["ids"]), "assigned": True},
        )

    def rename(self, k: int | str, name: str) -> Clustering:
        """Give cluster ``k``, a number or a name, another name; that of a known category says that it is this one.

        This clustering is changed, and returned. So it is by :meth:`merge`, :meth:`split`, :meth:`move`,
        :meth:`dissolve` and :meth:`undo`; a clustering is saved with its edits.
        """
        return self._edit(lambda state: renaming(state, k, name))

    def merge(self, *clusters: int | str) -> Clustering:
        """Merge clusters, given by numbers or names, into the first of them. The clusters after a gap move up."""
        return self._edit(lambda state: merging(state, clusters))

    def split(self, k: int | str, into: int = 2) -> Clustering:
        """Divide cluster ``k`` by Ward's method; the largest part keeps number and name, the others come last."""

        def edit(state: State) -> Edit:
            count = max(int(into) - 1, 0) if isinstance(into, int | np.integer) else 0
            names = with_new_names([None] * count, {*state.names, *self.model_for("an edit")[1]})
            return splitting(state, k, self.representations, into, names, self.history.free)

        return self._edit(edit)

    def move(self, rows: Any, k: int | str) -> Clustering:
        """Move rows, given by places, ids or a mask, to cluster ``k``; a name that none has makes a new cluster."""
        places = rows_given(rows, self.ids)
        return self._edit(lambda state: moving(state, places, k, self.history.free))

    def dissolve(self, k: int | str) -> Clustering:
        """Dissolve cluster ``k``: its rows go where they are next most probable."""
        return self._edit(lambda state: dissolving(state, k, self.representations))

    def undo(self) -> Clustering:
        """Take back the last edit."""
        history = self.history
        if history.found is None or not history.by_hand:
            raise DataError("undo: there is nothing to take back, this clustering has not been edited")
        self._become(*undone(self, *self.model_for("undo")))
        return self

    @property
    def edits(self) -> list[dict[str, Any]]:
        """What was changed by hand, first to last: the kind of each edit, its names, and how many rows it moved."""
        return [
            {"kind": edit.kind, "name": edit.name, "made": [name for _, name, _ in edit.made], "rows": len(edit.rows)}
            for edit in self.history.by_hand
        ]

    def labelled(self) -> list[str | None]:
        """Return the name of the cluster of each row that a person has placed, and None for others.

        That is: of rows that had a label, that were moved, and that were in a cluster when it was renamed, merged or
        split, without :attr:`outlier` rows. ``model.fit(X, result.labelled())`` learns from them; it warns of clusters
        that are only called "new" with a number, which another clustering calls others.
        """
        said = said_names(self)
        trained = () if self.model is None else self.model.categories_
        unnamed = [name for name in dict.fromkeys(said) if name and is_placeholder(name) and name not in trained]
        if unnamed:
            warnings.warn(
                f"{listed(unnamed)}: these names only number new clusters, and other clusterings use them for others; "
                "rename the clusters before a model learns from them",
                DataWarning,
                stacklevel=2,
            )
        return said

    def constraints(self) -> dict[str, Any]:
        """Return what a person has said, as ``model.cluster(X, **result.constraints())`` takes it."""
        labels = said_names(self)
        # What was said of clusters counts more than a pair that was given before.
        must, cannot = agreeing(read_labels(labels)[0], self.given.must_link, self.given.cannot_link)
        return {"y": labels, "must_link": must.tolist(), "cannot_link": cannot.tolist()}

    def model_for(self, action: str) -> tuple[ClusteringModel, frozenset[str]]:
        """Return the model that clusters are changed with, and the categories of its training."""
        if self.model is None or self.tally is None:
            raise DataError(
                f"{action} needs the model and the statistics of the clusters, which a clustering of this version has: "
                "cluster the rows again"
            )
        if self.about.get("assigned"):
            raise DataError(f"{action}: these rows were only assigned; change the clustering they were assigned to")
        return self.model.model_, frozenset(self.model.categories_)

    @property
    def state(self) -> State:
        """The clusters as they are now, with what changes when they are edited."""
        assert self.tally is not None  # noqa: S101 - for mypy
        return State(
            self.history.keys,
            self.labels,
            list(self.names),
            self.is_new,
            self.confidence,
            self.novelty,
            self.outlier_probability,
            self.components,
            self.tally,
            self.facts,
        )

    def _edit(self, make: Callable[[State], Edit]) -> Clustering:
        """Apply an edit to the clusters as they are now, and record it."""
        model, trained = self.model_for("an edit")
        history, state = self.history, self.state
        edit = replace(make(state), seen=len(self))
        after = replayed(state, [edit], self.representations, model, trained)
        free = max([history.free, *(key + 1 for key, _, _ in edit.made)])
        found = state if history.found is None else history.found
        edits = (*history.edits, edit)
        self._become(after, replace(history, keys=after.keys, free=free, edits=edits, found=found))
        return self

    def _become(self, state: State, history: History) -> None:
        """Take over other clusters of the same rows."""
        changed = replace(self, **state.fields(), history=history)
        for each in fields(self):
            object.__setattr__(self, each.name, getattr(changed, each.name))

    def scores(self, y: Any = None) -> dict[str, float]:
        """Compare the clusters with known categories.

        Parameters
        ----------
        y : array-like of shape (rows,), optional
            The category of each row; by default :attr:`categories`.

        Returns
        -------
        dict
            "ari" and "nmi"; "acc", the accuracy under the best matching of clusters and categories; "k_error", the
            number of clusters minus the number of categories.
        """
        known = self.categories if y is None else names_of(y, len(self), "y")
        if known is None:
            raise ValueError("y=None: the rows have no known categories to compare with; pass them as y")
        return {**label_scores(known, self.labels), "k_error": float(self.n_clusters - len(set(known)))}

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return what the result says of each row: the columns of data frames and of files, by name."""
        columns: dict[str, NDArray[Any]] = {
            "cluster": self.labels,
            "name": np.array(self.names, dtype=object)[self.labels],
            "new": self.is_new[self.labels],
            "confidence": self.confidence,
            "unsure": self.unsure,
            "novelty": self.novelty,
            "outlier": self.outlier,
        }
        if self.categories is not None:
            columns["category"] = np.array(self.categories, dtype=object)
        return columns

    def to_frame(
        self, library: Literal["auto", "pandas", "polars"] = "auto", *, keep: Sequence[Any] | None = None
    ) -> Any:
        """Return a data frame with a row for each row: :meth:`columns`, then the columns of the table that came in.

        Parameters
        ----------
        library : {"auto", "pandas", "polars"}, default="auto"
            The library of the data frame; "auto" is pandas if the rows came as a pandas data frame, otherwise polars.
            A pandas data frame has the index of the one that came in; others have the ids in the column "id".
        keep : list of str, optional
            The columns of the input to keep; by default all of them, and none of a clustering from a file, which holds
            ids or index only. Where a column of the result has the same name, that of the input ends with "_input".
        """
        return result_frame(self, library, keep)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the clustering and its model, but not the rows themselves, to one safetensors file."""
        from metaclust.inference.result_file import save_clustering

        save_clustering(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], device: str = "auto") -> Clustering:
        """Load a clustering from a file that :meth:`save` wrote.

        Parameters
        ----------
        path : str or path-like
            The file to read.
        device : str, default="auto"
            The device of the model.
        """
        from metaclust.inference.result_file import load_clustering

        return load_clustering(path, device)

    def report(self, path: str | os.PathLike[str], *, rows: Rows | None = None, force: bool = False) -> Any:
        """Write a report as one self-contained HTML file.

        Parameters
        ----------
        path : str or path-like
            The file to write.
        rows : Rows, optional
            The rows to show; by default :attr:`rows`.
        force : bool, default=False
            Overwrite an existing file.
        """
        from metaclust.report import write_report

        return write_report(self if rows is None else replace(self, rows=rows), path, force=force)
