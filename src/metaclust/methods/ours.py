"""The method of this package: Proto, then the continuous ARI through the mixture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from metaclust.episodes import Task, TaskSampler
from metaclust.methods.base import EncoderMethod, Method
from metaclust.model import ModelConfig
from metaclust.training import TrainingConfig, train


class Ours(EncoderMethod):
    """Pretrained as Proto (or from a Proto that is given), then trained on the continuous ARI."""

    name = "ours"
    title = "Ours"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> tuple[ModelConfig, TrainingConfig]:
        return config, training

    def learn_encoder(
        self,
        sampler: TaskSampler,
        validation: Sequence[Task],
        start: Method | None,
        folder: str | os.PathLike[str] | None,
        progress: bool,
    ) -> None:
        training = self.training
        if isinstance(start, EncoderMethod) and training.pretrain_steps:
            self.model.encoder.load_state_dict(start.model.encoder.state_dict())
            training = replace(training, pretrain_steps=0)
        train(self.model, sampler, validation, training, folder=folder, resume=folder is not None, progress=progress)
