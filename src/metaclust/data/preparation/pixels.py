"""Images as they came, opened for an image model: their content's hash, and their pixels in colour."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from metaclust.data.files import read_whole
from metaclust.data.readers.decoding import Decoding, decode_whole, fitted, without_pillow_warnings
from metaclust.data.rows import Original, Rows

ImageScaling = Literal["auto", "imagenet", "symmetric", "unit", "raw"]
"""How pixels of 0 to 255 are scaled for an image model: see :data:`SCALINGS`; "auto" is what the model says."""
SCALINGS: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]] = {
    "imagenet": (np.array([123.675, 116.28, 103.53], np.float32), np.array([58.395, 57.12, 57.375], np.float32)),
    "symmetric": (np.array([127.5], np.float32), np.array([127.5], np.float32)),
    "unit": (np.array([0], np.float32), np.array([255], np.float32)),
    "raw": (np.array([0], np.float32), np.array([1], np.float32)),
}
"""What is subtracted from pixels, and what they are then divided by: the mean and deviation of the photographs of
ImageNet, from -1 to 1, from 0 to 1, and as they are."""
MOST_SIDE = 1024
"""Longer sides are scaled down to this before a model's own resizing, which may be to fewer pixels still."""
MOST_RATIO = 8
"""Images that are longer than so many times their width are padded with white: models scale the shorter side."""


def check_scaling(scaling: str) -> None:
    """Raise ValueError unless it is one of the scalings."""
    if scaling not in get_args(ImageScaling):
        raise ValueError(f"image_scaling={scaling!r}: choose one of {', '.join(map(repr, get_args(ImageScaling)))}")


def originals(rows: Rows) -> list[Original]:
    """Return the images as they came; where that is not known, as they were read."""
    return list(np.asarray(rows.values)) if rows.originals is None else rows.originals


def content_key(image: Original) -> bytes:
    """Return a hash of what a file holds, or of the shape and the pixels of an array."""
    if isinstance(image, Path):
        return hashlib.sha256(b"file\0" + read_whole(image, name=str(image))).digest()
    return hashlib.sha256(repr(image.shape).encode() + b"\0" + np.ascontiguousarray(image).tobytes()).digest()


def picture(image: Original) -> Image.Image:
    """Return an image in colour, upright, over white, no longer than :data:`MOST_SIDE`."""
    if isinstance(image, Path):
        with without_pillow_warnings():
            whole = decode_whole(image, MOST_SIDE, str(image))
    else:
        whole = Image.fromarray(channels_last(image))
        whole.thumbnail((MOST_SIDE, MOST_SIDE))
    short, long = sorted(whole.size)
    if long <= MOST_RATIO * short:
        return whole
    side = -(-long // MOST_RATIO)
    return fitted(whole, (max(side, whole.width), max(side, whole.height)), "pad")


def channels_last(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return (height, width, 3) of an image of one or three channels first."""
    return np.ascontiguousarray(np.broadcast_to(np.moveaxis(image, 0, -1), (*image.shape[1:], 3)))


def resized(image: Image.Image, decoding: Decoding) -> NDArray[np.uint8]:
    """Return (channels, height, width) of an image in colour."""
    mode, size, fit = ("L" if decoding.channels == 1 else "RGB"), (decoding.width, decoding.height), decoding.fit
    pixels: NDArray[np.uint8] = np.asarray(fitted(image.convert(mode), size, fit))
    return pixels[None] if decoding.channels == 1 else pixels.transpose(2, 0, 1)
