"""The losses of the two training phases: prototypical, then the continuous ARI through inference (Algorithm 2)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from metaclust.mixture.posterior import softmax_of
from metaclust.model.clustering_model import ClusteringModel
from metaclust.objectives.ari import LimitedGradient, continuous_ari
from metaclust.objectives.prototypical import prototypical_loss
from metaclust.training.batches import Batch
from metaclust.training.config import TrainingConfig

NUMBERS = (0.5, 0.75, 1.0, 1.0, 1.4, 2.0)
"""Numbers of clusters of the candidates that are trained through, as multiples of the true one."""


def proto_loss(
    model: ClusteringModel, batch: Batch, _: TrainingConfig | None = None
) -> tuple[Tensor, dict[str, float]]:
    """Return the loss of a pretraining step, and its value to log.

    It separates the categories of all tasks of the batch, which is harder than each task by itself and so teaches
    more. With several processes, their return values add up to the loss.
    """
    loss = prototypical_loss(batch.of_all(model.encode(batch.x)), batch.category) / batch.among.world
    return loss, {"loss": float(loss.detach())}


def ari_loss(model: ClusteringModel, batch: Batch, config: TrainingConfig) -> tuple[Tensor, dict[str, float]]:
    """Return the loss of a training step, one minus the continuous ARI, and values to log (Algorithm 2, lines 7 and 8).

    If all rows are in one cluster, the ARI after the last inference step has no gradient. The ARI of earlier steps,
    above all of the network's initial assignments, and the prototypical loss still have one. With several processes,
    their return values add up to the loss.
    """
    part = batch.tasks
    share, n_tasks = (1.0, len(batch.y)) if part is None else (part.share, part.total)
    encoded = model.encode(batch.x)
    limit = None if config.task_clip is None else config.task_clip / n_tasks
    if config.objective == "candidates":
        ari = expected_indices(model, encoded, batch, config, limit)[None]
    else:
        ari = task_indices(model, encoded, batch, config, limit)
    loss = torch.rsub(ari.mean(), share, alpha=share)
    terms = {"ari": share * float(ari.detach()[-1].mean())}
    if config.proto_weight:
        proto = prototypical_loss(batch.of_all(encoded), batch.category)
        loss = torch.add(loss, proto, alpha=config.proto_weight / batch.among.world)
        terms["proto"] = float(proto.detach()) / batch.among.world
    return loss, {"loss": float(loss.detach()), **terms}


def task_indices(
    model: ClusteringModel, encoded: Float[Tensor, "m s"], batch: Batch, config: TrainingConfig, limit: float | None
) -> Float[Tensor, "steps b"]:
    """Return the continuous ARI of each task, initially and after each inference step, or after the last one only.

    In the backward pass, the gradient of each task with respect to its representations is clipped to norm ``limit``.
    """
    last_only = config.objective == "last-step"
    rows = limited(batch.pad(encoded), limit)
    logits = model.initial_logits(rows, batch.mask, batch.tasks)
    initial = softmax_of(logits)
    r = model.trajectory(rows, logits, batch.mask, config.seeded, batch.tasks)
    # Concatenate in the memory layout in which the columns of r are sorted.
    r = r[-1:] if last_only else torch.cat((initial.mT[None], r.mT[1:])).mT
    return continuous_ari(r, batch.y, batch.mask, config.distance)


def expected_indices(
    model: ClusteringModel, encoded: Float[Tensor, "m s"], batch: Batch, config: TrainingConfig, limit: float | None
) -> Float[Tensor, " b"]:
    """Return the expected continuous ARI of each task, over what several starts end in.

    k-means++ seeds are drawn at numbers of clusters around the true one. Each end is the answer with the probability
    that the softmax of the bounds gives it, which are scaled as if a category had at most ``effective_rows`` rows.
    """
    rows = limited(batch.pad(encoded), limit)
    true = batch.y.amax(-1) + 1
    # The same for all tasks, so that a task does not depend on those beside it.
    clusters = round(max(NUMBERS) * model.config.max_clusters)
    numbers = torch.stack([(true * factor).round().long().clamp(2, clusters) for factor in NUMBERS])
    ends, bound = model.candidates(rows, numbers, clusters, batch.mask, batch.tasks)
    effective = model.config.effective_rows
    count = batch.mask.sum(-1)
    weight = torch.ones_like(bound[0]) if effective is None else (effective * true / count).clamp_max(1).to(bound.dtype)
    probability = (weight * bound).softmax(0).to(ends.dtype)
    return (probability * continuous_ari(ends, batch.y, batch.mask, config.distance)).sum(0)


def limited(z: Float[Tensor, "b n s"], limit: float | None) -> Float[Tensor, "b n s"]:
    """Return the rows; in the backward pass, the gradient of each task is clipped to norm ``limit``."""
    rows: Tensor = z if limit is None else LimitedGradient.apply(z, limit)
    return rows
