"""The .npy format, read by plain reads of checked lengths.

A memory map would end the process with a bus error where the file becomes shorter.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaclust.data.files import open_regular, size_of
from metaclust.data.rows import DataError, reason_of

MAGIC = b"\x93NUMPY"
MOST_AXES = 32
CHUNK = 2**24


@dataclass(frozen=True)
class NpyHeader:
    """What the header of a .npy file says, and where the values begin."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.itemsize


@contextmanager
def opened_npy(path: Path, name: str, what: str) -> Iterator[tuple[BufferedIOBase, NpyHeader]]:
    """Yield a .npy file and its header; what is wrong with it, now or while it is read, is a DataError."""
    with open_regular(path, name) as file, named_errors(f"{name} is not {what}, or it is cut short"):
        yield file, read_header(file, size_of(file))


@contextmanager
def named_errors(what: str) -> Iterator[None]:
    """Turn the ValueError of the functions below, which is the reason alone, into a DataError."""
    try:
        yield
    except DataError:
        raise
    except (ValueError, OSError) as error:
        raise DataError(f"{what}: {reason_of(error)}") from error


def read_header(file: BufferedIOBase, size: int) -> NpyHeader:
    """Return the header of a .npy file of ``size`` bytes, which must be as many as the header says."""
    begins = file.read(len(MAGIC) + 2)
    if not begins.startswith(MAGIC) or len(begins) < len(MAGIC) + 2:
        raise ValueError("it is empty" if size == 0 else "it does not begin as .npy files do")
    readers = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    if begins[-2] not in readers:
        raise ValueError(f"its format has version {begins[-2]}.{begins[-1]}, which is not read")
    try:
        with warnings.catch_warnings():
            # numpy warns of headers that Python 2 wrote.
            warnings.simplefilter("ignore")
            shape, fortran, dtype = readers[begins[-2]](file)
    except Exception as error:
        # The header is a Python literal, which fails to parse in many ways.
        raise ValueError("its header is damaged") from error
    header = NpyHeader(tuple(int(n) for n in shape), dtype, bool(fortran), file.tell())
    check_header(header, size)
    return header


def check_header(header: NpyHeader, size: int) -> None:
    dtype = header.dtype
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded, for they could run code: save numbers or strings")
    if dtype.fields is not None or dtype.subdtype is not None or dtype.itemsize == 0:
        raise ValueError(f"it holds {dtype} values: save numbers or strings")
    if min(header.shape, default=0) < 0 or len(header.shape) > MOST_AXES:
        raise ValueError(f"its header says shape {header.shape}")
    there = size - header.offset
    if header.nbytes < there:
        raise ValueError(f"{there - header.nbytes:,} bytes follow its values: save one array to a file")
    if header.nbytes != there:
        raise ValueError(
            f"its header says {header.nbytes:,} bytes of values (shape {header.shape}), but it holds {there:,}"
        )


def read_values(file: BufferedIOBase, header: NpyHeader) -> NDArray[Any]:
    """Return all values; ``file`` is where the header ended."""
    flat = np.empty(header.count, header.dtype)
    fill(file, flat)
    return checked(flat).reshape(header.shape, order="F" if header.fortran else "C")


def read_rows(file: BufferedIOBase, header: NpyHeader, first: int, count: int) -> NDArray[Any]:
    """Return some rows of a file with two axes."""
    rows, columns = header.shape
    itemsize = header.dtype.itemsize
    if not header.fortran:
        values = np.empty((count, columns), header.dtype)
        file.seek(header.offset + first * columns * itemsize)
        fill(file, values.reshape(-1))
        return checked(values)
    values = np.empty((columns, count), header.dtype)
    for column in range(columns):
        file.seek(header.offset + (column * rows + first) * itemsize)
        fill(file, values[column])
    return checked(values).T


def fill(file: BufferedIOBase, flat: NDArray[Any]) -> None:
    """Read as many bytes as ``flat`` has."""
    view, done = flat.view(np.uint8).data, 0
    while done < len(view):
        got = file.readinto(view[done : done + CHUNK])
        if not got:
            raise ValueError("it became shorter while it was read: files must not change meanwhile")
        done += got


def checked(values: NDArray[Any]) -> NDArray[Any]:
    """Return truth values of bytes other than 0 and 1, which numpy does not expect, as True."""
    return values.view(np.uint8) != 0 if values.dtype == np.bool_ else values


def write_header(file: BufferedIOBase, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write the header of values in C order."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)
