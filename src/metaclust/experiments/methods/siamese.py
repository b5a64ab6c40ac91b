"""Siamese networks with the contrastive loss (Hadsell et al. 2006)."""

from __future__ import annotations

from torch import Tensor

from metaclust.experiments.methods.base import EncoderMethod, validate_in_frame
from metaclust.model.clustering_model import ClusteringModel
from metaclust.objectives.metric import contrastive_loss
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import Batch
from metaclust.training.loop import Objective


def siamese_loss(model: ClusteringModel, batch: Batch, _: TrainingConfig) -> tuple[Tensor, dict[str, float]]:
    """Return the contrastive loss over all pairs of rows of a batch."""
    loss = contrastive_loss(model.encode(batch.x), batch.category)
    return loss, {"loss": float(loss.detach())}


class Siamese(EncoderMethod):
    """Pulls rows of a category together and pushes others apart."""

    name = "siamese"
    title = "Siamese"
    objective = Objective("siamese", siamese_loss, validate_in_frame)
