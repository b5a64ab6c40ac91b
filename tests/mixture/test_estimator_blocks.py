"""The mixture in blocks against the mixture in memory, on data sets of odd shapes; rows from wherever they come."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from metaclust import InfiniteGaussianMixture
from metaclust.data.streams import EncodedStream, encode_to_file, row_stream
from metaclust.mixture import FAMILIES, component_family, vb_steps
from metaclust.mixture.inference import run

SHAPES = {
    "two rows": (2, 1, 2, np.float64),
    "three rows": (3, 7, 3, np.float64),
    "one column": (1201, 1, 4, np.float32),
    "one row more than a chunk": (513, 3, 6, np.float64),
    "a chunk": (512, 2, 5, np.float32),
    "more columns than rows": (7, 20, 3, np.float64),
    "many components": (2000, 4, 61, np.float32),
    "wide": (700, 31, 5, np.float32),
    "far from zero": (3001, 5, 8, np.float64),
    "equal rows": (1999, 3, 7, np.float64),
    "enough for float32": (20_011, 3, 6, np.float32),
}


def rows_of(name: str) -> np.ndarray:
    count, width, components, dtype = SHAPES[name]
    generator = np.random.default_rng(list(SHAPES).index(name))
    centres = 4 * generator.normal(size=(components, width))
    x = centres[generator.integers(components, size=count)] + generator.normal(size=(count, width))
    if name == "far from zero":
        x = 1e6 + 1e-2 * x
    if name == "equal rows":
        x = np.round(x)
    return x.astype(dtype)


def in_memory(x: np.ndarray, means: np.ndarray, covariance: str) -> tuple[np.ndarray, float]:
    """Labels and bound of inference in memory, on rows that are scaled here."""
    rows, width = x.shape
    kind, x64 = FAMILIES[covariance], x.astype(np.float64)
    centre = x64.mean(0).astype(x.dtype)
    scale = np.eye(width) / np.sqrt(x64.var(0).mean())
    deviation = np.where(x64.std(0) > 0, x64.std(0), 1)
    if kind.precision_axes == 1:
        scale = np.diag(1 / deviation)
    if kind.precision_axes == 2:
        correlation = np.cov((x64 / deviation).T, bias=True).reshape(width, width) + 1e-6 * np.eye(width)
        scale = np.linalg.inv(np.linalg.cholesky(correlation)) / deviation
    z, seeds = (x64 - centre) @ scale.T, (means - centre) @ scale.T
    square = np.square(z[:, None] - seeds).sum(-1)
    logits = -0.5 * square / max(square.min(1).mean() / width, 1e-3)
    r = np.exp(logits - logits.max(1, keepdims=True))
    order = np.argsort(-(r / r.sum(1, keepdims=True)).sum(0), kind="stable")
    family = component_family(covariance, "optimal", kind.default_prior(width))
    steps = vb_steps(torch.from_numpy(z), torch.from_numpy(logits[:, order]), family, torch.tensor(1.0).double())
    posterior = run(steps, 30, 1e-4)
    return posterior.r.argmax(-1).numpy(), float(posterior.exact_bound) + rows * np.linalg.slogdet(scale)[1]


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaclust.mixture.blocks.MOST_CHUNKS", 1)


def both(name: str, covariance: str) -> tuple[InfiniteGaussianMixture, np.ndarray, np.ndarray, float]:
    """The mixture, its rows, and the labels and the bound of inference in memory from the same start."""
    x = rows_of(name)
    means = x[np.sort(np.unique(x, axis=0, return_index=True)[1])[: SHAPES[name][2]]].astype(np.float64)
    labels, bound = in_memory(x, means, covariance)
    return InfiniteGaussianMixture(covariance=covariance, init=means, max_iter=30).fit(x), x, labels, bound


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", SHAPES)
def test_blocks_give_what_memory_gives(name: str, covariance: str) -> None:
    mixture, x, labels, bound = both(name, covariance)
    assert mixture.lower_bound_ == pytest.approx(bound, rel=1e-6)
    assert np.array_equal(mixture.predict(x), labels)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", SHAPES)
def test_products_in_float32_change_no_label_that_is_not_a_tie(
    name: str, covariance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of so few rows they would be in float64."""
    monkeypatch.setattr("metaclust.mixture.estimator.FLOAT32_ROWS", 1)
    mixture, x, labels, bound = both(name, covariance)
    assert mixture.lower_bound_ == pytest.approx(bound, rel=1e-6)
    best = np.sort(mixture.predict_proba(x), 1)
    assert (best[:, -1] - best[:, -2])[mixture.predict(x) != labels].max(initial=0) < 1e-5


@pytest.mark.usefixtures("_small_blocks")
def test_float32_is_used_where_it_is_precise_enough_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.dtype] = []
    from metaclust.mixture.streaming import Worker

    class Watched(Worker):
        def __init__(self, family: Any, transform: Any, weights: Any, dtype: torch.dtype, size: int) -> None:
            used.append(dtype)
            super().__init__(family, transform, weights, dtype, size)

    monkeypatch.setattr("metaclust.mixture.streaming.Worker", Watched)
    generator = np.random.default_rng(0)
    near = generator.normal(size=(20_000, 2)) + 6 * generator.integers(0, 3, (20_000, 1))
    InfiniteGaussianMixture(5).fit(near)
    assert set(used[1:]) == {torch.float32}
    for other in (InfiniteGaussianMixture(5, precision="float64"), InfiniteGaussianMixture(5, tol=1e-7, max_iter=999)):
        used.clear()
        other.fit(near)
        assert set(used) == {torch.float64}
    used.clear()
    # Two clusters a million times their width apart.
    InfiniteGaussianMixture(2).fit(1e-6 * generator.normal(size=(20_000, 2)) + generator.integers(0, 2, (20_000, 1)))
    assert torch.float64 in used[1:]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("batch_rows", [None, 700])
def test_rows_from_files_functions_and_encoders_are_rows_from_memory(
    tmp_path: Path, batch_rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metaclust.data.streams.WINDOW", 1 << 13)
    x = rows_of("many components")
    np.save(tmp_path / "rows.npy", x)
    np.save(tmp_path / "columns.npy", np.asfortranarray(x))
    pl.DataFrame(x).write_parquet(tmp_path / "rows.parquet", row_group_size=333)

    def parts() -> Iterator[np.ndarray]:
        yield from np.array_split(x, 7)

    def halved(rows: torch.Tensor) -> torch.Tensor:
        return rows / 2

    sources: dict[str, Any] = {
        "npy": tmp_path / "rows.npy",
        "columns": str(tmp_path / "columns.npy"),
        "mapped": np.load(tmp_path / "rows.npy", mmap_mode="r"),
        "parquet": tmp_path / "rows.parquet",
        "function": parts,
        "encoded": EncodedStream(row_stream(2 * x), halved, block=300),
        "encoded once": encode_to_file(lambda: [2 * part for part in parts()], halved, tmp_path / "encoded.npy"),
        "tensor": torch.from_numpy(x),
    }
    expected = InfiniteGaussianMixture(20, batch_rows=batch_rows).fit(x)
    for name, source in sources.items():
        mixture = InfiniteGaussianMixture(20, batch_rows=batch_rows).fit(source)
        # Parts of other sizes are other batches.
        tolerance = 1e-10 if batch_rows is None else 0.05
        assert mixture.lower_bound_ == pytest.approx(expected.lower_bound_, rel=tolerance), name
        if batch_rows is None:
            assert np.array_equal(mixture.predict(source), expected.predict(x)), name
            np.testing.assert_allclose(mixture.predict_proba(source), expected.predict_proba(x), atol=1e-9)
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_batches_come_farther_in_as_many_passes_and_the_bound_never_falls(covariance: str) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(5000, 3)) + 2 * generator.integers(0, 4, (5000, 1))
    whole = InfiniteGaussianMixture(15, covariance=covariance, max_iter=6, tol=0).fit(x)
    batches = InfiniteGaussianMixture(15, covariance=covariance, max_iter=6, tol=0, batch_rows=500).fit(x)
    assert batches.lower_bound_ > whole.lower_bound_
    for mixture in (whole, batches):
        assert (np.diff(mixture.lower_bounds_) >= -1e-9 * abs(mixture.lower_bound_)).all()
