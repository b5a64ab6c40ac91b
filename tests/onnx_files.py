"""Small .onnx files, written byte by byte: networks that return means of parts of an image."""

from pathlib import Path
from typing import Any


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | str | bytes) -> bytes:
    """Return a field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def attribute(name: str, value: int | list[int]) -> bytes:
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    return field(1, name) + b"".join(field(8, one) for one in value) + field(20, 7)


def node(kind: str, source: str, target: str, **attributes: Any) -> bytes:
    named = b"".join(field(5, attribute(name, value)) for name, value in attributes.items())
    return field(1, source) + field(2, target) + field(4, kind) + named


def tensor(name: str, shape: list[int | str], kind: int) -> bytes:
    sides = b"".join(field(1, field(1 if isinstance(side, int) else 2, side)) for side in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, sides)))


FLOAT, BYTES = 1, 2


def write_onnx(
    path: Path,
    shape: list[int | str],
    *,
    kind: int = FLOAT,
    parts: list[int] | None = None,
    outputs: tuple[str, ...] = ("means",),
) -> Path:
    """Write a network of images of this shape, channels second or last.

    Its output is the mean of each channel over ``parts`` of (height, width), or (images, channels, 1, 1) over all.
    """
    nodes, at = [], "pixels"
    if kind == BYTES:
        nodes.append(node("Cast", at, "numbers", to=FLOAT))
        at = "numbers"
    if shape[1] not in (1, 3):
        nodes.append(node("Transpose", at, "turned", perm=[0, 3, 1, 2]))
        at = "turned"
    if parts is None:
        nodes.append(node("GlobalAveragePool", at, outputs[0]))
    else:
        nodes.append(node("AveragePool", at, "pooled", kernel_shape=parts, strides=parts))
        nodes.append(node("Flatten", "pooled", outputs[0], axis=1))
    nodes += [node("Neg", outputs[0], name) for name in outputs[1:]]
    graph = b"".join(field(1, one) for one in nodes) + field(2, "means") + field(11, tensor("pixels", shape, kind))
    ranks = ["n", "c"] if parts is not None else ["n", "c", "h", "w"]
    graph += b"".join(field(12, tensor(name, ranks, FLOAT)) for name in outputs)
    path.write_bytes(field(1, 8) + field(8, field(2, 17)) + field(7, graph))
    return path
