"""Networks for images in an .onnx file, by onnxruntime: one vector for each image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from metaclust._util.checks import is_count
from metaclust.data.files import read_whole
from metaclust.data.preparation.model_folder import IMAGE_MODEL, missing_package
from metaclust.data.preparation.pixels import SCALINGS, ImageScaling, resized
from metaclust.data.readers.decoding import Decoding, Fit
from metaclust.data.rows import DataError, reason_of

USUAL_SIDE = 224
"""The side of images where the file leaves it open."""
MOST_SIDE = 4096
USUAL_SCALING = "imagenet"
POOLED = ("image_embeds", "pooler_output", "embedding", "embeddings", "features")
"""Outputs that are taken where there are several, in this order; otherwise the first."""
NUMBERS: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
}


@dataclass(frozen=True)
class OnnxInput:
    """What the input of a network says of the images that it takes."""

    name: str
    layout: Literal["NCHW", "NHWC"]
    decoding: Decoding
    batch: int | None
    """The number of images that it takes at once, if it is fixed."""
    dtype: type[np.generic]
    open_size: bool
    """Whether the file leaves the size open."""

    @classmethod
    def of(cls, source: str, name: str, shape: list[Any], kind: str, fit: Fit) -> OnnxInput:
        """Return the input of this name, shape and type; sides that are no numbers are open."""
        if kind not in NUMBERS:
            raise DataError(f"{source}: its input {name!r} is {kind}: export it with an input of float32 or uint8")
        sides = [side if is_count(side) else None for side in shape]
        first, last = (sides[1] in (1, 3), sides[3] in (1, 3)) if len(sides) == 4 else (False, False)
        if first == last:
            raise DataError(
                f"{source}: its input {name!r} has shape {shape}, which is neither (images, channels, height, width) "
                "nor (images, height, width, channels) with 1 or 3 channels: export it with a fixed number of channels"
            )
        channels, height, width = sides[1:] if first else (sides[3], sides[1], sides[2])
        if max(height or 1, width or 1) > MOST_SIDE:
            raise DataError(f"{source}: its input {name!r} has shape {shape}: more than {MOST_SIDE:,} pixels a side")
        decoding = Decoding(
            height or width or USUAL_SIDE, width or height or USUAL_SIDE, 1 if channels == 1 else 3, fit
        )
        layout: Literal["NCHW", "NHWC"] = "NCHW" if first else "NHWC"
        return cls(name, layout, decoding, sides[0], NUMBERS[kind], height is None or width is None)


class VisionOnnx:
    """A network in an .onnx file with one input of images.

    Layout, size and type of the input are those of the file; how pixels are scaled it does not say, so ``scaling``
    does: "auto" is "imagenet", and "raw" for bytes. An output of vectors is taken as it is, another one by its mean
    over all places.
    """

    def __init__(self, file: Path, scaling: ImageScaling, fit: Fit) -> None:
        self.file = file
        self.session = load_onnx(file)
        inputs = self.session.get_inputs()
        if len(inputs) != 1:
            raise DataError(f"{file} has {len(inputs)} inputs, not one of images: export the image part alone")
        self.input = OnnxInput.of(str(file), inputs[0].name, list(inputs[0].shape), inputs[0].type, fit)
        bytes_wanted = self.input.dtype is np.uint8
        self.scaling = ("raw" if bytes_wanted else USUAL_SCALING) if scaling == "auto" else scaling
        if bytes_wanted and self.scaling != "raw":
            raise DataError(f"image_scaling={scaling!r}: {file} takes bytes; give 'raw' or 'auto'")
        names = [output.name for output in self.session.get_outputs()]
        self.output = next((name for name in POOLED if name in names), names[0])
        decoding, sized = self.input.decoding, ", which the file leaves open" if self.input.open_size else ""
        self.about = (
            f"as {self.input.layout}, {decoding.height}x{decoding.width} pixels{sized} (fit={fit!r}), scaled as "
            f"{self.scaling!r}{' (not said by the file)' if scaling == 'auto' and not bytes_wanted else ''}; its "
            f"output {self.output!r}"
        )

    def encode(self, images: list[Image.Image]) -> NDArray[np.float32]:
        """Return (images, columns)."""
        pixels = np.stack([resized(image, self.input.decoding) for image in images])
        parts = []
        for start in range(0, len(pixels), self.input.batch or len(pixels)):
            parts.append(self._vectors(pixels[start : start + (self.input.batch or len(pixels))]))
        return np.concatenate(parts)

    def _vectors(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        count = len(pixels)
        if self.input.batch is not None and count < self.input.batch:
            pixels = np.concatenate([pixels, np.repeat(pixels[-1:], self.input.batch - count, 0)])
        shift, scale = (values[:, None, None] for values in SCALINGS[self.scaling])
        if pixels.shape[1] == 1:
            shift, scale = shift.mean(), scale.mean()
        scaled = pixels if self.input.dtype is np.uint8 else ((pixels - shift) / scale).astype(self.input.dtype)
        given = np.ascontiguousarray(scaled if self.input.layout == "NCHW" else np.moveaxis(scaled, 1, -1))
        try:
            found = np.asarray(self.session.run([self.output], {self.input.name: given})[0])
        # Of onnxruntime, whose errors have no common parent but this.
        except Exception as error:
            raise DataError(
                f"{self.file} fails on images of shape {given.shape} ({type(error).__name__}: {reason_of(error)}): "
                "check that it takes such images"
            ) from error
        return self._flat(found.astype(np.float32, copy=False), len(pixels))[:count]

    def _flat(self, found: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        if found.ndim not in (2, 3, 4) or len(found) != count or not found.size:
            raise DataError(
                f"{self.file}: its output {self.output!r} has shape {found.shape} for {count} images: export it with "
                "an output of one vector for each image"
            )
        places = {2: (), 3: (1,), 4: (2, 3) if self.input.layout == "NCHW" else (1, 2)}[found.ndim]
        vectors: NDArray[np.float32] = found.mean(places) if places else found
        return vectors


def load_onnx(file: Path) -> Any:
    """Return a session of onnxruntime, which is imported only here, on as many threads as torch has."""
    try:
        import onnxruntime
    except ImportError as error:
        raise missing_package(error, IMAGE_MODEL) from error
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4
    # From memory: weights in other files, which one could name that is not its own, are not read.
    content = read_whole(file, name=str(file))
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    # Of onnxruntime, whose errors have no common parent but this.
    except Exception as error:
        raise DataError(
            f"{file} cannot be loaded by onnxruntime ({type(error).__name__}: {reason_of(error)}): check that it is a "
            "complete .onnx file with its weights inside"
        ) from error
