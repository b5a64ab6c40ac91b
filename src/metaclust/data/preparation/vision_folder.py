"""Networks for images that transformers loads from a folder: one vector for each image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from metaclust.data.preparation.model_folder import IMAGE_MODEL, missing_package, without_progress_bar
from metaclust.data.rows import DataError, listed, reason_of

POOLERS = ("pooler.", "vision_model.head.")
"""The parts of a network that only its pooled output needs, and that some folders have no weights for."""


class VisionFolder:
    """A network of transformers and the image processor of its folder.

    The vector of an image is what the network returns as its embedding, or else its pooled output, where the folder
    has weights for that, or else the mean of its last layer.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        self.device = device
        self.network, self.processor, without = load_vision_model(folder, device)
        self.pooled = not without
        size = getattr(self.processor, "crop_size", None) or getattr(self.processor, "size", None)
        self.about = f"as its image processor says ({shape_of(size)})" if size else "as its image processor says"
        if without:
            self.about += "; the mean of its last layer, since the folder has no weights for a pooled output"

    def encode(self, images: list[Image.Image]) -> NDArray[np.float32]:
        """Return (images, columns)."""
        # As arrays: some processors take a small image of Pillow for one with its channels first.
        arrays = [np.asarray(image) for image in images]
        given = self.processor(images=arrays, return_tensors="pt", input_data_format="channels_last")
        pixels = given["pixel_values"].to(self.device)
        with torch.inference_mode():
            vectors = self._vectors(pixels)
        found: NDArray[np.float32] = vectors.float().cpu().numpy()
        return found

    def _vectors(self, pixels: Tensor) -> Tensor:
        if hasattr(self.network, "get_image_features"):
            found = self.network.get_image_features(pixel_values=pixels)
            return flat(found if isinstance(found, Tensor) else found.pooler_output)
        found = self.network(pixel_values=pixels)
        pooled = getattr(found, "pooler_output", None)
        return flat(pooled if self.pooled and pooled is not None else found.last_hidden_state)


def flat(values: Tensor) -> Tensor:
    """Return (images, columns): the mean over (images, positions, columns) or (images, columns, height, width)."""
    if values.ndim == 4:
        return values.mean((2, 3))
    return values.mean(1) if values.ndim == 3 else values


def shape_of(size: Any) -> str:
    sides = dict(size)
    if "height" in sides and "width" in sides:
        return f"{sides['height']}x{sides['width']} pixels"
    return ", ".join(f"{name} {value}" for name, value in sides.items() if value is not None)


def load_vision_model(folder: Path, device: torch.device) -> tuple[Any, Any, list[str]]:
    """Return the network and the image processor of a folder, and the weights of its pooled output that it lacks.

    Code that comes with the folder is never run, and only weights in safetensors are read.
    """
    try:
        from transformers import AutoImageProcessor, AutoModel
    except ImportError as error:
        raise missing_package(error, IMAGE_MODEL) from error
    own: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    try:
        with without_progress_bar():
            # The processors on Pillow: those on torchvision round otherwise.
            processor = AutoImageProcessor.from_pretrained(str(folder), backend="pil", **own)
            network, loading = AutoModel.from_pretrained(
                str(folder), use_safetensors=True, output_loading_info=True, dtype=torch.float32, **own
            )
            network = network.to(device).eval()
    # A folder can be broken in many ways.
    except Exception as error:
        raise DataError(
            f"{folder} cannot be loaded as an image model by transformers on device {device} "
            f"({type(error).__name__}: {reason_of(error)}): check that the folder is complete (config.json, "
            "preprocessor_config.json, model.safetensors) and that the device is available"
        ) from error
    # Weights that are not there would be drawn at random, and otherwise each time.
    missing = sorted({*loading["missing_keys"], *(str(key[0]) for key in loading["mismatched_keys"])})
    without = [name for name in missing if name.startswith(POOLERS)]
    if others := [name for name in missing if name not in without]:
        raise DataError(f"{folder} has no weights for {listed(others)}: get a complete copy of the image model")
    return network, processor, without
