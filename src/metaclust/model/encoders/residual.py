"""The residual encoder: principal components plus a learned correction."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from metaclust.data.sparse import SparseRows, dense
from metaclust.model.layers import ReLUDropout, new_dropout

if TYPE_CHECKING:
    from metaclust.model.config import ModelConfig


class ResidualEncoder(nn.Module):
    """f_Z for vectors that are good representations already, such as sentence embeddings.

    It is the projection on the first S principal components (see :meth:`fit`), times a scale, plus a network that is
    zero at initialisation. With ``unit``, rows are normalised to unit length before and after the correction.
    """

    AXES = 1
    mean: Tensor
    projection: Tensor

    def __init__(
        self, n_features: int, representation: int, hidden: int = 256, dropout: float = 0.3, unit: bool = True
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("projection", torch.eye(n_features, min(n_features, representation)))
        self.unit = unit
        self.given_starts = False
        """Whether rows are what :meth:`start` returned."""
        # Distances of unit vectors are at most 2: the scale lets the prototypical loss distinguish near from far.
        self.log_scale = nn.Parameter(torch.tensor(math.log(4.5) if unit else 0.0))
        self.network = nn.Sequential(
            new_dropout(dropout),
            nn.Linear(representation, hidden),
            ReLUDropout(dropout),
            nn.Identity(),
            nn.Linear(hidden, representation),
        )
        for weight in self.network[-1].parameters():
            nn.init.zeros_(weight)

    @classmethod
    def of(cls, config: ModelConfig) -> ResidualEncoder:
        return cls(config.input_shape[0], config.representation, config.hidden, config.dropout, config.unit)

    @torch.no_grad()
    def fit(self, x: Tensor | SparseRows, seed: int = 0) -> None:
        """Set the mean and principal components from rows; without ``unit``, the scale as well."""
        from sklearn.decomposition import PCA

        sparse = isinstance(x, SparseRows)
        rows = x.array if isinstance(x, SparseRows) else x.cpu().numpy()
        # Components beyond the number of rows stay zero.
        components = min(self.projection.shape[1], len(x) - 1, x.shape[1] - sparse)
        if components < 1:
            return
        pca = PCA(components, svd_solver="arpack" if sparse else "auto", random_state=seed)
        projected = pca.fit_transform(rows)
        self.mean.copy_(torch.from_numpy(pca.mean_))
        self.projection.zero_()
        self.projection[:, :components] = torch.from_numpy(np.ascontiguousarray(pca.components_.T))
        if not self.unit:
            self.log_scale.fill_(-0.5 * math.log(max(float(projected.var()), 1e-12)))

    def start(self, x: Float[Tensor, "rows features"]) -> Float[Tensor, "rows s"]:
        """Return the part of a representation that training does not change."""
        start = (x - self.mean) @ self.projection
        return functional.normalize(start, dim=-1) if self.unit else start

    @contextmanager
    def started(self, x: Tensor | SparseRows, block: int = 4096) -> Iterator[Float[Tensor, "rows s"]]:
        """Give the starts of all rows, which are what the encoder takes for rows while the context is open."""
        with torch.no_grad():
            blocks = (dense(x[first : first + block]) for first in range(0, len(x), block))
            starts = torch.cat([self.start(rows.to(self.mean.device)).to(rows.device) for rows in blocks])
        self.given_starts = True
        try:
            yield starts
        finally:
            self.given_starts = False

    def forward(self, x: Float[Tensor, "rows features"]) -> Float[Tensor, "rows s"]:
        start = x if self.given_starts else self.start(x)
        if self.unit:
            return functional.normalize(start + self.network(start), dim=-1) * self.log_scale.exp()
        start = start * self.log_scale.exp()
        z: Tensor = start + self.network(start)
        return z
