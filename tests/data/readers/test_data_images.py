"""Images from files: every format and mode against numpy, broken files, and folders of categories."""

import os
import struct
import sys
import threading
import time
import warnings
import zlib
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageFile, JpegImagePlugin

from metaclust.data.readers import decoding, images
from metaclust.data.readers.decoding import Decoding, ImageFormat, common_format, decode_image
from metaclust.data.readers.images import decode_many, read_image_folder
from metaclust.data.rows import DataError, DataWarning

Pixels = NDArray[Any]


def noise(*shape: int, seed: int = 0, dtype: Any = np.uint8) -> Pixels:
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def saved(image: Image.Image | Pixels, kind: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(file, kind, **options)
    return file.getvalue()


def put(path: Path, content: bytes | Pixels, kind: str = "PNG") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else saved(content, kind))
    return path


def png_header(width: int, height: int) -> bytes:
    """The start of a colour PNG, which says its size and holds next to no pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


def bmp_header(width: int, height: int) -> bytes:
    return b"BM" + struct.pack("<IIIIiiHHIIiiII", 154, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0) + b"\0" * 100


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def luma(colour: Pixels) -> Pixels:
    return colour.astype(float) @ [0.299, 0.587, 0.114]


def over_white(colour: Pixels, alpha: Pixels) -> Pixels:
    share = alpha.astype(float) / 255
    share = share[..., None] if colour.ndim == 3 else share
    return colour * share + 255 * (1 - share)


def assert_near(found: Pixels, expected: Pixels, within: float) -> None:
    """``expected`` has its channels last, or none."""
    expected = expected[None] if expected.ndim == 2 else np.moveaxis(expected, -1, 0)
    assert found.shape == expected.shape
    assert found.dtype == np.uint8
    assert np.abs(found - expected.astype(float)).max() <= within


@pytest.mark.parametrize(
    ("kind", "options"), [("PNG", {}), ("BMP", {}), ("WEBP", {"lossless": True}), ("PNG", {"compress_level": 0})]
)
@pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
def test_an_image_that_has_the_size_keeps_every_pixel(kind, options, fit):
    colour = noise(13, 17, 3)
    found = decode_image(saved(colour, kind, **options), 13, 17, 3, fit)
    assert (found == np.moveaxis(colour, -1, 0)).all()
    assert found.flags.writeable
    assert found.flags.c_contiguous
    grey = noise(13, 17)
    assert (decode_image(saved(grey, kind, **options), 13, 17, 1, fit) == grey).all()
    assert (decode_image(saved(grey, kind, **options), 13, 17, 3, fit) == grey).all()
    assert_near(decode_image(saved(colour, kind, **options), 13, 17, 1, fit), luma(colour), 1)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF"])
def test_one_bit_is_black_and_white(kind):
    bits = noise(9, 11) > 127
    assert (decode_image(saved(bits, kind), 9, 11, 1) == bits * 255).all()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF"])
def test_a_palette_stands_for_its_colours(kind):
    palette, index = noise(256, 3, seed=1), noise(9, 11)
    index.flat[0] = 255
    image = Image.fromarray(index).convert("L")
    image.putpalette(palette.tobytes())
    assert_near(decode_image(saved(image, kind), 9, 11, 3), palette[index], 0)
    assert_near(decode_image(saved(image, kind), 9, 11, 1), luma(palette[index]), 1)


def test_sixteen_bits_are_scaled_to_eight():
    deep = noise(20, 20, dtype=np.uint16)
    deep.flat[:5] = 0, 128, 129, 65406, 65535
    found = decode_image(saved(deep), 20, 20, 1)
    assert (found[0] == np.rint(deep / 257)).all()
    assert found.flat[:5].tolist() == [0, 0, 1, 254, 255]
    assert (decode_image(saved(deep), 20, 20, 3) == found).all()


def test_one_grey_of_sixteen_bits_can_be_transparent():
    deep = np.full((4, 4), 5000, np.uint16)
    deep[0] = 5001
    content = saved(Image.fromarray(deep), transparency=5001)
    assert (decode_image(content, 4, 4, 1)[0, 0] == 255).all()
    assert (decode_image(content, 4, 4, 1)[0, 1:] == round(5000 / 257)).all()


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("WEBP", {"lossless": True, "exact": True})])
def test_alpha_is_laid_over_white(kind, options):
    colour, alpha = noise(16, 16, 3), noise(16, 16, seed=1)
    alpha[0], alpha[1] = 0, 255
    content = saved(np.dstack([colour, alpha]), kind, **options)
    found = decode_image(content, 16, 16, 3)
    assert_near(found, over_white(colour, alpha), 1)
    assert (found[:, 0] == 255).all()
    assert (found[:, 1] == np.moveaxis(colour, -1, 0)[:, 1]).all()
    assert_near(decode_image(content, 16, 16, 1), over_white(luma(colour), alpha), 1.5)


def test_grey_with_alpha_is_laid_over_white():
    grey, alpha = noise(16, 16), noise(16, 16, seed=1)
    image = Image.fromarray(grey)
    image.putalpha(Image.fromarray(alpha))
    assert image.mode == "LA"
    expected = over_white(grey, alpha)
    assert_near(decode_image(saved(image), 16, 16, 1), expected, 1)
    assert_near(decode_image(saved(image), 16, 16, 3), np.dstack([expected] * 3), 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_palette_with_alphas_is_laid_over_white(channels):
    palette, alphas, index = noise(256, 3, seed=1), noise(256, seed=2), noise(9, 11)
    image = Image.fromarray(index)
    image.putpalette(palette.tobytes())
    expected = over_white(luma(palette[index]) if channels == 1 else palette[index], alphas[index])
    assert_near(decode_image(saved(image, transparency=alphas.tobytes()), 9, 11, channels), expected, 1.5)


def test_the_transparent_colour_of_a_gif_is_white():
    index = np.arange(9, dtype=np.uint8).reshape(3, 3)
    palette = noise(256, 3, seed=1)
    image = Image.fromarray(index)
    image.putpalette(palette.tobytes())
    expected = palette[index]
    expected[1, 1] = 255
    assert_near(decode_image(saved(image, "GIF", transparency=4), 3, 3, 3), expected, 0)


@pytest.mark.parametrize("mode", ["L", "RGB", "1"])
def test_one_transparent_colour_of_a_png_is_white(mode):
    image = Image.fromarray(np.array([[0, 255, 0]], np.uint8)).convert(mode)
    content = saved(image, transparency=(0, 0, 0) if mode == "RGB" else 0)
    assert (decode_image(content, 1, 3, 3) == 255).all()


def test_of_an_animation_the_first_frame_is_taken():
    first, second = noise(8, 8), noise(8, 8, seed=1)
    for kind, options in (("GIF", {}), ("PNG", {}), ("WEBP", {"lossless": True})):
        content = saved(
            Image.fromarray(first), kind, save_all=True, append_images=[Image.fromarray(second)], duration=50, **options
        )
        with Image.open(BytesIO(content)) as image:
            assert image.n_frames == 2
        assert (decode_image(content, 8, 8, 1) == first).all()


def test_inks_become_colours():
    inks = np.array([200, 30, 90, 60], np.uint8)
    content = saved(Image.fromarray(np.tile(inks, (16, 16, 1)), "CMYK"), "JPEG", quality=100)
    with Image.open(BytesIO(content)) as image:
        assert image.mode == "CMYK"
    colour = (255 - inks[:3].astype(float)) * (255 - inks[3]) / 255
    assert_near(decode_image(content, 16, 16, 3), np.tile(colour, (16, 16, 1)), 3)
    assert_near(decode_image(content, 16, 16, 1), np.tile(luma(colour), (16, 16)), 3)


def test_luminance_and_chroma_become_colours():
    y, cb, cr = 120, 100, 150
    content = saved(Image.new("YCbCr", (16, 16), (y, cb, cr)), "JPEG", quality=100)
    red, blue = y + 1.402 * (cr - 128), y + 1.772 * (cb - 128)
    green = y - 0.344136 * (cb - 128) - 0.714136 * (cr - 128)
    assert_near(decode_image(content, 16, 16, 3), np.tile([red, green, blue], (16, 16, 1)), 2)


UPRIGHT = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.T,
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: stored[::-1, ::-1].T,
    8: lambda stored: np.rot90(stored),
    9: lambda stored: stored,
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("WEBP", {"lossless": True}), ("JPEG", {"quality": 100})])
def test_the_orientation_in_the_exif_data_is_applied(orientation, kind, options):
    stored = noise(2, 3).repeat(8, 0).repeat(8, 1)
    content = saved(stored, kind, exif=turned(orientation), **options)
    expected = UPRIGHT[orientation](stored)
    assert_near(decode_image(content, *expected.shape, 1), expected, 3 if kind == "JPEG" else 0)
    assert common_format([content]) == (*expected.shape, 1)


def test_damaged_exif_data_do_not_cost_the_image():
    stored = noise(8, 8)
    content = saved(stored, exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + bytes(noise(60)))
    assert (decode_image(content, 8, 8, 1) == stored).all()
    content = saved(stored, exif=b"Exif\0\0nonsense")
    assert (decode_image(content, 8, 8, 1) == stored).all()


def test_the_photograph_of_a_phone_with_a_second_picture_in_it_is_read():
    first = Image.new("RGB", (16, 16), (200, 100, 50))
    content = saved(first, "MPO", save_all=True, append_images=[Image.new("RGB", (16, 16))])
    assert_near(decode_image(content, 16, 16, 3), np.asarray(first), 3)


def test_a_large_photograph_is_decoded_at_a_fraction_of_its_size(monkeypatch):
    wave = np.sin(np.arange(1600) / 150)
    colour = (127 + 100 * wave[:1200, None, None] * np.dstack([wave[None], -wave[None], wave[None] ** 2])).astype("u1")
    content = saved(colour, "JPEG", quality=95)
    loaded = []
    load = JpegImagePlugin.JpegImageFile.load

    def spy(image: Any) -> Any:
        loaded.append(image.size)
        return load(image)

    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "load", spy)
    found = decode_image(content, 60, 80, 3)
    assert loaded[0] == (400, 300)
    # The mean of each block of 20 x 20 pixels.
    assert_near(found, colour.reshape(60, 20, 80, 20, 3).mean((1, 3)), 4)
    loaded.clear()
    decode_image(content, 601, 801, 3)
    assert loaded[0] == (1600, 1200)


def test_shrinking_takes_the_mean_of_the_pixels_and_not_one_of_them():
    board = (np.indices((80, 80)).sum(0) % 2 * 255).astype(np.uint8)
    found = decode_image(saved(board), 8, 8, 1)
    assert np.abs(found.astype(int) - 127.5).max() < 3


def test_crop_takes_the_middle_and_pad_adds_white():
    wide = noise(4, 8, 3)
    assert_near(decode_image(saved(wide), 4, 4, 3, "crop"), wide[:, 2:6], 0)
    framed = np.full((8, 8, 3), 255)
    framed[2:6] = wide
    assert_near(decode_image(saved(wide), 8, 8, 3, "pad"), framed, 0)
    tall = noise(8, 4)
    assert_near(decode_image(saved(tall), 4, 4, 1, "crop"), tall[2:6], 0)
    framed = np.full((8, 8), 255)
    framed[:, 2:6] = tall
    assert_near(decode_image(saved(tall), 8, 8, 1, "pad"), framed, 0)


def test_a_line_is_not_lost_when_it_is_padded():
    line = np.zeros((1, 500), np.uint8)
    for pixels in (line, line.T):
        found = decode_image(saved(pixels), 9, 9, 1, "pad")
        assert (found == 0).sum() == 9
        assert (found == 255).sum() == 72


sides = st.integers(1, 40) | st.integers(1, 400)


@given(sides, sides, sides, sides, st.sampled_from([1, 3]), st.sampled_from(["stretch", "crop", "pad"]))
def test_any_size_is_brought_to_any_other(height, width, new_height, new_width, channels, fit):
    found = decode_image(saved(np.full((height, width, 3), 90, np.uint8)), new_height, new_width, channels, fit)
    assert found.shape == (channels, new_height, new_width)
    if fit != "pad":
        assert (found == 90).all()
        return
    # The picture is a filled rectangle of its own proportions, in the middle; the rest is white.
    inside = found[0] == 90
    assert set(np.unique(found)) <= {90, 255}
    scale = min(new_height / height, new_width / width)
    for axis, (side, new) in enumerate([(height, new_height), (width, new_width)]):
        places = inside.any(1 - axis).nonzero()[0]
        assert len(places) == places[-1] - places[0] + 1
        assert abs(len(places) - max(1, side * scale)) <= 0.5
        assert abs(places[0] - (new - 1 - places[-1])) <= 1
    assert inside.sum() == inside.any(0).sum() * inside.any(1).sum()


BROKEN = {
    "empty": (b"", "empty"),
    "text": (b"this is not an image", "not a PNG"),
    "short.png": (saved(noise(50, 50, 3))[:2000], "cut short"),
    "short.jpg": (saved(noise(50, 50, 3), "JPEG")[:1500], "cut short"),
    "short.webp": (saved(noise(50, 50, 3), "WEBP")[:1500], "cut short"),
    "short.gif": (saved(noise(50, 50), "GIF")[:1500], "cut short"),
    "short.bmp": (saved(noise(50, 50, 3), "BMP")[:1500], "cut short"),
    "header.png": (saved(noise(50, 50, 3))[:20], "cut short|not a PNG"),
    "tiff": (saved(noise(8, 8, 3), "TIFF"), "not a PNG"),
    "bomb.png": (png_header(60_000, 60_000), "too large"),
    "bomb.bmp": (bmp_header(60_000, 60_000), "too large"),
    "big.png": (png_header(10_000, 10_000), r"10,000 x 10,000 pixels, more than the limit of 50,000,000"),
    "big.bmp": (bmp_header(8_000, 8_000), r"8,000 x 8,000 pixels, more than the limit of 50,000,000"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("as_file", [True, False])
def test_a_broken_image_is_named_with_the_cause(tmp_path, name, as_file):
    content, cause = BROKEN[name]
    source = put(tmp_path / f"odd {name}.png", content) if as_file else content
    with pytest.raises(DataError, match=cause) as caught:
        decode_image(source, 8, 8, 3)
    assert str(caught.value).startswith(str(source) if as_file else "the image")
    with pytest.raises(DataError, match=r"^row 7: "):
        decode_image(source, 8, 8, 3, name="row 7")


SOUND = [
    *(saved(noise(20, 20, 3), kind, exif=turned(6)) for kind in ("PNG", "JPEG", "WEBP")),
    *(saved(noise(20, 20, 3), kind) for kind in ("GIF", "BMP")),
]


@given(st.sampled_from(SOUND), st.data())
def test_whatever_is_damaged_gives_an_image_or_a_data_error(content, data):
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, min(len(damaged), 150) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.just(len(damaged)) | st.integers(1, len(damaged)))]
    with suppress(DataError):
        assert decode_image(bytes(damaged), 8, 8, 3, max_pixels=10_000).shape == (3, 8, 8)
    assert common_format([bytes(damaged)], max_pixels=10_000).channels in (1, 3)


def test_a_path_that_is_no_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"gone\.png: it cannot be opened \(No such file"):
        decode_image(tmp_path / "gone.png", 8, 8, 3)
    with pytest.raises(DataError, match="it is not a file"):
        decode_image(tmp_path, 8, 8, 3)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a matter of Unix")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(DataError, match="it is not a file"):
        decode_image(tmp_path / "pipe.png", 8, 8, 3)


def test_too_many_pixels_are_refused_before_any_is_decoded(monkeypatch):
    content = saved(Image.new("1", (8_000, 8_000)))
    assert len(content) < 10_000
    assert (decode_image(content, 2, 2, 1, max_pixels=64_000_000) == 0).all()

    def load(image: Any) -> None:
        raise AssertionError("decoded")

    for each in [ImageFile.ImageFile, *ImageFile.ImageFile.__subclasses__()]:
        monkeypatch.setattr(each, "load", load)
    for limit in (50_000_000, 63_999_999):
        with pytest.raises(DataError, match=f"more than the limit of {limit:,}; make it smaller"):
            decode_image(content, 2, 2, 1, max_pixels=limit)
    assert common_format([content]) == (64, 64, 3)


def test_the_limit_of_pillow_holds_too_and_its_settings_stay_as_they_are():
    settings = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters)
    with pytest.raises(DataError, match=r"10,000 x 10,000 pixels, more than the limit of 89,478,485"):
        decode_image(png_header(10_000, 10_000), 8, 8, 3, max_pixels=10**9)
    with pytest.raises(DataError, match="too large"):
        decode_image(png_header(20_000, 20_000), 8, 8, 3, max_pixels=10**9)
    decode_many([saved(noise(8, 8))], ["a"], Decoding(8, 8, 1))
    assert (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters)) == settings


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("threads", [1, 7])
def test_threads_give_what_a_loop_gives(tmp_path, monkeypatch, channels, threads):
    monkeypatch.setattr(os, "cpu_count", lambda: threads)
    kinds = ["PNG", "JPEG", "WEBP", "GIF", "BMP"]
    contents = [saved(noise(20 + i % 7, 30 - i % 5, 3, seed=i), kinds[i % 5]) for i in range(60)]
    sources = [put(tmp_path / str(i), content) if i % 2 else content for i, content in enumerate(contents)]
    array, kept = decode_many(sources, [str(i) for i in range(60)], Decoding(21, 28, channels, "crop"))
    assert (array == np.stack([decode_image(content, 21, 28, channels, "crop") for content in contents])).all()
    assert kept.all()
    assert kept.dtype == bool


def test_no_images_are_an_array_of_none():
    array, kept = decode_many([], [], Decoding(5, 6, 3))
    assert array.shape == (0, 3, 5, 6)
    assert kept.shape == (0,)


def test_the_first_broken_image_by_order_is_raised_though_a_later_one_fails_earlier(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    later_failed = threading.Event()
    decode = images.decode
    taken = []

    def slow(source: bytes, decoding: Decoding, name: str) -> Pixels:
        taken.append(name)
        if name == "row 3":
            assert later_failed.wait(30)
        try:
            return decode(source, decoding, name)
        finally:
            if name == "row 5":
                later_failed.set()

    monkeypatch.setattr(images, "decode", slow)
    good = saved(noise(8, 8))
    sources = [b"bad" if i in (3, 5, 6) else good for i in range(3000)]
    with pytest.raises(DataError, match=r"^row 3: .* take it out$"):
        decode_many(sources, [f"row {i}" for i in range(3000)], Decoding(8, 8, 1))
    assert len(taken) < 3000


def test_an_interrupt_stops_the_reading(monkeypatch):
    taken = []

    def slow(*arguments: Any) -> Pixels:
        taken.append(arguments)
        time.sleep(0.005)
        return np.zeros((1, 8, 8), np.uint8)

    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(images, "decode", slow)
    monkeypatch.setattr(images, "wait", interrupted)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        decode_many([b"x"] * 5000, ["x"] * 5000, Decoding(8, 8, 1))
    assert len(taken) < 1000
    assert threading.active_count() == before


def test_an_error_that_is_not_about_the_data_comes_through(monkeypatch):
    flat, taken = decoding._flat, []

    def full(image: Image.Image, channels: Any) -> Image.Image:
        taken.append(image.size)
        if len(taken) == 5:
            raise MemoryError("full")
        return flat(image, channels)

    monkeypatch.setattr(decoding, "_flat", full)
    with pytest.raises(MemoryError, match="full"):
        decode_many([saved(noise(8, 8))] * 3000, ["x"] * 3000, Decoding(8, 8, 1, on_error="skip"))
    assert len(taken) < 3000


def test_skipping_leaves_out_the_broken_ones_and_moves_the_rest_together():
    bad = {0, 3, 4, 9, 11}
    contents = [BROKEN["text"][0] if i in bad else saved(noise(6, 6, seed=i)) for i in range(12)]
    with pytest.warns(DataWarning) as caught:
        array, kept = decode_many(contents, [f"row {i}" for i in range(12)], Decoding(6, 6, 1, on_error="skip"))
    assert [i for i in range(12) if not kept[i]] == sorted(bad)
    assert (array[:, 0] == [noise(6, 6, seed=i) for i in range(12) if i not in bad]).all()
    # A part of the array that was read into, and no copy.
    assert array.base is not None
    assert array.base.shape == (12, 1, 6, 6)
    (warning,) = caught
    message = str(warning.message)
    assert message.startswith("left out 5 of 12 images, which cannot be read: row 0: ")
    assert message.endswith("; and 2 more")
    assert "row 3: " in message
    assert "row 9" not in message


def test_nothing_but_broken_images_is_an_error_even_when_skipping():
    with pytest.raises(DataError, match="none of the 2 images can be read; the first: a: it is empty"):
        decode_many([b"", b"x"], ["a", "b"], Decoding(8, 8, 1, on_error="skip"))


def test_each_folder_is_a_category_and_nested_ones_are_named_by_their_path(tmp_path):
    contents = {
        "Greek/character01/b.png": noise(8, 8, seed=1),
        "Greek/character01/a.PNG": noise(8, 8, seed=2),
        "Greek/character02/0.bmp": noise(8, 8, seed=3),
        "Latin/x.gif": noise(8, 8, seed=4),
        "Greek.old/y.webp": noise(8, 8, seed=5),
    }
    kinds = {".png": "PNG", ".bmp": "BMP", ".gif": "GIF", ".webp": "WEBP"}
    for name, pixels in contents.items():
        kind = kinds[Path(name).suffix.lower()]
        put(tmp_path / name, saved(pixels, kind, **({"lossless": True} if kind == "WEBP" else {})))
    rows = read_image_folder(tmp_path)
    assert rows.kind == "images"
    assert rows.ids == sorted(contents)
    assert rows.labels == [name.rpartition("/")[0] for name in sorted(contents)]
    assert isinstance(rows.values, np.ndarray)
    assert rows.values.dtype == np.uint8
    # WebP stores grey as colour: it is told by its pixels.
    assert (rows.values == np.stack([contents[name] for name in rows.ids])[:, None]).all()
    assert rows.source == str(tmp_path)
    assert rows.notes == ("8x8 pixels (detected)", "grey (detected)", "4 categories, one for each folder of images")


def test_images_directly_in_the_folder_have_no_labels(tmp_path):
    for name in "ba":
        put(tmp_path / f"{name}.png", noise(8, 8, 3))
    (tmp_path / "notes").mkdir()
    rows = read_image_folder(str(tmp_path), size=(5, 4), channels=1)
    assert rows.labels is None
    assert rows.ids == ["a.png", "b.png"]
    assert isinstance(rows.values, np.ndarray)
    assert rows.values.shape == (2, 1, 5, 4)
    assert rows.notes == ("5x4 pixels (set)", "grey (set)", "no categories: the images lie directly in the folder")


def test_of_size_and_channels_the_one_that_is_not_given_is_detected(tmp_path):
    put(tmp_path / "a.png", noise(8, 9))
    rows = read_image_folder(tmp_path, size=5)
    assert np.shape(rows.values) == (1, 1, 5, 5)
    assert rows.notes[:2] == ("5x5 pixels (set)", "grey (detected)")
    rows = read_image_folder(tmp_path, channels=3)
    assert np.shape(rows.values) == (1, 3, 8, 9)
    assert rows.notes[:2] == ("8x9 pixels (detected)", "colour (set)")


def test_images_both_directly_and_in_folders_are_refused(tmp_path):
    put(tmp_path / "stray.png", noise(8, 8))
    put(tmp_path / "cats" / "a.png", noise(8, 8))
    with pytest.raises(DataError, match=r"directly \('stray\.png'\) and in folders \('cats'\)"):
        read_image_folder(tmp_path)


def test_hidden_files_are_passed_over_and_other_files_are_counted(tmp_path):
    for name in ("cats/a.png", "dogs/b.png"):
        put(tmp_path / name, noise(8, 8))
    passed = [".DS_Store", ".hidden.png", ".git/x.png", "__MACOSX/cats/a.png", "cats/._a.png", "cats/Thumbs.db"]
    for name in passed:
        put(tmp_path / name, b"not an image")
    for name in ("cats/a.TXT", "cats/b.txt", "README", "labels.csv"):
        put(tmp_path / name, b"not an image")
    rows = read_image_folder(tmp_path)
    assert rows.ids == ["cats/a.png", "dogs/b.png"]
    assert "left out 4 files that are not images: 1 .csv, 2 .txt, 1 without extension" in rows.notes


def test_a_category_without_images_is_named(tmp_path):
    put(tmp_path / "cats" / "a.png", noise(8, 8))
    put(tmp_path / "dogs" / "list.txt", b"none")
    (tmp_path / "birds" / "small").mkdir(parents=True)
    (tmp_path / "cats" / "old").mkdir()
    with pytest.warns(DataWarning, match=r"folders without images: 'birds', 'cats/old', 'dogs'$"):
        rows = read_image_folder(tmp_path)
    assert set(rows.labels or ()) == {"cats"}
    assert "left out category folders without images: 'birds', 'cats/old', 'dogs'" in rows.notes


def test_a_folder_without_images_says_what_is_read(tmp_path):
    with pytest.raises(DataError, match=r"holds no images: the extensions that are read are \.png \.jpg .* \.bmp$"):
        read_image_folder(tmp_path)
    put(tmp_path / "cats" / "a.tiff", b"x")
    with pytest.raises(DataError, match=r"holds no images, only '\.tiff': "):
        read_image_folder(tmp_path)


def test_a_path_that_is_not_a_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone'.*no such folder"):
        read_image_folder(tmp_path / "gone")
    with pytest.raises(DataError, match=r"a\.png' is a file: give the folder"):
        read_image_folder(put(tmp_path / "a.png", noise(8, 8)))


def test_a_broken_file_in_a_folder_is_raised_or_left_out(tmp_path):
    for i, name in enumerate(("a/0.png", "a/1.png", "b/0.png", "c/0.png", "c/1.png")):
        put(tmp_path / name, noise(8, 8, seed=i))
    put(tmp_path / "a" / "1.png", b"")
    put(tmp_path / "b" / "0.png", b"text")
    with pytest.raises(DataError) as caught:
        read_image_folder(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'a' / '1.png'}: it is empty (0 bytes)")
    with pytest.warns(DataWarning, match="left out 2 of 5 images"):
        rows = read_image_folder(tmp_path, on_error="skip", progress=False)
    assert rows.ids == ["a/0.png", "c/0.png", "c/1.png"]
    assert rows.labels == ["a", "c", "c"]
    assert isinstance(rows.values, np.ndarray)
    assert (rows.values[:, 0] == [noise(8, 8, seed=i) for i in (0, 3, 4)]).all()
    assert rows.notes[-2:] == ("left out 2 files that cannot be read", "2 categories, one for each folder of images")


def test_a_link_to_a_file_that_is_gone_counts_as_broken(tmp_path):
    put(tmp_path / "a" / "0.png", noise(8, 8))
    (tmp_path / "a" / "1.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(DataError, match=r"1\.png: it cannot be opened"):
        read_image_folder(tmp_path)


def test_linked_folders_are_followed_but_not_in_circles(tmp_path):
    put(tmp_path / "elsewhere" / "0.png", noise(8, 8))
    put(tmp_path / "data" / "a" / "0.png", noise(8, 8))
    (tmp_path / "data" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "round").symlink_to(tmp_path / "data")
    rows = read_image_folder(tmp_path / "data")
    assert rows.ids == ["a/0.png", "b/0.png"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a file's name is always text")
def test_a_name_that_is_not_text_becomes_an_id_that_is(tmp_path):
    put(tmp_path / "a" / os.fsdecode(b"caf\xe9.png"), noise(8, 8))
    rows = read_image_folder(tmp_path)
    assert rows.ids == ["a/caf\\xe9.png"]
    assert rows.ids[0].encode()


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    def closed(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(DataError, match=r"cannot be listed.*Permission denied"):
        read_image_folder(tmp_path)


def test_the_common_size_is_kept_if_it_is_small():
    grey, colour = noise(20, 30), noise(20, 30, 3)
    assert common_format([saved(grey)] * 3) == ImageFormat(20, 30, 1)
    assert common_format([saved(grey), saved(colour)]) == (20, 30, 3)
    assert common_format([saved(noise(105, 105))]) == (105, 105, 1)
    assert common_format([saved(noise(105, 106))]) == (64, 64, 1)
    assert common_format([saved(grey), saved(noise(30, 20))]) == (64, 64, 1)


def test_grey_is_told_by_the_mode_or_by_equal_channels():
    grey = noise(20, 30)
    for pixels in (grey > 127, grey.astype(np.uint16) * 257, np.dstack([grey] * 3), np.dstack([grey] * 4)):
        assert common_format([saved(pixels)]).channels == 1
    assert common_format([saved(np.dstack([grey] * 3), "JPEG")]).channels == 1
    tinted = np.dstack([grey // 2] * 3)
    tinted[7, 7, 2] += 1
    assert common_format([saved(tinted)]).channels == 3
    invisible = np.dstack([noise(20, 30, 3), np.zeros((20, 30), np.uint8)])
    assert common_format([saved(invisible)]).channels == 1


def test_the_sample_is_spread_evenly_and_passes_over_broken_files():
    grey, colour = saved(noise(9, 9)), saved(noise(9, 9, 3))
    many = [grey] * 1000
    assert common_format([*many[:-1], colour]).channels == 3
    assert common_format([colour, *many]).channels == 3
    # Of 11 files 3 are the first, the middle and the last.
    odd_one_out = [[colour if i == j else grey for j in range(11)] for i in range(11)]
    assert [common_format(files, sample=3).channels for files in odd_one_out] == [3, 1, 1, 1, 1, 3, 1, 1, 1, 1, 3]
    assert common_format([grey, b"", b"text", BROKEN["short.jpg"][0], png_header(60_000, 60_000)]) == (9, 9, 1)
    assert common_format([b"", b"text"]) == (64, 64, 3)
    assert common_format([]) == (64, 64, 3)


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("size", 0),
        ("size", -3),
        ("size", True),
        ("size", 8.5),
        ("size", "8"),
        ("size", (8,)),
        ("size", (8, 0)),
        ("size", [8, 8]),
        ("channels", 0),
        ("channels", 4),
        ("fit", "squash"),
        ("on_error", "ignore"),
        ("max_pixels", 0),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(tmp_path, argument, value):
    put(tmp_path / "a.png", noise(8, 8))
    with pytest.raises(ValueError, match=argument) as caught:
        read_image_folder(tmp_path, **{argument: value})
    assert str(caught.value).startswith(f"{argument}={value!r}: ")
    assert not isinstance(caught.value, DataError)


def test_wrong_arguments_of_the_parts_are_named(tmp_path):
    path = put(tmp_path / "a.png", noise(8, 8))
    with pytest.raises(ValueError, match=r"^height=0: "):
        decode_image(path, 0, 8, 1)
    with pytest.raises(ValueError, match=r"^width=-1: "):
        Decoding(8, -1, 1)
    with pytest.raises(ValueError, match=r"^names: 2 names for 1 sources"):
        decode_many([path], ["a", "b"], Decoding(8, 8, 1))
    with pytest.raises(ValueError, match=r"^sample=0: "):
        common_format([path], sample=0)
