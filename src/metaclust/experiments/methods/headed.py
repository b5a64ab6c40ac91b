"""Encoders that are trained with a head, which is then discarded."""

from __future__ import annotations

from abc import abstractmethod

from torch import nn

from metaclust.experiments.methods.base import EncoderMethod, FitArguments
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.training.episodes import TaskSampler


class HeadedModel(ClusteringModel):
    """A model with a head: a network that reads its representations."""

    def __init__(self, config: ModelConfig, head: nn.Module) -> None:
        super().__init__(config)
        self.head = head


class HeadedMethod(EncoderMethod):
    """Encoder and head are trained together; the encoder is kept."""

    @abstractmethod
    def new_head(self, sampler: TaskSampler) -> nn.Module:
        """Return the untrained head."""

    def fit_encoder(self, arguments: FitArguments) -> None:
        whole = HeadedModel(self.config, self.new_head(arguments.sampler))
        self.run(whole, arguments, self.training)
        self.model.encoder.load_state_dict(whole.encoder.state_dict())
