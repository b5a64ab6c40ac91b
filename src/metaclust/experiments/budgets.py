"""How much work an experiment does. The methods and the protocol are the same in all of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Steps of training, tasks that are judged by, and the size of the image encoder."""

    name: str
    pretrain_steps: int
    """Steps of Proto, and of every other method that ours is compared with."""
    steps: int
    """Steps on the continuous ARI, after Proto."""
    tasks: int
    """Tasks in a step."""
    validate_every: int
    validation_tasks: int
    test_tasks: int
    vade_tasks: int
    """VaDE is trained anew on each test task, so it gets the first few of them only."""
    vade_steps: int
    """On each task, as an autoencoder and then on its bound."""
    strided: bool = True
    """Whether convolutions halve the image by a stride, or by max pooling at full resolution: slower."""

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
