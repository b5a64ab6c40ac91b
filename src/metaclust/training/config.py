"""The training configuration and its presets."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from metaclust._util.checks import check_choices
from metaclust.model.config import Preset
from metaclust.objectives.ari import Distance


@dataclass(frozen=True)
class TrainingConfig:
    """The settings of a training run. Each step uses one batch of tasks.

    Parameters
    ----------
    seed : int, default=0
        Random seed.
    pretrain_steps : int, default=1800
        Steps of prototypical pretraining; 0 is the paper's "w/o Pretrain".
    steps : int, default=1500
        Steps on the continuous ARI.
    learning_rate : float, default=1e-3
        The peak learning rate.
    weight_decay : float, default=0.0
        Decoupled weight decay, as in AdamW.
    schedule : {"cosine", "constant"}, default="cosine"
        The learning rate schedule.
    objective : {"every-step", "last-step", "candidates"}, default="every-step"
        The mean ARI of the initial assignments and of those after every inference step, or the ARI after the last
        step only, as in the paper; the latter collapses into one cluster, where it has no gradient. "candidates" is
        the expected ARI of what several k-means++ starts end in, of numbers of clusters around the true one, each
        with the probability that its bound gives it; the task network is not trained.
    distance : {"tv", "prob"}, default="tv"
        The distance between assignments in the continuous ARI.
    proto_weight : float, default=1.0
        The weight of the prototypical loss after the pretraining.
    seeded : int, default=3
        The number of k-means++ starts that compete with the network's start. Each task is trained through the start
        that reaches the best bound; 0 for the network's start only.
    task_clip : float or None, default=0.1
        The largest norm of the gradient of one task's ARI with respect to its representations. Where a small change
        of z changes the outcome of the inference, this gradient is large and uninformative.
    clip : float or None, default=1.0
        The largest norm of the gradient of a step with respect to all weights.
    validate_every : int, default=250
        The number of steps between validations.
    patience : int or None, default=None
        Stop after this many validations without improvement.
    """

    seed: int = 0
    pretrain_steps: int = 1800
    steps: int = 1500
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: Literal["cosine", "constant"] = "cosine"
    objective: Literal["every-step", "last-step", "candidates"] = "every-step"
    distance: Distance = "tv"
    proto_weight: float = 1.0
    seeded: int = 3
    task_clip: float | None = 0.1
    clip: float | None = 1.0
    validate_every: int = 250
    patience: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("seed", 0), ("pretrain_steps", 0), ("steps", 0), ("seeded", 0), ("validate_every", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name}={value!r}: it must be a whole number of {least} or more")
        if self.patience is not None and (not isinstance(self.patience, int) or self.patience < 1):
            raise ValueError(f"patience={self.patience!r}: it must be a whole number of 1 or more, or None")
        for name in ("clip", "task_clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name}={value!r}: it must be positive and finite, or None")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate={self.learning_rate!r}: it must be positive and finite")
        for name in ("proto_weight", "weight_decay"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}={getattr(self, name)!r}: it must be 0 or more, and finite")
        choices = {"schedule": ("cosine", "constant"), "objective": ("every-step", "last-step", "candidates")}
        check_choices(vars(self), {**choices, "distance": ("tv", "prob")})

    @classmethod
    def preset(cls, preset: Preset, **changes: Any) -> TrainingConfig:
        """Return the settings that train reliably ("default") or those of the paper ("paper"), with ``changes``."""
        if preset == "paper":
            settings: dict[str, Any] = {
                "objective": "last-step",
                "schedule": "constant",
                "proto_weight": 0.0,
                "seeded": 0,
                "task_clip": None,
                "clip": None,
                "patience": 10,
            }
        elif preset == "default":
            settings = {}
        else:
            raise ValueError(f"preset={preset!r}: choose 'default' or 'paper'")
        return cls(**{**settings, **changes})

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> TrainingConfig:
        """Return the configuration stored in a file, ignoring settings that this version no longer has."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in settings.items() if name in known})
