"""The encoders f_Z, by name and by the shape of the rows they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from metaclust.model.encoders.image import ImageEncoder
from metaclust.model.encoders.residual import ResidualEncoder
from metaclust.model.encoders.residual_image import ResidualImageEncoder
from metaclust.model.encoders.vector import VectorEncoder

if TYPE_CHECKING:
    from metaclust.model.config import ModelConfig

EncoderClass = type[VectorEncoder] | type[ImageEncoder] | type[ResidualEncoder] | type[ResidualImageEncoder]
ENCODERS: dict[str, tuple[EncoderClass, ...]] = {
    "network": (VectorEncoder, ImageEncoder),
    "residual": (ResidualEncoder, ResidualImageEncoder),
}
"""The encoder classes of each value of ``ModelConfig.encoder``; they differ in the number of axes of a row (AXES)."""


def new_encoder(config: ModelConfig) -> nn.Module:
    """Return the encoder of a configuration, with initial weights."""
    if config.encoder not in ENCODERS:
        raise ValueError(f"encoder={config.encoder!r}: choose one of {tuple(ENCODERS)}")
    for kind in ENCODERS[config.encoder]:
        if len(config.input_shape) == kind.AXES:
            return kind.of(config)
    raise ValueError(f"encoder={config.encoder!r} does not take rows of input_shape={config.input_shape}")


def check_rows(x: Tensor, shape: tuple[int, ...]) -> None:
    """Check the shape and dtype of rows; greyscale images may omit the channel axis."""
    fits = tuple(x.shape[1:]) == shape or (shape[0] == 1 and tuple(x.shape[1:]) == shape[1:] != ())
    if not fits:
        raise ValueError(f"x has rows of shape {tuple(x.shape[1:])}, but the model was built for input_shape={shape}")
    if not x.is_floating_point() and (x.dtype != torch.uint8 or len(shape) == 1):
        raise TypeError(f"x is {x.dtype}: pass floating-point rows (x.float()), or uint8 images")
