"""The interface of every method in the tables: fit, transform, cluster, save, load."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util import schema
from metaclust._util.tensors import CheckpointError, read_tensors, refusing, versions, with_prefix, write_tensors
from metaclust.data.sparse import SparseRows
from metaclust.inference.pipeline import paper_pipeline
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.model.weights import LARGEST_STATISTIC, check_weights
from metaclust.training.batches import Task
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import TaskSampler
from metaclust.training.evaluation import cluster_tasks, compare, local_tasks, mean_error
from metaclust.training.loop import Objective, train

Inputs = Tensor | SparseRows

SPREADS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""The standard deviations that :func:`choose_frame` tries."""
FRAME_STARTS = 3
HEADER: dict[str, schema.Check] = {
    "method": schema.text,
    "config": schema.mapping,
    "training": schema.mapping,
    "seconds": schema.number(0),
}
NUMBER = schema.number()
TRAINING: dict[str, schema.Check] = {
    "learning_rate": NUMBER,
    "weight_decay": NUMBER,
    "proto_weight": NUMBER,
    "task_clip": schema.optional(NUMBER),
    "clip": schema.optional(NUMBER),
    "patience": schema.optional(schema.whole(1)),
}
"""Settings whose types :class:`TrainingConfig` leaves to its callers."""


@dataclass(frozen=True)
class FitArguments:
    """The arguments of :meth:`Method.fit`."""

    sampler: TaskSampler
    validation: Sequence[Task] = ()
    start: Method | None = None
    folder: str | os.PathLike[str] | None = None
    progress: bool = False


class Method(ABC):
    """One row of the paper's tables: :meth:`adapt` changes the encoder, mixture and training that all share."""

    name: ClassVar[str]
    title: ClassVar[str]
    """The name in the paper's tables."""

    def __init__(self, config: ModelConfig, training: TrainingConfig | None = None) -> None:
        self.config, self.training = self.adapt(config, training or TrainingConfig())
        self.seconds = 0.0
        """The duration of :meth:`fit`."""

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> tuple[ModelConfig, TrainingConfig]:
        """Return the shared settings with the changes that define the method; idempotent."""
        return config, training

    def fit(
        self,
        sampler: TaskSampler,
        validation: Sequence[Task] = (),
        *,
        start: Method | None = None,
        folder: str | os.PathLike[str] | None = None,
        progress: bool = False,
    ) -> Method:
        """Learn from labelled tasks, and validate on tasks of other categories over the same rows.

        ``start`` is a fitted Proto, for methods that begin with its encoder. A run in ``folder`` is continued.
        """
        started = time.perf_counter()
        with torch.random.fork_rng([]):
            torch.manual_seed(self.training.seed)
            self._fit(FitArguments(sampler, validation, start, folder, progress))
        self.seconds = time.perf_counter() - started
        return self

    @abstractmethod
    def _fit(self, arguments: FitArguments) -> None:
        """Learn; :meth:`fit` sets the random seed and takes the time."""

    @abstractmethod
    def transform(self, x: Inputs) -> Float[Tensor, "rows s"]:
        """Return the representations of rows."""

    @abstractmethod
    def cluster_tasks(self, x: Inputs, tasks: Sequence[Task], *, seed: int = 0) -> list[NDArray[np.int64]]:
        """Return the cluster of each row of each task over the rows ``x``; the labels of the tasks are not used."""

    def cluster(self, x: Inputs, *, seed: int = 0) -> NDArray[np.int64]:
        """Return the cluster of each row."""
        everything = Task(np.arange(len(x)), np.zeros(len(x), np.int64), np.zeros(1, np.int64))
        return self.cluster_tasks(x, [everything], seed=seed)[0]

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return everything that was learned."""

    @abstractmethod
    def check(self, tensors: dict[str, Tensor]) -> None:
        """Raise ValueError unless a method with these settings can have learned the tensors of a file.

        The method may be on the meta device, so that what a file says of sizes takes no memory.
        """

    @abstractmethod
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Load what :meth:`tensors` returned."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file for :func:`metaclust.experiments.methods.load_method`."""
        header = {
            "kind": "method",
            "method": self.name,
            "config": self.config.to_dict(),
            "training": asdict(self.training),
            "seconds": self.seconds,
            "versions": versions(),
        }
        write_tensors(path, self.tensors(), header)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Method:
        """Read a file that :meth:`save` wrote."""
        return cls.of(path, *read_tensors(path, "method"))

    @classmethod
    def of(cls, path: str | os.PathLike[str], tensors: dict[str, Tensor], header: dict[str, Any]) -> Method:
        """Return the method that was read from a file, once everything in it is checked."""
        with refusing(path, "a method"):
            schema.fields(header, HEADER)
            if header["method"] != cls.name:
                raise CheckpointError(f"{Path(path)} holds the method {header['method'][:80]!r}, not {cls.name!r}")
            schema.fields(header["training"], {}, TRAINING, "training")
            config, training = ModelConfig.from_dict(header["config"]), TrainingConfig.from_dict(header["training"])
            with torch.device("meta"):
                expected = cls(config, training)
            expected.check(tensors)
            method = cls(config, training)
            method.seconds = float(header["seconds"])
            method.restore(tensors)
        return method


@dataclass(frozen=True)
class Frame:
    """A shift and scale of representations, (z - shift) scale: the prior of the mixture expects means around zero."""

    shift: Tensor
    scale: float = 1.0

    def __call__(self, z: Tensor) -> Tensor:
        return (z - self.shift.to(z)) * self.scale


class EncoderMethod(Method):
    """A method that learns an encoder; the infinite mixture then finds the clusters of its representations."""

    objective: Objective | None = None
    """What the encoder is trained on; None for the continuous ARI."""

    def __init__(self, config: ModelConfig, training: TrainingConfig | None = None) -> None:
        super().__init__(config, training)
        self.model = self.build()
        self.frame = Frame(torch.zeros(self.config.representation))
        self.validation_ari: float | None = None

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> tuple[ModelConfig, TrainingConfig]:
        # Without a task network the first start of the mixture is random; there is no pretraining.
        return replace(config, initial="random"), replace(training, pretrain_steps=0)

    def build(self) -> ClusteringModel:
        """Return a model with untrained weights."""
        return ClusteringModel(self.config)

    def _fit(self, arguments: FitArguments) -> None:
        self.model = self.build()
        self.fit_encoder(arguments)
        self.model.eval()
        if arguments.validation:
            self.frame, self.validation_ari = choose_frame(self.model, arguments.sampler.x, arguments.validation)

    def fit_encoder(self, arguments: FitArguments) -> None:
        """Train ``self.model`` on the objective."""
        self.run(self.model, arguments, self.training)

    def run(self, model: ClusteringModel, arguments: FitArguments, training: TrainingConfig) -> None:
        """Train a model on the objective of the method, in the run's folder."""
        train(
            model,
            arguments.sampler,
            arguments.validation,
            training,
            folder=arguments.folder,
            resume=arguments.folder is not None,
            progress=arguments.progress,
            objective=self.objective,
        )

    def transform(self, x: Inputs) -> Tensor:
        return self.model.transform(x)

    def cluster_tasks(
        self,
        x: Inputs,
        tasks: Sequence[Task],
        *,
        seed: int = 0,
        starts: int = 10,
        tol: float | None = 1e-5,
        steps: int | None = None,
    ) -> list[NDArray[np.int64]]:
        """Cluster each task by the paper's pipeline; each row is encoded once."""
        rows, local = local_tasks(tasks)
        z = self.frame(self.transform(x[torch.from_numpy(rows)]))
        return cluster_tasks(self.model, z, local, pipeline=paper_pipeline(starts, tol, steps), seed=seed)

    def tensors(self) -> dict[str, Tensor]:
        weights = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        scale = torch.tensor(self.frame.scale, dtype=torch.float64)
        return {**weights, "frame.shift": self.frame.shift, "frame.scale": scale}

    def check(self, tensors: dict[str, Tensor]) -> None:
        schema.check_names(tensors, self.tensors())
        weights = with_prefix(tensors, "model.")
        check_weights(weights, self.model.state_dict(), self.model.custom_encoder, same_dtypes=True)
        # Linear maps, which are custom encoders, may have any weights that are finite.
        for name, value in tensors.items():
            schema.check_range(name, value)
        width = (self.config.representation,)
        schema.tensor(tensors, "frame.shift", width, -LARGEST_STATISTIC, LARGEST_STATISTIC)
        schema.tensor(tensors, "frame.scale", (), 1 / LARGEST_STATISTIC, LARGEST_STATISTIC)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.model.load_state_dict(with_prefix(tensors, "model."))
        self.frame = Frame(tensors["frame.shift"], float(tensors["frame.scale"]))
        self.model.eval()


def choose_frame(model: ClusteringModel, x: Inputs, validation: Sequence[Task]) -> tuple[Frame, float]:
    """Return the frame in which validation tasks are clustered best, and their ARI in it.

    The prior of the mixture has unit scale. Ours learns an encoder for it; the others do not know it, and should not
    lose by that. To be chosen, a frame must be better than none by more than the standard error of the difference.
    """
    tried = try_frames(model, x, validation, FRAME_STARTS)
    _, plain = tried[0]
    best, aris = max(tried, key=lambda one: float(one[1].mean()))
    gain, error = mean_error(aris - plain)
    # With one task there is no error to be above.
    if gain > (0.0 if len(aris) == 1 else error):
        return best, float(aris.mean())
    return tried[0][0], float(plain.mean())


def try_frames(
    model: ClusteringModel, x: Inputs, tasks: Sequence[Task], starts: int
) -> list[tuple[Frame, NDArray[np.float64]]]:
    """Return frames, the plain one first, and the ARI of each task in each."""
    rows, local = local_tasks(tasks)
    z = model.transform(x[torch.from_numpy(rows)])
    centre = z.mean(0)
    spread = float((z - centre).square().mean().sqrt())
    frames = [Frame(torch.zeros_like(centre))]
    if spread > 0 and np.isfinite(spread):
        frames += [Frame(centre, target / spread) for target in SPREADS]
    pipeline = paper_pipeline(starts)
    return [(frame, compare(tasks, cluster_tasks(model, frame(z), local, pipeline=pipeline)).ari) for frame in frames]


def validate_in_frame(model: ClusteringModel, x: Inputs, tasks: Sequence[Task], _: TrainingConfig) -> float:
    """Return the mean ARI of validation tasks in their best frame."""
    return max(float(aris.mean()) for _, aris in try_frames(model, x, tasks, starts=2))


def settings_of(method: Method) -> dict[str, Any]:
    """Return the settings of a method for a results file."""
    return {"model": method.config.to_dict(), "training": asdict(method.training)}
