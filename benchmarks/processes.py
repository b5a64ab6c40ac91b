"""A training step in one process with all threads, and in several processes with one thread each.

python -m benchmarks.processes
torchrun --nproc-per-node=2 -m benchmarks.processes
"""

from __future__ import annotations

import time

import numpy as np
import torch

from metaclust import ClusteringModel, ModelConfig, TaskSampler, TrainingConfig, train
from metaclust._util.distributed import process_group

STEPS = 40


def main() -> None:
    """Time steps on images of 28 x 28 pixels, four tasks a step."""
    with process_group() as processes:
        if processes.world > 1:
            torch.set_num_threads(1)
        y = np.repeat(np.arange(200), 20)
        x = torch.randint(0, 256, (len(y), 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        torch.manual_seed(0)
        model = ClusteringModel(ModelConfig.preset("default", (1, 28, 28)))
        sampler = TaskSampler(x, y, np.unique(y), rows=20, tasks=4)
        for name, first, then in (("warm-up", 2, 2), ("pretraining", STEPS, 0), ("continuous ARI", 0, STEPS)):
            started = time.perf_counter()
            train(model, sampler, None, TrainingConfig(pretrain_steps=first, steps=then), progress=False)
            milliseconds = 1e3 * (time.perf_counter() - started) / (first + then)
            if processes.main and name != "warm-up":
                print(f"{processes.world} processes, {name}: {milliseconds:.0f} ms a step")


if __name__ == "__main__":
    main()
