"""One local cluster of Dask with two worker processes for all tests, shards of rows, a small model."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scale_rows import blobs

from metaclust import MetaClusterer
from metaclust.scale import DaskEngine


@pytest.fixture(scope="session")
def engine() -> Iterator[DaskEngine]:
    with DaskEngine(2) as running:
        yield running


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Eleven shards of different sizes, which a tree adds in two levels."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for place in range(11):
        np.save(folder / f"s{place:02d}.npy", blobs(900 + 40 * place, seed=place))
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> MetaClusterer:
    """Trained a little, and loaded from its file."""
    x = np.concatenate([4 * np.random.default_rng([1, k]).normal(size=4) + blobs(12, 4, 1, k) for k in range(12)])
    trained = MetaClusterer(8, pretrain_steps=3, steps=1, choose="bound", encoder="network", validation=0.0)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    trained.fit(x.astype(np.float32), np.repeat(np.arange(12), 12)).save(path)
    return MetaClusterer.load(path, device="cpu")
