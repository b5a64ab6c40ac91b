"""Decoding of an image file of any common format to bytes of a given shape."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from metaclust._util.checks import is_count
from metaclust.data.files import read_whole
from metaclust.data.rows import DataError, reason_of

Fit = Literal["stretch", "crop", "pad"]
"""How an image is brought to another shape: both sides scaled, the middle cut out, or padded with white."""
Channels = Literal[1, 3]
OnError = Literal["raise", "skip"]

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
MAX_PIXELS = 50_000_000
"""The most pixels of an image that is decoded; a small file can claim far more than memory holds."""
LARGEST_KEPT_SIDE = 105
"""Images of one common size keep it up to this many pixels a side (Omniglot's); larger ones are slow to train on."""
USUAL_SIDE = 64
"""The side that all other images are resized to, where no size is given."""
RESAMPLING = Image.Resampling.BILINEAR
"""When it makes an image smaller, Pillow widens this to all pixels that fall into the new one."""
GREY_MODES = ("1", "L", "LA", "I", "I;16")
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The transposition that sets an image upright, by the orientation in its EXIF data."""
TURNED_BY_A_QUARTER = (5, 6, 7, 8)


class ImageFormat(NamedTuple):
    """The shape of decoded images."""

    height: int
    width: int
    channels: Channels


@dataclass(frozen=True)
class Decoding:
    """How image files are decoded.

    Parameters
    ----------
    height, width, channels : int
        The shape of the decoded images; channels are 1 (grey) or 3 (colour).
    fit : {"stretch", "crop", "pad"}
        How images of another size are brought to that shape.
    on_error : {"raise", "skip"}
        Whether an image that cannot be read is an error, or left out with a warning.
    max_pixels : int
        Images of more pixels are not decoded.
    """

    height: int
    width: int
    channels: Channels
    fit: Fit = "stretch"
    on_error: OnError = "raise"
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        for argument in ("height", "width", "max_pixels"):
            if not is_count(value := getattr(self, argument)):
                raise ValueError(f"{argument}={value!r}: it must be a whole number, 1 or more")
        for argument, allowed in (("channels", Channels), ("fit", Fit), ("on_error", OnError)):
            if (choice := getattr(self, argument)) not in get_args(allowed):
                raise ValueError(f"{argument}={choice!r}: choose one of {', '.join(map(repr, get_args(allowed)))}")


def decode_image(
    source: Path | bytes,
    height: int,
    width: int,
    channels: Channels,
    fit: Fit = "stretch",
    max_pixels: int = MAX_PIXELS,
    name: str = "",
) -> NDArray[np.uint8]:
    """Return an image as bytes (channels, height, width): upright, over white; unchanged if it has that size.

    ``source`` is a file or its contents, in PNG, JPEG, WebP, GIF (the first frame) or BMP; ``name`` is what errors
    call it. Whatever cannot be read is a DataError. To use more than one thread, call decode_many.
    """
    decoding = Decoding(height, width, channels, fit, max_pixels=max_pixels)
    name = name or ("the image" if isinstance(source, bytes) else str(source))
    with without_pillow_warnings():
        return np.array(decode(source, decoding, name), order="C")


def decode(source: Path | bytes, decoding: Decoding, name: str) -> NDArray[np.uint8]:
    with _opened(source, decoding.max_pixels, name) as image:
        # A JPEG is decoded at 1/2, 1/4 or 1/8 where that leaves twice the pixels needed: several times faster.
        enough = 2 * max(decoding.height, decoding.width)
        image.draft(None, (enough, enough))
        flat = _upright(image, decoding.channels)
        pixels: NDArray[np.uint8] = np.asarray(fitted(flat, (decoding.width, decoding.height), decoding.fit))
    return pixels[None] if decoding.channels == 1 else pixels.transpose(2, 0, 1)


def decode_whole(source: Path | bytes, most_side: int, name: str, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Return an image in colour, upright, over white; in its own shape, at most so many pixels long."""
    with _opened(source, max_pixels, name) as image:
        image.draft(None, (most_side, most_side))
        flat = _upright(image, 3)
        flat.thumbnail((most_side, most_side), RESAMPLING)
        return flat


@contextmanager
def _opened(source: Path | bytes, max_pixels: int, name: str) -> Iterator[Image.Image]:
    """Yield an image of which only the header was read; whatever fails, then or later, is a DataError."""
    try:
        with _file(source, name) as file, Image.open(file, formats=FORMATS) as image:
            limit = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
            if image.width * image.height > limit:
                raise DataError(
                    f"{name}: it has {image.width:,} x {image.height:,} pixels, more than the limit of {limit:,}; make "
                    "it smaller, or take it out"
                )
            yield image
    except (DataError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"{name}: it is not a PNG, JPEG, WebP, GIF or BMP image; convert it, or take it out") from error
    except Image.DecompressionBombError as error:
        raise DataError(f"{name}: it is too large ({error}); make it smaller, or take it out") from error
    except Exception as error:
        # Decoders fail on damaged files with nearly every kind of error.
        raise DataError(
            f"{name}: it is cut short or damaged ({reason_of(error)}); copy it again, or take it out"
        ) from error


def _file(source: Path | bytes, name: str) -> BytesIO:
    # In memory: a decoder that asks for as many bytes as a damaged file claims to have gets those that are there.
    content = source if isinstance(source, bytes) else read_whole(source, name=name)
    if not content:
        raise DataError(f"{name}: it is empty (0 bytes); copy it again, or take it out")
    return BytesIO(content)


def _upright(image: Image.Image, channels: Channels) -> Image.Image:
    turn = TURNS.get(_orientation(image))
    flat = _flat(image, channels)
    return flat if turn is None else flat.transpose(turn)


def _flat(image: Image.Image, channels: Channels) -> Image.Image:
    """Return the image in 8 bits, grey or colour, over white where it is transparent."""
    mode = "L" if channels == 1 else "RGB"
    if image.mode.startswith("I"):
        deep = np.asarray(image)
        shallow = ((deep.astype(np.uint32) + 128) // 257).astype(np.uint8)
        shallow[deep == image.info.get("transparency", -1)] = 255
        image = Image.fromarray(shallow)
    if image.has_transparency_data:
        image = image if image.mode in ("LA", "RGBA") else image.convert("RGBA")
        white = Image.new(mode, image.size, "white")
        white.paste(image.convert(mode), mask=image.getchannel("A"))
        return white
    return image if image.mode == mode else image.convert(mode)


def _is_grey(image: Image.Image) -> bool:
    if image.mode in GREY_MODES:
        return True
    red, green, blue = np.moveaxis(np.asarray(_flat(image, 3)), -1, 0)
    return bool((red == green).all() and (red == blue).all())


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:
        # Damaged EXIF data do not make the picture unusable.
        return 1


def fitted(image: Image.Image, size: tuple[int, int], fit: Fit) -> Image.Image:
    """Return an image of this width and height."""
    if image.size == size:
        return image
    if fit == "stretch":
        return image.resize(size, RESAMPLING)
    if fit == "crop":
        return ImageOps.fit(image, size, RESAMPLING)
    # Not ImageOps.pad: it loses an image so thin that its short side would be less than half a pixel.
    scale = min(size[0] / image.width, size[1] / image.height)
    inner = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    padded = Image.new(image.mode, size, "white")
    padded.paste(image.resize(inner, RESAMPLING), ((size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2))
    return padded


@contextmanager
def without_pillow_warnings() -> Iterator[None]:
    """Silence Pillow's warnings: what matters of them is checked here.

    Python's filters are shared by all threads, so enter this before the threads of a pool start.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def common_format(sources: Sequence[Path | bytes], sample: int = 64, max_pixels: int = MAX_PIXELS) -> ImageFormat:
    """Return the shape to decode images to, by an evenly spaced sample of those that can be read.

    It is their common size if they have one and no side is above LARGEST_KEPT_SIDE, else a square of USUAL_SIDE; one
    channel if all are grey, by their mode or by equal red, green and blue.
    """
    if sample < 1:
        raise ValueError(f"sample={sample!r}: it must be 1 or more")
    sizes: set[tuple[int, int]] = set()
    colour = False
    with without_pillow_warnings():
        for i in np.linspace(0, len(sources) - 1, min(sample, len(sources))).round().astype(int):
            with suppress(DataError), _opened(sources[i], max_pixels, "") as image:
                colour = colour or not _is_grey(image)
                sizes.add(image.size if _orientation(image) in TURNED_BY_A_QUARTER else image.size[::-1])
    height, width = next(iter(sizes)) if len(sizes) == 1 else (USUAL_SIDE, USUAL_SIDE)
    if max(height, width) > LARGEST_KEPT_SIDE:
        height = width = USUAL_SIDE
    return ImageFormat(height, width, 1 if sizes and not colour else 3)
