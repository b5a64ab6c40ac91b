"""Colours of the clusters for the light and the dark theme."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LIGHT = ["#2950ac", "#f49301", "#12c690", "#c36953", "#b99dfe", "#2b8db8", "#830d63", "#625b05", "#5c3a18", "#636d7e"]
DARK = ["#4381e9", "#dd9908", "#72c796", "#e55557", "#c6a0fd", "#82e6fe", "#bb5a99", "#e9cb31", "#fdddc5", "#989dac"]
"""The first ten, chosen to be distinguishable with colour blindness as well."""

GOLDEN_ANGLE = 137.508
LIGHTNESS_ON_LIGHT = (0.48, 0.60, 0.70)
LIGHTNESS_ON_DARK = (0.64, 0.74, 0.86)
CHROMA = 0.14

# From OKLab to the cube roots of cone responses, and from those to linear sRGB (B. Ottosson, 2020).
TO_CONES = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def colours(count: int) -> tuple[list[str], list[str]]:
    """Return ``count`` colours for the light and ``count`` for the dark theme, as ``#rrggbb``."""
    further = range(len(LIGHT), count)
    light = [from_oklch(LIGHTNESS_ON_LIGHT[i % 3], CHROMA, i * GOLDEN_ANGLE) for i in further]
    dark = [from_oklch(LIGHTNESS_ON_DARK[i % 3], CHROMA, i * GOLDEN_ANGLE) for i in further]
    return [*LIGHT, *light][:count], [*DARK, *dark][:count]


def from_oklch(lightness: float, chroma: float, hue: float) -> str:
    """Return the colour of a lightness (0 to 1), chroma and hue (degrees), reducing the chroma to fit sRGB."""
    angle = np.radians(hue)
    rgb = linear_rgb(lightness, chroma, angle)
    while rgb.min() < 0 or rgb.max() > 1:
        chroma -= 0.002
        rgb = linear_rgb(lightness, chroma, angle)
    encoded = np.where(rgb <= 0.0031308, 12.92 * rgb, 1.055 * rgb ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * value):02x}" for value in encoded.tolist())


def linear_rgb(lightness: float, chroma: float, angle: float) -> NDArray[np.float64]:
    lab = np.array([lightness, chroma * np.cos(angle), chroma * np.sin(angle)])
    rgb: NDArray[np.float64] = TO_RGB @ (TO_CONES @ lab) ** 3
    return rgb
