"""A training step of ours against a Proto step: same encoder, same batches of tasks (the paper: 2.4 to 3.9)."""

from __future__ import annotations

import os

import numpy as np
import torch

from benchmarks.measure import interleaved
from metaclust import ClusteringModel, ModelConfig, TaskSampler, TrainingConfig
from metaclust.model_config import Preset
from metaclust.training import ari_loss, new_optimizer, proto_loss


def compare(name: str, shape: tuple[int, ...], preset: Preset, tasks: int, rounds: int) -> None:
    """Full steps, the optimizer's included, on batches drawn beforehand."""
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(200), 20)
    if len(shape) == 3:
        x = torch.from_numpy(generator.integers(0, 256, (len(y), *shape), dtype=np.uint8))
    else:
        x = torch.from_numpy(generator.normal(size=(len(y), *shape)).astype(np.float32))
    sampler = TaskSampler(x, y, np.arange(200), tasks=tasks)
    batches = [sampler.batch(i) for i in range(rounds)]
    torch.manual_seed(0)
    model = ClusteringModel(ModelConfig.preset(preset, shape))
    config = TrainingConfig.preset(preset)
    optimizer = new_optimizer(model, config)

    def step(i: int, proto: bool) -> None:
        loss, _ = proto_loss(model, batches[i]) if proto else ari_loss(model, batches[i], config)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    seconds = interleaved({"proto": lambda i: step(i, True), "ours": lambda i: step(i, False)}, rounds)
    rows = np.mean([len(batch.x) for batch in batches])
    print(
        f"{name}, preset {preset!r}, {tasks} tasks ({rows:.0f} rows) a step: Proto {seconds['proto'] * 1e3:.0f} ms, "
        f"ours {seconds['ours'] * 1e3:.0f} ms, ratio of the medians {seconds['ours'] / seconds['proto']:.2f}"
    )


def main(rounds: int = 60) -> None:
    torch.set_num_threads(os.cpu_count() or 1)
    for preset in ("default", "paper"):
        compare("Omniglot-shaped images (1, 28, 28)", (1, 28, 28), preset, 4, rounds)
        compare("vectors (384)", (384,), preset, 4, rounds)


if __name__ == "__main__":
    main()
