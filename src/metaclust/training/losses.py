"""The losses of the two phases of training: prototypical, then the continuous ARI through inference (Algorithm 2)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from metaclust.mixture.inference import softmax_of
from metaclust.model.clustering_model import ClusteringModel
from metaclust.objectives.ari import LimitedGradient, continuous_ari
from metaclust.objectives.prototypical import prototypical_loss
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import Batch


def proto_loss(
    model: ClusteringModel, batch: Batch, _: TrainingConfig | None = None
) -> tuple[Tensor, dict[str, float]]:
    """A step of the pretraining. The categories of all tasks of the batch are told apart, which is harder than each
    task by itself, and so teaches more. Over several processes, what they return adds up to the loss."""
    loss = prototypical_loss(batch.of_all(model.encode(batch.x)), batch.category) / batch.among.world
    return loss, {"loss": float(loss.detach())}


def ari_loss(model: ClusteringModel, batch: Batch, config: TrainingConfig) -> tuple[Tensor, dict[str, float]]:
    """A step of the training: minus the continuous ARI, through the inference (Algorithm 2, lines 7 and 8).

    Where all rows are in one cluster the ARI after the last step has no gradient. The ARI of the earlier steps,
    the network's own initial assignments first of all, and the prototypical loss still have one there. Over several
    processes, what they return adds up to the loss.
    """
    part = batch.tasks
    share, tasks = (1.0, len(batch.y)) if part is None else (part.share, part.total)
    encoded = model.encode(batch.x)
    limit = None if config.task_clip is None else config.task_clip / tasks
    ari = task_indices(model, encoded, batch, config, limit)
    loss = torch.rsub(ari.mean(), share, alpha=share)
    parts = {"ari": share * float(ari.detach()[-1].mean())}
    if config.proto_weight and not config.freeze_encoder:
        proto = prototypical_loss(batch.of_all(encoded), batch.category)
        loss = torch.add(loss, proto, alpha=config.proto_weight / batch.among.world)
        parts["proto"] = float(proto.detach()) / batch.among.world
    return loss, {"loss": float(loss.detach()), **parts}


def task_indices(
    model: ClusteringModel, encoded: Float[Tensor, "m s"], batch: Batch, config: TrainingConfig, limit: float | None
) -> Float[Tensor, "steps b"]:
    """The continuous ARI of each task by the network's assignments and after each step, or after the last alone.

    Going back, the gradient of each task in its representations is scaled down to the norm ``limit``.
    """
    last = config.objective == "last-step"
    z = batch.pad(encoded)
    rows = z if limit is None else LimitedGradient.apply(z, limit)
    logits = model.initial_logits(rows, batch.mask, batch.tasks)
    own = softmax_of(logits)
    r = model.trajectory(rows, logits, batch.mask, config.seeded, batch.tasks)
    # In the layout in which the columns of r are sorted.
    r = r[-1:] if last else torch.cat((own.mT[None], r.mT[1:])).mT
    return continuous_ari(r, batch.y, batch.mask, config.distance)
