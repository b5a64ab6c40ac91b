"""Small labelled tasks for the tests of methods."""

from dataclasses import replace

import numpy as np
import torch
from scipy import sparse

from metaclust.data.sparse import SparseRows
from metaclust.model.config import ModelConfig
from metaclust.training.augmentation import ImageAugmentation
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import Task, TaskSampler

SHORT = TrainingConfig(pretrain_steps=3, steps=3, validate_every=2)


def blobs(categories: int = 12, rows: int = 8, width: int = 6, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    """Well separated categories."""
    generator = np.random.default_rng(seed)
    y = np.repeat(np.arange(categories), rows)
    x = 4 * generator.normal(size=(categories, width))[y] + 0.3 * generator.normal(size=(len(y), width))
    return torch.from_numpy(x.astype(np.float32)), y


def problem(kind: str) -> tuple[TaskSampler, list[Task], ModelConfig]:
    """Training tasks of eight categories, validation tasks of four others, the settings of a small model."""
    x, y = blobs()
    augment = None
    shape: tuple[int, ...] = (6,)
    rows: torch.Tensor | SparseRows = x
    if kind == "images":
        # An image of noise that differs by category.
        patterns = np.random.default_rng(0).integers(0, 200, (12, 1, 9, 9))[y]
        rows = torch.from_numpy(
            np.clip(patterns + np.arange(len(y))[:, None, None, None] % 40, 0, 255).astype(np.uint8)
        )
        shape, augment = (1, 9, 9), ImageAugmentation(turn_categories=True)
    elif kind == "sparse":
        rows = SparseRows(sparse.csr_array(np.maximum(x.numpy(), 0)))
    sampler = TaskSampler(rows, y, np.arange(8), (2, 4), tasks=2, augment=augment)
    validation = replace(sampler, categories=np.arange(8, 12), augment=None).fixed(2)
    config = ModelConfig(shape, representation=3, max_clusters=5, steps=2, hidden=16, filters=4)
    return sampler, validation, config
