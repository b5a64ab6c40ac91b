"""The residual image encoder: convolutions with shortcuts, and representations of one length."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from metaclust.model.layers import SharedBatchNorm2d

if TYPE_CHECKING:
    from metaclust.model.config import ModelConfig

SCALE = 10**0.5
"""The initial length of representations: the prototypical loss then distinguishes near from far."""


class Block(nn.Module):
    """A convolution, and another one that corrects its output."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(inputs, outputs, stride)
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), SharedBatchNorm2d(outputs))

    def forward(self, x: Float[Tensor, "rows c h w"]) -> Float[Tensor, "rows d i j"]:
        y = self.first(x)
        return functional.relu(y + self.second(y))


class ResidualImageEncoder(nn.Module):
    """f_Z for images: a stem, three residual blocks, a last convolution, the mean over the image and a linear layer.

    The stem, the second and third block and the last convolution halve the image. The blocks have half, once and twice
    as many channels as ``filters``, the last convolution four times as many. With ``unit``, all representations have
    one length, which is learned. uint8 images are scaled to [0, 1]; the memory format is channels-last.
    """

    AXES = 3

    def __init__(
        self, shape: tuple[int, int, int], representation: int = 128, filters: int = 64, unit: bool = True
    ) -> None:
        super().__init__()
        widths = [max(1, filters // 2), filters, 2 * filters]
        self.stem = convolution(shape[0], widths[0], 2)
        self.blocks = nn.Sequential(
            Block(widths[0], widths[0], 1), Block(widths[0], widths[1], 2), Block(widths[1], widths[2], 2)
        )
        self.last = convolution(widths[2], 2 * widths[2], 2)
        self.linear = nn.Linear(2 * widths[2], representation)
        self.unit = unit
        if unit:
            self.log_scale = nn.Parameter(torch.tensor(math.log(SCALE)))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @classmethod
    def of(cls, config: ModelConfig) -> ResidualImageEncoder:
        channels, height, width = config.input_shape
        return cls((channels, height, width), config.representation, config.filters, config.unit)

    def forward(self, x: Tensor) -> Float[Tensor, "rows s"]:
        if x.ndim == 3:
            x = x[:, None]
        if x.dtype == torch.uint8:
            x = x.to(self.linear.weight.dtype) / 255
        y = self.blocks(self.stem(x.contiguous(memory_format=torch.channels_last)))
        z: Tensor = self.linear(self.last(y).mean((2, 3)))
        return functional.normalize(z, dim=-1) * self.log_scale.exp() if self.unit else z


def convolution(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Return a 3x3 convolution with batch normalisation and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), SharedBatchNorm2d(outputs), nn.ReLU(inplace=True)
    )
