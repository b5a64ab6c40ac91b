"""What a model is made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np

from metaclust.mixture import component_family
from metaclust.mixture.families import MeanCovariance
from metaclust.model.encoders import ENCODERS

Preset = Literal["default", "paper"]


@dataclass(frozen=True)
class ModelConfig:
    """What a model is made of. ``input_shape`` is (width,) for vectors and (channels, height, width) for images."""

    input_shape: tuple[int, ...]
    representation: int = 32
    """S, the width of z."""
    max_clusters: int = 10
    """K', where the infinite mixture is truncated."""
    steps: int = 5
    """T, the number of steps of inference that are trained through."""
    hidden: int = 256
    task_hidden: int = 64
    """The width of the networks that propose initial assignments; the paper's is ``hidden``."""
    filters: int = 64
    strided: bool = True
    dropout: float = 0.0
    shift: float = 0.0
    """What is clustered is the mean of an image's representation and those of it shifted by this share of its side, up,
    down, left and right; 0 for its own alone. Training sees no shifts but those of its augmentation."""
    alpha: float = 1.0
    mean_covariance: MeanCovariance = "optimal"
    components: str = "spherical"
    inference: Literal["vb", "em"] = "vb"
    initial: Literal["network", "random"] = "network"
    """Initial assignments by f_U, g_U, f_R, or standard normal logits (the paper's "w/o f_R")."""
    encoder: str = "network"
    """For vectors: a free network, or one that starts as the principal components and changes them a little."""
    unit: bool = False
    """Of the residual encoder: rows are taken by their direction alone, as embeddings are compared."""
    learn_prior: bool = False
    """Concentration, precision of the means, shape and rate of the precisions are parameters of the model."""
    effective_rows: float | None = 20.0
    """As how many rows a cluster counts in the mean, see :mod:`metaclust.inference.refine`."""
    learned_start: bool = False
    """The task network has been trained on the continuous ARI: its assignments are one of the starts at prediction."""
    choice: bool = False
    """The model has learned to choose among candidate clusterings, see :mod:`metaclust.inference.select`."""

    def __post_init__(self) -> None:
        whole = all(isinstance(size, int | np.integer) and size > 0 for size in self.input_shape)
        if not whole or len(self.input_shape) not in (1, 3):
            raise ValueError(
                f"input_shape={self.input_shape}: give (width,) for vectors or (channels, height, width) for images"
            )
        object.__setattr__(self, "input_shape", tuple(int(size) for size in self.input_shape))
        for name in ("representation", "max_clusters", "steps", "hidden", "task_hidden", "filters"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r}: it must be a whole number of 1 or more")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout!r}: it must be at least 0 and below 1")
        if not 0 <= self.shift < 0.5:
            raise ValueError(f"shift={self.shift!r}: it must be at least 0 and below 0.5")
        if self.effective_rows is not None and not 0 < self.effective_rows < float("inf"):
            raise ValueError(f"effective_rows={self.effective_rows!r}: it must be positive and finite, or None")
        if not 0 < self.alpha < float("inf"):
            raise ValueError(f"alpha={self.alpha!r}: the concentration must be positive and finite")
        for name, allowed in (
            ("inference", ("vb", "em")),
            ("initial", ("network", "random")),
            ("encoder", tuple(ENCODERS)),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}: choose one of {allowed}")
        if self.encoder == "residual" and (len(self.input_shape) != 1 or self.representation > self.input_shape[0]):
            raise ValueError(
                f"encoder='residual' with input_shape={self.input_shape} and representation={self.representation}: "
                "it is for vectors, and its representation is at most as wide as they are"
            )
        component_family(self.components, self.mean_covariance)

    @classmethod
    def preset(cls, preset: Preset, input_shape: tuple[int, ...], **changes: Any) -> ModelConfig:
        """Settings that train fast ("default") or the paper's ("paper"), with changes."""
        if preset == "paper":
            settings: dict[str, Any] = {
                "representation": 10,
                "steps": 10,
                "task_hidden": 256,
                "filters": 32,
                "strided": False,
                "dropout": 0.1,
                "mean_covariance": "unit",
            }
        elif preset == "default":
            settings = {}
        else:
            raise ValueError(f"preset={preset!r}: choose 'default' or 'paper'")
        return cls(input_shape, **{**settings, **changes})

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "input_shape": list(self.input_shape)}

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> ModelConfig:
        unknown = sorted(set(settings) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"unknown model settings {unknown}: the file was written by a newer metaclust")
        # Format 1 may lack `task_hidden`: then all networks have one width.
        width = {} if "task_hidden" in settings or "hidden" not in settings else {"task_hidden": settings["hidden"]}
        return cls(**{**settings, **width, "input_shape": tuple(settings["input_shape"])})
