"""Augmentation of batches of training images, reproducible by generator."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from metaclust._util.distributed import Part


@dataclass(frozen=True)
class ImageAugmentation:
    """Apply a small random affine transformation to each image, and optionally turn and mirror whole categories.

    Parameters
    ----------
    degrees : float, default=10.0
        The largest rotation, in either direction.
    scale : float, default=0.1
        The largest relative change of width and of height.
    shear : float, default=0.1
        The largest shear.
    shift : float, default=0.07
        The largest translation, as a fraction of half the side.
    turn_categories : bool, default=False
        Apply one of the eight quarter turns and reflections to each category of a batch, which makes eight training
        categories out of one. Use it only where a turned image is of a different category, as for characters.
    """

    degrees: float = 10.0
    scale: float = 0.1
    shear: float = 0.1
    shift: float = 0.07
    turn_categories: bool = False

    def __call__(
        self, x: Tensor, category: Int[Tensor, " all"], generator: torch.Generator, part: Part | None = None
    ) -> Float[Tensor, "rows c h w"]:
        """Return the transformed images as floats; uint8 images are scaled to [0, 1].

        Parameters
        ----------
        x : Tensor of shape (rows, height, width) or (rows, channels, height, width)
            Images of type uint8 or float.
        category : Tensor of shape (all,)
            The category of each image of the whole batch.
        generator : torch.Generator
            The source of randomness.
        part : Part, optional
            The part of the batch that ``x`` holds, if not all; each image is transformed as it would be in the whole.
        """
        if x.ndim == 3:
            x = x[:, None]
        x = x.to(torch.float32) / 255 if x.dtype == torch.uint8 else x
        matrix = self.matrices(len(category), generator)
        if self.turn_categories:
            present, index = category.unique(return_inverse=True)
            turns = torch.randint(8, (len(present),), generator=generator)
            matrix = matrix @ TURNS[turns[index]]
        shift = self.shift * (2 * torch.rand((len(category), 2, 1), generator=generator) - 1)
        if part is not None:
            matrix, shift = matrix[part.slice], shift[part.slice]
        height, width = x.shape[-2:]
        if height != width:
            # The axes of the grid run from -1 to 1 whatever their length: rotate in pixels.
            size = torch.tensor([float(width), float(height)])
            matrix = matrix * (size / size[:, None])
        transform = torch.cat((matrix, shift), -1).to(x)
        grid = functional.affine_grid(transform, list(x.shape), align_corners=False)
        return functional.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)

    def matrices(self, rows: int, generator: torch.Generator) -> Float[Tensor, "rows 2 2"]:
        """Draw matrices of rotation, scale and shear, uniformly within their limits."""
        draw = 2 * torch.rand((4, rows), generator=generator) - 1
        angle = draw[0] * math.radians(self.degrees)
        cos, sin = angle.cos(), angle.sin()
        scale_x, scale_y = 1 + self.scale * draw[1], 1 + self.scale * draw[2]
        shear = self.shear * draw[3]
        rotation = torch.stack((cos, -sin, sin, cos), -1).reshape(-1, 2, 2)
        stretch = torch.stack((scale_x, shear, torch.zeros_like(shear), scale_y), -1).reshape(-1, 2, 2)
        return rotation @ stretch


def _turns() -> Float[Tensor, "8 2 2"]:
    """Return the matrices of the four quarter turns, without and with a reflection."""
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    mirror = torch.tensor([[-1.0, 0.0], [0.0, 1.0]])
    turns = [torch.linalg.matrix_power(quarter, i) for i in range(4)]
    return torch.stack(turns + [turn @ mirror for turn in turns])


TURNS = _turns()
