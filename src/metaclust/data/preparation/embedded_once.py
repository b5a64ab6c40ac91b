"""Vectors that are computed once and kept in the cache, whatever they are computed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metaclust._util.progress import Waiting
from metaclust.data.preparation.vector_cache import VectorCache
from metaclust.data.rows import DataError

BATCHES = 4
"""Batches that are computed before they are written to the cache."""


@dataclass(frozen=True)
class EmbeddedOnce:
    """How rows that are not in the cache are embedded.

    Parameters
    ----------
    cache : VectorCache
        Where vectors are kept.
    fetch : callable
        Finds the model, or downloads it, which has a progress bar of its own.
    load : callable
        Makes the model ready, and returns the number of columns.
    encode : callable
        Returns the unit vectors of rows, by their keys.
    block : int
        How many are encoded before they are kept.
    order : callable
        Returns the keys of rows in the order in which they are encoded.
    words : str
        What is done, for the progress bar.
    source : str
        What the model is called in errors.
    """

    cache: VectorCache
    fetch: Callable[[], object]
    load: Callable[[], int]
    encode: Callable[[list[bytes]], NDArray[np.float32]]
    block: int
    words: str
    source: str
    order: Callable[[list[bytes]], list[bytes]] = list

    def __call__(self, keys: list[bytes], rows: str, progress: bool) -> NDArray[np.float32]:
        """Return (rows, columns); ``rows`` is what errors call them.

        What was computed before an interruption is kept.
        """
        distinct = list(dict.fromkeys(keys))
        width, found = self.cache.read(distinct)
        if len(found) < len(distinct):
            self.fetch()
            with Waiting(self.words, len(distinct) - len(found), enabled=progress) as bar:
                if width != self.load():
                    found = {}
                order = self.order([key for key in distinct if key not in found])
                for start in range(0, len(order), self.block):
                    block = order[start : start + self.block]
                    vectors = self.encode(block)
                    if not (finite := np.isfinite(vectors).all(axis=1)).all():
                        row = keys.index(block[int(finite.argmin())])
                        raise DataError(
                            f"{rows}[{row}]: {self.source} returns numbers that are not finite. Choose another model, "
                            f"or leave the row out"
                        )
                    self.cache.write(block, vectors)
                    found.update(zip(block, vectors, strict=True))
                    bar.advance(len(block))
        return np.stack([found[key] for key in keys])


def of_length_one(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors scaled to length 1; zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit
