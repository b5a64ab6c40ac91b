"""The choice of the device."""

from __future__ import annotations

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
