"""Checks of what a file says, before anything is built from it: the type and the range of every field and tensor.

A file may come from a stranger, or be damaged. Errors here are ValueErrors that name the field, its value and what it
must be; :func:`metaclust._util.tensors.refusing` adds the file.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Check = Callable[[Any], str | None]
"""Returns what a value must be, if it is not that; otherwise None."""
LARGEST_COUNT = 2**31 - 1
LARGEST_WHOLE = 2**63 - 1
DEEPEST_HEADER = 16
"""How deeply objects and lists of a header may be nested."""
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
NONE: Mapping[str, Check] = {}


def whole(low: int = 0, high: int = LARGEST_COUNT) -> Check:
    """Check for a whole number from ``low`` to ``high``."""
    return lambda value: (
        None if is_whole(value) and low <= value <= high else f"a whole number of at least {low} and at most {high}"
    )


def number(low: float = -math.inf, high: float = math.inf) -> Check:
    """Check for a finite number from ``low`` to ``high``."""

    def check(value: Any) -> str | None:
        holds = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if holds and low <= value <= high:
            return None
        bounds = "" if math.isinf(low) and math.isinf(high) else f" from {low:g} to {high:g}"
        return f"a finite number{bounds}"

    return check


def text(value: Any) -> str | None:
    """Check for a string."""
    return None if isinstance(value, str) else "a string"


def flag(value: Any) -> str | None:
    """Check for true or false."""
    return None if isinstance(value, bool) else "true or false"


def mapping(value: Any) -> str | None:
    """Check for an object, whose fields are checked later."""
    return None if isinstance(value, dict) else "an object with named fields"


def one_of(*allowed: str | bool | None) -> Check:
    """Check for one of a few values."""
    kinds = tuple(type(value) for value in allowed)
    return lambda value: None if type(value) in kinds and value in allowed else f"one of {allowed}"


def optional(check: Check) -> Check:
    """Check for null, or what another check wants."""
    return lambda value: None if value is None or not (wanted := check(value)) else f"{wanted}, or null"


def list_of(check: Check, length: int | None = None) -> Check:
    """Check for a list of ``length`` values that another check accepts."""

    def check_list(value: Any) -> str | None:
        if not isinstance(value, list):
            return "a list"
        if length is not None and len(value) != length:
            return f"a list of {length} values, not of {len(value)}"
        for place, one in enumerate(value):
            if wanted := check(one):
                return f"a list whose every value is {wanted}, but number {place} is {reprlib.repr(one)}"
        return None

    return check_list


def fields(values: Any, required: Mapping[str, Check], others: Mapping[str, Check] = NONE, name: str = "") -> Any:
    """Return an object as it is, if its fields are as they must be; unknown fields are left alone.

    ``others`` need not be there. ``name`` is what messages call the object.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{name or 'the header'}={reprlib.repr(values)}: it must be an object with named fields")
    inside = f"{name}." if name else ""
    for field, check in (*required.items(), *others.items()):
        if field not in values:
            if field in required:
                raise ValueError(f"{inside}{field} is missing")
        elif wanted := check(values[field]):
            raise ValueError(f"{inside}{field}={reprlib.repr(values[field])}: it must be {wanted}")
    return values


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_plain(value: Any, depth: int = 0) -> None:
    """Raise ValueError for nesting that is too deep, numbers beyond 64 bits or not finite, and invalid Unicode."""
    if isinstance(value, dict | list):
        if depth == DEEPEST_HEADER:
            raise ValueError(f"its values are nested more than {DEEPEST_HEADER} levels deep")
        for one in value:
            check_plain(one, depth + 1)
        if isinstance(value, dict):
            check_plain(list(value.values()), depth)
    elif isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"{reprlib.repr(value)} is not valid Unicode")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"it holds the number {value}, which is not finite")
    elif is_whole(value) and abs(value) > LARGEST_WHOLE:
        raise ValueError("it holds a whole number of more than 64 bits")


def tensor(
    tensors: Mapping[str, Tensor],
    name: str,
    shape: tuple[int, ...],
    low: float = -math.inf,
    high: float = math.inf,
    dtypes: Iterable[torch.dtype] = DTYPES,
) -> Tensor:
    """Return a tensor, if it has this shape, one of these dtypes, and finite values from ``low`` to ``high``."""
    if name not in tensors:
        raise ValueError(f"the tensor {name!r} is missing")
    value = tensors[name]
    check_shape(name, value, shape)
    check_dtype(name, value, dtypes)
    check_range(name, value, low, high)
    return value


def check_shape(name: str, value: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError for another shape."""
    if tuple(value.shape) != shape:
        raise ValueError(f"size mismatch for {name}: {tuple(value.shape)} in the file, where {shape} is expected")


def check_dtype(name: str, value: Tensor, dtypes: Iterable[torch.dtype]) -> None:
    """Raise ValueError for another dtype."""
    allowed = tuple(dtypes)
    if value.dtype not in allowed:
        wanted = " or ".join(short_name(dtype) for dtype in allowed)
        raise ValueError(f"{name} is {short_name(value.dtype)}: it must be {wanted}")


def common_dtype(tensors: Mapping[str, Tensor], name: str) -> torch.dtype:
    """Return the precision of tensors, which messages call ``name``; all must have the same."""
    found = {short_name(value.dtype): value.dtype for value in tensors.values() if value.is_floating_point()}
    if len(found) > 1:
        raise ValueError(f"{name} are in several precisions ({', '.join(sorted(found))}): they must be in one")
    return next(iter(found.values()), torch.float32)


def check_range(name: str, value: Tensor, low: float = -math.inf, high: float = math.inf) -> None:
    """Raise ValueError unless all values are finite and from ``low`` to ``high``."""
    if value.numel() == 0:
        return
    least, most = (float(end) for end in value.aminmax())
    if not (math.isfinite(least) and math.isfinite(most)):
        raise ValueError(f"{name} holds NaN or infinity: the file is damaged, or its training diverged")
    if least < low or most > high:
        wrong = least if least < low else most
        raise ValueError(f"{name} holds {wrong:g}: its values must be from {low:g} to {high:g}")


def check_names(found: Iterable[str], expected: Iterable[str]) -> None:
    """Raise ValueError for a tensor that is missing or that nothing needs."""
    found, expected = set(found), set(expected)
    for wrong, words in ((expected - found, "are missing"), (found - expected, "are unknown")):
        if wrong:
            raise ValueError(f"{len(wrong)} tensors {words}: {some(sorted(wrong))}")


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first few of names, each of them shortened: a file may hold many and long ones."""
    return ", ".join(name[:80] for name in names[:most]) + (", ..." if len(names) > most else "")


def short_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
