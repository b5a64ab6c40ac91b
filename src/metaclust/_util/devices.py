"""The choice of the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from metaclust._util.distributed import current


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """Return the named device, or with "auto" the first available one of CUDA, MPS and the CPU.

    Within :func:`process_group`, CUDA means this process's own GPU, and MPS is not used.

    Parameters
    ----------
    device : str or torch.device
        "auto", "cpu", "cuda" or "mps".

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() and current().world == 1 else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device={device!r} is not a device: choose 'auto', 'cpu', 'cuda' or 'mps'") from error
    missing = (chosen.type == "cuda" and not torch.cuda.is_available()) or (
        chosen.type == "mps" and not torch.backends.mps.is_available()
    )
    if missing:
        raise ValueError(f"device={str(device)!r} is not available on this machine: choose 'auto' or 'cpu'")
    return chosen


@cache
def fast_bfloat16(kind: str) -> bool:
    """Return whether devices of a kind multiply matrices faster in bfloat16 than in single precision.

    A CPU does where it has instructions for that; others emulate them.
    """
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # torch has no public name for the question.
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return kind == "cpu" and any(bool(getattr(torch.cpu, name, bool)()) for name in names)


@contextmanager
def mixed_precision(device: torch.device, enabled: bool = True) -> Iterator[None]:
    """Multiply matrices in bfloat16 within the context, where that is faster; weights and sums stay as they are."""
    with torch.autocast(device.type, torch.bfloat16, enabled=enabled and fast_bfloat16(device.type)):
        yield
