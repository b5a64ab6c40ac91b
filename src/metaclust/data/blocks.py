"""Blocks of rows: arrays of any type as tensors of float32 or float64."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaclust.data.rows import DataError


def as_block(values: Any, name: str) -> Tensor:
    """Return (n, columns) of float32 or float64; float16 becomes float32 and whole numbers float64."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} holds {array.dtype} values: give real numbers (array.astype(float))")
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"{name} has shape {array.shape}: give rows and columns (array.reshape(-1, 1) for one column)")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    if not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    with warnings.catch_warnings():
        # torch warns of read-only memory; nothing here writes to it.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)
