"""The optimizer, its schedule, and the random seed of each step."""

from __future__ import annotations

import math

import numpy as np
import torch

from metaclust.model.clustering_model import ClusteringModel
from metaclust.training.config import TrainingConfig


def new_optimizer(model: ClusteringModel, config: TrainingConfig) -> torch.optim.Adam:
    return torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Constant, or within each of the two phases rising for up to 100 steps, then falling along half a cosine to 1%."""
    if config.schedule == "constant":
        return config.learning_rate
    pretraining = step < config.pretrain_steps
    done, phase = (step, config.pretrain_steps) if pretraining else (step - config.pretrain_steps, config.steps)
    rise = min(1.0, (done + 1) / min(100, phase))
    return config.learning_rate * rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done / phase)))


def step_seed(seed: int, step: int) -> int:
    """Randomness of a step, from (seed, step) alone, so that a resumed run draws what it would have drawn."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)
