"""Data-parallel training in several processes started by torchrun.

Each process reads its own part of a step's rows or tasks. Random numbers are drawn for the whole step in every process,
which then uses its own part of them, and sums run over all processes: up to rounding, the weights do not depend on the
number of processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

CPU = torch.device("cpu")
TIMEOUT = timedelta(minutes=30)
"""How long a process waits for the others, which may take longer to read their data."""


class OtherProcessError(ConnectionError):
    """Another process stopped or did not answer in time."""


@dataclass(frozen=True)
class Part:
    """The items of this process: those from ``first`` up to, but excluding, ``last`` of ``total``."""

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
    """The number of processes and the rank of this one; a single process communicates nothing."""

    rank: int = 0
    world: int = 1
    device: torch.device = CPU
    """The device from which tensors are sent."""

    @property
    def main(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def part(self, total: int) -> Part:
        """Return this process's part of ``total`` items, divided evenly.

        >>> [Processes(rank, 2).part(3).slice for rank in range(2)]
        [slice(0, 1, None), slice(1, 3, None)]
        """
        return Part(total * self.rank // self.world, total * (self.rank + 1) // self.world, total)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the processes, bit for bit the same in each."""
        return self._exchanged(values, lambda distributed, sent: distributed.all_reduce(sent))

    def broadcast(self, values: Tensor) -> Tensor:
        """Return the main process's values in every process."""
        return self._exchanged(values, lambda distributed, sent: distributed.broadcast(sent, 0))

    def _exchanged(self, values: Tensor, exchange: Callable[[Any, Tensor], object]) -> Tensor:
        if self.world == 1:
            return values
        from torch import distributed

        sent = values.detach().to(self.device, copy=True)
        with naming_others(self):
            exchange(distributed, sent)
        return sent.to(values.device)

    def wait(self) -> None:
        """Wait until every process has called this."""
        self.sum(torch.zeros(1))

    def gather(self, own: Tensor, part: Part) -> Tensor:
        """Return the rows of all processes in order, ``own`` being those of ``part``; without a gradient."""
        rows = own.new_zeros((part.total, *own.shape[1:]))
        rows[part.slice] = own
        return self.sum(rows)

    @torch.no_grad()
    def broadcast_weights(self, model: nn.Module) -> None:
        """Copy the main process's weights to every process."""
        if self.world > 1:
            for value in model.state_dict().values():
                value.copy_(self.broadcast(value))

    def sum_gradients(self, model: nn.Module, metrics: Mapping[str, float]) -> dict[str, float]:
        """Sum the gradients of all weights and the metrics of a step over the processes, in one message."""
        if self.world == 1:
            return dict(metrics)
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        values = torch.tensor(list(metrics.values()), dtype=torch.float64)
        dtype = gradients[0].dtype if gradients else values.dtype
        flat = torch.cat([value.flatten().to(dtype) for value in (*gradients, values.to(model_device(model)))])
        sums = self.sum(flat).split([value.numel() for value in (*gradients, values)])
        for gradient, total in zip(gradients, sums, strict=False):
            gradient.copy_(total.view_as(gradient))
        return dict(zip(metrics, sums[-1].tolist(), strict=True))


ALONE = Processes()
_current = ALONE


def current() -> Processes:
    """Return the processes of the open :func:`process_group`; without one, this process alone."""
    return _current


@contextmanager
def process_group(device: str | torch.device = "auto", timeout: timedelta = TIMEOUT) -> Iterator[Processes]:
    """Let the processes that torchrun started train together while the context is open; without torchrun, do nothing.

    They communicate by NCCL, with one GPU each, if ``device`` is "cuda" or "auto" and there are GPUs; else by gloo.

    Parameters
    ----------
    device : str or torch.device
        "auto", "cpu" or "cuda".
    timeout : timedelta
        How long a process waits for the others.
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


def launch_command() -> list[str]:
    """Return the command that started this process, without its arguments."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ["metaclust"]
    return ["torchrun", f"--nproc-per-node={os.environ.get('LOCAL_WORLD_SIZE', '1')}", "-m", "metaclust"]


def own_device(device: str | torch.device, world: int) -> torch.device:
    """Return the CPU, or the GPU of its machine that belongs to this process."""
    wanted = str(device).split(":")[0]
    if wanted == "mps":
        raise ValueError(f"device='mps': {world} processes cannot share it; choose device='cpu', or start one process")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    local, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= count:
        raise ValueError(
            f"there are {count} GPUs for {os.environ.get('LOCAL_WORLD_SIZE', world)} processes on this machine: start "
            f"at most {count} (torchrun --nproc-per-node={count}), or choose device='cpu'"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


@contextmanager
def naming_others(processes: Processes) -> Iterator[None]:
    """Turn the error of a broken connection into an :class:`OtherProcessError`."""
    try:
        yield
    except RuntimeError as error:
        raise OtherProcessError(
            f"another of the {processes.world} processes stopped or did not answer in time: see its own message; a run "
            "with a folder can be resumed"
        ) from error


class AllRows(torch.autograd.Function):
    """Gathers the rows of all processes; the backward pass sums their gradients of the own rows."""

    @staticmethod
    def forward(ctx: Any, own: Float[Tensor, "own s"], part: Part, among: Processes) -> Float[Tensor, "all s"]:
        ctx.part, ctx.among = part, among
        return among.gather(own, part)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.among.sum(gradient)[ctx.part.slice], None, None


@dataclass(frozen=True)
class Division:
    """How the rows and tasks of a step are divided among the processes."""

    among: Processes
    parts: tuple[Part, ...]

    def part_of(self, length: int) -> Part | None:
        """Return the part that has ``length`` items in this process; None if there is none."""
        return next((part for part in self.parts if len(part) == length), None)


_division: Division | None = None


def division() -> Division | None:
    """Return the division of the current step; None if one process has all rows."""
    return _division


@contextmanager
def dividing(among: Processes, *parts: Part | None) -> Iterator[None]:
    """Let layers that use all rows of a step (``shared_layers``) use those of all processes."""
    global _division
    before = _division
    _division = None if among.world == 1 else Division(among, tuple(part for part in parts if part is not None))
    try:
        yield
    finally:
        _division = before


def model_device(model: nn.Module) -> torch.device:
    """Return the device of the weights; the CPU for a model without any."""
    return next((weight.device for weight in model.parameters()), torch.device("cpu"))
