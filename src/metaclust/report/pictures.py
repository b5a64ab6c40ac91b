"""Thumbnails of images as data URIs, single or many on a sheet."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Format = Literal["png", "jpeg"]
CHOICES: tuple[tuple[int, Format], ...] = ((64, "png"), (64, "jpeg"), (48, "jpeg"), (32, "jpeg"), (24, "jpeg"))
"""Longest side and format in descending quality: the first that fits the budget is used."""
SAMPLE = 100
ACROSS = 32
"""Pictures per line of a sheet, and lines per sheet."""


@dataclass(frozen=True)
class Pictures:
    """Images with the size and format of their thumbnails."""

    values: NDArray[np.uint8]
    """(rows, 1 or 3, height, width)"""
    width: int
    height: int
    form: Format

    @classmethod
    def within(cls, values: NDArray[Any], rows: Sequence[int], budget: int) -> Pictures:
        """Return the best quality with which the pictures of these rows take about ``budget`` bytes."""
        sample = [rows[i] for i in np.linspace(0, len(rows) - 1, min(SAMPLE, len(rows))).astype(int).tolist()]
        for side, form in CHOICES:
            chosen = cls.sized(values, side, form)
            if sum(len(chosen.one(row)) for row in sample) * len(rows) <= budget * len(sample):
                break
        return chosen

    @classmethod
    def sized(cls, values: NDArray[Any], side: int, form: Format) -> Pictures:
        """Return thumbnails of this longest side; smaller images are not enlarged."""
        height, width = values.shape[2:]
        scale = min(1.0, side / max(height, width))
        return cls(values, max(1, round(width * scale)), max(1, round(height * scale)), form)

    def one(self, row: int) -> str:
        """Return the picture of a row."""
        return self._uri(self._small(row))

    def sheets(self, rows: Sequence[int]) -> list[str]:
        """Return the pictures in order, line by line, on sheets of ``ACROSS`` by ``ACROSS``; see :attr:`pitch`."""
        across, down = self.pitch
        sheets = []
        for start in range(0, len(rows), ACROSS * ACROSS):
            here = rows[start : start + ACROSS * ACROSS]
            lines = -(-len(here) // ACROSS)
            sheet = np.zeros((lines * down, min(ACROSS, len(here)) * across, self.values.shape[1]), np.uint8)
            for place, row in enumerate(here):
                y, x = place // ACROSS * down, place % ACROSS * across
                # Padded with the edge: JPEG blurs over blocks of 8 pixels.
                rim = ((0, down - self.height), (0, across - self.width), (0, 0))
                sheet[y : y + down, x : x + across] = np.pad(self._small(row), rim, mode="edge")
            sheets.append(self._uri(sheet))
        return sheets

    @property
    def pitch(self) -> tuple[int, int]:
        """Distance in pixels between pictures on a sheet: across and down."""
        return -(-self.width // 8) * 8, -(-self.height // 8) * 8

    def _small(self, row: int) -> NDArray[np.uint8]:
        """Return the thumbnail of a row: (height, width, channels)."""
        pixels: NDArray[np.uint8] = np.moveaxis(self.values[row], 0, -1)
        if pixels.shape[:2] == (self.height, self.width):
            return pixels
        image = Image.fromarray(np.ascontiguousarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels))
        small = np.asarray(image.resize((self.width, self.height), Image.Resampling.LANCZOS))
        return small.reshape(self.height, self.width, -1)

    def _uri(self, pixels: NDArray[np.uint8]) -> str:
        image = Image.fromarray(np.ascontiguousarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels))
        file = io.BytesIO()
        if self.form == "png":
            image.save(file, "png", optimize=True)
        else:
            image.save(file, "jpeg", quality=82, subsampling=0, optimize=True)
        return f"data:image/{self.form};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
