"""What a person changes of a clustering: names, and which rows are together.

Each edit is recorded, and applied to the clusters as they were found, in order: what has been undone is as if it had
never been. Clusters are known by keys that never change, and numbered in the order of their keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metaclust.data.labels import read_labels
from metaclust.data.rows import DataError, shown
from metaclust.inference.confidence import ClusterFacts
from metaclust.inference.initialise import ward_labels
from metaclust.inference.links import Links, pairs_from
from metaclust.inference.stages import Floats, Labels
from metaclust.inference.tally import Tally
from metaclust.mixture.components import Components
from metaclust.model.clustering_model import ClusteringModel

Kind = Literal["rename", "merge", "split", "move", "dissolve", "add"]
BY_HAND: tuple[Kind, ...] = ("split", "move")
"""Edits after which a person has said of each of their rows where it is."""
FIELDS = ("labels", "names", "is_new", "confidence", "novelty", "components", "tally", "facts")
NO_ROWS: Labels = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Edit:
    """One change.

    Attributes
    ----------
    kind : {"rename", "merge", "split", "move", "dissolve", "add"}
        "add" is no edit of a person: an update added rows to a cluster that an edit had made.
    key : int
        The cluster that is renamed, that others are merged into, or whose rows go elsewhere.
    name : str or None
        The new name.
    gone : tuple of int
        The clusters that are merged into it.
    rows, to : ndarray
        Rows, and the key of the cluster that each goes to.
    made : tuple of (int, str, int)
        The key and the name of each new cluster, and the key of the one that most of its rows come from.
    """

    kind: Kind
    key: int
    name: str | None = None
    gone: tuple[int, ...] = ()
    rows: Labels = field(default_factory=NO_ROWS.copy)
    to: Labels = field(default_factory=NO_ROWS.copy)
    made: tuple[tuple[int, str, int], ...] = ()


@dataclass(frozen=True, eq=False)
class State:
    """The clusters of rows, with their keys, in the order of these."""

    keys: Labels
    labels: Labels
    names: list[str]
    is_new: NDArray[np.bool_]
    confidence: Floats
    novelty: Floats
    stray: Floats
    components: Components
    tally: Tally
    facts: ClusterFacts | None

    def place(self, key: int) -> int:
        """Return the number of the cluster with this key."""
        return int(np.searchsorted(self.keys, key))

    def fields(self) -> dict[str, Any]:
        """Return what a clustering takes over, by the names it has there."""
        own = {name: getattr(self, name) for name in FIELDS}
        return {**own, "outlier_probability": self.stray}

    def with_clusters(self, keys: Sequence[int], names: Sequence[str], like: Sequence[int]) -> State:
        """Return the state with further clusters, without rows; what is known of them is that of others, by number."""
        every = np.concatenate([self.keys, np.asarray(keys, np.int64)])
        order = np.argsort(every)
        source = np.concatenate([np.arange(len(self.keys)), np.asarray(like, np.int64)])[order]
        sums = np.concatenate([self.tally.sums, np.zeros((len(keys), self.tally.sums.shape[1]))])
        both = [*self.names, *names]
        return replace(
            self,
            keys=every[order],
            labels=np.argsort(order)[self.labels],
            names=[both[place] for place in order.tolist()],
            is_new=np.concatenate([self.is_new, np.ones(len(keys), bool)])[order],
            components=self.components.take(source),
            tally=replace(self.tally, sums=sums[order]),
            facts=None if self.facts is None else self.facts.take(source),
        )

    def without(self, gone: Sequence[int]) -> State:
        """Return the state without some clusters, by number, that have no rows any more."""
        kept = np.setdiff1d(np.arange(len(self.keys)), gone)
        return replace(
            self,
            keys=self.keys[kept],
            labels=np.searchsorted(kept, self.labels),
            names=[self.names[place] for place in kept.tolist()],
            is_new=self.is_new[kept],
            components=self.components.take(kept),
            tally=self.tally.take(kept),
            facts=None if self.facts is None else self.facts.take(kept),
        )


@dataclass(frozen=True, eq=False)
class History:
    """What has been changed by hand."""

    keys: Labels
    """The key of each cluster as it is now."""
    free: int
    """No cluster has had this key or a larger one."""
    edits: tuple[Edit, ...] = ()
    found: State | None = None
    """The clusters before all edits, with all rows; None if there are no edits."""

    @classmethod
    def unknown(cls) -> History:
        return cls(NO_ROWS, 0)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def by_hand(self) -> list[Edit]:
        """The edits of a person."""
        return [edit for edit in self.edits if edit.kind != "add"]

    def without_last(self) -> tuple[Edit, ...]:
        """Return all edits but the last of a person; rows that were added to clusters it made go to no cluster now."""
        last = max(place for place, edit in enumerate(self.edits) if edit.kind != "add")
        made = [key for key, _, _ in self.edits[last].made]
        later = []
        for edit in self.edits[last + 1 :]:
            kept = ~np.isin(edit.to, made)
            if kept.any():
                later.append(replace(edit, rows=edit.rows[kept], to=edit.to[kept]))
        return (*self.edits[:last], *later)

    def origin(self, key: int) -> int:
        """Return the key of the cluster, among those that were found, from which an edit made the one with a key."""
        parents = {made: parent for edit in self.edits for made, _, parent in edit.made}
        while key in parents:
            key = parents[key]
        return key


@dataclass(frozen=True, eq=False)
class Given:
    """What a person said before the clusters were found."""

    fixed: NDArray[np.bool_]
    """Whether each row had a label."""
    must_link: Labels
    """(pairs, 2), of rows."""
    cannot_link: Labels

    @classmethod
    def unknown(cls) -> Given:
        return cls.none(0)

    def __len__(self) -> int:
        return len(self.fixed)

    @classmethod
    def of(cls, ids: Sequence[str], y: Any, must_link: Any, cannot_link: Any) -> tuple[Given, Links | None]:
        """Read what a person gives: labels of some rows, and pairs of rows by place or id; also return the links."""
        codes, names = read_labels(y, len(ids)) if y is not None else (np.full(len(ids), -1), [])
        must, cannot = pairs_from(must_link, ids, "must_link"), pairs_from(cannot_link, ids, "cannot_link")
        return cls(codes >= 0, must, cannot), Links.of(len(ids), codes, names, must, cannot)

    @classmethod
    def none(cls, rows: int) -> Given:
        return cls(np.zeros(rows, bool), np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))


def applied(state: State, edit: Edit, z: NDArray[np.float32], model: ClusteringModel, trained: frozenset[str]) -> State:
    """Return the state after an edit, with the components of the one before: see :func:`replayed`."""
    if edit.kind == "rename":
        names = list(state.names)
        place = state.place(edit.key)
        names[place] = str(edit.name)
        is_new = np.array([name not in trained for name in names])
        mine = state.labels == place
        novelty = state.novelty
        if is_new[place] != state.is_new[place]:
            novelty = np.where(mine, float(is_new[place]), novelty)
        return replace(state, names=names, is_new=is_new, novelty=novelty)
    if edit.kind == "merge":
        into = np.arange(len(state.keys))
        gone = [state.place(key) for key in edit.gone]
        into[gone] = state.place(edit.key)
        tally = state.tally.merged(into, len(state.keys))
        return replace(state, labels=into[state.labels], tally=tally).without(gone)
    keys, names = [key for key, _, _ in edit.made], [name for _, name, _ in edit.made]
    state = state.with_clusters(keys, names, [state.place(parent) for _, _, parent in edit.made])
    state = replace(state, is_new=np.array([name not in trained for name in state.names]))
    to = np.searchsorted(state.keys, edit.to)
    rows, old = z[edit.rows], state.labels[edit.rows]
    tally = state.tally.with_rows(model, rows, old, sign=-1.0).with_rows(model, rows, to)
    labels = state.labels.copy()
    confidence, novelty, stray = (value.copy() for value in (state.confidence, state.novelty, state.stray))
    labels[edit.rows] = to
    if edit.kind in BY_HAND:
        confidence[edit.rows], stray[edit.rows] = 1.0, 0.0
        novelty[edit.rows] = state.is_new[to]
    state = replace(state, labels=labels, confidence=confidence, novelty=novelty, stray=stray, tally=tally)
    if edit.kind == "dissolve":
        state = state.without([state.place(edit.key)])
        if len(edit.rows):
            at = state.tally.components(model).placed(rows, state.labels[edit.rows])
            confidence[edit.rows] = at.probability
    return state


def replayed(
    found: State, edits: Iterable[Edit], z: NDArray[np.float32], model: ClusteringModel, trained: frozenset[str]
) -> State:
    """Return clusters after edits."""
    state = found
    for edit in edits:
        state = applied(state, edit, z, model, trained)
    # A name changes no component; all that other edits change are found at the end.
    same = state.tally is found.tally
    return state if same else replace(state, components=state.tally.components(model))


def distinct(names: Sequence[str]) -> list[str]:
    """Return names of which each comes once.

    >>> distinct(["a", "b", "a", "a (2)"])
    ['a', 'b', 'a (3)', 'a (2)']
    """
    used, found = set(names), list[str]()
    for name in names:
        if name in found:
            name = next(other for number in count(2) if (other := f"{name} ({number})") not in used)
            used.add(name)
        found.append(name)
    return found


def number_of(state: State, cluster: Any, argument: str = "k") -> int:
    """Return the number of a cluster that is given by its number or its name."""
    if isinstance(cluster, str):
        if cluster in state.names:
            return state.names.index(cluster)
        near = ", ".join(shown(name) for name in state.names[:5])
        raise DataError(f"{argument}={shown(cluster)}: no cluster has this name; names are {near}, ...")
    if isinstance(cluster, int | np.integer) and not isinstance(cluster, bool) and 0 <= cluster < len(state.keys):
        return int(cluster)
    raise DataError(
        f"{argument}={shown(cluster)}: a cluster is given by its number, 0 to {len(state.keys) - 1}, or by its name"
    )


def rows_given(rows: Any, ids: Sequence[str]) -> Labels:
    """Return the places of rows that are given by place, by id, or as a mask."""
    if isinstance(rows, int | np.integer | str) and not isinstance(rows, bool):
        rows = [rows]
    array = np.asarray(rows)
    if array.dtype == bool:
        if array.shape != (len(ids),):
            raise DataError(f"rows has shape {array.shape}: a mask must have one value for each of {len(ids)} rows")
        return np.flatnonzero(array)
    if array.ndim != 1 or not len(array):
        raise DataError(f"rows={shown(rows)}: give places or ids of rows, at least one")
    if array.dtype.kind in "US":
        places = {name: place for place, name in reversed(list(enumerate(ids)))}
        missing = [name for name in array.tolist() if name not in places]
        if missing:
            raise DataError(f"rows: no row has the id {shown(missing[0])}")
        return np.unique([places[name] for name in array.tolist()])
    if array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= len(ids):
        wrong = next((value for value in array.tolist() if not isinstance(value, int) or not 0 <= value < len(ids)), "")
        raise DataError(f"rows holds {shown(wrong)}: give places of rows, 0 to {len(ids) - 1}, or ids as strings")
    return np.unique(array).astype(np.int64)


def checked_name(name: Any, state: State, but: int | None = None) -> str:
    """Return a name for a cluster, if it is one that no other cluster has."""
    if not isinstance(name, str) or not name.strip():
        raise DataError(f"name={shown(name)}: give a name that is not blank")
    taken = state.names.index(name) if name in state.names else None
    if taken is not None and taken != but:
        raise DataError(f"name={shown(name)}: cluster {taken} has this name already; merge the two, or choose another")
    return name


def renaming(state: State, cluster: Any, name: Any) -> Edit:
    """Return the edit that gives a cluster a name."""
    place = number_of(state, cluster)
    return Edit("rename", int(state.keys[place]), checked_name(name, state, place))


def merging(state: State, clusters: Sequence[Any]) -> Edit:
    """Return the edit that merges clusters into the first of them."""
    places = [number_of(state, cluster, "clusters") for cluster in clusters]
    if len(set(places)) != len(places) or len(places) < 2:
        raise DataError(f"clusters={shown(list(clusters))}: give two or more different clusters to merge")
    keys = state.keys[places].tolist()
    return Edit("merge", keys[0], gone=tuple(keys[1:]))


def moving(state: State, rows: Labels, cluster: Any, free: int) -> Edit:
    """Return the edit that moves rows to a cluster; a name that none has makes a new one, with the key ``free``."""
    made: tuple[tuple[int, str, int], ...] = ()
    if isinstance(cluster, str) and cluster not in state.names:
        parent = int(state.keys[np.bincount(state.labels[rows]).argmax()])
        made, key = ((free, checked_name(cluster, state), parent),), free
    else:
        key = int(state.keys[number_of(state, cluster)])
    return Edit("move", key, rows=rows, to=np.full(len(rows), key), made=made)


def splitting(state: State, cluster: Any, z: NDArray[np.float32], into: int, names: Sequence[str], free: int) -> Edit:
    """Return the edit that divides a cluster by Ward's method; the largest part keeps its key and its name."""
    place = number_of(state, cluster)
    rows = np.flatnonzero(state.labels == place)
    if isinstance(into, bool) or not isinstance(into, int | np.integer) or into < 2:
        raise DataError(f"into={shown(into)}: give the number of parts, 2 or more")
    if len(rows) < into:
        raise DataError(f"into={into}: cluster {place} has only {len(rows)} rows")
    (parts,) = ward_labels(z[rows].astype(np.float64), [int(into)], np.random.default_rng(0))
    order = np.argsort(-np.bincount(parts), kind="stable")
    key = int(state.keys[place])
    keys = np.concatenate([[key], free + np.arange(len(order) - 1)])
    to = keys[np.argsort(order)][parts]
    moved = to != key
    made = tuple((free + number, name, key) for number, name in enumerate(names[: len(order) - 1]))
    return Edit("split", key, rows=rows[moved], to=to[moved], made=made)


def dissolving(state: State, cluster: Any, z: NDArray[np.float32]) -> Edit:
    """Return the edit that dissolves a cluster: its rows go where they are next most probable."""
    place = number_of(state, cluster)
    if len(state.keys) == 1:
        raise DataError(f"k={shown(cluster)}: it is the only cluster, its rows have nowhere to go")
    rows = np.flatnonzero(state.labels == place)
    others = np.delete(np.arange(len(state.keys)), place)
    to = others[state.components.take(others).assigned(z[rows])[0]] if len(rows) else NO_ROWS
    return Edit("dissolve", int(state.keys[place]), rows=rows, to=state.keys[to])
