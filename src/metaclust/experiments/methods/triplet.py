"""Triplet networks (Wang et al. 2014, Hoffer and Ailon 2015)."""

from __future__ import annotations

from torch import Tensor

from metaclust.experiments.methods.base import EncoderMethod, validate_in_frame
from metaclust.model.clustering_model import ClusteringModel
from metaclust.objectives.metric import triplet_loss
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import Batch
from metaclust.training.loop import Objective


def loss_of_triplets(model: ClusteringModel, batch: Batch, _: TrainingConfig) -> tuple[Tensor, dict[str, float]]:
    """Return the loss over triplets drawn from the rows of a batch."""
    loss = triplet_loss(model.encode(batch.x), batch.category)
    return loss, {"loss": float(loss.detach())}


class Triplet(EncoderMethod):
    """Makes a row nearer to rows of its category than to others."""

    name = "triplet"
    title = "Triplet"
    objective = Objective("triplet", loss_of_triplets, validate_in_frame)
