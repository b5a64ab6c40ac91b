"""A classifier of the training categories: its penultimate layer is the representation."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from metaclust.experiments.methods.base import FitArguments, validate_in_frame
from metaclust.experiments.methods.headed import HeadedMethod, HeadedModel
from metaclust.model.clustering_model import ClusteringModel
from metaclust.training.augmentation import ImageAugmentation
from metaclust.training.batches import Batch
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import TaskSampler
from metaclust.training.loop import Objective


class CategoryHead(nn.Module):
    """A linear layer and the softmax function over the training categories."""

    categories: Tensor

    def __init__(self, representation: int, categories: Tensor) -> None:
        super().__init__()
        self.register_buffer("categories", categories)
        self.layer = nn.Linear(representation, len(categories))

    def forward(self, z: Tensor, category: Tensor) -> Tensor:
        return functional.cross_entropy(self.layer(z), torch.searchsorted(self.categories, category))


def classifier_loss(model: ClusteringModel, batch: Batch, _: TrainingConfig) -> tuple[Tensor, dict[str, float]]:
    if not isinstance(model, HeadedModel):
        raise TypeError(f"a classifier needs a last layer: {type(model).__name__} has none")
    loss: Tensor = model.head(model.encode(batch.x), batch.category)
    return loss, {"loss": float(loss.detach())}


class Classifier(HeadedMethod):
    """The softmax function over the training categories."""

    name = "nn"
    title = "NN"
    objective = Objective("nn", classifier_loss, validate_in_frame)

    def new_head(self, sampler: TaskSampler) -> nn.Module:
        return CategoryHead(self.config.representation, torch.from_numpy(sampler.categories))

    def fit_encoder(self, arguments: FitArguments) -> None:
        # A rotated category is another one, for which the classifier has no output.
        sampler = arguments.sampler
        if isinstance(sampler.augment, ImageAugmentation):
            sampler = replace(sampler, augment=replace(sampler.augment, turn_categories=False))
        super().fit_encoder(replace(arguments, sampler=sampler))
