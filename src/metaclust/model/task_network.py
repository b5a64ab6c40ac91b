"""The task network: initial assignments that depend on the whole task."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from metaclust.model.layers import feed_forward


class TaskNetwork(nn.Module):
    """Initial assignments that depend on the whole task: log r_n = f_R([z_n, g_U(mean_n f_U(z_n))]) (Eqs. 2 and 3)."""

    def __init__(self, representation: int, clusters: int, hidden: int = 256, dropout: float = 0.1) -> None:
        super().__init__()
        self.f_u = feed_forward(representation, hidden, hidden, dropout)
        self.g_u = feed_forward(hidden, hidden, hidden, dropout)
        self.f_r = feed_forward(representation + hidden, clusters, hidden, dropout)

    def forward(
        self, z: Float[Tensor, "*task n s"], mask: Bool[Tensor, "*task n"] | None = None
    ) -> Float[Tensor, "*task n k"]:
        task = z.shape[:-2]
        present = torch.ones(z.shape[:-1], dtype=torch.bool, device=z.device) if mask is None else mask
        present = present.reshape(-1, z.shape[-2])
        # Only real rows go through the networks; their outputs are scattered into the padded shape.
        place = present.flatten().nonzero()[:, 0]
        rows = z.reshape(-1, z.shape[-1]).index_select(0, place)
        # One-hot task of each row: products with it sum over a task's rows, or repeat its values for them.
        member = functional.one_hot(place // z.shape[-2], len(present)).to(z.dtype)
        count = present.sum(-1, keepdim=True).clamp_min(1)
        # The last layer of f_U is linear, so it is applied to the mean over the rows: once per task, not once per row.
        u = self.g_u(self.f_u[-1](member.T @ self.f_u[:-1](rows) / count))
        # f_R([z, u]): u is the same for all rows of a task, so its part of the first layer is computed once.
        weight, bias = self.f_r[0].get_parameter("weight"), self.f_r[0].get_parameter("bias")
        weight_z, weight_u = weight.split((z.shape[-1], u.shape[-1]), -1)
        logits: Tensor = self.f_r[1:](functional.linear(rows, weight_z) + member @ functional.linear(u, weight_u, bias))
        padded = logits.new_zeros((present.numel(), logits.shape[-1])).index_copy(0, place, logits)
        return padded.reshape(*task, z.shape[-2], -1)
