"""Sentence embeddings: a vector for each text, by a model of sentence-transformers, computed once and kept on disk."""

from __future__ import annotations

import hashlib
import os
import reprlib
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metaclust._util.devices import choose_device
from metaclust._util.progress import Waiting
from metaclust.data.preparation.model_folder import (
    checked_model,
    hub_model,
    load_sentence_transformer,
    local_model,
    model_files,
)
from metaclust.data.preparation.vector_cache import VectorCache, cache_folder
from metaclust.data.rows import DataError, listed

BATCHES = 4
"""Batches that are computed before they are written down."""


class SentenceEmbedder:
    """``SentenceEmbedder("all-MiniLM-L6-v2").embed(texts)``: vectors that are computed once for each text, and kept.

    ``model`` is a model's folder, or a name on the Hugging Face hub, "org/name" or, of the sentence-transformers
    themselves, "name". Weights are read from safetensors alone, and code that comes with a model is never run.
    ``cache`` is the folder that keeps the vectors; "default" is embeddings/ in the folder that METACLUST_CACHE names,
    or else in the user's cache; None keeps nothing. The model is loaded for the first text that is not in the cache.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        device: str | torch.device = "auto",
        batch_size: int = 64,
        cache: str | os.PathLike[str] | None = "default",
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size!r}: it must be 1 or more")
        self.model = model
        self.device = choose_device(device)
        self.batch_size = batch_size
        self.cache = cache_folder(cache)
        self._local = local_model(model)
        self._loaded: Any = None
        self._width = 0
        self._lock = threading.RLock()

    @cached_property
    def folder(self) -> Path:
        """Where the model is on this machine; one that is named is downloaded."""
        return checked_model(hub_model(str(self.model))) if self._local is None else self._local

    @cached_property
    def fingerprint(self) -> str:
        """A hash, in hex, of the model's settings, weights and tokenizer: models that have the same share a cache."""
        digest = hashlib.sha256(b"metaclust embeddings 1\n")
        for path in model_files(self.folder):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
            digest.update(os.fsencode(path.relative_to(self.folder).as_posix()) + b"\0" + content)
        return digest.hexdigest()

    @property
    def width(self) -> int:
        """Numbers in a vector, from the cache where it knows; otherwise the model is loaded."""
        if not self._width:
            self._width = self._vectors.read([])[0]
        if not self._width:
            self._load()
        return self._width

    def embed(self, texts: Sequence[str], progress: bool = True) -> NDArray[np.float32]:
        """Vectors of Euclidean length 1, float32 (rows, width), one for each text and in the order of the texts.

        A text that is not a string, or is empty or white space, is a :class:`DataError`. What was computed before an
        interruption is kept. ``progress`` shows a bar over the texts that are not in the cache.
        """
        keys, distinct = hashed(texts)
        if not keys:
            return np.empty((0, self.width), np.float32)
        width, found = self._vectors.read(list(distinct))
        if len(found) < len(distinct):
            # Here already: the bar of a download would break into the one below.
            _ = self.folder
            with Waiting("embedding texts", len(distinct) - len(found), enabled=progress) as bar:
                self._load()
                if width != self._width:
                    found = {}
                missing = {key: text for key, text in distinct.items() if key not in found}
                # Texts of like length share a batch, with little padding; the longest first, which need most memory.
                order = sorted(missing, key=lambda key: len(missing[key]), reverse=True)
                for start in range(0, len(order), BATCHES * self.batch_size):
                    block = order[start : start + BATCHES * self.batch_size]
                    vectors = self._encode([missing[key] for key in block])
                    if not (finite := np.isfinite(vectors).all(axis=1)).all():
                        row = keys.index(block[int(finite.argmin())])
                        raise DataError(
                            f"texts[{row}]: model={str(self.model)!r} gives numbers that are not finite on device "
                            f"{self.device}. Choose another model or device, or leave the text out"
                        )
                    self._vectors.write(block, vectors)
                    found.update(zip(block, vectors, strict=True))
                    bar.advance(len(block))
        return np.stack([found[key] for key in keys])

    @cached_property
    def _vectors(self) -> VectorCache:
        return VectorCache(None if self.cache is None else self.cache / f"{self.fingerprint}.sqlite")

    def _load(self) -> None:
        with self._lock:
            if self._loaded is None:
                model = load_sentence_transformer(self.folder, self.device)
                # Asked of the model: the method that tells it has changed its name between versions.
                self._width = unit_vectors(model, ["width"], 1).shape[1]
                self._loaded = model

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        # A tokenizer cannot serve two threads at once.
        with self._lock:
            return unit_vectors(self._loaded, texts, self.batch_size)


def unit_vectors(model: Any, texts: list[str], batch_size: int) -> NDArray[np.float32]:
    vectors = np.asarray(model.encode(texts, batch_size=batch_size, show_progress_bar=False), dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit


def hashed(texts: Sequence[str]) -> tuple[list[bytes], dict[bytes, str]]:
    """The key of each text, in order, and the distinct texts by their keys."""
    if isinstance(texts, str):
        raise DataError("texts is a single string: give a list, [text]")
    keys = []
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"texts[{row}] is {reprlib.repr(text)}, not a string: leave it out, or turn it into text")
        try:
            keys.append(hashlib.sha256(text.encode()).digest())
        except UnicodeEncodeError as error:
            raise DataError(
                f"texts[{row}] is not valid Unicode ({error}): read its file in the encoding it was written in"
            ) from error
    if empty := [row for row, text in enumerate(texts) if not text.strip()]:
        raise DataError(f"texts has empty rows, which mean nothing: {listed(empty)}, counted from 0. Leave them out")
    return keys, dict(zip(keys, texts, strict=True))
