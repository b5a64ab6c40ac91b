"""The neural networks: encoders f_Z for vectors and for images, and the task network f_U, g_U, f_R."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from metaclust.data.sparse import SparseRows
from metaclust.model.layers import DroppedReLU, SharedBatchNorm2d, SharedDropout


def feed_forward(inputs: int, outputs: int, hidden: int = 256, dropout: float = 0.1) -> nn.Sequential:
    """The paper's three-layered network with rectified linear units and dropout."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        DroppedReLU(dropout),
        nn.Identity(),  # Layers are numbered in files of models.
        nn.Linear(hidden, hidden),
        DroppedReLU(dropout),
        nn.Identity(),
        nn.Linear(hidden, outputs),
    )


def dropped(share: float) -> nn.Module:
    """Dropout; of a share of zero torch would still draw and multiply."""
    return SharedDropout(share) if share else nn.Identity()


class VectorEncoder(nn.Module):
    """f_Z for vectors: (rows, width) -> (rows, S)."""

    def __init__(self, width: int, representation: int = 10, hidden: int = 256, dropout: float = 0.1) -> None:
        super().__init__()
        self.network = feed_forward(width, representation, hidden, dropout)

    def forward(self, x: Float[Tensor, "rows width"]) -> Float[Tensor, "rows s"]:
        z: Tensor = self.network(x)
        return z


class ResidualEncoder(nn.Module):
    """f_Z for vectors that are good already, as sentence embeddings are: principal components, changed a little.

    At the start it is the projection on the first S principal components (see :meth:`fit`) times a scale; the network
    that is added starts at zero. With ``unit`` rows are brought to length one before and after.
    """

    mean: Tensor
    projection: Tensor

    def __init__(
        self, width: int, representation: int, hidden: int = 256, dropout: float = 0.3, unit: bool = True
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("projection", torch.eye(width)[:, :representation].clone())
        self.unit = unit
        # Distances of unit vectors are at most 2: this lets the prototypical loss tell near from far at the start.
        self.log_scale = nn.Parameter(torch.tensor(math.log(4.5) if unit else 0.0))
        self.network = nn.Sequential(
            dropped(dropout),
            nn.Linear(representation, hidden),
            DroppedReLU(dropout),
            nn.Identity(),
            nn.Linear(hidden, representation),
        )
        for weight in self.network[-1].parameters():
            nn.init.zeros_(weight)

    @torch.no_grad()
    def fit(self, x: Tensor | SparseRows, seed: int = 0) -> None:
        """Take mean and principal components from rows; without ``unit`` the scale, too."""
        from sklearn.decomposition import PCA

        thin = isinstance(x, SparseRows)
        rows = x.array if isinstance(x, SparseRows) else x.cpu().numpy()
        # There are no more components than rows; those that are missing stay zero.
        components = min(self.projection.shape[1], len(x) - 1, x.shape[1] - thin)
        if components < 1:
            return
        pca = PCA(components, svd_solver="arpack" if thin else "auto", random_state=seed)
        projected = pca.fit_transform(rows)
        self.mean.copy_(torch.from_numpy(pca.mean_))
        self.projection.zero_()
        self.projection[:, :components] = torch.from_numpy(np.ascontiguousarray(pca.components_.T))
        if not self.unit:
            self.log_scale.fill_(-0.5 * math.log(max(float(projected.var()), 1e-12)))

    def forward(self, x: Float[Tensor, "rows width"]) -> Float[Tensor, "rows s"]:
        start = (x - self.mean) @ self.projection
        if self.unit:
            start = functional.normalize(start, dim=-1)
            return functional.normalize(start + self.network(start), dim=-1) * self.log_scale.exp()
        start = start * self.log_scale.exp()
        z: Tensor = start + self.network(start)
        return z


class ImageEncoder(nn.Module):
    """f_Z for images: four blocks of 3x3 convolutions, each halving the image, then the three layers.

    The paper names neither normalisation nor pooling: each block normalises over the batch, and halves by a
    stride (``strided``) or by max pooling. uint8 images are scaled to [0, 1]; the layout is channels-last.
    """

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

    def forward(self, x: Tensor) -> Float[Tensor, "rows s"]:
        if x.ndim == 3:
            x = x[:, None]
        if x.dtype == torch.uint8:
            x = x.to(self.blocks[0].weight.dtype) / 255  # type: ignore[arg-type]
        z: Tensor = self.network(self.blocks(x.contiguous(memory_format=torch.channels_last)).flatten(1))
        return z


class TaskNetwork(nn.Module):
    """Initial assignments that see the whole task: log r_n = f_R([z_n, g_U(mean_n f_U(z_n))]) (Eqs. 2 and 3)."""

    def __init__(self, representation: int, clusters: int, hidden: int = 256, dropout: float = 0.1) -> None:
        super().__init__()
        self.f_u = feed_forward(representation, hidden, hidden, dropout)
        self.g_u = feed_forward(hidden, hidden, hidden, dropout)
        self.f_r = feed_forward(representation + hidden, clusters, hidden, dropout)

    def layers(self) -> list[Tensor]:
        """Weights and biases of the nine layers, in order."""
        linear: list[Any] = [network[i] for network in (self.f_u, self.g_u, self.f_r) for i in (0, 3, 6)]
        return [value for layer in linear for value in (layer.weight, layer.bias)]

    def forward(
        self, z: Float[Tensor, "*task n s"], mask: Bool[Tensor, "*task n"] | None = None
    ) -> Float[Tensor, "*task n k"]:
        task = z.shape[:-2]
        present = torch.ones(z.shape[:-1], dtype=torch.bool, device=z.device) if mask is None else mask
        present = present.reshape(-1, z.shape[-2])
        # Only real rows go through the networks; what is computed for them is put back into the padded shape.
        place = present.flatten().nonzero()[:, 0]
        rows = z.reshape(-1, z.shape[-1]).index_select(0, place)
        # Which task each row is in, as a matrix: sums over a task's rows, and back to its rows, are products with it.
        member = functional.one_hot(place // z.shape[-2], len(present)).to(z.dtype)
        count = present.sum(-1, keepdim=True).clamp_min(1)
        # The last layer of f_U is linear, so it may come after the mean over the rows: once a task, not once a row.
        u = self.g_u(self.f_u[-1](member.T @ self.f_u[:-1](rows) / count))
        # f_R([z, u]): u is the same for all rows of a task, so its part of the first layer is computed once.
        weight, bias = self.f_r[0].get_parameter("weight"), self.f_r[0].get_parameter("bias")
        of_z, of_u = weight.split((z.shape[-1], u.shape[-1]), -1)
        logits: Tensor = self.f_r[1:](functional.linear(rows, of_z) + member @ functional.linear(u, of_u, bias))
        padded = logits.new_zeros((present.numel(), logits.shape[-1])).index_copy(0, place, logits)
        return padded.reshape(*task, z.shape[-2], -1)


class ImageDecoder(nn.Module):
    """The encoder of images the other way round: (rows, S) -> (rows, channels, height, width), before a sigmoid."""

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
            # Twice the size, or one less where halving rounded up.
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
