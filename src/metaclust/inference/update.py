"""Further rows for a clustering: into the clusters that are there, and into new ones where they fit none of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from metaclust._util.progress import Waiting
from metaclust.data.rows import DataError
from metaclust.inference.cluster import cluster_array
from metaclust.inference.confidence import ClusterFacts
from metaclust.inference.edits import Edit, Given, History, State
from metaclust.inference.links import Links
from metaclust.inference.settle import Known, Settled
from metaclust.inference.stages import Labels

if TYPE_CHECKING:
    from metaclust.inference.result import Clustering

FEW = 300
"""Fewer further rows are clustered beside rows that were there before, so many together: of one row alone nothing can
be said of clusters, or of whether it is far from all others."""


def updated(
    clustering: Clustering,
    x: Any,
    y: Any = None,
    *,
    known: Literal["auto", "use", "ignore"] = "auto",
    relabel: bool = False,
) -> Clustering:
    """Return a clustering with further rows, or with those of each chunk of an iterator."""
    if isinstance(x, Iterator):
        if y is not None:
            raise DataError("y: labels cannot be given with an iterator of chunks; update with one chunk after another")
        found = replace(clustering)
        for chunk in x:
            found = updated(found, chunk, known=known, relabel=relabel)
        return found
    model, _ = clustering.model_for("update")
    if known == "auto" and clustering.about.get("known") == "ignore":
        known = "ignore"
    estimator = clustering.model
    categories = estimator.recognised(known)
    rows, z = estimator.represent(x)
    added, links = Given.of(rows.ids, y, None, None)
    before = clustering.state
    everything = known_of(clustering, before, categories)
    beside = rows_beside(len(before.labels), len(z))
    links = links_beside(before, beside, len(z), links)
    with Waiting("updating", enabled=estimator.progress):
        every = np.concatenate([clustering.representations[beside], z])
        _, settled = cluster_array(model, every, estimator.search("auto"), everything, links)
        settled = settled.take(np.arange(len(beside), len(every)))
    names = {name: place for place, name in enumerate(before.names)}
    fresh = [place for place, name in enumerate(settled.names) if name not in names]
    free = clustering.history.free
    keys = [free + number for number in range(len(fresh))]
    number = np.array([names.get(name, -1) for name in settled.names])
    number[fresh] = len(before.names) + np.arange(len(fresh))
    labels = number[settled.labels]
    state = extended(before, settled, fresh, keys, labels, z, estimator.model_)
    history = extended_history(clustering, settled, fresh, keys, state, z, free)
    given = clustering.given
    ids = continued_ids(clustering.ids, rows.ids)
    old = clustering.rows
    of_table = None if rows.table is None else rows.table.index
    result = replace(
        clustering,
        **state.fields(),
        history=history,
        given=replace(given, fixed=np.concatenate([given.fixed, added.fixed])),
        representations=np.concatenate([clustering.representations, z]),
        ids=ids,
        categories=None
        if clustering.categories is None or rows.labels is None
        else [*clustering.categories, *rows.labels],
        rows=None if old is None or old.kind != rows.kind else replace(old.followed_by(rows), ids=ids),
        index=clustering.index if of_table == clustering.index else None,
        k_probabilities={},
        about={**clustering.about, "rows": len(ids), "updates": count_of(clustering.about.get("updates")) + 1},
    )
    return relabelled(result) if relabel else result


def rows_beside(seen: int, further: int) -> Labels:
    """Return which of the rows seen before are clustered beside few further ones, drawn at random."""
    wanted = min(seen, max(0, FEW - further))
    found: Labels = np.sort(np.random.default_rng([seen, further, 0xBE51]).choice(seen, wanted, replace=False))
    return found


def links_beside(before: State, beside: Labels, further: int, links: Links | None) -> Links | None:
    """Return the links of further rows and of rows seen before, which stay where they are."""
    if not len(beside):
        return links
    codes, labels = (np.full(further, -1), []) if links is None else (links.codes, links.names)
    names = list(dict.fromkeys([*before.names, *labels]))
    own = np.array([-1, *(names.index(name) for name in labels)])[codes + 1]
    return Links.of(len(beside) + further, np.concatenate([before.labels[beside], own]), names)


def known_of(clustering: Clustering, state: State, categories: Known) -> Known:
    """Return the clusters as categories that are known, and the categories of which there are no rows yet."""
    model = clustering.model.model_
    trained = np.array([name in categories.trained for name in state.names])
    history = clustering.history
    named = {name for edit in history.edits for name in (edit.name, *(title for _, title, _ in edit.made)) if name}
    named |= set(() if history.found is None else history.found.names)
    clusters = Known(
        list(state.names),
        state.tally.catalogue(model, trained),
        categories.trained,
        frozenset(named),
        categories.judge,
        categories.threshold,
        len(state.names),
    )
    # What a person has renamed or merged does not come back under its old name.
    categories = categories.without(named - set(state.names))
    return clusters.joined(categories.names, categories.catalogue)


def extended(
    before: State,
    settled: Settled,
    fresh: list[int],
    keys: list[int],
    labels: Labels,
    z: NDArray[np.float32],
    model: Any,
) -> State:
    """Return clusters with further rows, and with new clusters after them."""
    count = len(before.names) + len(fresh)
    tally = before.tally.with_rows(model, z, labels, clusters=count)
    return State(
        np.concatenate([before.keys, np.array(keys, np.int64)]),
        np.concatenate([before.labels, labels]),
        [*before.names, *(settled.names[place] for place in fresh)],
        np.concatenate([before.is_new, settled.is_new[fresh]]),
        np.concatenate([before.confidence, settled.confidence]),
        np.concatenate([before.novelty, settled.novelty]),
        np.concatenate([before.stray, settled.stray]),
        tally.components(model),
        tally,
        joined_facts(before.facts, settled.facts, fresh),
    )


def extended_history(
    clustering: Clustering,
    settled: Settled,
    fresh: list[int],
    keys: list[int],
    after: State,
    z: NDArray[np.float32],
    free: int,
) -> History:
    """Return the history with further rows: in the clusters that were found, they are where edited ones come from."""
    history = clustering.history
    free += len(fresh)
    found = history.found
    if found is None:
        return History(after.keys, free)
    count = len(found.labels)
    of_rows = after.keys[after.labels[count:]]
    present = set(found.keys.tolist()) | set(keys)
    origin = np.array([key if key in present else history.origin(key) for key in after.keys.tolist()])
    places = {key: place for place, key in enumerate([*found.keys.tolist(), *keys])}
    labels = np.array([places[key] for key in origin.tolist()])[after.labels[count:]]
    found = extended(found, settled, fresh, keys, labels, z, clustering.model.model_)
    made = ~np.isin(of_rows, list(present))
    edits = history.edits
    if made.any():
        edits = (*edits, Edit("add", int(of_rows[made][0]), rows=count + np.flatnonzero(made), to=of_rows[made]))
    return History(after.keys, free, edits, found)


def joined_facts(ours: ClusterFacts | None, theirs: ClusterFacts | None, fresh: list[int]) -> ClusterFacts | None:
    """Return what is known of clusters and of some others; nothing where nothing is known of either."""
    if ours is None or theirs is None:
        return ours if not fresh else None
    added = theirs.take(np.array(fresh, np.int64))
    pairs = ((getattr(ours, name), getattr(added, name)) for name in ("features", "mean_square", "deviation"))
    return ClusterFacts(*(np.concatenate(pair) for pair in pairs))


def relabelled(clustering: Clustering) -> Clustering:
    """Return a clustering whose rows are where they are most probable now, but for those that a person has placed.

    What was done before cannot be undone any more.
    """
    model, _ = clustering.model_for("update")
    state, given = clustering.state, clustering.given
    said = clustering.labelled()
    placed = np.array([name is not None for name in said])
    loose = np.flatnonzero(~placed)
    z = clustering.representations[loose]
    labels = state.labels.copy()
    labels[loose] = state.components.assigned(z)[0]
    _, links = Given.of(clustering.ids, said, given.must_link, given.cannot_link)
    if links is not None:
        rows = clustering.representations.astype(np.float64)
        moved = links.moved(rows, labels, model.expected_variance)
        # No cluster is opened here.
        labels = np.where(moved < len(state.names), moved, state.labels)
    changed = np.flatnonzero(labels != state.labels)
    z, old = clustering.representations[changed], state.labels[changed]
    tally = state.tally.with_rows(model, z, old, sign=-1.0).with_rows(model, z, labels[changed])
    components = tally.components(model)
    confidence, novelty = state.confidence.copy(), state.novelty.copy()
    confidence[changed] = components.placed(z, labels[changed]).probability
    novelty[changed] = state.is_new[labels[changed]]
    state = replace(state, labels=labels, tally=tally, components=components, confidence=confidence, novelty=novelty)
    history = History(state.keys, clustering.history.free)
    return replace(clustering, **state.fields(), history=history, given=replace(given, fixed=given.fixed | placed))


def count_of(value: Any) -> int:
    """Return a count that a file holds, and 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def continued_ids(before: list[str], added: list[str]) -> list[str]:
    """Return the ids of all rows; where they are but numbers of rows, counting goes on.

    >>> continued_ids(["0", "1"], ["0"]), continued_ids(["a", "b"], ["0"])
    (['0', '1', '2'], ['a', 'b', '0'])
    """
    if before == [str(place) for place in range(len(before))] and added == [str(place) for place in range(len(added))]:
        return [*before, *(str(len(before) + place) for place in range(len(added)))]
    return [*before, *added]
