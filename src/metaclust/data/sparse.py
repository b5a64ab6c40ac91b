"""Sparse rows that stay sparse until the encoder needs some of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor


class SparseRows:
    """Rows of a sparse array: indexed like a tensor, and made dense only by :func:`dense`.

    >>> rows = SparseRows(sparse.csr_array([[0, 2], [1, 0], [0, 0]]))
    >>> rows.shape, rows[1:].shape, dense(rows[torch.tensor([0, 0])]).tolist()
    ((3, 2), (2, 2), [[0.0, 2.0], [0.0, 2.0]])
    """

    def __init__(self, array: Any) -> None:
        self.array = sparse.csr_array(array, dtype=np.float32)

    def __len__(self) -> int:
        return int(self.array.shape[0])

    def __repr__(self) -> str:
        return f"SparseRows(shape={self.shape}, nonzero={self.array.nnz})"

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), int(self.array.shape[1])

    def __getitem__(self, rows: slice | Tensor | NDArray[np.int64]) -> SparseRows:
        return SparseRows(self.array[rows.cpu().numpy() if isinstance(rows, Tensor) else rows])

    def finite(self) -> Tensor:
        """Return which rows hold neither NaN nor infinity."""
        bad = sparse.csr_array((~np.isfinite(self.array.data), self.array.indices, self.array.indptr), self.array.shape)
        return torch.from_numpy(np.asarray(bad.sum(1)).reshape(-1) == 0)


def dense(rows: Tensor | SparseRows) -> Tensor:
    """Return the rows as a tensor."""
    return torch.from_numpy(rows.array.toarray()) if isinstance(rows, SparseRows) else rows


def of_unit_length(rows: Tensor | SparseRows | NDArray[np.float32]) -> bool:
    """Return whether all rows but zero ones have Euclidean length one, as most embeddings and TF-IDF have."""
    if isinstance(rows, SparseRows):
        length = np.sqrt(np.asarray(rows.array.multiply(rows.array).sum(1, dtype=np.float64)).reshape(-1))
    else:
        values = np.asarray(rows).reshape(len(rows), -1)
        length = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))
    length = length[length > 0]
    return len(length) > 1 and bool((np.abs(length - 1) < 0.01).all())
