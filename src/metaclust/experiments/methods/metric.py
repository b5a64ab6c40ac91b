"""Siamese networks (Hadsell et al. 2006) and triplet networks (Wang et al. 2014, Hoffer and Ailon 2015)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from metaclust.experiments.methods.base import EncoderMethod, validate_in_frame
from metaclust.model.clustering_model import ClusteringModel
from metaclust.objectives.metric import contrastive_loss, triplet_loss
from metaclust.training.batches import Batch
from metaclust.training.config import TrainingConfig
from metaclust.training.loop import Objective


def over_rows(name: str, loss_of: Callable[[Tensor, Tensor], Tensor]) -> Objective:
    """Return the objective of a loss over the representations and categories of all rows of a batch."""

    def loss(model: ClusteringModel, batch: Batch, _: TrainingConfig) -> tuple[Tensor, dict[str, float]]:
        value = loss_of(model.encode(batch.x), batch.category)
        return value, {"loss": float(value.detach())}

    return Objective(name, loss, validate_in_frame)


class Siamese(EncoderMethod):
    """Pulls rows of a category together and pushes others apart."""

    name = "siamese"
    title = "Siamese"
    objective = over_rows("siamese", contrastive_loss)


class Triplet(EncoderMethod):
    """Makes a row nearer to rows of its category than to others."""

    name = "triplet"
    title = "Triplet"
    objective = over_rows("triplet", triplet_loss)
