"""Settings of the experiments: the paper's, read from the presets, and what the protocol changes in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metaclust.model.config import ModelConfig
from metaclust.training.config import TrainingConfig

PAPER_MODEL = ModelConfig.preset("paper", (1,))
"""The paper's model, whatever it is given."""
PAPER_TRAINING = TrainingConfig.preset("paper")

MODEL_CHANGES: dict[str, Any] = {
    # The covariance that is best for the bound; the identity is the ablation "unit-mean-covariance".
    "mean_covariance": "optimal",
    # Narrower networks for the initial assignments, as by default.
    "task_hidden": ModelConfig.task_hidden,
}
"""What every method has in place of the paper's setting."""


@dataclass(frozen=True)
class Variant:
    """What varies within an experiment: the width of z, the steps trained through, the training categories."""

    s: int = PAPER_MODEL.representation
    t: int = PAPER_MODEL.steps
    categories: int | None = None

    def __str__(self) -> str:
        return f"s{self.s}-t{self.t}" + ("" if self.categories is None else f"-c{self.categories}")


def model_config(input_shape: tuple[int, ...], variant: Variant, *, strided: bool, dropout: float) -> ModelConfig:
    """Return the encoder and mixture that all methods share: the paper's, with the changes of the protocol.

    ``strided`` is the budget's, ``dropout`` the data set's.
    """
    return ModelConfig.preset(
        "paper",
        input_shape,
        representation=variant.s,
        steps=variant.t,
        strided=strided,
        dropout=dropout,
        **MODEL_CHANGES,
    )


def training_config(seed: int, pretrain_steps: int, steps: int, validate_every: int) -> TrainingConfig:
    """Return the default training, but through the network's own start alone, as in the paper.

    Then that start is worth something by itself. The paper's own training is the method "paper-recipe".
    """
    return TrainingConfig.preset(
        "default",
        seed=seed,
        pretrain_steps=pretrain_steps,
        steps=steps,
        validate_every=validate_every,
        seeded=PAPER_TRAINING.seeded,
    )
