"""A training step of ours against one of Proto (the paper: 2.4 to 3.9), and against a straightforward one."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import interleaved, peak_memory
from benchmarks.plain import plain_index, plain_loss
from benchmarks.report import Row, machine, markdown
from benchmarks.soft_ari import Distances, broadcast_distances, torch_distances
from metaclust import ClusteringModel, ModelConfig, TaskSampler, TrainingConfig
from metaclust.model.config import Preset
from metaclust.objectives.ari import continuous_ari
from metaclust.training.losses import ari_loss, proto_loss
from metaclust.training.optimizer import new_optimizer

SHAPES = {"images (1, 28, 28)": (1, 28, 28), "vectors (384)": (384,)}
MEMORY = """
from benchmarks.training_step import Steps
steps = Steps((384,), "paper", tasks={tasks}, rows={rows}, batches=1)
{before}
from pathlib import Path
Path("/proc/self/clear_refs").write_text("5")  # Resets the peak.
{what}
"""


class Steps:
    """Full training steps, including the optimizer's, on batches drawn beforehand."""

    def __init__(self, shape: tuple[int, ...], preset: Preset, tasks: int, rows: int, batches: int) -> None:
        generator = np.random.default_rng(0)
        y = np.repeat(np.arange(40 if rows > 20 else 200), rows)
        if len(shape) == 3:
            x = torch.from_numpy(generator.integers(0, 256, (len(y), *shape), dtype=np.uint8))
        else:
            x = torch.from_numpy(generator.normal(size=(len(y), *shape)).astype(np.float32))
        # With many rows, all tasks have ten categories.
        sampler = TaskSampler(x, y, np.unique(y), n_categories=(10 if rows > 20 else 2, 10), tasks=tasks)
        self.batches = [sampler.batch(i) for i in range(batches)]
        torch.manual_seed(0)
        self.model = ClusteringModel(ModelConfig.preset(preset, shape))
        self.config = TrainingConfig.preset(preset)
        self.optimizer = new_optimizer(self.model, self.config)
        self.encoded: dict[int, tuple[Tensor, Tensor]] = {}

    def proto(self, i: int) -> None:
        self._descend(proto_loss(self.model, self.batches[i])[0])

    def ours(self, i: int) -> None:
        self._descend(ari_loss(self.model, self.batches[i], self.config)[0])

    def plain(self, i: int) -> None:
        self._descend(plain_loss(self.model, self.batches[i]))

    def plainest(self, i: int) -> None:
        self._descend(plain_loss(self.model, self.batches[i], broadcast_distances))

    def rest_before(self, i: int) -> tuple[Tensor, Tensor]:
        """Return representations and initial logits, detached from the networks; computed once."""
        if i not in self.encoded:
            batch = self.batches[i]
            with torch.no_grad():
                z = batch.pad(self.model.encode(batch.x))
                self.encoded[i] = z, self.model.initial_logits(z, batch.mask)
        z, logits = self.encoded[i]
        return z.clone().requires_grad_(), logits.clone().requires_grad_()

    def rest_ours(self, i: int) -> None:
        (z, logits), batch = self.rest_before(i), self.batches[i]
        r = self.model.trajectory(z, logits, batch.mask)[-1]
        (1 - continuous_ari(r, batch.y, batch.mask).mean()).backward()

    def rest_plain(self, i: int, distances: Distances = torch_distances) -> None:
        (z, logits), batch = self.rest_before(i), self.batches[i]
        parts = zip(z, logits, batch.y, batch.mask, strict=True)
        every = [plain_index(z[m], u[m], y[m], self.model.config.steps, distances) for z, u, y, m in parts]
        (1 - torch.stack(every).mean()).backward()

    def rest_plainest(self, i: int) -> None:
        self.rest_plain(i, broadcast_distances)

    def _descend(self, loss: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def rows(short: bool = False) -> list[Row]:
    """Compare ours with Proto on small tasks, and with the plain step on large ones."""
    found = []
    presets: tuple[Preset, ...] = ("default", "paper")
    for preset in presets:
        for name, shape in SHAPES.items():
            for tasks in (4,) if len(shape) == 3 else (4, 16):
                rounds = 1 if short else 60
                steps = Steps(shape, preset, tasks, 20, rounds)
                ways = {"Proto": steps.proto, "ours": steps.ours}
                seconds = interleaved(ways, rounds)
                values = {f"{way}, ms": 1e3 * value for way, value in seconds.items()}
                for way in list(ways)[1:]:
                    values[f"{way} / Proto"] = seconds[way] / seconds["Proto"]
                found.append(Row("Training step against Proto", f"{name}, preset {preset!r}, {tasks} tasks", values))
    tasks, each, rounds = (2, 30, 1) if short else (4, 200, 5)
    steps = Steps((384,), "paper", tasks, each, rounds)
    for what, prefix in (("the whole step", ""), ("inference and loss alone, from the representations", "rest_")):
        names = {"plain, broadcast": "plainest", "plain, torch.cdist": "plain", "ours": "ours"}
        calls = {way: prefix + name for way, name in names.items()}
        for i in range(rounds):
            steps.rest_before(i)
        seconds = interleaved({way: getattr(steps, name) for way, name in calls.items()}, rounds, warm_up=1)
        before = f"steps.{prefix}before(0)" if prefix else ""
        start, *peaks = (
            peak_memory(MEMORY.format(tasks=tasks, rows=each, before=before, what=call))
            for call in ("", *(f"steps.{name}(0)" for name in calls.values()))
        )
        memory = {way: peak - start for way, peak in zip(names, peaks, strict=True)}
        values = {f"{way}, s": value for way, value in seconds.items()}
        values |= {f"{way}, GB beyond the start": value for way, value in memory.items()}
        for way in list(names)[:-1]:
            values[f"{way} / ours, time"] = seconds[way] / seconds["ours"]
            values[f"{way} / ours, memory"] = memory[way] / max(memory["ours"], 1e-9)
        name = f"vectors (384), {tasks} tasks of {10 * each:,} rows, {what}"
        found.append(Row("Training step against a plain one", name, values))
    return found


if __name__ == "__main__":
    print(markdown(rows(), machine()))
