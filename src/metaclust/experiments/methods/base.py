"""What every method of the comparison can do: fit, transform, cluster, save, load."""

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

from metaclust._util.tensors import CheckpointError, read_tensors, versions, write_tensors
from metaclust.data.sparse import SparseRows
from metaclust.inference.pipeline import paper_pipeline
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import Task, TaskSampler
from metaclust.training.evaluation import cluster_tasks, compare, local_tasks, mean_error
from metaclust.training.loop import Objective, train

Rows = Tensor | SparseRows

SPREADS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""The standard deviations to which representations are scaled on trial, see :func:`choose_frame`."""
FRAME_STARTS = 3


@dataclass(frozen=True)
class Lesson:
    """What a method learns from: the arguments of :meth:`Method.fit`."""

    sampler: TaskSampler
    validation: Sequence[Task] = ()
    start: Method | None = None
    folder: str | os.PathLike[str] | None = None
    progress: bool = False


class Method(ABC):
    """One row of the paper's tables.

    ``config`` is the encoder and the mixture that all methods share, ``training`` how long and how it is trained;
    a method changes of them what makes it that method.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    """As the paper's tables have it."""

    def __init__(self, config: ModelConfig, training: TrainingConfig | None = None) -> None:
        self.config, self.training = self.adapt(config, training or TrainingConfig())
        self.seconds = 0.0
        """How long :meth:`fit` took."""

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> tuple[ModelConfig, TrainingConfig]:
        """What the method changes in the shared settings. Done twice, it changes nothing more."""
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
        """Learn from the sampler's labelled tasks. ``validation`` are tasks of other categories over the same rows.

        ``start`` is a fitted Proto with whose encoder to begin, for methods that begin so. With ``folder`` a run that
        was interrupted goes on.
        """
        started = time.perf_counter()
        with torch.random.fork_rng([]):
            torch.manual_seed(self.training.seed)
            self.learn(Lesson(sampler, validation, start, folder, progress))
        self.seconds = time.perf_counter() - started
        return self

    @abstractmethod
    def learn(self, lesson: Lesson) -> None:
        """What :meth:`fit` does."""

    @abstractmethod
    def transform(self, x: Rows) -> Float[Tensor, "rows s"]:
        """Representations."""

    @abstractmethod
    def cluster_tasks(self, x: Rows, tasks: Sequence[Task], *, seed: int = 0) -> list[NDArray[np.int64]]:
        """The cluster of each row of each of several tasks over the rows ``x``; their labels are not looked at."""

    def cluster(self, x: Rows, *, seed: int = 0) -> NDArray[np.int64]:
        """The cluster of each row."""
        everything = Task(np.arange(len(x)), np.zeros(len(x), np.int64), np.zeros(1, np.int64))
        return self.cluster_tasks(x, [everything], seed=seed)[0]

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """All that was learned."""

    @abstractmethod
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take what :meth:`tensors` gave."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """A safetensors file, from which :func:`metaclust.experiments.methods.load_method` makes the same method."""
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
        """What :meth:`save` wrote."""
        tensors, header = read_tensors(path, "method")
        if header.get("method") != cls.name:
            raise CheckpointError(f"{Path(path)} holds the method {header.get('method')!r}, not {cls.name!r}")
        method = cls(ModelConfig.from_dict(header["config"]), TrainingConfig.from_dict(header["training"]))
        method.seconds = float(header["seconds"])
        method.restore(tensors)
        return method


@dataclass(frozen=True)
class Frame:
    """Where representations are put before the mixture, whose prior expects means around zero: (z - shift) scale."""

    shift: Tensor
    scale: float = 1.0

    def __call__(self, z: Tensor) -> Tensor:
        return (z - self.shift.to(z)) * self.scale


class EncoderMethod(Method):
    """A method that learns an encoder; the infinite mixture then finds the clusters of its representations."""

    objective: Objective | None = None
    """What the encoder is trained on."""

    def __init__(self, config: ModelConfig, training: TrainingConfig | None = None) -> None:
        super().__init__(config, training)
        self.model = self.build()
        self.frame = Frame(torch.zeros(self.config.representation))
        self.validation_ari: float | None = None

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> tuple[ModelConfig, TrainingConfig]:
        # Without a task network, the first start of the mixture is drawn; there is no phase of Proto before.
        return replace(config, initial="random"), replace(training, pretrain_steps=0)

    def build(self) -> ClusteringModel:
        """A model with the weights of a beginner."""
        return ClusteringModel(self.config)

    def learn(self, lesson: Lesson) -> None:
        self.model = self.build()
        self.learn_encoder(lesson)
        self.model.eval()
        if lesson.validation:
            self.frame, self.validation_ari = choose_frame(self.model, lesson.sampler.x, lesson.validation)

    def learn_encoder(self, lesson: Lesson) -> None:
        """Train ``self.model`` on the objective."""
        self.run(self.model, lesson, self.training)

    def run(self, model: ClusteringModel, lesson: Lesson, training: TrainingConfig) -> None:
        """Train a model on the objective of the method, in the lesson's folder."""
        train(
            model,
            lesson.sampler,
            lesson.validation,
            training,
            folder=lesson.folder,
            resume=lesson.folder is not None,
            progress=lesson.progress,
            objective=self.objective,
        )

    def transform(self, x: Rows) -> Tensor:
        return self.model.transform(x)

    def cluster_tasks(
        self,
        x: Rows,
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

    def restore(self, tensors: dict[str, Tensor]) -> None:
        weights = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
        try:
            self.model.load_state_dict(weights)
            self.frame = Frame(tensors["frame.shift"], float(tensors["frame.scale"]))
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(f"the weights do not fit the method {self.name!r}: {error}") from error
        self.model.eval()


def choose_frame(model: ClusteringModel, x: Rows, validation: Sequence[Task]) -> tuple[Frame, float]:
    """As the encoder gives them, or centred and scaled to one of several spreads: what clusters validation tasks best.

    The mixture has a prior of unit scale. Ours learns an encoder for it; others know nothing of it, and should not
    lose for that. To be chosen, a frame must be better than none by more than the standard error of the difference.
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
    model: ClusteringModel, x: Rows, tasks: Sequence[Task], starts: int
) -> list[tuple[Frame, NDArray[np.float64]]]:
    """Frames, the plain one first, and the ARI of each task in each."""
    rows, local = local_tasks(tasks)
    z = model.transform(x[torch.from_numpy(rows)])
    centre = z.mean(0)
    spread = float((z - centre).square().mean().sqrt())
    frames = [Frame(torch.zeros_like(centre))]
    if spread > 0 and np.isfinite(spread):
        frames += [Frame(centre, wanted / spread) for wanted in SPREADS]
    pipeline = paper_pipeline(starts)
    return [(frame, compare(tasks, cluster_tasks(model, frame(z), local, pipeline=pipeline)).ari) for frame in frames]


def validate_in_frame(model: ClusteringModel, x: Rows, tasks: Sequence[Task], _: TrainingConfig) -> float:
    """The ARI of validation tasks, in the frame that suits them best."""
    return max(float(aris.mean()) for _, aris in try_frames(model, x, tasks, starts=2))


def settings_of(method: Method) -> dict[str, Any]:
    """As JSON can hold them."""
    return {"model": method.config.to_dict(), "training": asdict(method.training)}
