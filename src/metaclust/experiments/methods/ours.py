"""The method of this package: Proto, then the continuous ARI through the mixture."""

from __future__ import annotations

from dataclasses import replace

from metaclust.experiments.methods.base import EncoderMethod, Lesson
from metaclust.model.config import ModelConfig
from metaclust.training.config import TrainingConfig


class Ours(EncoderMethod):
    """Pretrained as Proto (or from a Proto that is given), then trained on the continuous ARI."""

    name = "ours"
    title = "Ours"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> tuple[ModelConfig, TrainingConfig]:
        return config, training

    def learn_encoder(self, lesson: Lesson) -> None:
        training, start = self.training, lesson.start
        if isinstance(start, EncoderMethod) and training.pretrain_steps:
            self.model.encoder.load_state_dict(start.model.encoder.state_dict())
            training = replace(training, pretrain_steps=0)
        self.run(self.model, lesson, training)
