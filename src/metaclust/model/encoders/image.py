"""The image encoder, and the decoder that mirrors it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metaclust.model.layers import SharedBatchNorm2d, feed_forward

if TYPE_CHECKING:
    from metaclust.model.config import ModelConfig


class ImageEncoder(nn.Module):
    """f_Z for images: four blocks of 3x3 convolutions, each halving the image, then three linear layers.

    The paper specifies neither normalisation nor pooling: each block uses batch normalisation, and halves with a stride
    (``strided``) or max pooling. uint8 images are scaled to [0, 1]; the memory format is channels-last.
    """

    AXES = 3

    def __init__(
        self,
        shape: tuple[int, int, int],
        representation: int = 10,
        filters: int = 32,
        hidden: int = 256,
        dropout: float = 0.1,
        strided: bool = True,
    ) -> None:
        super().__init__()
        channels, height, width = shape
        blocks: list[nn.Module] = []
        for _ in range(4):
            blocks += [
                nn.Conv2d(channels, filters, 3, stride=2 if strided else 1, padding=1, bias=False),
                SharedBatchNorm2d(filters),
                nn.ReLU(),
            ]
            if not strided:
                blocks.append(nn.MaxPool2d(2, ceil_mode=True))
            channels, height, width = filters, math.ceil(height / 2), math.ceil(width / 2)
        self.blocks = nn.Sequential(*blocks)
        self.blocks.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network = feed_forward(filters * height * width, representation, hidden, dropout)

    @classmethod
    def of(cls, config: ModelConfig) -> ImageEncoder:
        channels, height, width = config.input_shape
        shape = (channels, height, width)
        return cls(shape, config.representation, config.filters, config.hidden, config.dropout, config.strided)

    def forward(self, x: Tensor) -> Float[Tensor, "rows s"]:
        if x.ndim == 3:
            x = x[:, None]
        if x.dtype == torch.uint8:
            x = x.to(self.blocks[0].weight.dtype) / 255  # type: ignore[arg-type]
        z: Tensor = self.network(self.blocks(x.contiguous(memory_format=torch.channels_last)).flatten(1))
        return z


class ImageDecoder(nn.Module):
    """Mirrors the image encoder: (rows, S) -> (rows, channels, height, width), as logits."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        representation: int = 10,
        filters: int = 32,
        hidden: int = 256,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        channels, *size = shape
        sizes = [tuple(math.ceil(side / 2**halved) for side in size) for halved in range(5)]
        self.first = (filters, *sizes[4])
        self.network = feed_forward(representation, math.prod(self.first), hidden, dropout)
        blocks: list[nn.Module] = []
        for i in (4, 3, 2, 1):
            # Twice the size, or one less if halving rounded up.
            odd = tuple(larger - (2 * smaller - 1) for larger, smaller in zip(sizes[i - 1], sizes[i], strict=True))
            outputs = filters if i > 1 else channels
            blocks.append(nn.ConvTranspose2d(filters, outputs, 3, stride=2, padding=1, output_padding=odd, bias=i == 1))
            if i > 1:
                blocks += [SharedBatchNorm2d(filters), nn.ReLU()]
        self.blocks = nn.Sequential(*blocks)
        self.blocks.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, z: Float[Tensor, "rows s"]) -> Float[Tensor, "rows channels height width"]:
        first = self.network(z).unflatten(1, self.first)
        x: Tensor = self.blocks(first.contiguous(memory_format=torch.channels_last))
        return x


def shifted(x: Tensor, share: float) -> list[Tensor]:
    """Return images (..., height, width) and copies shifted down, up, right and left, with borders repeated."""
    copies = [x]
    for axis in (-2, -1):
        side = x.shape[axis]
        place = torch.arange(side, device=x.device)
        for step in (-1, 1):
            moved = (place + step * max(1, round(share * side))).clamp(0, side - 1)
            copies.append(x.index_select(axis, moved))
    return copies
