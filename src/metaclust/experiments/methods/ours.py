"""The method of this package: Proto, then the continuous ARI through the mixture."""

from __future__ import annotations

from dataclasses import replace

from metaclust.experiments.methods.base import EncoderMethod, FitArguments
from metaclust.model.config import ModelConfig
from metaclust.training.config import TrainingConfig


class Ours(EncoderMethod):
    """Pretrained as Proto (or started from a fitted Proto), then trained on the continuous ARI."""

    name = "ours"
    title = "Ours"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> tuple[ModelConfig, TrainingConfig]:
        return config, training

    def fit_encoder(self, arguments: FitArguments) -> None:
        training, start = self.training, arguments.start
        if isinstance(start, EncoderMethod) and training.pretrain_steps:
            self.model.encoder.load_state_dict(start.model.encoder.state_dict())
            training = replace(training, pretrain_steps=0)
        self.run(self.model, arguments, training)
