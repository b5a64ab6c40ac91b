"""Changes of training images."""

import numpy as np
import pytest
import torch

from metaclust import ImageAugmentation

STILL = {"degrees": 0.0, "scale": 0.0, "shear": 0.0, "shift": 0.0}
STRONG = ImageAugmentation(degrees=180.0, scale=0.5, shear=0.5, shift=0.5, turn_categories=True)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(rows=8, shape=(1, 9, 9), seed=0):
    return torch.rand((rows, *shape), generator=generator(seed))


def dihedral(image):
    """The eight turns and mirrorings of a (channels, height, width) image."""
    turned = [np.rot90(image, turns, (1, 2)) for turns in range(4)]
    return np.stack(turned + [np.flip(image, 2) for image in turned])


def variant(image, original):
    """Which of the eight variants of the original the image is."""
    gaps = np.abs(dihedral(original.numpy()) - image.numpy()).max((1, 2, 3))
    assert (gaps < 1e-5).sum() == 1
    return int(gaps.argmin())


@pytest.mark.parametrize("shape", [(1, 9, 9), (3, 6, 11)], ids=str)
def test_without_limits_nothing_changes(shape):
    x = images(shape=shape)
    unchanged = ImageAugmentation(**STILL)(x, torch.arange(8), generator())
    torch.testing.assert_close(unchanged, x, rtol=0, atol=1e-5)


def test_each_image_is_changed_in_its_own_way():
    x = images(1).expand(5, -1, -1, -1)
    changed = ImageAugmentation()(x, torch.zeros(5, dtype=torch.int64), generator())
    for i in range(5):
        for j in range(i):
            assert (changed[i] - changed[j]).abs().max() > 0.01


def test_the_generator_decides():
    x, category = images(), torch.arange(8)
    one, again, other = (STRONG(x, category, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 7)], ids=str)
def test_turned_categories_are_the_eight_turns_and_mirrorings(shape):
    x = images(200, shape)
    turned = ImageAugmentation(**STILL, turn_categories=True)(x, torch.arange(200), generator())
    found = [variant(image, original) for image, original in zip(turned, x, strict=True)]
    assert np.bincount(found, minlength=8).min() > 10


def test_all_images_of_a_category_are_turned_alike():
    x = images(60)
    category = 7 * (torch.arange(60) % 12) - 20
    turned = ImageAugmentation(**STILL, turn_categories=True)(x, category, generator())
    found = np.array([variant(image, original) for image, original in zip(turned, x, strict=True)])
    for number in category.unique():
        assert len(set(found[category == number])) == 1
    assert len(set(found)) > 1


@pytest.mark.parametrize("shape", [(1, 6, 10), (2, 11, 5)], ids=str)
def test_images_that_are_not_square_are_turned_about_their_middle_without_distortion(shape):
    x = images(100, shape)
    turned = ImageAugmentation(**STILL, turn_categories=True)(x, torch.arange(100), generator())
    assert turned.shape == x.shape
    side = min(shape[1:])
    top, left = (shape[1] - side) // 2, (shape[2] - side) // 2
    middle = (slice(None), slice(top, top + side), slice(left, left + side))
    found = {variant(image[middle], original[middle]) for image, original in zip(turned, x, strict=True)}
    assert found == set(range(8))


@pytest.mark.parametrize("shape", [(1, 9, 9), (3, 5, 12), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("augmentation", [ImageAugmentation(), STRONG], ids=["default", "strong"])
def test_shape_and_range_are_kept(augmentation, shape):
    x = (images(50, shape) > 0.5).float()
    changed = augmentation(x, torch.arange(50), generator())
    assert changed.shape == x.shape
    assert changed.min() >= 0
    assert changed.max() <= 1 + 1e-6


def test_what_comes_into_view_is_as_the_border_is():
    x = torch.full((20, 1, 9, 9), 0.7)
    torch.testing.assert_close(STRONG(x, torch.arange(20), generator()), x)


def test_bytes_and_their_fractions_of_255_are_changed_alike():
    x = torch.randint(256, (8, 3, 9, 9), dtype=torch.uint8)
    category = torch.arange(8)
    torch.testing.assert_close(STRONG(x, category, generator()), STRONG(x / 255, category, generator()))


def test_grey_images_get_a_channel():
    x, category = images(), torch.arange(8)
    assert torch.equal(STRONG(x[:, 0], category, generator()), STRONG(x, category, generator()))


def test_images_in_double_precision_are_changed_like_those_in_single():
    x, category = images(), torch.arange(8)
    torch.testing.assert_close(STRONG(x.double(), category, generator()).float(), STRONG(x, category, generator()))


@pytest.mark.parametrize(("limit", "value"), [("degrees", 20.0), ("scale", 0.2), ("shear", 0.2), ("shift", 0.2)])
def test_each_limit_changes_images_and_none_by_more_than_it_says(limit, value):
    height = 33
    # A ramp from left to right: a pixel's value is where it came from, in units of half the width.
    place = (torch.arange(height) + 0.5) * 2 / height - 1
    x = place.expand(64, 1, height, height)
    changed = ImageAugmentation(**{**STILL, limit: value})(x, torch.arange(64), generator())
    moved = (changed - x).abs()[..., 8:-8, 8:-8].amax((1, 2, 3))
    farthest = {"degrees": np.sin(np.radians(value)) * 0.5 + (1 - np.cos(np.radians(value))) * 0.5}.get(limit, value)
    if limit in ("scale", "shear"):
        farthest *= 0.5
    assert moved.max() <= farthest + 1e-4
    assert moved.max() > 0.7 * farthest
    assert moved.std() > 0
