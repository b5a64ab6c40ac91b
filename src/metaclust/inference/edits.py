"""What a person changes of a clustering: names, and which rows are together.

Each edit is recorded, and applied to the clusters as they were found, in order: what has been undone is as if it had
never been. Clusters are known by keys that never change, and numbered in the order of their keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metaclust.data.labels import read_labels
from metaclust.data.rows import DataError, shown
from metaclust.inference.confidence import ClusterFacts
from metaclust.inference.initialise import ward_labels
from metaclust.inference.links import Links, Places, pairs_from
from metaclust.inference.stages import Floats, Labels
from metaclust.inference.tally import Tally
from metaclust.mixture.components import Components
from metaclust.model.clustering_model import ClusteringModel

Kind = Literal["rename", "merge", "split", "move", "dissolve", "add", "same"]
BY_HAND: tuple[Kind, ...] = ("split", "move")
"""Edits after which a person has said of each of their rows where it is."""
AUTOMATIC: tuple[Kind, ...] = ("add", "same")
"""What no person has done."""
FIELDS = ("labels", "names", "is_new", "confidence", "novelty", "components", "tally", "facts")
NO_ROWS: Labels = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Edit:
    """One change.

    Attributes
    ----------
    kind : {"rename", "merge", "split", "move", "dissolve", "add", "same"}
        The last two are no edits of a person. "add": an update added rows to a cluster that an edit had made. "same":
        clusters that have one name, now that an edit has been undone, are merged.
    key : int
        The cluster that is renamed, that others are merged into, or whose rows go elsewhere.
    name : str or None
        The new name.
    gone : tuple of int
        The clusters that are merged into it, or that have no rows any more after a move.
    rows, to : ndarray
        Rows, and the key of the cluster that each goes to.
    made : tuple of (int, str, int)
        The key and the name of each new cluster, and the key of the one that most of its rows come from.
    seen : int
        How many rows there were: those after them were added by later updates.
    """

    kind: Kind
    key: int
    name: str | None = None
    gone: tuple[int, ...] = ()
    rows: Labels = field(default_factory=NO_ROWS.copy)
    to: Labels = field(default_factory=NO_ROWS.copy)
    made: tuple[tuple[int, str, int], ...] = ()
    seen: int = 0

    def without(self, gone: NDArray[np.bool_]) -> Edit:
        """Return the edit without some of its rows."""
        rows, to = self.rows[~gone], self.to[~gone]
        # What rows are added to is named by the first of them.
        key = int(to[0]) if self.kind == "add" and len(to) else self.key
        return replace(self, key=key, rows=rows, to=to)


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
    merged: Labels = field(default_factory=NO_ROWS.copy)
    """Where clusters were merged before all of these edits: the key of the cluster that each row was in; otherwise
    empty."""
    retired: tuple[tuple[str, int], ...] = ()
    """Names that clusters had before all of these edits, each with the key of the cluster."""

    @classmethod
    def unknown(cls) -> History:
        return cls(NO_ROWS, 0)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def by_hand(self) -> list[Edit]:
        """The edits of a person."""
        return [edit for edit in self.edits if edit.kind not in AUTOMATIC]

    def without_last(self) -> tuple[Edit, tuple[Edit, ...]]:
        """Return the last edit of a person, and all others: rows that were added to what it made go to no cluster."""
        last = max(place for place, edit in enumerate(self.edits) if edit.kind not in AUTOMATIC)
        made = [key for key, _, _ in self.edits[last].made]
        later = [edit.without(np.isin(edit.to, made)) for edit in self.edits[last + 1 :] if edit.kind == "add"]
        return self.edits[last], (*self.edits[:last], *(edit for edit in later if len(edit.rows)))

    def parts(self, state: State) -> Labels:
        """Return for each row the key of the cluster that it would be in without merges; ``state`` is as it is now."""
        start = state if self.found is None else self.found
        part = self.merged.copy() if len(self.merged) else start.keys[start.labels]
        for edit in self.edits:
            part[edit.rows] = edit.to
        return part

    def named(self) -> list[tuple[str, int]]:
        """Return the names that clusters had before or after edits, in this order, each with the key of the cluster."""
        pairs = list(self.retired)
        if self.found is not None:
            pairs += zip(self.found.names, self.found.keys.tolist(), strict=True)
        for edit in self.edits:
            pairs += [(edit.name, edit.key)] if edit.name is not None else []
            pairs += [(name, key) for key, name, _ in edit.made]
        return pairs

    def with_rows(self, rows: Labels, part: Labels) -> tuple[tuple[Edit, ...], Labels]:
        """Add rows that come after all others to clusters, by their keys.

        Returns the edits, and the key of the cluster that each row is in before all of them. Rows of a cluster that an
        edit made are where most of its rows come from, and are added to it right after that edit: later ones are of
        clusters that are still there.
        """
        makers = {key: (place, source) for place, edit in enumerate(self.edits) for key, _, source in edit.made}
        base = part.copy()
        added: dict[int, list[tuple[Labels, int]]] = {}
        for key in np.unique(part).tolist():
            mine, source = part == key, key
            while source in makers:
                place, origin = makers[source]
                added.setdefault(place, []).append((rows[mine], source))
                source = origin
            base[mine] = source
        edits: list[Edit] = []
        for place, edit in enumerate(self.edits):
            edits.append(edit)
            if place in added:
                every = np.concatenate([some for some, _ in added[place]])
                to = np.concatenate([np.full(len(some), key) for some, key in added[place]])
                order = np.argsort(every)
                edits.append(Edit("add", int(to[order[0]]), rows=every[order], to=to[order]))
        return tuple(edits), base


@dataclass(frozen=True, eq=False)
class Given:
    """What a person said of rows when they came."""

    labels: tuple[str | None, ...]
    """The label of each row; None for those without one."""
    must_link: Labels
    """(pairs, 2), of rows."""
    cannot_link: Labels

    @classmethod
    def unknown(cls) -> Given:
        return cls.none(0)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def fixed(self) -> NDArray[np.bool_]:
        """Whether each row had a label."""
        return np.array([label is not None for label in self.labels], bool)

    @classmethod
    def of(cls, ids: Sequence[str], y: Any, must_link: Any, cannot_link: Any) -> tuple[Given, Links | None]:
        """Read what a person gives: labels of some rows, and pairs of rows by place or id; also return the links."""
        codes, names = read_labels(y, len(ids)) if y is not None else (np.full(len(ids), -1), [])
        must, cannot = pairs_from(must_link, ids, "must_link"), pairs_from(cannot_link, ids, "cannot_link")
        labels = tuple(names[code] if code >= 0 else None for code in codes.tolist())
        return cls(labels, must, cannot), Links.of(len(ids), codes, names, must, cannot, ids)

    @classmethod
    def none(cls, rows: int) -> Given:
        return cls((None,) * rows, np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))


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
    if edit.kind in ("merge", "same"):
        into = np.arange(len(state.keys))
        gone = [state.place(key) for key in edit.gone]
        into[gone] = state.place(edit.key)
        tally = state.tally.merged(into, len(state.keys))
        labels = into[state.labels]
        other = state.is_new[labels] != state.is_new[state.labels]
        novelty = np.where(other, state.is_new[labels].astype(np.float64), state.novelty)
        return replace(state, labels=labels, novelty=novelty, tally=tally).without(gone)
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
    if edit.kind == "move":
        state = state.without([state.place(key) for key in edit.gone])
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
        if not array.any():
            raise DataError("rows: the mask selects no row; give one that is true for one row at least")
        return np.flatnonzero(array)
    if array.ndim != 1 or not len(array):
        raise DataError(f"rows={shown(rows)}: give places or ids of rows, at least one")
    if array.dtype.kind in "US":
        places = Places(ids)
        return np.unique([places.of(name, "rows") for name in array.tolist()])
    if array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= len(ids):
        wrong = next((value for value in array.tolist() if not isinstance(value, int) or not 0 <= value < len(ids)), "")
        raise DataError(f"rows holds {shown(wrong)}: give places of rows, 0 to {len(ids) - 1}, or ids as strings")
    return np.unique(array).astype(np.int64)


def checked_name(name: Any, state: State, but: int | None = None) -> str:
    """Return a name for a cluster, if it is one that no other cluster has."""
    if not isinstance(name, str):
        raise DataError(f"name={shown(name)}: give a string")
    if not name.strip():
        raise DataError(f"name={shown(name)}: give a name that is not blank")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise DataError(f"name={shown(name)}: it is not valid Unicode; decode it from its own encoding")
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
    if len(clusters) == 1 and isinstance(clusters[0], list | tuple | set | np.ndarray):
        raise DataError(f"clusters={shown(clusters[0])}: pass clusters one by one, as in merge(0, 1)")
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
    # A cluster that keeps no row is gone.
    left = np.bincount(np.delete(state.labels, rows), minlength=len(state.keys)) > 0
    emptied = np.setdiff1d(state.keys[np.unique(state.labels[rows])], state.keys[left])
    gone = tuple(int(other) for other in emptied.tolist() if other != key)
    return Edit("move", key, gone=gone, rows=rows, to=np.full(len(rows), key), made=made)


def splitting(state: State, cluster: Any, z: NDArray[np.float32], into: int, names: Sequence[str], free: int) -> Edit:
    """Return the edit that divides a cluster by Ward's method; the largest part keeps its key and its name."""
    place = number_of(state, cluster)
    rows = np.flatnonzero(state.labels == place)
    if isinstance(into, bool) or not isinstance(into, int | np.integer) or into < 2:
        raise DataError(f"into={shown(into)}: give the number of parts, 2 or more")
    if len(rows) < into:
        raise DataError(f"into={into}: cluster {place} has only {len(rows)} rows")
    different = len(np.unique(z[rows], axis=0))
    if different < into:
        what = "its rows are all alike" if different == 1 else f"it has only {different} different rows"
        raise DataError(f"into={into}: cluster {place} cannot be divided so, {what}")
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
