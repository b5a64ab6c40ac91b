"""Embeds images by a network of transformers or of an .onnx file: each image once, and its unit vector cached."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from metaclust._util.devices import choose_device
from metaclust.data.preparation.embedded_once import BATCHES, EmbeddedOnce, of_length_one
from metaclust.data.preparation.embeddings import content_hash
from metaclust.data.preparation.model_folder import IMAGE_MODEL, checked_model, hub_model, local_model, model_files
from metaclust.data.preparation.pixels import ImageScaling, check_scaling, content_key, picture
from metaclust.data.preparation.vector_cache import VectorCache, cache_folder
from metaclust.data.preparation.vision_folder import VisionFolder
from metaclust.data.preparation.vision_onnx import VisionOnnx
from metaclust.data.readers.decoding import Fit
from metaclust.data.rows import DataError, Original


class VisionModel(Protocol):
    """A network that turns images into vectors."""

    about: str
    """How it is given images, and what is taken of what it returns."""

    def encode(self, images: list[Image.Image]) -> NDArray[np.float32]:
        """Return (images, columns) of images in colour, of any sizes."""


class ImageEmbedder:
    """Embeds images by a network for images; each image is embedded once, and its vector cached.

    Weights are read from safetensors or .onnx only, and code that comes with a model is never run. The network is
    loaded for the first image that is not in the cache. ``model`` is a folder that transformers can load, its name
    "org/name" on the Hugging Face hub, or an .onnx file. The folder says how images are resized and scaled; for an
    .onnx file ``fit`` and ``scaling`` do. The cache is as for :class:`SentenceEmbedder`.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        scaling: ImageScaling = "auto",
        fit: Fit = "stretch",
        device: str | torch.device = "auto",
        batch_size: int = 32,
        cache: str | os.PathLike[str] | None = "default",
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size!r}: it must be 1 or more")
        check_scaling(scaling)
        self.model = model
        self.scaling: ImageScaling = scaling
        self.fit: Fit = fit
        self.device = choose_device(device)
        self.batch_size = batch_size
        self.cache = cache_folder(cache)
        self._local = local_model(model, IMAGE_MODEL)
        self._loaded: VisionModel | None = None
        self._width = 0
        self._lock = threading.RLock()
        if scaling != "auto" and not self.is_onnx:
            raise ValueError(
                f"image_scaling={scaling!r} is for .onnx files: the image processor of {str(model)!r} says how pixels "
                "are scaled; omit it"
            )

    @property
    def is_onnx(self) -> bool:
        return self._local is not None and self._local.is_file()

    @cached_property
    def place(self) -> Path:
        """The folder or file of the model on this machine; one of the hub is downloaded, unless a file named it."""
        if self._local is not None:
            return self._local
        return checked_model(hub_model(cast(str, self.model), IMAGE_MODEL), IMAGE_MODEL)

    @cached_property
    def fingerprint(self) -> str:
        """A hash, in hex, of the settings and weights of the model."""
        digest = hashlib.sha256(b"metaclust image embeddings 1\n")
        if self.is_onnx:
            digest.update(content_hash(self.place))
        else:
            for path in model_files(self.place):
                digest.update(os.fsencode(path.relative_to(self.place).as_posix()) + b"\0" + content_hash(path))
        return digest.hexdigest()

    @property
    def width(self) -> int:
        """The number of features, from the cache where it is known there; otherwise the model is loaded."""
        if not self._width:
            self._width = self._vectors.read([])[0]
        return self._width or self._ready()

    @property
    def about(self) -> str:
        """How the model is given images; it is loaded."""
        self._ready()
        return cast(VisionModel, self._loaded).about

    def embed(self, images: Sequence[Original], progress: bool = True) -> NDArray[np.float32]:
        """Return float32 (rows, width): a vector of Euclidean length 1 for each image, in order.

        Images are files, or uint8 (1 or 3, height, width). What was computed before an interruption is kept.
        """
        if not len(images):
            return np.empty((0, self.width), np.float32)
        keys = [content_key(image) for image in images]
        distinct = dict(zip(keys, images, strict=True))
        once = EmbeddedOnce(
            self._vectors,
            lambda: self.place,
            self._ready,
            lambda block: self._encode([distinct[key] for key in block]),
            BATCHES * self.batch_size,
            "embedding images",
            f"the image model {str(self.model)!r} on device {self.device}",
        )
        return once(keys, "images", progress)

    @cached_property
    def _vectors(self) -> VectorCache:
        if self.cache is None:
            return VectorCache(None)
        how = f"{self.fingerprint}\n{self.scaling}\n{self.fit}\n" if self.is_onnx else f"{self.fingerprint}\n"
        return VectorCache(self.cache / f"{hashlib.sha256(how.encode()).hexdigest()}.sqlite")

    def _ready(self) -> int:
        with self._lock:
            if self._loaded is None:
                self._loaded = (
                    VisionOnnx(self.place, self.scaling, self.fit)
                    if self.is_onnx
                    else VisionFolder(self.place, self.device)
                )
                # Measured: settings call it by different names.
                grey = Image.new("RGB", (64, 64), (128, 128, 128))
                self._width = self._batch([grey]).shape[1]
        return self._width

    def _encode(self, images: list[Original]) -> NDArray[np.float32]:
        parts = []
        for start in range(0, len(images), self.batch_size):
            batch = images[start : start + self.batch_size]
            parts.append(self._batch([picture(image) for image in batch]))
        return np.concatenate(parts)

    def _batch(self, pictures: list[Image.Image]) -> NDArray[np.float32]:
        try:
            vectors = cast(VisionModel, self._loaded).encode(pictures)
        except (DataError, MemoryError):
            raise
        # Networks fail on images that they cannot take with nearly every kind of error.
        except Exception as error:
            raise DataError(
                f"the image model {str(self.model)!r} fails on device {self.device} ({type(error).__name__}: {error}): "
                "choose one that returns a vector for each image"
            ) from error
        if vectors.ndim != 2 or len(vectors) != len(pictures):
            raise DataError(
                f"the image model {str(self.model)!r} returns shape {vectors.shape} for {len(pictures)} images: choose "
                "one that returns a vector for each image"
            )
        return of_length_one(vectors)
