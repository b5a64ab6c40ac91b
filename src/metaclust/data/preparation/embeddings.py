"""Sentence embeddings: a unit vector for each text, by a sentence-transformers model, computed once and cached."""

from __future__ import annotations

import hashlib
import os
import reprlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util.checks import is_count
from metaclust._util.devices import choose_device
from metaclust.data.kinds import Kind
from metaclust.data.preparation.base import NOT_DESCRIBED, Options, are_strings, require, short_repr, values_of
from metaclust.data.preparation.embedded_once import BATCHES, EmbeddedOnce, of_length_one
from metaclust.data.preparation.model_folder import (
    NamedByFile,
    checked_model,
    hub_model,
    load_sentence_transformer,
    local_model,
    model_files,
)
from metaclust.data.preparation.tuned import TunedWeights
from metaclust.data.preparation.vector_cache import VectorCache, cache_folder
from metaclust.data.rows import DataError, Rows, listed

LARGE = 1 << 20
"""Bytes of a file that is hashed once, and again only if its size or times change."""


@dataclass(frozen=True)
class EmbeddingPreparation:
    """Sentence embeddings by a model that the text extra loads, cached on disk."""

    name: ClassVar[str] = "embeddings"
    kind: ClassVar[Kind] = "text"
    model: str
    fingerprint: str
    width: int
    columns: tuple[str, ...] = ()
    scaled: bool = True
    """Whether embeddings are multiplied by the square root of their width, as in version 0.1.0, whose files lack this
    field. New preparations leave them at length one, as arrays of the same embeddings are left."""
    tuned: str = ""
    """The digest of the weights that were trained further; empty where none were."""
    weights: TunedWeights | None = field(default=None, repr=False, compare=False, metadata=NOT_DESCRIBED)
    """These weights, which a model file holds beside those of the clustering model."""

    __repr__ = short_repr

    def __post_init__(self) -> None:
        require(isinstance(self.model, str) and self.model != "", "model", self.model)
        require(isinstance(self.fingerprint, str), "fingerprint", self.fingerprint)
        require(is_count(self.width), "width", self.width)
        require(are_strings(self.columns), "columns", self.columns)
        require(isinstance(self.scaled, bool), "scaled", self.scaled)
        require(isinstance(self.tuned, str), "tuned", self.tuned)

    @classmethod
    def from_rows(cls, rows: Rows, options: Options) -> tuple[EmbeddingPreparation, Rows]:
        """Return how to prepare rows like these, and the rows."""
        if options.embedding_model is None:
            raise ValueError(
                "text='embeddings' needs embedding_model: the folder of a sentence-transformers model, or its name"
            )
        embedder = SentenceEmbedder(options.embedding_model)
        model = str(options.embedding_model)
        return cls(model, embedder.fingerprint, embedder.width, rows.columns, scaled=False), rows

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.width,)

    def reading(self) -> dict[str, Any]:
        return {"usual_text": self.columns[0] if self.columns else None}

    def __call__(self, rows: Rows) -> Tensor:
        texts: list[str] = values_of(rows, self.kind)
        # In training it was downloaded, if need be; later it may be a stranger's file that names it.
        embedder = SentenceEmbedder(NamedByFile(self.model), weights=self.weights)
        self._check(self.model, embedder.fingerprint)
        embeddings = embedder.embed(texts)
        return torch.from_numpy(embeddings * np.float32(np.sqrt(self.width)) if self.scaled else embeddings)

    def with_model(self, model: str | os.PathLike[str]) -> EmbeddingPreparation:
        """Return the same preparation with another name or folder of its model, which is downloaded if need be."""
        self._check(model, SentenceEmbedder(model).fingerprint)
        return replace(self, model=str(model))

    def with_weights(self, weights: TunedWeights) -> EmbeddingPreparation:
        """Return the same preparation by a model of which some weights were trained further."""
        return replace(self, tuned=weights.digest, weights=weights)

    def restored(self, weights: TunedWeights | None) -> EmbeddingPreparation:
        """Return the preparation that a file describes, with the weights that the file holds."""
        if (weights.digest if weights is not None else "") != self.tuned:
            raise DataError("the weights of its embedding model are not those that it says: get another copy")
        return replace(self, weights=None if weights is None else weights.checked())

    def _check(self, model: str | os.PathLike[str], fingerprint: str) -> None:
        if fingerprint != self.fingerprint:
            raise DataError(
                f"the embedding model {str(model)!r} is not the one that was used in training: its content differs "
                f"({fingerprint[:12]}, not {self.fingerprint[:12]})"
            )


class SentenceEmbedder:
    """Embeds texts by a sentence-transformers model; each text is embedded once, and its vector cached.

    Weights are read from safetensors only, and code that comes with a model is never run. The model is loaded for the
    first text that is not in the cache. ``model`` is its folder, or its name on the Hugging Face hub: "org/name", or
    "name" for the models of sentence-transformers. ``weights`` take the place of some of its own. The "default" cache
    is embeddings/ in the folder that METACLUST_CACHE names, or else in the user's cache; None caches nothing.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        device: str | torch.device = "auto",
        batch_size: int = 64,
        cache: str | os.PathLike[str] | None = "default",
        weights: TunedWeights | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size!r}: it must be 1 or more")
        self.model = model
        self.device = choose_device(device)
        self.batch_size = batch_size
        self.cache = cache_folder(cache)
        self.weights = weights
        self._local = local_model(model)
        self._loaded: Any = None
        self._width = 0
        self._lock = threading.RLock()

    @cached_property
    def folder(self) -> Path:
        """The folder of the model on this machine; a model of the hub is downloaded, unless a file named it."""
        return checked_model(hub_model(cast(str, self.model))) if self._local is None else self._local

    @cached_property
    def fingerprint(self) -> str:
        """A hash, in hex, of the settings, weights and tokenizer in the model's folder."""
        digest = hashlib.sha256(b"metaclust embeddings 1\n")
        for path in model_files(self.folder):
            digest.update(os.fsencode(path.relative_to(self.folder).as_posix()) + b"\0" + content_hash(path))
        return digest.hexdigest()

    @property
    def width(self) -> int:
        """The number of features, from the cache where it is known there; otherwise the model is loaded."""
        if not self._width:
            self._width = self._vectors.read([])[0]
        if not self._width:
            self._load()
        return self._width

    def embed(self, texts: Sequence[str], progress: bool = True) -> NDArray[np.float32]:
        """Return float32 (rows, width): a vector of Euclidean length 1 for each text, in order.

        A text that is not a string, or is empty or white space, is a :class:`DataError`. What was computed before an
        interruption is kept. ``progress`` shows a progress bar for the texts that are not in the cache.
        """
        keys, distinct = hashed(texts)
        if not keys:
            return np.empty((0, self.width), np.float32)
        once = EmbeddedOnce(
            self._vectors,
            lambda: self.folder,
            self._ready,
            lambda block: self._encode([distinct[key] for key in block]),
            BATCHES * self.batch_size,
            "embedding texts",
            f"the embedding model {str(self.model)!r} on device {self.device}",
            # Texts of similar length share a batch, to pad little; the longest, which need most memory, come first.
            lambda missing: sorted(missing, key=lambda key: len(distinct[key]), reverse=True),
        )
        return once(keys, "texts", progress)

    @cached_property
    def _vectors(self) -> VectorCache:
        if self.cache is None:
            return VectorCache(None)
        # Equal models share a file.
        name = self.fingerprint
        if self.weights is not None:
            name = hashlib.sha256(f"{name}\n{self.weights.digest}\n".encode()).hexdigest()
        return VectorCache(self.cache / f"{name}.sqlite")

    def _ready(self) -> int:
        self._load()
        return self._width

    def _load(self) -> None:
        with self._lock:
            if self._loaded is None:
                model = load_sentence_transformer(self.folder, self.device)
                if self.weights is not None:
                    self.weights.load_into(model)
                # Measured: the method that returns it has changed its name between versions.
                self._width = unit_vectors(model, ["width"], 1).shape[1]
                self._loaded = model

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        # A tokenizer cannot serve two threads at once.
        with self._lock:
            return unit_vectors(self._loaded, texts, self.batch_size)


def content_hash(path: Path) -> bytes:
    """Return the hash of a file's content; of a large file that has not changed, the one that is known."""
    found = path.stat()
    if found.st_size < LARGE:
        return new_hash(path)
    return known_hash(path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def new_hash(path: Path, *_: int) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


known_hash = lru_cache(maxsize=32)(new_hash)


def unit_vectors(model: Any, texts: list[str], batch_size: int) -> NDArray[np.float32]:
    return of_length_one(
        np.asarray(model.encode(texts, batch_size=batch_size, show_progress_bar=False), dtype=np.float32)
    )


def hashed(texts: Sequence[str]) -> tuple[list[bytes], dict[bytes, str]]:
    """Return the key of each text, in order, and the distinct texts by their keys."""
    if isinstance(texts, str):
        raise DataError("texts is a single string: pass a list, [text]")
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
        raise DataError(f"texts has empty rows: {listed(empty)}, counting from 0. Leave them out")
    return keys, dict(zip(keys, texts, strict=True))
