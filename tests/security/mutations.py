"""Mutations of safetensors files: of the bytes, of either header, and of the tensors."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from harness import damaged
from numpy.typing import NDArray

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}
DEEP = "nested here"
ODD_FLOATS = (float("nan"), float("inf"), -float("inf"))
ODD: tuple[Any, ...] = (
    *(None, True, False, "", "nan", "x" * 3000, "\ud800", "é\0\n", [], {}, [[]], [None], {"a": 1}, [1, "b"], DEEP),
    *(0, 1, -1, 2, 3, 7, 1000, 10**6, 10**9, 2**31, 2**63 - 1, 2**63, -(2**63), 10**19, 10**400),
    *(
        0.0,
        0.5,
        -0.5,
        1.5,
        1e-320,
        1e-30,
        1e30,
        1e38,
        1e300,
        1.7e308,
        -1e300,
        float("nan"),
        float("inf"),
        -float("inf"),
    ),
)
EXTREMES = (
    float("nan"),
    float("inf"),
    -float("inf"),
    0.0,
    -1.0,
    1e-38,
    1e3,
    1e7,
    1e12,
    1e30,
    3e38,
    -1e30,
    1e200,
    1e308,
)
WHOLE = (-1, 0, 1, 2, 5, 100, 10**9, 2**31, 2**63 - 1, -(2**63))


@dataclass
class Parts:
    """A safetensors file in parts: the tensors, and metaclust's header."""

    tensors: dict[str, NDArray[Any]]
    header: Any


def parsed(content: bytes) -> Parts:
    length = int.from_bytes(content[:8], "little")
    table = json.loads(content[8 : 8 + length])
    header = json.loads(table.pop("__metadata__")["metaclust"])
    tensors = {}
    for name, entry in table.items():
        first, last = (8 + length + place for place in entry["data_offsets"])
        tensors[name] = np.frombuffer(content[first:last], DTYPES[entry["dtype"]]).reshape(entry["shape"]).copy()
    return Parts(tensors, header)


def written(parts: Parts, random: Random | None = None) -> bytes:
    """Return the file; with ``random``, the outer header is changed, too."""
    notes = json.dumps(parts.header).replace(f'"{DEEP}"', "[" * 20_000 + "]" * 20_000)
    table: dict[str, Any] = {"__metadata__": {"metaclust": notes}}
    place, data = 0, []
    names = {np.dtype(code).str: name for name, code in DTYPES.items()}
    for name, value in parts.tensors.items():
        raw = np.ascontiguousarray(value).tobytes()
        shape = list(value.shape)
        table[name] = {"dtype": names[value.dtype.str], "shape": shape, "data_offsets": [place, place + len(raw)]}
        place, data = place + len(raw), [*data, raw]
    if random is not None:
        table = changed(table, random)
    outer = json.dumps(table).replace(f'"{DEEP}"', "[" * 20_000 + "]" * 20_000).encode()
    outer += b" " * (-len(outer) % 8)
    return struct.pack("<Q", len(outer)) + outer + b"".join(data)


def changed(value: Any, random: Random) -> Any:
    """Return a JSON value with one place in it changed: deeper places as likely as all that they are in."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = random.choice(list(value))
        way = random.random()
        if way < 0.08:
            return {key: one for key, one in value.items() if key != name}
        if way < 0.12:
            return {**value, random.choice(("extra", "", "class", name + "_")): random.choice(ODD)}
        if way < 0.18:
            other = random.choice(list(value))
            return {**value, name: value[other], other: value[name]}
        return {**value, name: changed(value[name], random)}
    if isinstance(value, list) and value and random.random() < 0.7:
        place, way = random.randrange(len(value)), random.random()
        if way < 0.15:
            return value[:place] + value[place + 1 :]
        if way < 0.3:
            return value + value[: place + 1]
        return [*value[:place], changed(value[place], random), *value[place + 1 :]]
    if random.random() < 0.6 or not isinstance(value, int | float | str) or isinstance(value, bool) or value == 10**400:
        return random.choice(ODD)
    if isinstance(value, str):
        return random.choice((value[:-1], value.upper(), value * 2, value + "\u2028", [value]))
    return random.choice((value + 1, value - 1, -value, value * 1000, float(value), str(value), value * 1e25))


def changed_tensors(tensors: dict[str, NDArray[Any]], random: Random) -> dict[str, NDArray[Any]]:
    """Return tensors of which one has other values, another shape or dtype, is gone, renamed or swapped."""
    names = list(tensors)
    name, other = random.choice(names), random.choice(names)
    value, way = tensors[name], random.random()
    if way < 0.55:
        value = value.copy()
        flat = value.reshape(-1)
        places = slice(None) if random.random() < 0.3 else [random.randrange(max(1, flat.size))]
        if flat.size:
            number = random.choice(EXTREMES if value.dtype.kind == "f" else WHOLE)
            with np.errstate(all="ignore"):
                new = flat[places] * number if random.random() < 0.3 and value.dtype.kind == "f" else np.asarray(number)
                flat[places] = new.astype(value.dtype)
        return {**tensors, name: value}
    if way < 0.65:
        code = random.choice(list(DTYPES.values()))
        with np.errstate(all="ignore"):
            return {**tensors, name: value.astype(code)}
    if way < 0.8:
        shapes = (value.T, value.reshape(-1), value[None], value[..., None], value[:0] if value.ndim else value[None])
        more = (value[:1], np.concatenate((value, value))) if value.ndim else ()
        return {**tensors, name: random.choice((*shapes, *more))}
    if way < 0.88:
        return {key: one for key, one in tensors.items() if key != name}
    if way < 0.96:
        return {**tensors, name: tensors[other], other: value}
    return {**tensors, random.choice(("extra", f"{name}.", "")): value}


def mutate_json(content: bytes, random: Random) -> bytes:
    """Return a JSON file with a change of its bytes or of its values."""
    if random.random() < 0.25:
        return damaged(content, random)
    value = json.loads(content)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        value = changed(value, random)
    return json.dumps(value, indent=1).replace(f'"{DEEP}"', "[" * 20_000 + "]" * 20_000).encode()


def mutate(content: bytes, random: Random) -> bytes:
    """Return a file with a change of its bytes, of a header or of a tensor."""
    way = random.random()
    if way < 0.12:
        return damaged(content, random)
    parts = parsed(content)
    if way < 0.2:
        return written(parts, random)
    for _ in range(random.choice((1, 1, 1, 2))):
        if random.random() < 0.55:
            parts.header = changed(parts.header, random)
        else:
            parts.tensors = changed_tensors(parts.tensors, random)
    return written(parts)
