"""The encoders f_Z, by name and by the shape of the rows they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from metaclust.model.encoders.image import ImageEncoder
from metaclust.model.encoders.residual import ResidualEncoder
from metaclust.model.encoders.vector import VectorEncoder

if TYPE_CHECKING:
    from metaclust.model.config import ModelConfig

ENCODERS: dict[str, tuple[type[VectorEncoder] | type[ImageEncoder] | type[ResidualEncoder], ...]] = {
    "network": (VectorEncoder, ImageEncoder),
    "residual": (ResidualEncoder,),
}
"""The encoder classes of each value of ``ModelConfig.encoder``; they differ in the number of axes of a row (AXES)."""


def new_encoder(config: ModelConfig) -> nn.Module:
    """Return the encoder of a configuration, with initial weights."""
    if config.encoder not in ENCODERS:
        raise ValueError(f"encoder={config.encoder!r}: choose one of {tuple(ENCODERS)}")
    for kind in ENCODERS[config.encoder]:
        if len(config.input_shape) == kind.AXES:
            return kind.of(config)
    raise ValueError(
        f"encoder={config.encoder!r} does not take rows of input_shape={config.input_shape}: use encoder='network' for "
        "images"
    )
