"""A straightforward training step of the paper: one task at a time, every pair of rows in the loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.soft_ari import Distances, by_pairs, torch_distances
from metaclust import ClusteringModel
from metaclust.model.layers import ReLUDropout
from metaclust.model.task_network import TaskNetwork
from metaclust.training.batches import Batch


def plain_loss(model: ClusteringModel, batch: Batch, distances: Distances = torch_distances) -> Tensor:
    """Return one minus the continuous ARI after the last step, averaged over tasks (Algorithm 2, with the errata)."""
    losses = []
    for index, y, mask in zip(batch.index, batch.y, batch.mask, strict=True):
        z = plain_layers(model.encoder.network, batch.x[index[mask]])  # type: ignore[arg-type]
        logits = plain_initial(model.task_network, z)  # type: ignore[arg-type]
        losses.append(plain_index(z, logits, y[mask], model.config.steps, distances))
    return 1 - torch.stack(losses).mean()


def plain_layers(network: nn.Sequential, x: Tensor) -> Tensor:
    """Return the output of a network for vectors, by torch's rectified linear units and dropout."""
    for layer in network:
        if isinstance(layer, ReLUDropout):
            x = functional.dropout(functional.relu(x), layer.p, layer.training)
        else:
            x = layer(x)
    return x


def plain_initial(network: TaskNetwork, z: Tensor) -> Tensor:
    """Return initial logits by Eqs. 2 and 3 as printed: f_R of each row and the representation of the task."""
    u = plain_layers(network.g_u, plain_layers(network.f_u, z).mean(0))
    return plain_layers(network.f_r, torch.cat((z, u.expand(len(z), -1)), 1))


def plain_index(z: Tensor, logits: Tensor, y: Tensor, steps: int, distances: Distances = torch_distances) -> Tensor:
    """Return the continuous ARI of one task from its representations and initial logits."""
    return by_pairs(plain_vb(z, logits, steps), y, distances)


def plain_vb(z: Tensor, logits: Tensor, steps: int, alpha: float = 1.0) -> Tensor:
    """Return the assignments after ``steps`` of Algorithm 1: q(mu_k) = N(theta_k, I), a and b start at one."""
    width = z.shape[1]
    r = logits.softmax(-1)
    a = b = torch.ones(logits.shape[1], dtype=z.dtype)
    for _ in range(steps):
        count = r.sum(0)
        later = count.flip(0).cumsum(0).flip(0) - count
        gamma1, gamma2 = 1 + count, alpha + later
        beta = a / b
        theta = beta[:, None] * (r.T @ z) / (1 + beta * count)[:, None]
        distance = (z[:, None] - theta).square().sum(-1) + width
        a = 1 + width / 2 * count
        b = 1 + (r * distance).sum(0) / 2
        whole = torch.digamma(gamma1 + gamma2)
        stick, rest = torch.digamma(gamma1) - whole, torch.digamma(gamma2) - whole
        log_weights = stick + torch.cat((rest.new_zeros(1), rest[:-1].cumsum(0)))
        scores = log_weights + width / 2 * (torch.digamma(a) - b.log()) - a / b * distance / 2
        r = scores.softmax(-1)
    return r
