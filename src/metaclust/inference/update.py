"""Further rows for a clustering: into the clusters that are there, and into new ones where they fit none of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from metaclust._util.progress import Waiting
from metaclust.data.input_table import unused
from metaclust.data.inputs import is_table
from metaclust.data.labels import read_labels
from metaclust.data.rows import DataError, DataWarning, Rows, listed
from metaclust.inference.cluster import cluster_array
from metaclust.inference.confidence import ClusterFacts
from metaclust.inference.edits import NO_ROWS, Given, History, State
from metaclust.inference.known import Catalogue
from metaclust.inference.links import Links, agreeing
from metaclust.inference.said import places_of, said_names
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
    again: bool = False,
) -> Clustering:
    """Return a clustering with further rows, or with those of each chunk of an iterator or a list of chunks."""
    model, _ = clustering.model_for("update")
    estimator = clustering.model
    if isinstance(x, Iterator) or is_chunks(x, estimator.preparation_.kind == "vectors"):
        if y is not None:
            raise DataError("y: labels cannot be given with an iterator of chunks; update with one chunk after another")
        found = replace(clustering)
        for chunk in x:
            found = updated(found, chunk, known=known, relabel=relabel, again=again)
        return found
    categories = estimator.recognised(known_before(clustering) if known == "auto" else known)
    rows, z = represented(estimator, x)
    y = rows.said if y is None else y
    added, links = Given.of(rows.ids, y, None, None)
    further = np.arange(len(rows)) if again else unseen(clustering, rows, added.labels)
    if not len(further):
        return relabelled(clustering) if relabel else replace(clustering)
    if len(further) < len(rows):
        rows, z = rows.take(further), z[further]
        added, links = Given.of(rows.ids, [added.labels[row] for row in further.tolist()], None, None)
    before, history = clustering.state, clustering.history
    parts = Parts.of(clustering, before, {*categories.names, *(label for label in added.labels if label)})
    everything = known_of(clustering, before, parts, categories)
    beside = rows_beside(len(before.labels), len(z))
    links = links_beside(parts, beside, len(z), links)
    with Waiting("updating", enabled=estimator.progress):
        every = np.concatenate([clustering.representations[beside], z])
        _, settled = cluster_array(model, every, estimator.search("auto"), everything, links)
        settled = settled.take(np.arange(len(beside), len(every)))
    fresh = [place for place, name in enumerate(settled.names) if name not in parts.number]
    free = history.free + len(fresh)
    keys = [history.free + number for number in range(len(fresh))]
    number = np.array([parts.number.get(name, -1) for name in settled.names])
    number[fresh] = len(before.names) + np.arange(len(fresh))
    key = np.array([parts.key.get(name, -1) for name in settled.names])
    key[fresh] = keys
    state = extended(before, settled, fresh, keys, number[settled.labels], z, estimator.model_)
    history = extended_history(history, settled, fresh, keys, key[settled.labels], z, estimator.model_)
    given = clustering.given
    ids = continued_ids(clustering.ids, rows.ids)
    old = clustering.rows
    if rows.table is not None and is_counted(rows.ids):
        rows = replace(rows, table=rows.table.numbered([int(name) for name in ids[len(before.labels) :]]))
    of_table = None if rows.table is None else rows.table.index
    result = replace(
        clustering,
        **state.fields(),
        history=replace(history, keys=state.keys, free=free),
        given=replace(given, labels=(*given.labels, *added.labels)),
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


def represented(estimator: Any, x: Any) -> tuple[Rows, NDArray[np.float32]]:
    """Return further rows as they were read, and their representations."""
    try:
        rows, z = estimator.represent(x)
    except ValueError as error:
        words = str(error).strip().rstrip(".")
        raise DataError(f"update: {words}; give further rows, at least one, of the form of those before") from error
    if not len(rows):
        raise DataError("update: X has no rows; give further rows, at least one, or leave the chunk out")
    return rows, z


def is_chunks(x: Any, vectors: bool) -> bool:
    """Return whether ``x`` is a list of tables, or of matrices where rows are vectors: not of rows, but of chunks."""
    if not isinstance(x, list | tuple) or not x:
        return False
    return all(isinstance(each, Rows) or is_table(each) or (vectors and len(np.shape(each)) == 2) for each in x)


def known_before(clustering: Clustering) -> Literal["auto", "use", "ignore"]:
    """Return whether known categories were looked for when the clusters were found."""
    before = clustering.about.get("known")
    if before == "ignore":
        return "ignore"
    return "use" if before == "use" and clustering.model.model_.known is not None else "auto"


def unseen(clustering: Clustering, rows: Rows, labels: Sequence[str | None]) -> Labels:
    """Return which rows have no id of a row that is there already, and warn of those that have one.

    Ids that only count rows do not say which rows are the same.
    """
    if is_counted(clustering.ids) or is_counted(rows.ids):
        return np.arange(len(rows))
    before = set(clustering.ids)
    seen = np.array([name in before for name in rows.ids], bool)
    if seen.any():
        names = [rows.ids[row] for row in np.flatnonzero(seen).tolist()]
        labelled = any(label for label, here in zip(labels, seen.tolist(), strict=True) if here)
        warnings.warn(
            f"{rows.source}: {len(names)} of {len(rows)} rows are in the clustering already, by their ids, and left "
            f"out: {listed(names)}. To count them once more, pass again=True, or --again"
            + (". Their labels are left out, too: correct rows by move" if labelled else ""),
            DataWarning,
            stacklevel=4,
        )
    return np.flatnonzero(~seen)


def rows_beside(seen: int, further: int) -> Labels:
    """Return which of the rows seen before are clustered beside few further ones, drawn at random."""
    wanted = min(seen, max(0, FEW - further))
    found: Labels = np.sort(np.random.default_rng([seen, further, 0xBE51]).choice(seen, wanted, replace=False))
    return found


def links_beside(parts: Parts, beside: Labels, further: int, links: Links | None) -> Links | None:
    """Return the links of further rows and of rows seen before, which stay where they are."""
    if not len(beside):
        return links
    codes, labels = (np.full(further, -1), []) if links is None else (links.codes, links.names)
    names = list(dict.fromkeys([*parts.names, *labels]))
    own = np.array([-1, *(names.index(name) for name in labels)])[codes + 1]
    return Links.of(len(beside) + further, np.concatenate([parts.of_rows[beside], own]), names)


@dataclass(frozen=True, eq=False)
class Parts:
    """The clusters as categories that are known: one that was merged is described by what it was merged from."""

    names: list[str]
    """Of each part: the name of the cluster, or one that no cluster has."""
    catalogue: Catalogue
    number: dict[str, int]
    """The number of the cluster of each part, by the name of the part, and of clusters without rows."""
    key: dict[str, int]
    """The key that the part had as a cluster, or has."""
    of_rows: Labels
    """The part of each row, by its place in ``names``."""

    @classmethod
    def of(cls, clustering: Clustering, state: State, taken: set[str]) -> Parts:
        """Describe clusters by their parts, which get none of the names that are taken."""
        model = clustering.model.model_
        part, own = clustering.history.parts(state), state.keys[state.labels]
        merged = np.unique(state.labels[part != own])
        filled = np.bincount(state.labels, minlength=len(state.names)) > 0
        whole = np.setdiff1d(np.flatnonzero(filled), merged)
        unknown = np.zeros(len(state.names), bool)
        catalogue = state.tally.catalogue(model, unknown).take(whole)
        names = [state.names[place] for place in whole.tolist()]
        number = {name: place for place, name in enumerate(state.names)}
        key = dict(zip(state.names, state.keys.tolist(), strict=True))
        if len(merged):
            rows = np.flatnonzero(np.isin(state.labels, merged))
            keys, first, index = np.unique(part[rows], return_index=True, return_inverse=True)
            of_parts = Catalogue.of(clustering.representations[rows], index, len(keys), trained=False)
            owner = state.labels[rows[first]]
            # The name of a cluster is that of the part that has its key, or of the largest one.
            order = np.lexsort((-of_parts.counts, keys != state.keys[owner], owner))
            main = {int(place): int(each) for each, place in zip(order[::-1], owner[order[::-1]], strict=True)}
            for each, place in enumerate(owner.tolist()):
                name = state.names[place]
                if main[place] != each:
                    name = unused(f"{name} (merged)", {*number, *taken})
                names.append(name)
                number[name], key[name] = place, int(keys[each])
            catalogue = catalogue + of_parts
        every = np.array([key[name] for name in names], np.int64)
        order = np.argsort(every)
        return cls(names, catalogue, number, key, order[np.searchsorted(every, part, sorter=order)])


def known_of(clustering: Clustering, state: State, parts: Parts, categories: Known) -> Known:
    """Return the clusters as categories that are known, and the categories of which there are no rows yet."""
    named = clustering.history.named()
    last = {key: name for name, key in named}
    # A category of the training that was merged into a cluster is a part of that.
    own = {last[parts.key[name]]: name for name in parts.names if name not in state.names and parts.key[name] in last}
    own = {old: name for old, name in own.items() if old in categories.names and old not in state.names}
    trained = categories.trained | {name for old, name in own.items()}
    clusters = Known(
        list(parts.names),
        replace(parts.catalogue, trained=np.array([name in trained for name in parts.names], bool)),
        categories.trained,
        frozenset({name for name, _ in named} | set(state.names)),
        categories.judge,
        categories.threshold,
        len(parts.names),
    )
    # What a person has renamed or merged does not come back under its old name.
    categories = categories.without({name for name, _ in named} - {*state.names, *own})
    return clusters.joined([own.get(name, name) for name in categories.names], categories.catalogue)


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
    history: History,
    settled: Settled,
    fresh: list[int],
    keys: list[int],
    part: Labels,
    z: NDArray[np.float32],
    model: Any,
) -> History:
    """Return the history with further rows: in the clusters that were found, they are where edited ones come from.

    ``part`` is the key of the cluster of each row, as it was before it was merged.
    """
    found = history.found
    rows = (len(history.merged) if found is None else len(found.labels)) + np.arange(len(part))
    edits, base = history.with_rows(rows, part)
    merged = np.concatenate([history.merged, base]) if len(history.merged) else history.merged
    if found is not None:
        clusters = replace(found, keys=np.concatenate([found.keys, np.array(keys, np.int64)]))
        labels = places_of(clusters, history.merged, base)
        found = extended(found, settled, fresh, keys, labels, z, model)
    return replace(history, edits=edits, found=found, merged=merged)


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
    said = said_names(clustering)
    loose = np.flatnonzero([name is None for name in said])
    part = clustering.history.parts(state)
    components, keys, owner = state.components, state.keys, np.arange(len(state.names))
    if (part != state.keys[state.labels]).any():
        # Rows of a merged cluster are not around its mean, but around those of its parts.
        keys, first, index = np.unique(part, return_index=True, return_inverse=True)
        owner = state.labels[first]
        tally = replace(state.tally, sums=np.zeros((len(keys), state.tally.sums.shape[1])))
        components = tally.with_rows(model, clustering.representations, index).components(model)
    to = components.assigned(clustering.representations[loose])[0]
    labels = state.labels.copy()
    labels[loose], part[loose] = owner[to], keys[to]
    codes, names = read_labels(said)
    must, cannot = agreeing(codes, given.must_link, given.cannot_link)
    links = Links.of(len(codes), codes, names, must, cannot)
    if links is not None:
        rows = clustering.representations.astype(np.float64)
        moved = links.moved(rows, labels, model.expected_variance)
        # No cluster is opened here.
        moved = np.where(moved < len(state.names), moved, state.labels)
        part = np.where(moved == labels, part, state.keys[moved])
        labels = moved
    changed = np.flatnonzero(labels != state.labels)
    z, old = clustering.representations[changed], state.labels[changed]
    tally = state.tally.with_rows(model, z, old, sign=-1.0).with_rows(model, z, labels[changed])
    components = tally.components(model)
    confidence, novelty = state.confidence.copy(), state.novelty.copy()
    confidence[changed] = components.placed(z, labels[changed]).probability
    novelty[changed] = state.is_new[labels[changed]]
    state = replace(state, labels=labels, tally=tally, components=components, confidence=confidence, novelty=novelty)
    history = History(
        state.keys,
        clustering.history.free,
        merged=part if (part != state.keys[labels]).any() else NO_ROWS,
        retired=tuple(dict.fromkeys(clustering.history.named())),
    )
    return replace(clustering, **state.fields(), history=history, given=replace(given, labels=tuple(said)))


def count_of(value: Any) -> int:
    """Return a count that a file holds, and 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def is_counted(ids: Sequence[str]) -> bool:
    """Return whether ids only count rows."""
    return all(name == str(place) for place, name in enumerate(ids))


def continued_ids(before: Sequence[str], added: Sequence[str]) -> list[str]:
    """Return the ids of all rows; where those that are added only count rows, counting goes on.

    >>> continued_ids(["0", "1"], ["0"]), continued_ids(["a", "1"], ["0"]), continued_ids(["a"], ["b"])
    (['0', '1', '2'], ['a', '1', '2'], ['a', 'b'])
    """
    if not is_counted(added):
        return [*before, *added]
    taken = set(before)
    first = len(before)
    while any(str(first + place) in taken for place in range(len(added))):
        first += 1
    return [*before, *(str(first + place) for place in range(len(added)))]
