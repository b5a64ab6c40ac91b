"""One image: a file of any common format to bytes of one shape."""

from __future__ import annotations

import stat
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from metaclust.data.rows import DataError

Fit = Literal["stretch", "crop", "pad"]
"""How an image gets another shape: both sides scaled, the middle cut out, or white added around it."""
Channels = Literal[1, 3]
OnError = Literal["raise", "skip"]

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
MAX_PIXELS = 50_000_000
"""The most pixels of an image that is decoded; a small file can claim far more than memory holds."""
LARGEST_KEPT_SIDE = 105
"""Images of one common size keep it up to this many pixels a side (Omniglot's); larger ones are slow to train on."""
USUAL_SIDE = 64
"""The side that all other images are brought to, where no size is asked for."""
RESAMPLING = Image.Resampling.BILINEAR
"""Bilinear, which Pillow widens to all pixels that fall into the new one when it makes an image smaller."""
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
"""What sets an image upright, by the orientation that its EXIF data give."""
TURNED_BY_A_QUARTER = (5, 6, 7, 8)


class ImageFormat(NamedTuple):
    """The shape that images are brought to."""

    height: int
    width: int
    channels: Channels


def decode_image(
    source: Path | bytes,
    height: int,
    width: int,
    channels: Channels,
    fit: Fit = "stretch",
    max_pixels: int = MAX_PIXELS,
    name: str = "",
) -> NDArray[np.uint8]:
    """An image as bytes (channels, height, width): upright, over white, grey or colour; exact if it has that size.

    ``source`` is a file or its contents, in PNG, JPEG, WebP, GIF (the first frame) or BMP; ``name`` is what errors
    call it. Whatever cannot be read is a DataError. To use more than one thread, call decode_many.
    """
    form = ImageFormat(height, width, channels)
    check_form(form, fit, "raise", max_pixels)
    name = name or ("the image" if isinstance(source, bytes) else str(source))
    with without_remarks():
        return np.array(decode(source, form, fit, max_pixels, name), order="C")


def decode(source: Path | bytes, form: ImageFormat, fit: Fit, max_pixels: int, name: str) -> NDArray[np.uint8]:
    with _opened(source, max_pixels, name) as image:
        # A JPEG is decoded at 1/2, 1/4 or 1/8 where that leaves twice the pixels needed: several times faster.
        enough = 2 * max(form.height, form.width)
        image.draft(None, (enough, enough))
        flat = _flat(image, form.channels)
        turn = TURNS.get(_orientation(image))
        flat = flat if turn is None else flat.transpose(turn)
        pixels: NDArray[np.uint8] = np.asarray(_fitted(flat, (form.width, form.height), fit))
    return pixels[None] if form.channels == 1 else pixels.transpose(2, 0, 1)


@contextmanager
def _opened(source: Path | bytes, max_pixels: int, name: str) -> Iterator[Image.Image]:
    """An image of which only the header was read; whatever fails, then or later, is a DataError."""
    try:
        with _file(source, name) as file, Image.open(file, formats=FORMATS) as image:
            limit = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
            if image.width * image.height > limit:
                whose = "max_pixels" if limit == max_pixels else "PIL.Image.MAX_IMAGE_PIXELS"
                raise DataError(
                    f"{name}: it has {image.width:,} x {image.height:,} pixels, more than {whose}={limit:,}; make it "
                    f"smaller, or raise {whose} if you trust it"
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
        raise DataError(f"{name}: it is cut short or damaged ({error}); copy it again, or take it out") from error


def _file(source: Path | bytes, name: str) -> BytesIO | BufferedReader:
    file: BytesIO | BufferedReader
    if isinstance(source, bytes):
        size, file = len(source), BytesIO(source)
    else:
        try:
            status = source.stat()
            # A pipe would be waited for, for ever.
            if not stat.S_ISREG(status.st_mode):
                raise DataError(f"{name}: it is not a file; take it out")
            size, file = status.st_size, source.open("rb")
        except OSError as error:
            raise DataError(
                f"{name}: it cannot be opened ({error.strerror}); make it readable, or take it out"
            ) from error
    if size == 0:
        file.close()
        raise DataError(f"{name}: it is empty (0 bytes); copy it again, or take it out")
    return file


def _flat(image: Image.Image, channels: Channels) -> Image.Image:
    """The image in 8 bits, grey or colour, laid over white where it is transparent."""
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


def _fitted(image: Image.Image, size: tuple[int, int], fit: Fit) -> Image.Image:
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
def without_remarks() -> Iterator[None]:
    """Pillow's warnings are silent: what matters of them is checked here.

    Python's filters are shared by all threads: this is entered before the threads of the pool start.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_form(form: ImageFormat, fit: Fit, on_error: OnError, max_pixels: int) -> None:
    for argument, value in (("height", form.height), ("width", form.width), ("max_pixels", max_pixels)):
        if not is_count(value):
            raise ValueError(f"{argument}={value!r}: it must be a whole number, 1 or more")
    choices = (("channels", form.channels, Channels), ("fit", fit, Fit), ("on_error", on_error, OnError))
    for argument, choice, allowed in choices:
        if choice not in get_args(allowed):
            raise ValueError(f"{argument}={choice!r}: choose one of {', '.join(map(repr, get_args(allowed)))}")


def look_at_images(sources: Sequence[Path | bytes], sample: int = 64, max_pixels: int = MAX_PIXELS) -> ImageFormat:
    """The shape to bring images to, by an evenly spread sample; those that cannot be read are passed over.

    Their common size if they have one and no side is above LARGEST_KEPT_SIDE, else a square of USUAL_SIDE; one
    channel if all are grey, by their mode or by equal red, green and blue.
    """
    if sample < 1:
        raise ValueError(f"sample={sample!r}: it must be 1 or more")
    sizes: set[tuple[int, int]] = set()
    colour = False
    with without_remarks():
        for i in np.linspace(0, len(sources) - 1, min(sample, len(sources))).round().astype(int):
            with suppress(DataError), _opened(sources[i], max_pixels, "") as image:
                colour = colour or not _is_grey(image)
                sizes.add(image.size if _orientation(image) in TURNED_BY_A_QUARTER else image.size[::-1])
    height, width = next(iter(sizes)) if len(sizes) == 1 else (USUAL_SIDE, USUAL_SIDE)
    if max(height, width) > LARGEST_KEPT_SIDE:
        height = width = USUAL_SIDE
    return ImageFormat(height, width, 1 if sizes and not colour else 3)
