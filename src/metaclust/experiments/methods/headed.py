"""Encoders that are trained with a network behind them, which is then thrown away."""

from __future__ import annotations

from abc import abstractmethod

from torch import nn

from metaclust.experiments.methods.base import EncoderMethod, Lesson
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.training.episodes import TaskSampler


class HeadedModel(ClusteringModel):
    """A model with a network that reads its representations."""

    def __init__(self, config: ModelConfig, head: nn.Module) -> None:
        super().__init__(config)
        self.head = head


class HeadedMethod(EncoderMethod):
    """Encoder and head are trained together; the encoder is kept."""

    @abstractmethod
    def new_head(self, sampler: TaskSampler) -> nn.Module:
        """What the encoder is trained with."""

    def learn_encoder(self, lesson: Lesson) -> None:
        whole = HeadedModel(self.config, self.new_head(lesson.sampler))
        self.run(whole, lesson, self.training)
        self.model.encoder.load_state_dict(whole.encoder.state_dict())
