"""What a clustering's file holds besides its rows and components: names, statistics, and what was changed by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util import schema
from metaclust._util.tensors import with_prefix
from metaclust.inference.confidence import ClusterFacts
from metaclust.inference.edits import NO_ROWS, Edit, Given, History, State
from metaclust.inference.tally import Tally
from metaclust.mixture.components import Components
from metaclust.model.selector import CLUSTER_FEATURES

if TYPE_CHECKING:
    from metaclust.estimator import MetaClusterer
    from metaclust.inference.result import Clustering

WHOLE, REAL = (torch.int64,), (torch.float64,)
LARGEST = 1e76
"""Of sums of rows, and of what is known of clusters."""
KINDS = ("rename", "merge", "split", "move", "dissolve", "add", "same")
COMPONENTS = ("weights", "means", "precisions", "offsets")
OF_ROWS = ("confidence", "novelty", "stray")
PROBABILITY_ROUNDING = 1e-6
"""By how much a probability may exceed one."""
LARGEST_MEAN = 1e38
"""Such that its square is still a number."""


def living_arrays(clustering: Clustering) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the fields of the header that make a clustering one that lives on."""
    if clustering.tally is None:
        return {}, {}
    history, given = clustering.history, clustering.given
    found = history.found
    # No file is written that cannot be read.
    check_distinct("names", clustering.names)
    check_edits(history.edits, history.keys if found is None else found.keys, history.keys, history.free)
    arrays: dict[str, NDArray[Any]] = {
        "novelty": clustering.novelty,
        "stray": clustering.outlier_probability,
        "keys": history.keys,
        "fixed": given.fixed,
        "must_link": given.must_link,
        "cannot_link": given.cannot_link,
        "tally.origin": clustering.tally.origin,
        "tally.sums": clustering.tally.sums,
    }
    described = {
        "names": list(clustering.names),
        "is_new": clustering.is_new.tolist(),
        "factor": clustering.tally.factor,
        "free": history.free,
        "edits": [
            {
                "kind": e.kind,
                "key": e.key,
                "name": e.name,
                "gone": list(e.gone),
                "made": [list(m) for m in e.made],
                "seen": e.seen,
            }
            for e in history.edits
        ],
        "labels": [label for label in given.labels if label is not None],
        "retired": [list(pair) for pair in history.retired],
    }
    if len(history.merged):
        arrays["merged"] = history.merged
    for number, edit in enumerate(history.edits):
        arrays |= {f"edits.{number}.rows": edit.rows, f"edits.{number}.to": edit.to}
    if found is not None:
        described["found"] = {"names": list(found.names), "is_new": found.is_new.tolist()}
        arrays |= {f"found.{name}": getattr(found, name) for name in ("keys", "labels", *OF_ROWS)}
        arrays["found.sums"] = found.tally.sums
        for name in ("components", "facts"):
            if (holder := getattr(found, name)) is not None:
                arrays |= {f"found.{name}.{part}": value for part, value in vars(holder).items()}
    return {f"living.{name}": value for name, value in arrays.items()}, {"living": described}


def checked_living(
    tensors: dict[str, Tensor], header: dict[str, Any], arrays: dict[str, NDArray[Any]], model: MetaClusterer | None
) -> dict[str, Any]:
    """Return what :func:`living_arrays` wrote, as a clustering takes it, if it is in order; nothing of older files."""
    if "living" not in header:
        schema.check_names(tensors, ())
        return {}
    described = schema.fields(
        header["living"],
        {
            "names": schema.list_of(schema.text, len(arrays["weights"])),
            "is_new": schema.list_of(schema.flag, len(arrays["weights"])),
            "factor": schema.number(1 / LARGEST, LARGEST),
            "free": schema.whole(),
            "edits": schema.list_of(schema.mapping),
        },
        {
            "found": schema.mapping,
            "labels": schema.list_of(schema.text),
            "retired": schema.list_of(schema.list_of(whole_or_text, 2)),
        },
        name="living",
    )
    (rows, width), clusters = arrays["representations"].shape, len(arrays["weights"])
    check_distinct("living.names", described["names"])
    # Without its model a clustering is only looked at.
    count = own_count(tensors) if model is None else model.model_.family.feature_count(width)
    origin = read(tensors, "tally.origin", (width,))
    sums = read(tensors, "tally.sums", (clusters, count))
    keys = checked_keys(read_whole(tensors, "keys", (clusters,)), "living.keys", described["free"])
    edits = tuple(checked_edit(tensors, each, number, rows) for number, each in enumerate(described["edits"]))
    found = None
    if "found" in described:
        found = checked_found(tensors, described, rows, origin, count, arrays)
    check_edits(edits, keys if found is None else found.keys, keys, described["free"])
    if bool(edits) != (found is not None):
        raise ValueError("living.found: it must be there if there are edits, and only then")
    names = {"novelty", "stray", "keys", "fixed", "must_link", "cannot_link", "tally.origin", "tally.sums"}
    names |= {"merged"} & tensors.keys()
    names |= {f"edits.{number}.{part}" for number in range(len(edits)) for part in ("rows", "to")}
    schema.check_names({name for name in tensors if not name.startswith("found.")}, names)
    pairs = {}
    for name in ("must_link", "cannot_link"):
        shape = (len(tensors[name]) if name in tensors and tensors[name].ndim else 0, 2)
        pairs[name] = read_whole(tensors, name, shape, rows - 1)
    fixed = schema.tensor(tensors, "fixed", (rows,), dtypes=(torch.bool,)).numpy()
    merged = NO_ROWS
    if "merged" in tensors:
        merged = checked_merged(read_whole(tensors, "merged", (rows,)), arrays, described["free"], keys, found)
    return {
        "names": described["names"],
        "is_new": np.array(described["is_new"]),
        "novelty": read(tensors, "novelty", (rows,), 0, 1),
        "outlier_probability": read(tensors, "stray", (rows,), 0, 1),
        "tally": Tally(origin, sums, float(described["factor"])),
        "history": History(keys, described["free"], edits, found, merged, checked_retired(described)),
        "given": Given(checked_labels(described, fixed, arrays["labels"]), **pairs),
    }


def checked_labels(
    described: dict[str, Any], fixed: NDArray[np.bool_], clusters: NDArray[np.int64]
) -> tuple[str | None, ...]:
    """Return the label that each row came with; in files that have none it is the name of its cluster."""
    rows = np.flatnonzero(fixed)
    labels = described.get("labels", [described["names"][cluster] for cluster in clusters[rows].tolist()])
    if len(labels) != len(rows):
        raise ValueError(f"living.labels: there are {len(labels)}, where {len(rows)} rows are labelled")
    found: list[str | None] = [None] * len(fixed)
    for row, label in zip(rows.tolist(), labels, strict=True):
        found[row] = label
    return tuple(found)


def checked_retired(described: dict[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return names that clusters had before, each with a key."""
    pairs = []
    for name, key in described.get("retired", []):
        schema.fields({"name": name, "key": key}, {"name": schema.text, "key": schema.whole()}, name="living.retired")
        pairs.append((name, key))
    return tuple(pairs)


def checked_merged(
    merged: NDArray[np.int64],
    arrays: dict[str, NDArray[Any]],
    free: int,
    keys: NDArray[np.int64],
    found: State | None,
) -> NDArray[np.int64]:
    """Return the keys of the clusters that rows were in before some were merged, if all rows of one are together."""
    labels, now = (arrays["labels"], keys) if found is None else (found.labels, found.keys)
    every, first, index = np.unique(merged, return_index=True, return_inverse=True)
    owner = labels[first]
    if len(every) and int(every[-1]) >= free:
        raise ValueError(f"living.merged: keys of clusters must be below {free}")
    if (owner[index] != labels).any() or (now[owner] != every)[np.isin(every, now)].any():
        raise ValueError("living.merged: rows of a cluster must be together, in the one of its key if it is there")
    return merged


def check_edits(edits: tuple[Edit, ...], found: NDArray[np.int64], keys: NDArray[np.int64], free: int) -> None:
    """Raise ValueError unless edits lead from the clusters that were found to those that there are."""
    live, ever = set(found.tolist()), set(found.tolist())
    for number, edit in enumerate(edits):
        name = f"living.edits[{number}]"
        made = [key for key, _, _ in edit.made]
        to = set(np.unique(edit.to).tolist())
        # Files of earlier versions may name another cluster than those that rows were added to.
        there = edit.kind == "add" or edit.key in live | set(made)
        if not there or not live.issuperset(parent for _, _, parent in edit.made):
            raise ValueError(f"{name}: it is of a cluster that is not there")
        if len(set(made)) < len(made) or ever & set(made) or any(key >= free for key in made) or not set(made) <= to:
            raise ValueError(f"{name}.made: clusters that are made must be new, and have rows")
        ever |= set(made)
        live |= set(made)
        if not to <= live or (np.diff(edit.rows) <= 0).any():
            raise ValueError(f"{name}: its rows must rise, and go to clusters that are there")
        gone = set(edit.gone) | ({edit.key} if edit.kind == "dissolve" else set())
        wrong = edit.kind in ("merge", "same") and (not gone or edit.key in gone)
        wrong |= bool(edit.gone) and edit.kind not in ("merge", "same", "move")
        if wrong or not gone <= live or gone & to or len(gone) >= len(live):
            raise ValueError(f"{name}.gone: clusters that go must be there, and others must stay")
        if (edit.kind == "rename") != (edit.name is not None):
            raise ValueError(f"{name}.name: a new name comes with a renaming, and only with that")
        live -= gone
    if live != set(keys.tolist()):
        raise ValueError("living.keys: they are not those that the edits lead to")


def own_count(tensors: dict[str, Tensor]) -> int:
    """Return the number of columns of the statistics."""
    sums = tensors.get("tally.sums")
    return 0 if sums is None or sums.ndim != 2 else sums.shape[1]


def checked_edit(tensors: dict[str, Tensor], described: Any, number: int, rows: int) -> Edit:
    """Return an edit, if it is one; whether its clusters exist shows when it is applied."""
    name = f"living.edits[{number}]"
    schema.fields(
        described,
        {
            "kind": schema.one_of(*KINDS),
            "key": schema.whole(),
            "name": schema.optional(schema.text),
            "gone": schema.list_of(schema.whole()),
            "made": schema.list_of(schema.list_of(whole_or_text, 3)),
        },
        # Of files that do not say it, all rows were there.
        {"seen": schema.whole(0, rows)},
        name=name,
    )
    length = len(tensors[f"edits.{number}.rows"]) if f"edits.{number}.rows" in tensors else 0
    moved = read_whole(tensors, f"edits.{number}.rows", (length,), rows - 1)
    to = read_whole(tensors, f"edits.{number}.to", (length,))
    made = []
    for key, title, parent in described["made"]:
        schema.fields(
            {"key": key, "name": title, "parent": parent},
            {"key": schema.whole(), "name": schema.text, "parent": schema.whole()},
            name=f"{name}.made",
        )
        made.append((key, title, parent))
    return Edit(
        described["kind"],
        described["key"],
        described["name"],
        tuple(described["gone"]),
        moved,
        to,
        tuple(made),
        described.get("seen", rows),
    )


def whole_or_text(value: Any) -> str | None:
    """Check for a whole number or a string."""
    return None if schema.is_whole(value) or isinstance(value, str) else "a whole number or a string"


def checked_found(
    tensors: dict[str, Tensor],
    described: dict[str, Any],
    rows: int,
    origin: NDArray[np.float64],
    count: int,
    arrays: dict[str, NDArray[Any]],
) -> State:
    """Return the clusters as they were before all edits."""
    own = {name.removeprefix("found."): value for name, value in tensors.items() if name.startswith("found.")}
    clusters = len(own["keys"]) if "keys" in own and own["keys"].ndim else 0
    about = schema.fields(
        described["found"],
        {"names": schema.list_of(schema.text, clusters), "is_new": schema.list_of(schema.flag, clusters)},
        name="living.found",
    )
    parts = with_prefix(own, "components.")
    schema.check_names(parts, COMPONENTS)
    check_components(parts, clusters, len(origin), arrays["precisions"].ndim - 1)
    facts = {name: value for name, value in own.items() if name.startswith("facts.")}
    return State(
        checked_keys(read_whole(own, "keys", (clusters,)), "living.found.keys", described["free"]),
        read_whole(own, "labels", (rows,), clusters - 1),
        about["names"],
        np.array(about["is_new"], bool),
        read(own, "confidence", (rows,), 0, 1),
        read(own, "novelty", (rows,), 0, 1),
        read(own, "stray", (rows,), 0, 1),
        Components(**{name: parts[name].numpy() for name in COMPONENTS}),
        Tally(origin, read(own, "sums", (clusters, count)), float(described["factor"])),
        checked_facts(facts, clusters) if facts else None,
    )


def check_components(
    tensors: Mapping[str, Tensor],
    clusters: int,
    width: int,
    axes: int,
    dtypes: Iterable[torch.dtype] = REAL,
    largest: float = LARGEST,
) -> None:
    """Raise ValueError unless tensors are the components of so many clusters, whose precisions have so many axes."""
    precisions = schema.tensor(tensors, "precisions", (clusters, *[width] * axes), -largest, largest, dtypes)
    schema.check_range("precisions", precisions if axes < 2 else precisions.diagonal(dim1=-2, dim2=-1), 0)
    schema.tensor(tensors, "weights", (clusters,), 0, 1 + PROBABILITY_ROUNDING, dtypes)
    schema.tensor(tensors, "means", (clusters, width), -LARGEST_MEAN, LARGEST_MEAN, dtypes)
    schema.tensor(tensors, "offsets", (clusters,), -largest, largest, dtypes)


def checked_facts(tensors: dict[str, Tensor], clusters: int) -> ClusterFacts:
    """Return what is known of each cluster, if shapes and values are in order."""
    shapes = {"features": (clusters, len(CLUSTER_FEATURES)), "mean_square": (clusters,), "deviation": (clusters,)}
    schema.check_names(tensors, [f"facts.{name}" for name in shapes])
    found = {}
    for name, shape in shapes.items():
        low = -LARGEST if name == "features" else 0.0
        values = schema.tensor(tensors, f"facts.{name}", shape, low, LARGEST, dtypes=REAL)
        found[name] = values.numpy()
    return ClusterFacts(**found)


def read(
    tensors: dict[str, Tensor], name: str, shape: tuple[int, ...], low: float = -LARGEST, high: float = LARGEST
) -> NDArray[Any]:
    """Return an array of numbers of a shape."""
    return schema.tensor(tensors, name, shape, low, high, REAL).numpy()


def read_whole(
    tensors: dict[str, Tensor], name: str, shape: tuple[int, ...], high: int = schema.LARGEST_COUNT
) -> NDArray[np.int64]:
    """Return an array of whole numbers that are not negative."""
    return schema.tensor(tensors, name, shape, 0, high, WHOLE).numpy()


def checked_keys(keys: NDArray[np.int64], name: str, free: int) -> NDArray[np.int64]:
    """Return the keys of clusters, if they rise and none is free."""
    if (np.diff(keys) <= 0).any() or (len(keys) and keys[-1] >= free):
        raise ValueError(f"{name}: keys of clusters must rise, and be below {free}")
    return keys


def check_distinct(name: str, values: list[str]) -> None:
    """Raise ValueError if a value comes twice."""
    if len(set(values)) < len(values):
        raise ValueError(f"{name}: every cluster must have a name of its own")
