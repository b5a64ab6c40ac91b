"""Clustering of shards: the mixture or a trained model on the workers of an engine, labels in .parquet files."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from metaclust._util.progress import RowsBar
from metaclust.estimator import MetaClusterer, warn_if_all_are_used
from metaclust.inference.cluster import Run, find_clusters
from metaclust.mixture.components import Components
from metaclust.mixture.estimator import InfiniteGaussianMixture
from metaclust.mixture.families import FAMILIES
from metaclust.mixture.fit import Progress
from metaclust.mixture.state import FitState, load_state, save_state
from metaclust.scale.engines import Engine, LocalEngine, open_engine
from metaclust.scale.folder import ShardRunFolder
from metaclust.scale.rows import OnBadShard, ShardRows, Silent
from metaclust.scale.shards import Bad, Encoded, Numbers, Reader, shard_paths
from metaclust.scale.tasks import ComponentLabels, Labeller, LabelsJob, MixtureLabels, Sizes, labels_of


@dataclass(frozen=True, eq=False)
class ShardedClustering:
    """Clusters of the rows of shards; the labels are in files."""

    folder: Path
    """One .parquet file for each shard: shard, row (counting from 0 in the shard), id if asked, cluster, confidence
    and probabilities."""
    rows: int
    sizes: NDArray[np.int64]
    """The number of rows in each cluster."""
    bound: float
    """The evidence lower bound of all rows."""
    passes: int
    """Over all rows, of the inference."""
    skipped: tuple[Bad, ...]
    """Shards that could not be read, and why."""
    components: Components | None = None
    """Of a model's clustering; a mixture has them itself."""
    seconds: float = 0.0

    @property
    def n_clusters(self) -> int:
        """How many have rows."""
        return int((self.sizes > 0).sum())

    def labels(self) -> pl.LazyFrame:
        """All labels, in the order of the shards' names."""
        return pl.scan_parquet(sorted(self.folder.glob("[!._]*.parquet")), glob=False)

    def facts(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "clusters": self.n_clusters,
            "rows": self.rows,
            "sizes": self.sizes.tolist(),
            "bound": self.bound,
            "passes": self.passes,
            "skipped shards": [asdict(bad) for bad in self.skipped],
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        left = f", without {len(self.skipped)} bad shards" if self.skipped else ""
        return f"Clustering of {self.rows:,} rows in {self.n_clusters} clusters{left}; labels in {self.folder}"


def cluster_shards(
    estimator: MetaClusterer | InfiniteGaussianMixture,
    shards: Any,
    out: str | os.PathLike[str],
    *,
    engine: str | Engine = "dask",
    workers: int | None = None,
    address: str | None = None,
    columns: tuple[str, ...] | list[str] | None = None,
    ids: str | None = None,
    probabilities: bool = False,
    max_clusters: int | None = None,
    on_bad_shard: OnBadShard = "stop",
    resume: bool = False,
    force: bool = False,
    progress: bool = False,
    told: Progress | None = None,
) -> ShardedClustering:
    """Cluster the rows of shards with a trained model, or fit a mixture to them; labels go to the folder ``out``.

    ``shards`` is a folder of .npy or .parquet files, a list of their paths, or a Dask array or data frame. Every pass
    goes over all shards on the workers; what comes back is as large for any number of rows, and the same to the last
    bit for any number of workers. Workers must see shards and ``out`` under the same paths.

    Parameters
    ----------
    engine : "dask", "local" (this process), or an object with the methods of ``metaclust.scale.Engine``.
    workers : so many processes on this machine, else one for each core; or ``address``, of a Dask scheduler.
    columns, ids : of .parquet shards; the columns of numbers (for a mixture) and a column that is kept with the labels.
    probabilities : also write how probable each cluster is for each row.
    max_clusters : at most so many clusters (a model's own limit).
    on_bad_shard : "stop" with an error that names it, or "skip" shards that cannot be read.
    resume : go on with a run that was stopped, from its last finished pass. ``force`` starts anew.
    told : told how far it is, in place of the progress bar.
    """
    started = time.perf_counter()
    check_arguments(estimator, columns, ids, max_clusters, on_bad_shard)
    opened = open_engine(engine, workers, address) if isinstance(engine, str) else nullcontext(engine)
    if not isinstance(engine, str) and (workers is not None or address is not None):
        raise ValueError("workers and address are for engines by name: leave them out")
    collection = hasattr(shards, "__dask_graph__")
    paths = [] if collection else shard_paths(shards)
    folder = ShardRunFolder(Path(out).expanduser().absolute())
    folder.check([path.parent for path in paths], resume, force)
    if isinstance(estimator, MetaClusterer):
        reader: Reader = Encoded(str(folder.model), str(folder.encoded), str(estimator.device))
    else:
        reader = Numbers(None if columns is None else tuple(columns), ids)
    name = str(shards) if isinstance(shards, str | os.PathLike) else "the shards"
    rows = ShardRows(LocalEngine(), reader, name, on_bad_shard, ids)
    if not collection:
        rows.open(paths, folder)
    with ExitStack() as stack:
        rows.engine = stack.enter_context(opened)
        folder.begin()
        if collection:
            from metaclust.scale.dask_engine import write_partitions

            rows.open(write_partitions(rows.engine, shards, folder.shards), folder)
        if isinstance(estimator, MetaClusterer):
            estimator.save(folder.model)
        rows.told = told or (stack.enter_context(RowsBar(rows.count)) if progress else Silent())
        find = with_model if isinstance(estimator, MetaClusterer) else with_mixture
        labeller, clustering = find(estimator, rows, folder, max_clusters)
        rows.told.phase("labels")
        job = LabelsJob(reader, labeller, (str(folder.out), str(folder.run)), ids, probabilities)
        written: Sizes = rows.add(labels_of, job)
        seconds = round(time.perf_counter() - started, 3)
        result = replace(clustering, sizes=written.sizes, skipped=tuple(rows.skipped), seconds=seconds)
        folder.finish(result.facts())
    return result


def check_arguments(estimator: Any, columns: Any, ids: str | None, max_clusters: int | None, on_bad_shard: str) -> None:
    """Before anything is started."""
    if on_bad_shard not in ("stop", "skip"):
        raise ValueError(f"on_bad_shard={on_bad_shard!r}: choose 'stop' or 'skip'")
    if isinstance(columns, str):
        raise TypeError(f"columns={columns!r}: give a list of names")
    if isinstance(estimator, InfiniteGaussianMixture):
        estimator.check_settings()
        if estimator.batch_rows is not None:
            raise ValueError(f"batch_rows={estimator.batch_rows!r}: shards are gone through together; leave it out")
        if max_clusters is not None:
            raise ValueError(f"max_clusters={max_clusters!r} is a model's: a mixture has max_components")
        return
    if not isinstance(estimator, MetaClusterer):
        raise TypeError(
            f"estimator is {type(estimator).__name__}: give a fitted MetaClusterer or an InfiniteGaussianMixture"
        )
    check_is_fitted(estimator, "model_")
    estimator.check_settings()
    estimator.search(max_clusters)
    if columns is not None:
        raise ValueError("columns are for a mixture: a model knows the columns it was trained on; leave them out")


def with_mixture(
    mixture: InfiniteGaussianMixture, rows: ShardRows, folder: ShardRunFolder, max_clusters: int | None
) -> tuple[Labeller, ShardedClustering]:
    """Fit the mixture to all rows."""
    mixture.fit(rows, state=folder.state, resume=True)
    clustering = ShardedClustering(
        folder.out, rows.count, np.empty(0, np.int64), mixture.lower_bound_, mixture.n_iter_, ()
    )
    return MixtureLabels(*mixture.scoring()), clustering


def with_model(
    estimator: MetaClusterer, rows: ShardRows, folder: ShardRunFolder, max_clusters: int | None
) -> tuple[Labeller, ShardedClustering]:
    """Find the clusters as ``MetaClusterer.cluster`` does."""
    model, search = estimator.model_, estimator.search(max_clusters)
    settings = {**asdict(search), "model": fingerprint(estimator)}

    def count(now: Components) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        found: Sizes = rows.add(labels_of, LabelsJob(rows.reader, ComponentLabels(now)))
        return found.sizes, found.first

    def save(state: FitState) -> None:
        save_state(folder.state, state, settings)

    state = load_state(folder.state, settings, FAMILIES[model.config.components])
    found = find_clusters(model, rows, search, count, Run(state, save, rows.told))
    warn_if_all_are_used(len(found.components.weights), search.max_clusters, rows.count)
    empty = np.empty(0, np.int64)
    clustering = ShardedClustering(folder.out, rows.count, empty, found.bound, found.passes, (), found.components)
    return ComponentLabels(found.components), clustering


def fingerprint(estimator: MetaClusterer) -> str:
    """Of the weights, and of how rows are prepared."""
    digest = hashlib.sha256()
    described = {key: value for key, value in estimator.description().items() if key != "estimator"}
    digest.update(json.dumps(described, sort_keys=True).encode())
    for name, value in sorted(estimator.model_.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
