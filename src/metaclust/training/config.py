"""How a model is trained."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from metaclust.model.config import Preset
from metaclust.objectives.ari import Distance


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained. A step reads one batch of tasks."""

    seed: int = 0
    pretrain_steps: int = 1800
    """Steps of Proto before the continuous ARI; 0 is the paper's "w/o Pretrain"."""
    steps: int = 1500
    """Steps on the continuous ARI."""
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    """By how much weights shrink, times the learning rate, in a step."""
    schedule: Literal["cosine", "constant"] = "cosine"
    objective: Literal["every-step", "last-step"] = "every-step"
    """The ARI of the assignments at the start and after every step of inference, in the mean, or after the last
    alone, as printed in the paper: that one collapses into one cluster, where it has no gradient."""
    distance: Distance = "tv"
    proto_weight: float = 1.0
    """How much of the prototypical loss stays in the objective after the pretraining."""
    seeded: int = 3
    """How many starts from k-means++ seeds compete with the network's: each task is trained through the one that
    reaches the best bound; 0 for the network's start alone."""
    task_clip: float | None = 0.1
    """The largest norm of the gradient of one task's ARI in its representations. Where a small change of z makes the
    inference end elsewhere, that gradient is large and says nothing: it may not outweigh the other tasks'."""
    clip: float | None = 1.0
    """The largest norm of the gradient of a step in all weights."""
    freeze_encoder: bool = False
    """Whether the encoder and the prior stay as the pretraining left them: the continuous ARI then trains the task
    network alone."""
    validate_every: int = 250
    patience: int | None = None
    """Stop after so many validations without a better one."""

    def __post_init__(self) -> None:
        for name, least in (
            ("seed", 0),
            ("pretrain_steps", 0),
            ("steps", 0),
            ("seeded", 0),
            ("validate_every", 1),
        ):
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
        for name, allowed in (
            ("schedule", ("cosine", "constant")),
            ("objective", ("every-step", "last-step")),
            ("distance", ("tv", "prob")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}: choose one of {allowed}")

    @classmethod
    def preset(cls, preset: Preset, **changes: Any) -> TrainingConfig:
        """Settings that train reliably ("default") or the paper's plain objective ("paper"), with changes."""
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
        """Return the settings of a file; those that this version no longer has are left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in settings.items() if name in known})
