"""Clustering of rows in shards, on the workers of an engine (``pip install 'metaclust[scale]'``)."""

from typing import TYPE_CHECKING

from metaclust._util.lazy import lazy_names

if TYPE_CHECKING:
    from metaclust.scale.dask_engine import DaskEngine
    from metaclust.scale.engines import Engine, LocalEngine, open_engine
    from metaclust.scale.run import ShardedClustering, cluster_shards

WHERE = {
    "metaclust.scale.dask_engine": ("DaskEngine",),
    "metaclust.scale.engines": ("Engine", "LocalEngine", "open_engine"),
    "metaclust.scale.run": ("ShardedClustering", "cluster_shards"),
}

__all__ = ["DaskEngine", "Engine", "LocalEngine", "ShardedClustering", "cluster_shards", "open_engine"]

__getattr__, __dir__ = lazy_names(__name__, WHERE)
