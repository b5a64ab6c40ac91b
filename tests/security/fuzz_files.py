"""Kinds of file that metaclust writes and loads.

Models, clusterings, states of a mixture's fit, training runs, the shards of a run, methods of the experiments.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from harness import BadResult, FuzzKind, register
from mutations import mutate, mutate_json, parsed

import metaclust.mixture.estimator
from metaclust import (
    CheckpointError,
    Clustering,
    ClusteringModel,
    DataError,
    InfiniteGaussianMixture,
    MetaClusterer,
    ModelConfig,
    TaskSampler,
    TrainingConfig,
    train,
)
from metaclust.data.extremes import LOST
from metaclust.data.input_table import Index
from metaclust.data.inputs import as_rows
from metaclust.data.preparation.images import ImagePreparation
from metaclust.data.preparation.prepare import describe_preparation, fit_preparation
from metaclust.data.preparation.sound_statistics import WIDTH, SoundStatisticsPreparation
from metaclust.data.preparation.sounds import SpectrogramPreparation
from metaclust.data.preparation.table import TablePreparation
from metaclust.data.preparation.vectors import VectorPreparation
from metaclust.data.preparation.words import WordPreparation
from metaclust.data.readers.cells import named
from metaclust.data.rows import Rows
from metaclust.experiments.methods import METHODS, load_method
from metaclust.mixture.state import save_state
from metaclust.model.checkpoint import Description
from metaclust.model.selector import SelectorNetwork
from metaclust.scale.folder import ShardRunFolder, read_shards
from metaclust.scale.shards import BadShard, Shard
from metaclust.training.optimizer import new_optimizer
from metaclust.training.runs import RunFolder

ROWS = 20
WORDS = ("boat", "bread", "cloud", "drum", "fern", "glass")


def content_of(write: Callable[[Path], object]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "file")
        return (Path(folder) / "file").read_bytes()


def rows_for(model: MetaClusterer) -> Any:
    """Return rows that a model can cluster, with two or three groups in them."""
    generator, group = np.random.default_rng(0), np.arange(ROWS) % 3
    kind, shape = model.preparation_.kind, model.preparation_.input_shape
    if kind == "table":
        return customers_for(model.preparation_)
    if kind == "text":
        return [f"{WORDS[2 * which]} {WORDS[2 * which + int(generator.integers(2))]}" for which in group]
    if kind == "sounds":
        loud = np.repeat(np.arange(64) // 22, 20).reshape(64, 20)
        values = [(200 * (loud == which) + generator.integers(0, 40, (64, 20))).astype(np.uint8) for which in group]
        return Rows("sounds", values, [str(i) for i in range(ROWS)])
    if kind == "images":
        noise = generator.integers(0, 40, (ROWS, *shape))
        return (noise + 100 * (group % 2)[:, None, None, None]).astype(np.uint8)
    return 3 * generator.normal(size=(3, *shape))[group] + generator.normal(size=(ROWS, *shape))


def customers_for(preparation: TablePreparation) -> pl.DataFrame:
    """Return a table with the columns that a preparation wants, with gaps in them."""
    made: dict[str, Any] = {
        "number": [None if row == 4 else row % 3 + 0.5 for row in range(ROWS)],
        "category": ["red", "blue", None, "other"] * (ROWS // 4),
        "date": [date(2024, 1 + row % 12, 5) for row in range(ROWS)],
        "text": [f"{WORDS[row % 3]} {WORDS[3 + row % 3]} and more" for row in range(ROWS)],
    }
    used = {name: usage.treatment for name, usage in preparation.usage.items() if usage.is_used}
    return pl.DataFrame([pl.Series(name, made[treatment]) for name, treatment in used.items()])


def table_preparation() -> TablePreparation:
    frame = pl.DataFrame(
        {
            "age": [None, 1.5, 2.5, 0.5] * 5,
            "colour": ["red", "blue", "red", "green"] * 5,
            "since": [date(2024, 1 + row % 12, 1 + row) for row in range(ROWS)],
            "text": [f"{WORDS[row % 6]} {WORDS[(row * 5 + row // 6) % 6]} by hand" for row in range(ROWS)],
            "row_id": range(ROWS),
        }
    )
    preparation, _ = fit_preparation(as_rows(frame))
    if not isinstance(preparation, TablePreparation):
        raise AssertionError("a table of several types has a preparation of its own")
    return preparation


@cache
def models() -> tuple[MetaClusterer, ...]:
    torch.manual_seed(0)
    common: dict[str, Any] = {
        "representation": 3,
        "max_clusters": 4,
        "hidden": 5,
        "task_hidden": 4,
        "learn_prior": True,
    }
    vectors = VectorPreparation(4, ("a", "b", "c", "d"), (0.5, 0.0, -1.0, 2.0), (1.0, 2.0, 0.5, 1.5), True)
    words = WordPreparation(WORDS, (1.5, 2.0, 1.0, 1.2, 2.5, 1.1))
    built = (
        (vectors, {"learned_start": True, "choice": True}),
        (VectorPreparation(4), {"encoder": "residual", "unit": True, "components": "full"}),
        (VectorPreparation(4), {"learn_prior": False, "components": "diagonal"}),
        (words, {"components": "diagonal"}),
        (ImagePreparation(1, 6, 6), {"filters": 2, "shift": 0.035}),
        (SpectrogramPreparation(20), {"filters": 2, "encoder": "residual"}),
        (SoundStatisticsPreparation((0.5,) * WIDTH, (2.0,) * WIDTH), {}),
        (table_preparation(), {"learn_prior": False}),
    )
    made = []
    for preparation, changes in built:
        model = ClusteringModel(ModelConfig(preparation.input_shape, **{**common, **changes}))
        if changes.get("choice"):
            model.set_choice(SelectorNetwork())
        settings = {**MetaClusterer(4, progress=False).get_params(), "task_rows": [5, 30]}
        names = (
            list(preparation.columns) if isinstance(preparation, VectorPreparation) and preparation.columns else None
        )
        about = {**describe_preparation(preparation), "estimator": settings, "feature_names": names}
        description = Description([f"c{n}" for n in range(3)], {**about, "decisions": ["none"]}, {"metaclust": "0"})
        made.append(MetaClusterer.of(model, description, "cpu"))
    return tuple(made)


def model_seeds() -> list[bytes]:
    return [content_of(model.save) for model in models()]


def finite(name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> None:
    values = np.asarray(value, dtype=np.float64)
    if not np.isfinite(values).all():
        raise BadResult(f"{name} is not finite")
    if values.size and (values.min() < low or values.max() > high):
        raise BadResult(f"{name} is out of range")


def check_clustering(result: Clustering, rows: int | None = None) -> None:
    """Use a clustering as its owner would."""
    if rows is not None and len(result) != rows:
        raise BadResult("not one label for each row")
    if result.sizes.sum() != len(result) or len(result.sizes) != result.n_clusters:
        raise BadResult("sizes contradict the labels")
    finite("labels", result.labels, 0, result.n_clusters - 1)
    finite("confidence", result.confidence, 0, 1 + 1e-6)
    finite("probabilities", result.probabilities, 0, 1 + 1e-6)
    for name in ("representations", "means", "precisions", "weights", "bound", "threshold"):
        finite(name, getattr(result, name))
    if not repr(result).startswith("Clustering of") or len(result.to_frame("polars")) != len(result):
        raise BadResult("repr or to_frame")
    if len(result.unsure) != len(result) or len(result.typical(0)) > len(result):
        raise BadResult("unsure or typical")
    finite("numbers of clusters", list(result.k_probabilities), 1)
    finite("their probabilities", list(result.k_probabilities.values()), 0, 1 + 1e-6)
    if result.k_probabilities:
        low, high = result.k_interval()
        # The number found is in it, however improbable.
        known = {*result.k_probabilities, result.n_clusters}
        if not (low <= result.n_clusters <= high and low in known and high in known):
            raise BadResult("the interval is not one of numbers of clusters")
    str(result.about), [start.clusters + start.bound for start in result.starts]


def refuses_rows(model: MetaClusterer, rows: Any, message: str) -> bool:
    """Return whether a model that is sound in itself may refuse the rows with this message."""
    # Weights may be finite, and yet too large for these rows.
    if "no finite representation" in message:
        return True
    if "from the mean of the training rows" not in message:
        return False
    # The moments of a column may be sound, and yet those of other units.
    scaling = model.preparation_
    if isinstance(scaling, TablePreparation):
        # Its numbers are scaled by a preparation of their own, and the message names one of their columns.
        return any(f"column {name!r}: " in message for name in scaling.scaled_names)
    if not isinstance(scaling, VectorPreparation) or scaling.mean is None or scaling.scale is None:
        return False
    with np.errstate(over="ignore"):
        distance = np.abs(np.float32((np.float32(rows) - np.array(scaling.mean)) / np.array(scaling.scale)))
    row, column = np.unravel_index(distance.argmax(), distance.shape)
    place = f"row {row} (counting from 0), column {named(scaling.columns, int(column))}: "
    return bool(distance.max() > LOST) and place in message


def try_model(path: Path) -> None:
    model = MetaClusterer.load(path, device="cpu").set_params(progress=False)
    repr(model), model.get_feature_names_out()
    rows = rows_for(model)
    try:
        result = model.cluster(rows)
    except DataError as error:
        if not refuses_rows(model, rows, str(error)):
            raise
        return
    check_clustering(result, ROWS)


def clustering_seeds() -> list[bytes]:
    results = [model.cluster(rows_for(model)) for model in models()]
    bare = replace(results[1], model=None, categories=[f"k{n % 2}" for n in range(ROWS)], index=Index(True, name="key"))
    for result in (results[0], results[1], results[3]):
        if not result.k_probabilities or result.facts is None:
            raise AssertionError("a clustering by a learned selector has probabilities and facts")
    return [content_of(result.save) for result in (results[0], results[1], results[3], bare)]


def try_clustering(path: Path) -> None:
    result = Clustering.load(path, device="cpu")
    # What was loaded must not depend on the file any more.
    path.write_bytes(b"")
    check_clustering(result)
    if result.model is None:
        return
    model: MetaClusterer = result.model.set_params(progress=False)
    rows = rows_for(model)
    try:
        further = result.assign(rows)
    except DataError as error:
        if not refuses_rows(model, rows, str(error)):
            raise
        return
    check_clustering(further, ROWS)


def mixture_rows() -> Any:
    generator = np.random.default_rng(0)
    return 4 * generator.normal(size=(3, 2))[np.arange(24) % 3] + generator.normal(size=(24, 2))


def mixture(covariance: str) -> InfiniteGaussianMixture:
    return InfiniteGaussianMixture(3, covariance=covariance, n_init=2, max_iter=3, batch_rows=12, tol=0)


@cache
def state_seeds() -> tuple[bytes, ...]:
    seeds: list[bytes] = []

    def kept(path: Path, state: Any, settings: Any) -> None:
        save_state(path, state, settings)
        seeds.append(path.read_bytes())

    metaclust.mixture.estimator.save_state = kept
    try:
        for covariance in ("spherical", "diagonal", "full"):
            content_of(lambda path, covariance=covariance: mixture(covariance).fit(mixture_rows(), state=path))
    finally:
        metaclust.mixture.estimator.save_state = save_state
    return tuple(seeds[1::2])


CHANGED_ROWS = ("it must not change", "X has changed since it was checked", "are expected")


def try_state(path: Path) -> None:
    content = path.read_bytes()
    found = [name for name in ("diagonal", "full") if f'\\"covariance\\": \\"{name}\\"'.encode() in content]
    try:
        fitted = mixture(found[0] if found else "spherical").fit(mixture_rows(), state=path, resume=True)
    except CheckpointError:
        raise
    except ValueError as error:
        # What a resumed fit also says of rows that have changed: a state may be sound, and yet not that of these rows.
        if not any(words in str(error) for words in CHANGED_ROWS):
            raise
        return
    for name in ("weights_", "means_", "precisions_", "lower_bounds_"):
        finite(name, getattr(fitted, name))
    finite("labels", fitted.predict(mixture_rows()), 0, 2)


RUN_CONFIG = TrainingConfig(pretrain_steps=2, steps=2, validate_every=1)


def run_model() -> ClusteringModel:
    torch.manual_seed(0)
    return ClusteringModel(ModelConfig((3,), 2, 3, steps=2, hidden=4, task_hidden=4))


@cache
def run_seeds() -> tuple[bytes, ...]:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32))
    sampler = TaskSampler(x, np.arange(60) % 6, np.arange(4), n_categories=(2, 3))
    validation = replace(sampler, categories=np.arange(4, 6)).fixed(2)
    with tempfile.TemporaryDirectory() as folder:
        train(run_model(), sampler, validation, RUN_CONFIG, folder=folder, progress=False)
        return ((Path(folder) / "checkpoint.safetensors").read_bytes(),)


@cache
def run_settings() -> Any:
    return parsed(run_seeds()[0]).header["settings"]


def try_run(path: Path) -> None:
    model = run_model()
    optimizer = new_optimizer(model, RUN_CONFIG)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    best = dict(before)
    store = RunFolder(path.parent, run_settings())
    store.checkpoint = path
    try:
        state = store.open(model, optimizer, best, resume=True)
    except CheckpointError:
        if not all(torch.equal(value, before[name]) for name, value in model.state_dict().items()):
            raise BadResult("a refused run has changed the model") from None
        raise
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    for name, value in (*model.state_dict().items(), *best.items()):
        finite(name, value)
    finite("state", [state.step, state.best, state.seconds, state.stale, state.best_step])


SHARDS = [Shard(f"part-{number}.npy", 100 + number, 0) for number in range(3)]
SKIPPED = [BadShard("part-3.npy", "part-3.npy is cut short"), BadShard("part-4.npy", "it is empty")]


def shards_seeds() -> list[bytes]:
    seeds = []
    for skipped in ([], SKIPPED[:1], SKIPPED):
        with tempfile.TemporaryDirectory() as name:
            folder = ShardRunFolder(Path(name))
            folder.begin()
            folder.save_shards(SHARDS, skipped)
            seeds.append((folder.run / "shards.json").read_bytes())
    return seeds


def try_shards(path: Path) -> None:
    folder = ShardRunFolder(path.parent)
    # What messages name in place of the folder of the run.
    folder.run, folder.previous = path, read_shards(path)
    skipped = folder.saved_skips(SHARDS, "skip")
    # The file agrees with the shards that there are, of which none is skipped and clustered.
    names = {bad.shard for bad in skipped}
    if folder.previous.rows != {shard.name: shard.rows for shard in SHARDS if shard.name not in names}:
        raise BadResult("other shards were accepted")
    if not all(isinstance(text, str) for bad in skipped for text in (bad.shard, bad.why)):
        raise BadResult("a shard was skipped for a reason that is no text")


@cache
def method_seeds() -> tuple[bytes, ...]:
    torch.manual_seed(0)
    config = ModelConfig((4,), 3, 4, hidden=5, task_hidden=4)
    return tuple(content_of(METHODS[name](config, RUN_CONFIG).save) for name in ("ours", "proto", "pca", "vade"))


def try_method(path: Path) -> None:
    method = load_method(path)
    finite("seconds", method.seconds, 0)
    for name, value in method.tensors().items():
        finite(name, value)
    x = torch.zeros(2, *method.config.input_shape)
    if method.transform(x).shape != (2, method.config.representation):
        raise BadResult("representations of another shape")


REFUSALS = (CheckpointError,)
register(
    FuzzKind(
        "model", ".safetensors", lambda: [content_of(model.save) for model in models()], mutate, try_model, REFUSALS
    )
)
register(FuzzKind("clustering", ".safetensors", clustering_seeds, mutate, try_clustering, REFUSALS))
register(FuzzKind("fit-state", ".safetensors", state_seeds, mutate, try_state, REFUSALS))
register(FuzzKind("run", ".safetensors", run_seeds, mutate, try_run, REFUSALS))
register(FuzzKind("shards", ".json", shards_seeds, mutate_json, try_shards, REFUSALS))
register(FuzzKind("method", ".safetensors", method_seeds, mutate, try_method, REFUSALS))
