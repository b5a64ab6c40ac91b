"""Shards on real worker processes give what one process gives, for the mixture and for a trained model."""

import os
import runpy
from contextlib import nullcontext
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Any

import dask
import numpy as np
import polars as pl
import pytest
from scale_rows import blobs

from metaclust import InfiniteGaussianMixture, MetaClusterer
from metaclust.data.streams import ArrayStream
from metaclust.inference.cluster import MemoryRows, by_size
from metaclust.inference.continued import Hooks, with_all_rows
from metaclust.inference.settle import sizes_of
from metaclust.scale import DaskEngine, LocalEngine, ShardedClustering, cluster_shards
from metaclust.scale.engines import FAN, map_add
from metaclust.scale.shards import BadShard, Shard

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def single_process(shards: Path, **settings: Any) -> tuple[InfiniteGaussianMixture, np.ndarray]:
    mixture = InfiniteGaussianMixture(**settings)
    rows = lambda: (np.load(path) for path in sorted(shards.glob("*.npy")))  # noqa: E731
    return mixture, mixture.fit(rows).predict(rows)


def test_the_cluster_has_two_processes_of_its_own(engine: DaskEngine) -> None:
    pids = engine.client.run(os.getpid)
    assert len({os.getpid(), *pids.values()}) == 3
    assert engine.workers == 2


def test_a_cluster_that_is_there_is_used_and_left_alone(shards: Path, tmp_path: Path, engine: DaskEngine) -> None:
    address, environment = engine.cluster.scheduler_address, dict(os.environ)
    own = {"address": address, "security": engine.cluster.security}
    mixture = InfiniteGaussianMixture(4, max_iter=2)
    result = cluster_shards(mixture, shards, tmp_path / "out", engine="dask", progress=True, **own)
    assert result.passes == 2
    assert len(engine.client.nthreads()) == 2
    assert dict(os.environ) == environment


@pytest.mark.parametrize("covariance", ["spherical", "full"])
def test_a_mixture_is_that_of_one_process(shards: Path, tmp_path: Path, engine: DaskEngine, covariance: Any) -> None:
    settings: dict[str, Any] = {"max_components": 8, "covariance": covariance, "max_iter": 6, "tol": 0}
    expected, labels = single_process(shards, **settings)
    mixtures = []
    for name, used in {"dask": engine, "local": LocalEngine()}.items():
        mixture = InfiniteGaussianMixture(**settings)
        result = cluster_shards(mixture, shards, tmp_path / name, engine=used)
        assert mixture.lower_bounds_ == pytest.approx(expected.lower_bounds_, rel=1e-12)
        found = result.labels().collect()
        assert np.array_equal(found["cluster"], labels)
        assert result.rows == len(labels) == found.height
        assert np.array_equal(result.sizes, np.bincount(labels, minlength=8))
        assert (result.passes, result.bound, result.skipped) == (6, mixture.lower_bound_, ())
        mixtures.append(mixture)
    for one, other in pairwise(mixtures):
        assert one.lower_bounds_ == other.lower_bounds_
        assert np.array_equal(one.means_, other.means_)


def test_float32_products_are_chosen_as_in_one_process(tmp_path: Path, engine: DaskEngine) -> None:
    (tmp_path / "shards").mkdir()
    for place in range(3):
        np.save(tmp_path / "shards" / f"{place}.npy", blobs(8_000, seed=place))
    settings: dict[str, Any] = {"max_components": 6, "max_iter": 5, "tol": 1e-6}
    expected, labels = single_process(tmp_path / "shards", **settings)
    mixture = InfiniteGaussianMixture(**settings)
    result = cluster_shards(mixture, tmp_path / "shards", tmp_path / "out", engine=engine)
    assert mixture.lower_bound_ == pytest.approx(expected.lower_bound_, rel=1e-9)
    assert np.array_equal(result.labels().collect()["cluster"], labels)


def test_labels_are_beside_shard_row_and_id(tmp_path: Path, engine: DaskEngine) -> None:
    (tmp_path / "shards").mkdir()
    x = blobs(60)
    for place, part in enumerate(np.split(x, 3)):
        columns = {f"c{i}": part[:, i] for i in range(4)}
        frame = pl.DataFrame({"name": [f"n{place}-{i}" for i in range(20)], **columns})
        frame.write_parquet(tmp_path / "shards" / f"p{place}.parquet")
    mixture = InfiniteGaussianMixture(4, max_iter=3)
    result = cluster_shards(
        mixture, tmp_path / "shards", tmp_path / "out", engine=engine, ids="name", probabilities=True
    )
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "_result.json",
        "p0.parquet",
        "p1.parquet",
        "p2.parquet",
    ]
    part = pl.read_parquet(tmp_path / "out" / "p1.parquet")
    assert part.columns == ["shard", "row", "id", "cluster", "confidence", "probabilities"]
    assert part["shard"].unique().to_list() == ["p1.parquet"]
    assert part["row"].to_list() == list(range(20))
    assert part["id"].to_list() == [f"n1-{i}" for i in range(20)]
    chances = result.labels().collect()["probabilities"].to_numpy()
    np.testing.assert_allclose(chances, mixture.predict_proba(x), atol=1e-12)
    assert np.array_equal(chances.argmax(1), result.labels().collect()["cluster"])


def test_few_rows_are_clustered_as_the_model_does(model: MetaClusterer, tmp_path: Path, engine: DaskEngine) -> None:
    (tmp_path / "shards").mkdir()
    x = blobs(300)
    for place, part in enumerate(np.split(x, 5)):
        np.save(tmp_path / "shards" / f"{place}.npy", part)
    expected = model.cluster(x)
    result = cluster_shards(model, tmp_path / "shards", tmp_path / "out", engine=engine, probabilities=True)
    found = result.labels().collect()
    assert np.array_equal(found["cluster"], expected.labels)
    np.testing.assert_allclose(found["probabilities"].to_numpy(), expected.probabilities, atol=1e-4)
    assert (result.n_clusters, result.passes) == (expected.n_clusters, 0)
    assert result.sizes.tolist() == expected.sizes.tolist()


def test_many_rows_go_on_from_the_clusters_of_a_sample(
    model: MetaClusterer, shards: Path, tmp_path: Path, engine: DaskEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metaclust.inference.cluster.SAMPLE_ROWS", 400)
    seen: list[Any] = []

    def spied(*arguments: Any) -> Any:
        seen.append(arguments)
        return with_all_rows(*arguments)

    monkeypatch.setattr("metaclust.inference.cluster.with_all_rows", spied)
    local = cluster_shards(model, shards, tmp_path / "local", engine="local")
    result = cluster_shards(model, shards, tmp_path / "dask", engine=engine)
    found = result.labels().collect()
    assert found.equals(local.labels().collect())
    assert result.bound == local.bound
    assert result.passes == 20
    assert found.columns == ["shard", "row", "cluster", "confidence"]
    assert (np.diff(result.sizes) <= 0).all()
    # From the same clusters of the sample, inference on all rows in memory finds the same clusters.
    z = model.transform(np.concatenate([np.load(path) for path in sorted(shards.glob("*.npy"))]))
    _, _, state, best, mean, _ = seen[0]
    components, _ = with_all_rows(model.model_, MemoryRows(ArrayStream(z)), state, best, mean, Hooks())
    components = replace(components, means=components.means + mean)
    components = by_size(components, 1, lambda now: sizes_of(now.assigned(z)[0], len(now.weights)))
    assert result.components is not None
    np.testing.assert_allclose(result.components.means, components.means, atol=1e-4)
    assert np.mean(components.assigned(z)[0] == found["cluster"].to_numpy()) > 0.999


def test_small_clusters_are_dissolved(
    model: MetaClusterer, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metaclust.inference.cluster.SAMPLE_ROWS", 400)
    rows = sum(len(np.load(path)) for path in shards.glob("*.npy"))
    model = MetaClusterer.of(model.model_, description_of(model, tmp_path), device="cpu")
    model.set_params(min_cluster_size=rows // 2)
    result = cluster_shards(model, shards, tmp_path / "out", engine="local")
    assert result.n_clusters == 1 or result.sizes.min() >= rows // 2


def description_of(model: MetaClusterer, folder: Path) -> Any:
    from metaclust import load_model

    model.save(folder / "copy.safetensors")
    return load_model(folder / "copy.safetensors", device="cpu")[1]


@pytest.mark.parametrize("number", [1, 2, 5, 16, 17, 63, 100, 200])
def test_the_order_of_sums_follows_from_the_shards_alone(number: int) -> None:
    """Numbers that do not add up alike in another order, on engines of any size that finish in any order."""
    values = np.random.default_rng(0).normal(size=number) * 10.0 ** np.random.default_rng(1).integers(-8, 8, number)
    shards = [Shard(str(place), place, 0) for place in range(number)]

    class Backwards(LocalEngine):
        def __init__(self, workers: int) -> None:
            self.workers = workers

        def finished(self, handles: Any) -> Any:
            yield from reversed(range(len(handles)))

    by_hand = list(values)
    while len(by_hand) > 1:
        by_hand = [reduce(add, by_hand[i : i + FAN]) for i in range(0, len(by_hand), FAN)]
    for used in (LocalEngine(), Backwards(1), Backwards(2), Backwards(4), Backwards(50)):
        advanced: list[int] = []
        assert map_add(used, lambda job, shard: job[shard.rows], values, shards, advanced.append) == by_hand[0]
        assert sum(advanced) == sum(range(number))


def test_a_dask_array_is_shards(tmp_path: Path, engine: DaskEngine) -> None:
    array = pytest.importorskip("dask.array")
    x = blobs(900)
    mixture = InfiniteGaussianMixture(6, max_iter=4)
    collection = array.from_array(x, chunks=(200, 3))
    result = cluster_shards(mixture, collection, tmp_path / "out", engine=engine)
    parts = lambda: np.split(x, [200, 400, 600, 800])  # noqa: E731
    expected = InfiniteGaussianMixture(6, max_iter=4).fit(parts)
    assert mixture.lower_bound_ == pytest.approx(expected.lower_bound_, rel=1e-12)
    assert np.array_equal(result.labels().collect()["cluster"], expected.predict(x))
    with pytest.raises(ValueError, match="shards is a Dask collection: use engine='dask'"):
        cluster_shards(mixture, collection, tmp_path / "other", engine="local")


def test_partitions_of_a_data_frame_are_shards(tmp_path: Path, engine: DaskEngine) -> None:
    """Data frames of polars stand in for those of pandas."""
    x = blobs(300)

    class Frame:
        def __dask_graph__(self) -> None:
            pass

        def to_delayed(self) -> list[Any]:
            return [dask.delayed(pl.DataFrame)(part) for part in np.split(x, 3)]

    result = cluster_shards(InfiniteGaussianMixture(4, max_iter=2), Frame(), tmp_path / "out", engine=engine)
    assert result.labels().collect()["shard"].unique(maintain_order=True).to_list() == [
        "part-00000.npy",
        "part-00001.npy",
        "part-00002.npy",
    ]
    assert result.rows == 300


def test_the_example_runs(
    tmp_path: Path, engine: DaskEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("metaclust.scale.run.open_engine", lambda *arguments: nullcontext(engine))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    example = Path(__file__).resolve().parents[2] / "examples" / "shards.py"
    runpy.run_path(str(example), run_name="__main__")
    assert "Clustering of 40,000 rows in 6 clusters" in capsys.readouterr().out


def test_the_repr_is_one_line_without_arrays(tmp_path: Path) -> None:
    result = ShardedClustering(tmp_path, 12_345, np.array([12_000, 345, 0]), -1.5, 3, (BadShard("a.npy", "cut"),))
    assert repr(result) == f"Clustering of 12,345 rows in 2 clusters, 1 bad shards skipped; labels in {tmp_path}"
