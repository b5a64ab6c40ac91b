"""Layers that depend on all rows of a step: divided over processes, they compute what one process would."""

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
"""Number of values drawn at a time."""


class SharedDropout(nn.Dropout):
    """Dropout with a mask drawn for all rows of a divided step, of which each process takes its own part.

    On the CPU it is faster than torch's dropout, which draws numbers one by one.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        part = own_part(x)
        if x.device.type != "cpu" and part is None:
            return super().forward(x)
        if x.device.type == "cpu" and not x.requires_grad:
            y = x.clone(memory_format=torch.contiguous_format)
            drop_(y, self.p, part)
            return y
        kept = torch.ones(x.shape)
        drop_(kept, self.p, part)
        return x * kept.to(x)


class ReLUDropout(nn.Dropout):
    """ReLU and dropout in place: the backward pass needs one array instead of three.

    Where the output is zero, so is the gradient, whether ReLU or dropout made it zero.
    """

    def forward(self, x: Tensor) -> Tensor:
        share = self.p if self.training else 0.0
        part = own_part(x) if share else None
        if x.device.type == "cpu":
            y: Tensor = ReLUDropoutFunction.apply(x, share, part)
            return y
        y = functional.relu(x)
        if part is None:
            return functional.dropout(y, share)
        dropped: Tensor = SharedDropout(share)(y)
        return dropped


class ReLUDropoutFunction(torch.autograd.Function):
    """ReLU and dropout in place, on the CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float, part: Part | None) -> Tensor:
        x.relu_()
        if share:
            drop_(x, share, part)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        ctx.scale = 1 / (1 - rounded_share(share))
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        grad_x = torch.ops.aten.threshold_backward(gradient, ctx.saved_tensors[0], 0)
        return grad_x if ctx.scale == 1 else grad_x.mul_(ctx.scale), None, None


def own_part(x: Tensor) -> Part | None:
    """Return which rows of a divided step these are; None if the step is not divided."""
    step = division()
    return None if step is None else step.part_of(len(x))


def rounded_share(share: float) -> float:
    """Round a probability to one that 16 random bits can decide."""
    return round(share * DROPOUT_PARTS) / DROPOUT_PARTS


def drop_(x: Tensor, share: float, part: Part | None = None) -> None:
    """Apply dropout in place, with a generator seeded from torch's.

    Random bits are drawn in blocks that stay in the CPU cache.
    """
    flat = x.detach().view(-1).numpy()
    bits = np.random.SFC64(int(torch.randint(1 << 62, ())))
    least = np.int16(round(share * DROPOUT_PARTS) - DROPOUT_PARTS // 2)
    row_size = x[0].numel() if len(x) else 0
    first, total = (0, len(x)) if part is None else (part.first, part.total)
    first, total = first * row_size, total * row_size
    for start in range(0, total, DROPOUT_BLOCK):
        size = min(DROPOUT_BLOCK, total - start)
        kept = (bits.random_raw(-(-size // 4)).view(np.int16)[:size] >= least).view(np.int8)
        own = slice(max(start, first), min(start + size, first + len(flat)))
        if own.start < own.stop:
            values = flat[own.start - first : own.stop - first]
            np.multiply(values, kept[own.start - start : own.stop - start], out=values)
    x.detach().mul_(1 / (1 - rounded_share(share)))


class SharedBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation by the mean and variance over the rows of all processes of a divided step.

    torch's SyncBatchNorm supports only GPUs.
    """

    def forward(self, x: Float[Tensor, "rows c h w"]) -> Float[Tensor, "rows c h w"]:
        step = division()
        if step is None or not self.training:
            return super().forward(x)
        y, mean, variance, count = SharedBatchNormFunction.apply(x, self.weight, self.bias, self.eps, step.among)
        self.update_running(mean, variance, count)
        return y  # type: ignore[no-any-return]

    @torch.no_grad()
    def update_running(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Update the running statistics as torch does."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = variance * (count / (count - 1).clamp_min(1))
        self.running_mean.lerp_(mean.to(self.running_mean), share)
        self.running_var.lerp_(unbiased.to(self.running_var), share)


class SharedBatchNormFunction(torch.autograd.Function):
    """Normalises by statistics over the rows of all processes: one message forward, one backward.

    Gradients of weight and bias are those of the own rows, to be summed over the processes.
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
        # Around the common mean, to avoid the difference of large squares.
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
        # With mean and variance held constant; then the terms from their own gradients.
        grad_x, grad_weight, grad_bias = torch.ops.aten.native_batch_norm_backward(
            gradient, x, weight, around, spread, None, None, False, ctx.eps, [True, True, True]
        )
        means = ctx.among.sum(torch.stack((grad_bias, grad_weight)).double()) / total
        grad_mean, grad_spread = (value.to(gradient.dtype) for value in means)
        scale = (spread + ctx.eps).rsqrt()
        slope = weight * scale * scale * grad_spread
        shift = per_channel(slope * around - weight * scale * grad_mean)
        grad_x = torch.addcmul(grad_x + shift, x, per_channel(slope), value=-1)
        return grad_x, grad_weight, grad_bias, None, None


def moments(x: Float[Tensor, "rows c h w"]) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
    """Return the mean and variance of each channel; batch normalisation's own code is faster than var_mean."""
    if x.device.type in ("cpu", "cuda"):
        mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
        return mean, variance
    variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    return mean, variance


def per_channel(values: Float[Tensor, " c"]) -> Float[Tensor, "c 1 1"]:
    """Reshape one value per channel to broadcast over images."""
    return values[:, None, None]


def check_norms(model: nn.Module, among: Processes) -> None:
    """Raise ValueError for a layer that would normalise over the rows of only one of several processes."""
    for name, layer in model.named_modules() if among.world > 1 else ():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and not isinstance(layer, SharedBatchNorm2d):
            raise ValueError(
                f"{name} normalises over the rows of one of {among.world} processes: use SharedBatchNorm2d or a layer "
                "that normalises each row (LayerNorm, GroupNorm), or start one process"
            )


def feed_forward(inputs: int, outputs: int, hidden: int = 256, dropout: float = 0.1) -> nn.Sequential:
    """Return the paper's three-layer network with ReLU and dropout."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        ReLUDropout(dropout),
        nn.Identity(),  # Keeps the numbers that layers have in model files.
        nn.Linear(hidden, hidden),
        ReLUDropout(dropout),
        nn.Identity(),
        nn.Linear(hidden, outputs),
    )


def new_dropout(share: float) -> nn.Module:
    """Return a dropout layer; the identity if ``share`` is zero."""
    return SharedDropout(share) if share else nn.Identity()
