"""Several processes that train one model together, as torchrun starts them; one process alone needs none of it.

What a step reads is divided, what it draws at random is drawn for the whole in every process and the own part taken,
and what is summed is summed over all: the weights do not depend on how many processes there are, but for rounding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

CPU = torch.device("cpu")
TIMEOUT = timedelta(minutes=30)
"""How long a process waits for the others: as long as one of them may take longer to read its data."""


class OtherProcessError(ConnectionError):
    """Another process stopped, or took too long."""


@dataclass(frozen=True)
class Part:
    """One's own of ``total`` things in a row: from ``first`` up to, but without, ``last``."""

    first: int
    last: int
    total: int

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def slice(self) -> slice:
        return slice(self.first, self.last)

    @property
    def share(self) -> float:
        return len(self) / self.total


@dataclass(frozen=True)
class Processes:
    """How many work together, and which of them this is. What one process alone asks of the others costs nothing."""

    rank: int = 0
    world: int = 1
    device: torch.device = CPU
    """Where tensors must be to be sent."""

    @property
    def main(self) -> bool:
        """The one that writes files and talks."""
        return self.rank == 0

    def part(self, total: int) -> Part:
        """What is this process's of ``total`` things: about as many as every other's.

        >>> [Processes(rank, 2).part(3).slice for rank in range(2)]
        [slice(0, 1, None), slice(1, 3, None)]
        """
        return Part(total * self.rank // self.world, total * (self.rank + 1) // self.world, total)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the processes, the same to the last bit in each."""
        if self.world == 1:
            return values
        from torch import distributed

        sent = values.detach().to(self.device, copy=True)
        with others_named(self):
            distributed.all_reduce(sent)
        return sent.to(values.device)

    def of_main(self, values: Tensor) -> Tensor:
        """The main process's values, in every process."""
        if self.world == 1:
            return values
        from torch import distributed

        sent = values.detach().to(self.device, copy=True)
        with others_named(self):
            distributed.broadcast(sent, 0)
        return sent.to(values.device)

    def wait(self) -> None:
        """Until every process is here."""
        self.sum(torch.zeros(1))

    def whole(self, own: Tensor, part: Part) -> Tensor:
        """The rows of all processes in their order, of which ``own`` are those of ``part``; without a gradient."""
        rows = own.new_zeros((part.total, *own.shape[1:]))
        rows[part.slice] = own
        return self.sum(rows)

    @torch.no_grad()
    def take_mains(self, model: nn.Module) -> None:
        """Give every process the main process's weights."""
        if self.world > 1:
            for value in model.state_dict().values():
                value.copy_(self.of_main(value))

    def sum_gradients(self, model: nn.Module, figures: Mapping[str, float]) -> dict[str, float]:
        """Sum the gradients of all weights, and a step's figures, over the processes, in one message."""
        if self.world == 1:
            return dict(figures)
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        numbers = torch.tensor(list(figures.values()), dtype=torch.float64)
        kind = gradients[0].dtype if gradients else numbers.dtype
        flat = torch.cat([value.flatten().to(kind) for value in (*gradients, numbers.to(model_device(model)))])
        sums = self.sum(flat).split([value.numel() for value in (*gradients, numbers)])
        for gradient, total in zip(gradients, sums, strict=False):
            gradient.copy_(total.view_as(gradient))
        return dict(zip(figures, sums[-1].tolist(), strict=True))


ALONE = Processes()
_current = ALONE


def current() -> Processes:
    """The processes of the :func:`process_group` that is open; else this one alone."""
    return _current


@contextmanager
def process_group(device: str | torch.device = "auto", timeout: timedelta = TIMEOUT) -> Iterator[Processes]:
    """While it is open, the processes that torchrun started train together; without torchrun it does nothing.

    They talk by NCCL, with a GPU each, where ``device`` is one or "auto" and there are any, else by gloo on the CPU.
    """
    global _current
    if _current.world > 1 or not all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")):
        yield _current
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world == 1:
        yield _current
        return
    from torch import distributed

    place = own_device(device, world)
    started = not distributed.is_initialized()
    if started:
        distributed.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=timeout)
    _current = Processes(rank, world, place)
    try:
        yield _current
    finally:
        _current = ALONE
        if started:
            distributed.destroy_process_group()


def started_with() -> list[str]:
    """The command that started this process, up to its arguments."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ["metaclust"]
    return ["torchrun", f"--nproc-per-node={os.environ.get('LOCAL_WORLD_SIZE', '1')}", "-m", "metaclust"]


def own_device(device: str | torch.device, world: int) -> torch.device:
    """The CPU, or this process's own GPU of its machine."""
    wanted = str(device).split(":")[0]
    if wanted == "mps":
        raise ValueError(f"device='mps': {world} processes cannot share it; choose device='cpu', or start one process")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    local, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= there:
        raise ValueError(
            f"there are {there} GPUs for {os.environ.get('LOCAL_WORLD_SIZE', world)} processes on this machine: start "
            f"at most {there} (torchrun --nproc-per-node={there}), or choose device='cpu'"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


@contextmanager
def others_named(processes: Processes) -> Iterator[None]:
    """What torch says when a connection breaks is told in plain words."""
    try:
        yield
    except RuntimeError as error:
        raise OtherProcessError(
            f"another of {processes.world} processes stopped, or did not answer in time: look for its own message; a "
            "run that keeps a folder can be resumed"
        ) from error


class AllRows(torch.autograd.Function):
    """The rows of all processes in each; going back, what each of them makes of the own rows is summed."""

    @staticmethod
    def forward(ctx: Any, own: Float[Tensor, "own s"], part: Part, among: Processes) -> Float[Tensor, "all s"]:
        ctx.part, ctx.among = part, among
        return among.whole(own, part)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.among.sum(gradient)[ctx.part.slice], None, None


@dataclass(frozen=True)
class Division:
    """How the things that layers see in a step are divided: rows, and tasks."""

    among: Processes
    parts: tuple[Part, ...]

    def part_of(self, length: int) -> Part | None:
        """Of what so many are this process's."""
        return next((part for part in self.parts if len(part) == length), None)


_division: Division | None = None


def division() -> Division | None:
    """That of the step under way; None where a process has all there is."""
    return _division


@contextmanager
def dividing(among: Processes, *parts: Part | None) -> Iterator[None]:
    """Layers that look at all rows of a step (``shared_layers``) look at those of all processes."""
    global _division
    before = _division
    _division = None if among.world == 1 else Division(among, tuple(part for part in parts if part is not None))
    try:
        yield
    finally:
        _division = before


def model_device(model: nn.Module) -> torch.device:
    """Where the weights are; the CPU for a model without any."""
    return next((weight.device for weight in model.parameters()), torch.device("cpu"))
