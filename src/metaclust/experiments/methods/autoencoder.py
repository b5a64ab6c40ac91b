"""Autoencoders: representations from which rows can be reconstructed; no labels are used."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from metaclust.experiments.methods.base import validate_in_frame
from metaclust.experiments.methods.headed import HeadedMethod, HeadedModel
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.model.encoders.image import ImageDecoder
from metaclust.model.layers import feed_forward
from metaclust.training.batches import Batch
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import TaskSampler
from metaclust.training.loop import Objective


def new_decoder(config: ModelConfig) -> nn.Module:
    """Return the decoder that mirrors the encoder."""
    if len(config.input_shape) == 1:
        return feed_forward(config.representation, config.input_shape[0], config.hidden, config.dropout)
    channels, height, width = config.input_shape
    shape = (channels, height, width)
    return ImageDecoder(shape, config.representation, config.filters, config.hidden, config.dropout)


def reconstruction_loss(decoded: Tensor, x: Tensor) -> Tensor:
    """Return the loss of each row: the cross-entropy of an image's pixels, or half the squared error of a vector."""
    if decoded.ndim == 2:
        return 0.5 * (decoded - x).square().sum(1)
    ink = x / 255 if x.dtype == torch.uint8 else x
    target = ink.reshape(decoded.shape).to(decoded.dtype)
    return functional.binary_cross_entropy_with_logits(decoded, target, reduction="none").flatten(1).sum(1)


def autoencoder_loss(model: ClusteringModel, batch: Batch, _: TrainingConfig) -> tuple[Tensor, dict[str, float]]:
    if not isinstance(model, HeadedModel):
        raise TypeError(f"an autoencoder needs a decoder: {type(model).__name__} has none")
    decoded = model.head(model.encode(batch.x))
    loss = reconstruction_loss(decoded, batch.x).mean() / batch.x[0].numel()
    return loss, {"loss": float(loss.detach())}


class Autoencoder(HeadedMethod):
    """Reconstructs rows from their representations."""

    name = "ae"
    title = "AE"
    objective = Objective("ae", autoencoder_loss, validate_in_frame)

    def new_head(self, sampler: TaskSampler) -> nn.Module:
        return new_decoder(self.config)
