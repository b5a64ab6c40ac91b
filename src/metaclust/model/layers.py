"""Layers whose values depend on all rows of a step: divided over processes, they are what they are in one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from metaclust._util.distributed import Part, Processes, division

DROPOUT_PARTS = 1 << 16
DROPOUT_BLOCK = 1 << 16
"""Values that are drawn at a time."""


class SharedDropout(nn.Dropout):
    """Dropout; of a step that is divided, what is dropped is drawn for all rows, and the own part taken.

    On the CPU torch draws one number after another, which takes longer than the product of the layer before.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        part = own_part(x)
        if x.device.type != "cpu" and part is None:
            return super().forward(x)
        kept = torch.ones(x.shape)
        drop_(kept, self.p, part)
        return x * kept.to(x)


class DroppedReLU(nn.Dropout):
    """Rectified linear units and their dropout in place, on what a layer returned: one array is kept for the way back,
    not three. Where the result is zero, so is the gradient, whatever made it zero."""

    def forward(self, x: Tensor) -> Tensor:
        share = self.p if self.training else 0.0
        part = own_part(x) if share else None
        if x.device.type == "cpu":
            y: Tensor = Rectified.apply(x, share, part)
            return y
        y = functional.relu(x)
        if part is None:
            return functional.dropout(y, share)
        y = SharedDropout(share)(y)
        return y


class Rectified(torch.autograd.Function):
    """max(x, 0), of which a share is dropped; in place, on the CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float, part: Part | None) -> Tensor:
        x.relu_()
        if share:
            drop_(x, share, part)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        ctx.scale = 1 / (1 - whole_share(share))
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        back = torch.ops.aten.threshold_backward(gradient, ctx.saved_tensors[0], 0)
        return back if ctx.scale == 1 else back.mul_(ctx.scale), None, None


def own_part(x: Tensor) -> Part | None:
    """Which rows of a step that is divided these are."""
    step = division()
    return None if step is None else step.part_of(len(x))


def whole_share(share: float) -> float:
    """The nearest share of which 16 random bits can decide."""
    return round(share * DROPOUT_PARTS) / DROPOUT_PARTS


def drop_(x: Tensor, share: float, part: Part | None = None) -> None:
    """Set a share of the values to zero and scale the others, in place: by a generator that torch's has seeded.

    In blocks: what is drawn stays in the cache, and takes no memory.
    """
    flat = x.detach().view(-1).numpy()
    bits = np.random.SFC64(int(torch.randint(1 << 62, ())))
    least = np.int16(round(share * DROPOUT_PARTS) - DROPOUT_PARTS // 2)
    width = x[0].numel() if len(x) else 0
    first, total = (0, len(x)) if part is None else (part.first, part.total)
    first, total = first * width, total * width
    for start in range(0, total, DROPOUT_BLOCK):
        size = min(DROPOUT_BLOCK, total - start)
        kept = (bits.random_raw(-(-size // 4)).view(np.int16)[:size] >= least).view(np.int8)
        own = slice(max(start, first), min(start + size, first + len(flat)))
        if own.start < own.stop:
            values = flat[own.start - first : own.stop - first]
            np.multiply(values, kept[own.start - start : own.stop - start], out=values)
    x.detach().mul_(1 / (1 - whole_share(share)))


class SharedBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation; of a step that is divided, by the mean and variance of the rows of all processes.

    torch's SyncBatchNorm is for GPUs alone.
    """

    def forward(self, x: Float[Tensor, "rows c h w"]) -> Float[Tensor, "rows c h w"]:
        step = division()
        if step is None or not self.training:
            return super().forward(x)
        y, mean, variance, count = Normalised.apply(x, self.weight, self.bias, self.eps, step.among)
        self.remember(mean, variance, count)
        return y  # type: ignore[no-any-return]

    @torch.no_grad()
    def remember(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """What normalises after the training, as torch keeps it."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = variance * (count / (count - 1).clamp_min(1))
        self.running_mean.lerp_(mean.to(self.running_mean), share)
        self.running_var.lerp_(unbiased.to(self.running_var), share)


class Normalised(torch.autograd.Function):
    """Rows normalised by the mean and variance over those of all processes: one message on the way, one back.

    Gradients of weight and bias are those of the own rows, to be summed with all others.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, among: Processes
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        channels, count = x.shape[1], x.numel() // x.shape[1]
        mean, variance = moments(x)
        own = torch.cat((mean, variance, mean.new_tensor([count]))).double()
        part = among.part(among.world)
        means, variances, counts = among.gather(own[None], part).split((channels, channels, 1), 1)
        total = counts.sum()
        mean = (counts * means).sum(0) / total
        # Around the common mean: no difference of large squares.
        variance = (counts * (variances + (means - mean).square())).sum(0) / total
        around, spread = mean.to(x.dtype), variance.to(x.dtype)
        ctx.save_for_backward(x, weight, around, spread, total)
        ctx.among, ctx.eps = among, eps
        ctx.mark_non_differentiable(mean, variance, total)
        return functional.batch_norm(x, around, spread, weight, bias, False, 0.0, eps), mean, variance, total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        x, weight, around, spread, total = ctx.saved_tensors
        # As if mean and variance were given; then what they change.
        back, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            gradient, x, weight, around, spread, None, None, False, ctx.eps, [True, True, True]
        )
        means = ctx.among.sum(torch.stack((of_bias, of_weight)).double()) / total
        of_mean, of_spread = (value.to(gradient.dtype) for value in means)
        scale = (spread + ctx.eps).rsqrt()
        slope = weight * scale * scale * of_spread
        back = torch.addcmul(back + along(slope * around - weight * scale * of_mean), x, along(slope), value=-1)
        return back, of_weight, of_bias, None, None


def moments(x: Float[Tensor, "rows c h w"]) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
    """Mean and variance of each channel by batch normalisation's own code, many times faster than var_mean."""
    if x.device.type in ("cpu", "cuda"):
        mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
        return mean, variance
    variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    return mean, variance


def along(values: Float[Tensor, " c"]) -> Float[Tensor, "c 1 1"]:
    """One value for each channel of an image."""
    return values[:, None, None]


def check_norms(model: nn.Module, among: Processes) -> None:
    """A layer that would normalise over the rows of one of several processes is an error."""
    for name, layer in model.named_modules() if among.world > 1 else ():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and not isinstance(layer, SharedBatchNorm2d):
            raise ValueError(
                f"{name} normalises over the rows of one of {among.world} processes: use SharedBatchNorm2d or a layer "
                "that looks at single rows (LayerNorm, GroupNorm), or start one process"
            )


def feed_forward(inputs: int, outputs: int, hidden: int = 256, dropout: float = 0.1) -> nn.Sequential:
    """The paper's three-layered network with rectified linear units and dropout."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        DroppedReLU(dropout),
        nn.Identity(),  # Layers are numbered in files of models.
        nn.Linear(hidden, hidden),
        DroppedReLU(dropout),
        nn.Identity(),
        nn.Linear(hidden, outputs),
    )


def dropped(share: float) -> nn.Module:
    """Dropout; of a share of zero torch would still draw and multiply."""
    return SharedDropout(share) if share else nn.Identity()
