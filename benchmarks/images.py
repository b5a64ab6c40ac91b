"""Reading a folder of 20,000 small photographs: memory, and time against a plain loop of Pillow."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.measure import interleaved
from metaclust.data.readers.images import read_image_folder

SIDE = 84
CATEGORIES = 100
DIFFERENT = 500
# Linux keeps the peak of a process itself as VmHWM; ru_maxrss starts at the peak of the process that started it.
MEMORY = f"""
import sys
from pathlib import Path
from metaclust.data.readers.decoding import decode_image
from metaclust.data.readers.images import read_image_folder

def kilobytes(name):
    return int(next(line for line in Path("/proc/self/status").open() if line.startswith(name)).split()[1])

folder = Path(sys.argv[1])
decode_image(next(folder.rglob("*.jpg")), {SIDE}, {SIDE}, 3)
before = kilobytes("VmRSS")
rows = read_image_folder(folder, size={SIDE}, channels=3, progress=False)
print((kilobytes("VmHWM") - before) * 1024, rows.values.nbytes)
"""


def write_photographs(folder: Path, count: int) -> None:
    """Write JPEGs of 100x80 pixels in folders of categories: ``DIFFERENT`` files, and links to them."""
    generator = np.random.default_rng(0)
    first: list[Path] = []
    for i in range(count):
        path = folder / f"category{i % CATEGORIES:03}" / f"{i:05}.jpg"
        path.parent.mkdir(exist_ok=True)
        if i < DIFFERENT:
            coarse = Image.fromarray(generator.integers(0, 256, (10, 12, 3), np.uint8))
            content = BytesIO()
            coarse.resize((100, 80), Image.Resampling.BICUBIC).save(content, "JPEG", quality=90)
            path.write_bytes(content.getvalue())
            first.append(path)
        else:
            os.link(first[i % DIFFERENT], path)


def plain_loop(paths: list[Path]) -> NDArray[np.uint8]:
    """Return the images, read one after another."""
    array = np.empty((len(paths), 3, SIDE, SIDE), np.uint8)
    for i, path in enumerate(paths):
        with Image.open(path) as image:
            array[i] = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    return array


def main(count: int = 20_000, rounds: int = 3) -> None:
    """Print the peak memory beyond that after one image, as a multiple of the result, and the ratio of the times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photographs(folder, count)
        command = [sys.executable, "-c", MEMORY, name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        above, result = (int(part) for part in done.stdout.split())
        print(f"{count:,} JPEGs of 100x80 pixels read at {SIDE}x{SIDE} in colour, {os.cpu_count()} cores:")
        print(f"  peak memory above the process before {above / 1e6:.0f} MB, result {result / 1e6:.0f} MB, ", end="")
        print(f"ratio {above / result:.2f} (below 1.5)")
        assert above / result < 1.5
        paths = sorted(folder.rglob("*.jpg"))
        calls = {
            "loop": lambda _: plain_loop(paths),
            "ours": lambda _: read_image_folder(folder, size=SIDE, channels=3, progress=False),
        }
        seconds = interleaved(calls, rounds, warm_up=1)
    print(f"  one thread of plain Pillow {seconds['loop']:.1f} s, read_image_folder {seconds['ours']:.1f} s, ", end="")
    print(f"ratio {seconds['ours'] / seconds['loop']:.2f}")


if __name__ == "__main__":
    main()
