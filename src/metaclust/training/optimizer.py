"""The optimizer, its learning rate schedule, and the random seed of each step."""

from __future__ import annotations

import math

import numpy as np
import torch

from metaclust.model.clustering_model import ClusteringModel
from metaclust.training.config import TrainingConfig


def new_optimizer(model: ClusteringModel, config: TrainingConfig) -> torch.optim.Adam:
    """Return a fused AdamW optimizer of all parameters of the model."""
    return torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Return the learning rate of a step.

    It is constant, or in each of the two phases warms up for at most 100 steps and decays along a cosine to 1%.
    """
    if config.schedule == "constant":
        return config.learning_rate
    pretraining = step < config.pretrain_steps
    done, total = (step, config.pretrain_steps) if pretraining else (step - config.pretrain_steps, config.steps)
    warmup = min(1.0, (done + 1) / min(100, total))
    return config.learning_rate * warmup * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done / total)))


def step_seed(seed: int, step: int) -> int:
    """Return the random seed of a step, which depends only on (seed, step): a resumed run repeats the same draws."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed torch's generators as ``torch.manual_seed`` does, where weights on ``device`` are trained.

    The latter notes for each other kind of device where it was called, which takes longer than a small step.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
