"""Encoders that are trained with a network behind them, which is then thrown away."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence

from torch import nn

from metaclust.episodes import Task, TaskSampler
from metaclust.methods.base import EncoderMethod, Method
from metaclust.model import ClusteringModel, ModelConfig
from metaclust.training import train


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

    def learn_encoder(
        self,
        sampler: TaskSampler,
        validation: Sequence[Task],
        start: Method | None,
        folder: str | os.PathLike[str] | None,
        progress: bool,
    ) -> None:
        whole = HeadedModel(self.config, self.new_head(sampler))
        train(
            whole,
            sampler,
            validation,
            self.training,
            folder=folder,
            resume=folder is not None,
            progress=progress,
            objective=self.objective,
        )
        self.model.encoder.load_state_dict(whole.encoder.state_dict())
