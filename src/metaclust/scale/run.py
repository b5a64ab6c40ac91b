"""Clustering of shards by a mixture or a trained model, with labels in .parquet files."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from metaclust._util.progress import RowsBar
from metaclust.estimator import MetaClusterer
from metaclust.inference.cluster import MANY_ROWS, SAMPLE_ROWS, find_clusters, warn_if_all_are_used
from metaclust.inference.continued import Hooks
from metaclust.mixture.components import Components
from metaclust.mixture.estimator import InfiniteGaussianMixture
from metaclust.mixture.families import FAMILIES
from metaclust.mixture.rows import Progress
from metaclust.mixture.state import FitState, load_state, save_state
from metaclust.scale.engines import Engine, LocalEngine, open_engine
from metaclust.scale.folder import ShardRunFolder
from metaclust.scale.rows import NoProgress, OnBadShard, ShardRows
from metaclust.scale.shards import BadShard, Encoded, Numbers, Reader, shard_paths
from metaclust.scale.tasks import ClusterSizes, ComponentLabels, Labeller, LabelsJob, MixtureLabels, label_shard


@dataclass(frozen=True, eq=False)
class ShardedClustering:
    """Clusters of the rows of shards, whose labels are in files.

    Parameters
    ----------
    folder : Path
        The folder with one .parquet file per shard, with the columns shard, row (counting from 0 in the shard), id (if
        requested), cluster, confidence and probabilities (if requested).
    rows : int
        The number of rows.
    sizes : array of int
        The number of rows in each cluster.
    bound : float
        The evidence lower bound of all rows.
    passes : int
        The number of passes over all rows that inference took.
    skipped : tuple of BadShard
        The shards that could not be read, and why.
    components : Components, optional
        The clusters that a model found; a mixture holds its own.
    seconds : float
        The duration of the run.
    """

    folder: Path
    rows: int
    sizes: NDArray[np.int64]
    bound: float
    passes: int
    skipped: tuple[BadShard, ...]
    components: Components | None = None
    seconds: float = 0.0

    @property
    def n_clusters(self) -> int:
        """The number of clusters that have rows."""
        return int((self.sizes > 0).sum())

    def labels(self) -> pl.LazyFrame:
        """Return all labels, sorted by the names of the shards, as a lazy polars frame."""
        return pl.scan_parquet(sorted(self.folder.glob("[!._]*.parquet")), glob=False)

    def facts(self) -> dict[str, Any]:
        """Return the result without labels, as values that JSON can hold."""
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
        skipped = f", {len(self.skipped)} bad shards skipped" if self.skipped else ""
        return f"Clustering of {self.rows:,} rows in {self.n_clusters} clusters{skipped}; labels in {self.folder}"


def cluster_shards(
    estimator: MetaClusterer | InfiniteGaussianMixture,
    shards: Any,
    out: str | os.PathLike[str],
    *,
    engine: str | Engine = "dask",
    workers: int | None = None,
    address: str | None = None,
    security: Any = None,
    columns: tuple[str, ...] | list[str] | None = None,
    ids: str | None = None,
    probabilities: bool = False,
    max_clusters: int | Literal["auto"] | None = None,
    on_bad_shard: OnBadShard = "stop",
    resume: bool = False,
    force: bool = False,
    progress: bool = False,
    report: Progress | None = None,
) -> ShardedClustering:
    """Cluster the rows of shards with a trained model, or fit a mixture to them; write the labels to a folder.

    Every pass goes over all shards on the workers. Results do not depend on the number of workers, to the last bit, and
    what workers send back does not grow with the number of rows. Workers must see ``shards`` and ``out`` under the same
    paths.

    Parameters
    ----------
    estimator : MetaClusterer or InfiniteGaussianMixture
        A trained model, or a mixture to fit.
    shards : path, list of paths, Dask array or Dask data frame
        A folder of .npy or .parquet files, a list of such files, or a Dask collection.
    out : path
        The folder to write to.
    engine : {"dask", "local"} or Engine
        Dask, this process alone, or an object with the methods of :class:`metaclust.scale.Engine`.
    workers : int, optional
        Number of Dask processes on this machine; by default one per core.
    address : str, optional
        Address of a running Dask scheduler, instead of ``workers``.
    security : distributed.Security, optional
        Certificates to connect to ``address`` with; by default those of Dask's configuration.
    columns : list of str, optional
        The numeric columns of .parquet shards, for a mixture; by default all but ``ids``.
    ids : str, optional
        A column of .parquet shards to write beside the labels.
    probabilities : bool
        Whether to write the probability of every cluster for each row.
    max_clusters : int or "auto", optional
        Largest number of clusters; by default that of the model.
    on_bad_shard : {"stop", "skip"}
        Whether to stop with an error at shards that cannot be read, or to skip them.
    resume : bool
        Continue an interrupted run after its last finished pass.
    force : bool
        Overwrite the output of an earlier run.
    progress : bool
        Show a progress bar.
    report : Progress, optional
        Receives ``phase(name)`` and ``advance(rows)`` instead of the progress bar.

    Returns
    -------
    ShardedClustering
    """
    started = time.perf_counter()
    check_arguments(estimator, columns, ids, max_clusters, on_bad_shard)
    opened = open_engine(engine, workers, address, security) if isinstance(engine, str) else nullcontext(engine)
    if not isinstance(engine, str) and any(given is not None for given in (workers, address, security)):
        raise ValueError("workers, address and security apply to engines by name: omit them")
    collection = hasattr(shards, "__dask_graph__")
    paths = [] if collection else shard_paths(shards)
    folder = ShardRunFolder(Path(out).expanduser().absolute())
    if isinstance(estimator, MetaClusterer):
        reader: Reader = Encoded(str(folder.model), str(folder.encoded), str(estimator.device))
        width = int(estimator.model_.config.representation)
    else:
        reader, width = Numbers(None if columns is None else tuple(columns), ids), 0
    name = str(shards) if isinstance(shards, str | os.PathLike) else "the shards"
    rows = ShardRows(LocalEngine(), reader, name, on_bad_shard, ids)
    with ExitStack() as stack:
        stack.enter_context(folder.sole([path.parent for path in paths]))
        folder.check(resume, force)
        if not collection:
            rows.open(paths, folder)
            folder.check_space(rows.count, width)
        rows.engine = stack.enter_context(opened)
        folder.begin()
        if collection:
            from metaclust.scale.dask_engine import write_partitions

            rows.open(write_partitions(rows.engine, shards, folder.shards), folder)
        rows.report = report or (stack.enter_context(RowsBar(rows.count)) if progress else NoProgress())
        labeller: Labeller
        if isinstance(estimator, MetaClusterer):
            labeller, bound, passes = search_with_model(estimator, rows, folder, max_clusters)
        else:
            labeller, bound, passes = fit_mixture(estimator, rows, folder)
        rows.report.phase("labels")
        job = LabelsJob(reader, labeller, (str(folder.out), str(folder.run)), ids, probabilities)
        written: ClusterSizes = rows.add(label_shard, job)
        components = labeller.components if isinstance(labeller, ComponentLabels) else None
        seconds = round(time.perf_counter() - started, 3)
        skipped = tuple(rows.skipped)
        result = ShardedClustering(folder.out, rows.count, written.sizes, bound, passes, skipped, components, seconds)
        folder.finish(result.facts())
    return result


def check_arguments(estimator: Any, columns: Any, ids: str | None, max_clusters: Any, on_bad_shard: str) -> None:
    """Raise errors that name the argument, before anything is started."""
    if on_bad_shard not in ("stop", "skip"):
        raise ValueError(f"on_bad_shard={on_bad_shard!r}: choose 'stop' or 'skip'")
    if isinstance(columns, str):
        raise TypeError(f"columns={columns!r}: give a list of names")
    if isinstance(estimator, InfiniteGaussianMixture):
        estimator.check_settings()
        if estimator.batch_rows is not None:
            raise ValueError(f"batch_rows={estimator.batch_rows!r}: every pass reads all shards; omit it")
        if max_clusters is not None:
            raise ValueError(f"max_clusters={max_clusters!r} applies to models: a mixture has max_components")
        return
    if not isinstance(estimator, MetaClusterer):
        raise TypeError(
            f"estimator is {type(estimator).__name__}: give a fitted MetaClusterer or an InfiniteGaussianMixture"
        )
    check_is_fitted(estimator, "model_")
    estimator.check_settings()
    estimator.search(max_clusters)
    if columns is not None:
        raise ValueError(f"columns={columns!r}: a model reads the columns it was trained on; omit it, or fit a mixture")


def fit_mixture(
    mixture: InfiniteGaussianMixture, rows: ShardRows, folder: ShardRunFolder
) -> tuple[MixtureLabels, float, int]:
    """Fit the mixture to all rows; return its labeller, the bound and the number of passes."""
    mixture.fit(rows, state=folder.state, resume=True)
    return MixtureLabels(*mixture.scoring()), mixture.lower_bound_, mixture.n_iter_


def search_with_model(
    estimator: MetaClusterer, rows: ShardRows, folder: ShardRunFolder, max_clusters: int | Literal["auto"] | None
) -> tuple[ComponentLabels, float, int]:
    """Find clusters as ``MetaClusterer.cluster`` does; return their labeller, the bound and the number of passes."""
    estimator.save(folder.model)
    model, search = estimator.model_, estimator.search(max_clusters)
    settings = {**asdict(search), "model": fingerprint(estimator)}

    def count(components: Components) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        counted: ClusterSizes = rows.add(label_shard, LabelsJob(rows.reader, ComponentLabels(components)))
        return counted.sizes, counted.first

    def save(state: FitState) -> None:
        save_state(folder.state, state, settings)

    # A model needs no more of the rows than their mean.
    state = load_state(
        folder.state, settings, FAMILIES[model.config.components], max(SAMPLE_ROWS, MANY_ROWS), has_variances=False
    )
    found = find_clusters(model, rows, search, count, Hooks(state, save, rows.report))
    warn_if_all_are_used(len(found.components.weights), search.limit(model), rows.count)
    return ComponentLabels(found.components, found.confidence), found.bound, found.passes


def fingerprint(estimator: MetaClusterer) -> str:
    """Return a hash of the weights and of the preparation of rows."""
    digest = hashlib.sha256()
    described = {key: value for key, value in estimator.description().items() if key != "estimator"}
    digest.update(json.dumps(described, sort_keys=True).encode())
    for name, value in sorted(estimator.model_.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
