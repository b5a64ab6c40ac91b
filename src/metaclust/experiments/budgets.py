"""Budgets: how long an experiment trains and tests. Methods and protocol are the same in all of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Steps of training, numbers of tasks, and how the image encoder downsamples."""

    name: str
    pretrain_steps: int
    """Steps of Proto, and of every other method but ours."""
    steps: int
    """Steps on the continuous ARI, after Proto."""
    tasks: int
    """Tasks in a step."""
    validate_every: int
    validation_tasks: int
    test_tasks: int
    vade_tasks: int
    """VaDE is trained from scratch on each test task, so it is tested on the first few only."""
    vade_steps: int
    """Steps on each task, as an autoencoder and as many on its bound."""
    strided: bool = True
    """Whether convolutions downsample by a stride, or by max pooling, which is slower."""

    def __str__(self) -> str:
        halving = "strided convolutions" if self.strided else "max pooling"
        return (
            f"{self.name}: {self.pretrain_steps:,} steps of Proto and of the other methods, then {self.steps:,} on the "
            f"continuous ARI for ours, {self.tasks} tasks a step, {halving}; {self.validation_tasks} validation and "
            f"{self.test_tasks} test tasks a split; VaDE: {self.vade_tasks} test tasks, {self.vade_steps} + "
            f"{self.vade_steps} steps on each"
        )


BUDGETS = {
    budget.name: budget
    for budget in (
        Budget("quick", 60, 40, 2, 50, 10, 10, 2, 20),
        Budget("short", 400, 300, 2, 200, 20, 60, 5, 50),
        Budget("standard", 1000, 800, 2, 500, 30, 100, 10, 100),
        Budget("paper", 10_000, 10_000, 4, 500, 100, 200, 200, 500, strided=False),
    )
}
