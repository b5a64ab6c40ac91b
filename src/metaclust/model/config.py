"""The configuration of a model."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np

from metaclust._util.checks import check_choices
from metaclust._util.schema import Check, flag, list_of, number, one_of, optional, text, whole
from metaclust._util.schema import fields as checked_fields
from metaclust.mixture import component_family
from metaclust.mixture.families import MeanCovariance
from metaclust.model.encoders import ENCODERS

Preset = Literal["default", "paper"]
MOST_CLUSTERS = 100_000
"""The largest number of clusters that a model or a setting may ask for."""
MOST_STEPS = 100_000
"""The largest number of steps of inference of a model."""
MOST_VALUES = 2**24
"""The most values of an image."""
LARGEST_LAYER = 2**24
"""The largest number of units of a layer."""
MOST = {"max_clusters": MOST_CLUSTERS, "steps": MOST_STEPS}
SIZES = ("representation", "max_clusters", "steps", "hidden", "task_hidden", "filters")
SAVED: dict[str, Check] = {
    "input_shape": list_of(whole(1)),
    **{name: whole(1, MOST.get(name, LARGEST_LAYER)) for name in SIZES},
    "known": whole(0, LARGEST_LAYER),
    **dict.fromkeys(("strided", "unit", "learn_prior", "learned_start", "choice"), flag),
    "dropout": number(0, 1),
    "shift": number(0, 0.5),
    "alpha": number(1e-12, 1e12),
    "effective_rows": optional(number(1e-6, 1e12)),
    "mean_covariance": one_of("unit", "optimal"),
    "components": text,
    "inference": one_of("vb", "em"),
    "initial": one_of("network", "random"),
    "encoder": text,
}
"""What the settings in a file must be, one by one; the sizes among them are then compared with the file's tensors."""


@dataclass(frozen=True)
class ModelConfig:
    """Architecture and inference settings of a :class:`ClusteringModel`.

    Parameters
    ----------
    input_shape : tuple of int
        (n_features,) for vectors, (channels, height, width) for images.
    representation : int
        S, the number of dimensions of the representations z.
    max_clusters : int
        K', the truncation of the infinite mixture.
    steps : int
        T, the number of inference steps that training differentiates through.
    hidden : int
        Hidden units of the encoder's layers.
    task_hidden : int
        Hidden units of the networks that propose initial assignments; the paper uses ``hidden``.
    filters : int
        Filters of each convolution of the image encoder.
    strided : bool
        Whether the image encoder halves images with strides; otherwise with max pooling.
    dropout : float
        Dropout probability.
    shift : float
        If positive, representations of images are averaged over the image and four copies of it, shifted up, down, left
        and right by this fraction of its side. Training does not use these copies.
    alpha : float
        Concentration of the Dirichlet process; its initial value if ``learn_prior``.
    mean_covariance : {"unit", "optimal"}
        Covariance of the posterior of the component means.
    components : str
        Name of the component family, a key of ``metaclust.mixture.FAMILIES``.
    inference : {"vb", "em"}
        Variational Bayes or expectation maximization.
    initial : {"network", "random"}
        Initial assignments: from the task network (f_U, g_U, f_R), or standard normal logits (the paper's "w/o f_R").
    encoder : {"network", "residual"}
        "network" is a feed-forward or convolutional network. "residual" starts, for vectors, as a projection on the
        principal components and learns a correction to it; for images it is a residual convolutional network.
    unit : bool
        Whether representations of the residual encoder have one length: embeddings are compared by their direction.
    learn_prior : bool
        Whether the concentration and the prior of the components are parameters of the model.
    effective_rows : float or None
        The number of rows that an average cluster counts as when candidates are compared, see
        :mod:`metaclust.inference.refine`; None counts every row.
    learned_start : bool
        Whether prediction also starts from the task network's assignments, since it was trained on the continuous ARI.
    choice : bool
        Whether the model has a learned selector, see :mod:`metaclust.inference.select`.
    known : int
        The number of categories that it recognises in further rows, see :mod:`metaclust.inference.known`; 0 for none.
    """

    input_shape: tuple[int, ...]
    representation: int = 32
    max_clusters: int = 10
    steps: int = 5
    hidden: int = 256
    task_hidden: int = 64
    filters: int = 64
    strided: bool = True
    dropout: float = 0.0
    shift: float = 0.0
    alpha: float = 1.0
    mean_covariance: MeanCovariance = "optimal"
    components: str = "spherical"
    inference: Literal["vb", "em"] = "vb"
    initial: Literal["network", "random"] = "network"
    encoder: str = "network"
    unit: bool = False
    learn_prior: bool = False
    effective_rows: float | None = 20.0
    learned_start: bool = False
    choice: bool = False
    known: int = 0

    def __post_init__(self) -> None:
        whole = all(isinstance(size, int | np.integer) and size > 0 for size in self.input_shape)
        if not whole or len(self.input_shape) not in (1, 3):
            raise ValueError(
                f"input_shape={self.input_shape}: give (n_features,) for vectors, (channels, height, width) for images"
            )
        if len(self.input_shape) == 3 and math.prod(self.input_shape) > MOST_VALUES:
            # Other sizes are compared with a file's tensors, but some networks take images of any size.
            raise ValueError(f"input_shape={self.input_shape}: an image may have at most {MOST_VALUES:,} values")
        object.__setattr__(self, "input_shape", tuple(int(size) for size in self.input_shape))
        for name in SIZES:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r}: it must be a whole number of 1 or more")
            if value > (most := MOST.get(name, LARGEST_LAYER)):
                raise ValueError(f"{name}={value!r}: it must be at most {most:,}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout!r}: it must be at least 0 and below 1")
        if not 0 <= self.shift < 0.5:
            raise ValueError(f"shift={self.shift!r}: it must be at least 0 and below 0.5")
        if self.effective_rows is not None and not 0 < self.effective_rows < float("inf"):
            raise ValueError(f"effective_rows={self.effective_rows!r}: it must be positive and finite, or None")
        if not 0 < self.alpha < float("inf"):
            raise ValueError(f"alpha={self.alpha!r}: the concentration must be positive and finite")
        choices = {"inference": ("vb", "em"), "initial": ("network", "random"), "encoder": tuple(ENCODERS)}
        check_choices(vars(self), choices)
        vectors = len(self.input_shape) == 1
        if self.encoder == "residual" and vectors and self.representation > self.input_shape[0]:
            raise ValueError(
                f"encoder='residual' with input_shape={self.input_shape} and representation={self.representation}: "
                "representation must not exceed the number of features of vectors"
            )
        component_family(self.components, self.mean_covariance)

    @classmethod
    def preset(cls, preset: Preset, input_shape: tuple[int, ...], **changes: Any) -> ModelConfig:
        """Return settings that train fast ("default") or those of the paper ("paper"), with changes."""
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
        """Return the settings as values that JSON can hold."""
        return {**asdict(self), "input_shape": list(self.input_shape)}

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> ModelConfig:
        """Return the configuration that :meth:`to_dict` described."""
        checked_fields(settings, {}, name="config")
        unknown = sorted(set(settings) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"unknown model settings {unknown}: the file was written by a newer metaclust")
        checked_fields(settings, {"input_shape": SAVED["input_shape"]}, SAVED, "config")
        # Files of format 1 may lack `task_hidden`: all networks have `hidden` units then.
        defaults = {"task_hidden": settings["hidden"]} if "hidden" in settings else {}
        return cls(**{**defaults, **settings, "input_shape": tuple(settings["input_shape"])})
