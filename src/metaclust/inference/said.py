"""What a person has said of the rows of a clustering, and what is left of it when an edit is undone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from metaclust.inference.edits import Edit, History, State, replayed
from metaclust.inference.stages import Labels
from metaclust.model.clustering_model import ClusteringModel

if TYPE_CHECKING:
    from metaclust.inference.result import Clustering

OF_ALL_ROWS = ("rename", "merge", "split")
"""Edits after which a person has said of all rows of a cluster, as it was then, where they are."""


def said_names(clustering: Clustering) -> list[str | None]:
    """Return the name of the cluster of each row that a person has placed, and None for others."""
    history = clustering.history
    start = clustering.state if history.found is None else history.found
    key = start.keys[start.labels]
    said, outlier = clustering.given.fixed, clustering.outlier
    for edit in history.edits:
        if edit.kind in OF_ALL_ROWS:
            # Nobody has looked at rows that came later.
            mine = np.isin(key[: edit.seen], [edit.key, *edit.gone])
            said[: edit.seen] |= mine & ~outlier[: edit.seen]
        if edit.kind in ("merge", "same"):
            key[np.isin(key, edit.gone)] = edit.key
        key[edit.rows] = edit.to
        if edit.kind in ("move", "dissolve"):
            said[edit.rows] = edit.kind == "move"
    names = clustering.names
    return [names[label] if here else None for label, here in zip(clustering.labels, said.tolist(), strict=True)]


def undone(clustering: Clustering, model: ClusteringModel, trained: frozenset[str]) -> tuple[State, History]:
    """Return the clusters as if the last edit had never been, and their history.

    Rows that came with a label since are in the cluster of that label, and clusters of one name are one.
    """
    history, z = clustering.history, clustering.representations
    edit, edits = history.without_last()
    history = replace(history, edits=edits)
    assert history.found is not None  # noqa: S101 - for mypy
    state = replayed(history.found, edits, z, model, trained)
    named = np.array(state.names, object)[state.labels]
    labels = clustering.given.labels
    rows = np.array([row for row in range(edit.seen, len(labels)) if labels[row] not in (None, named[row])], np.int64)
    if len(rows):
        history = with_labelled(history, state, rows, [str(labels[row]) for row in rows.tolist()], z, model, trained)
        assert history.found is not None  # noqa: S101 - for mypy
        state = replayed(history.found, history.edits, z, model, trained)
    same = clusters_of_one_name(state)
    state = replayed(state, same, z, model, trained)
    edits = (*history.edits, *same)
    return state, replace(history, keys=state.keys, edits=edits, found=history.found if edits else None)


def clusters_of_one_name(state: State) -> list[Edit]:
    """Return the edits that merge clusters of one name."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(state.names):
        places.setdefault(name, []).append(int(state.keys[place]))
    return [Edit("same", keys[0], gone=tuple(keys[1:])) for keys in places.values() if len(keys) > 1]


def with_labelled(
    history: History,
    state: State,
    rows: Labels,
    labels: list[str],
    z: NDArray[np.float32],
    model: ClusteringModel,
    trained: frozenset[str],
) -> History:
    """Return the history with rows in the clusters of their labels, as if they had come there; ``state`` is its end."""
    found, free = history.found, history.free
    assert found is not None  # noqa: S101 - for mypy
    keys = {name: int(key) for name, key in zip(reversed(state.names), reversed(state.keys.tolist()), strict=True)}
    for name in dict.fromkeys(labels):
        if name not in keys:
            first = rows[labels.index(name)]
            found = found.with_clusters([free], [name], [int(found.labels[first])])
            keys[name], free = free, free + 1
    found = replace(found, is_new=np.array([name not in trained for name in found.names]))
    edits = tuple(edit.without(np.isin(edit.rows, rows)) if edit.kind == "add" else edit for edit in history.edits)
    edits = tuple(edit for edit in edits if edit.kind != "add" or len(edit.rows))
    edits, base = replace(history, edits=edits).with_rows(rows, np.array([keys[name] for name in labels], np.int64))
    merged = history.merged.copy()
    if len(merged):
        merged[rows] = base
    moved = found.labels.copy()
    moved[rows] = places_of(found, history.merged, base)
    tally = found.tally.with_rows(model, z[rows], found.labels[rows], sign=-1.0)
    tally = tally.with_rows(model, z[rows], moved[rows])
    found = replace(found, labels=moved, tally=tally, components=tally.components(model))
    return replace(history, free=free, edits=edits, found=found, merged=merged)


def places_of(found: State, merged: Labels, keys: Labels) -> Labels:
    """Return the numbers of clusters by the keys of these, or of those that were merged into them before."""
    into = {int(key): place for place, key in enumerate(found.keys.tolist())}
    if len(merged):
        every, first = np.unique(merged, return_index=True)
        into = dict(zip(every.tolist(), found.labels[first].tolist(), strict=True)) | into
    return np.array([into[key] for key in keys.tolist()], np.int64)
