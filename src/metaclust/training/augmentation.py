"""Changes of training images that keep, or make, a category; fast on tensors, reproducible by generator."""

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
    """Small affine changes of each image; and quarter turns and mirroring of whole categories.

    A character turned by 90 degrees is another character: ``turn_categories`` draws one of the eight turns and
    mirrorings for each category of each batch, which makes eight training categories out of one. Leave it off
    where a turned image is not a different thing.
    """

    degrees: float = 10.0
    scale: float = 0.1
    shear: float = 0.1
    shift: float = 0.07
    turn_categories: bool = False

    def __call__(
        self, x: Tensor, category: Int[Tensor, " all"], generator: torch.Generator, part: Part | None = None
    ) -> Float[Tensor, "rows c h w"]:
        """uint8 or float images (rows, [channels,] height, width) to float images in [0, 1].

        Where ``x`` is a ``part`` of more images, of which ``category`` is, each is changed as it would be among all.
        """
        if x.ndim == 3:
            x = x[:, None]
        x = x.to(torch.float32) / 255 if x.dtype == torch.uint8 else x
        matrix = self.matrices(len(category), generator)
        if self.turn_categories:
            present, place = category.unique(return_inverse=True)
            turns = torch.randint(8, (len(present),), generator=generator)
            matrix = matrix @ TURNS[turns[place]]
        shift = self.shift * (2 * torch.rand((len(category), 2, 1), generator=generator) - 1)
        if part is not None:
            matrix, shift = matrix[part.slice], shift[part.slice]
        height, width = x.shape[-2:]
        if height != width:
            # The grid's axes run from -1 to 1 whatever their length: turn in pixels.
            size = torch.tensor([float(width), float(height)])
            matrix = matrix * (size / size[:, None])
        change = torch.cat((matrix, shift), -1).to(x)
        grid = functional.affine_grid(change, list(x.shape), align_corners=False)
        return functional.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)

    def matrices(self, rows: int, generator: torch.Generator) -> Float[Tensor, "rows 2 2"]:
        """Rotation, scale and shear, drawn uniformly within their limits."""
        draw = 2 * torch.rand((4, rows), generator=generator) - 1
        angle = draw[0] * math.radians(self.degrees)
        cos, sin = angle.cos(), angle.sin()
        wide, high = 1 + self.scale * draw[1], 1 + self.scale * draw[2]
        shear = self.shear * draw[3]
        turn = torch.stack((cos, -sin, sin, cos), -1).reshape(-1, 2, 2)
        stretch = torch.stack((wide, shear, torch.zeros_like(shear), high), -1).reshape(-1, 2, 2)
        return turn @ stretch


def _turns() -> Float[Tensor, "8 2 2"]:
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    mirror = torch.tensor([[-1.0, 0.0], [0.0, 1.0]])
    turns = [torch.linalg.matrix_power(quarter, i) for i in range(4)]
    return torch.stack(turns + [turn @ mirror for turn in turns])


TURNS = _turns()
