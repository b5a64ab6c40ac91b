"""Arrays that belong to a result: read-only, and shared with nobody who could change them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

REMEDIES = {"names": "use rename", "ids": "they are those of the rows that came in"}


class FixedList(list[Any]):
    """A list that is not changed: equal to other lists, and written to files as they are.

    >>> names = FixedList(["a"], "names")
    >>> names == ["a"], [*names, "b"]
    (True, ['a', 'b'])
    >>> names.append("b")
    Traceback (most recent call last):
    TypeError: the names of a clustering cannot be changed in place: use rename
    """

    def __init__(self, values: Iterable[Any], name: str) -> None:
        super().__init__(values)
        self.name = name

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        remedy = REMEDIES.get(self.name, "take a copy")
        raise TypeError(f"the {self.name} of a clustering cannot be changed in place: {remedy}")

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = remove = pop = clear = sort = reverse = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FixedList, (list(self), self.name)


def fixed(array: NDArray[Any]) -> NDArray[Any]:
    """Make an array read-only that nobody else has, and return it: a result takes it without a copy."""
    array.setflags(write=False)
    return array


def owned(value: Any) -> Any:
    """Return what a result keeps of a value: read-only arrays, also within data classes; lists and dicts of its own.

    Arrays that are read-only and own their memory are taken as they are.

    >>> array = np.zeros(2)
    >>> owned(array) is array, owned(array).flags.writeable, owned(fixed(array)) is array
    (False, False, True)
    """
    if isinstance(value, np.ndarray):
        return value if value.flags.owndata and not value.flags.writeable else fixed(value.copy())
    if isinstance(value, FixedList):
        return value
    if isinstance(value, list | dict):
        return value.copy()
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        kept = {name: owned(part) for name, part in parts.items()}
        return value if all(kept[name] is parts[name] for name in parts) else replace(value, **kept)
    return value


def owned_fields(clustering: Any) -> dict[str, Any]:
    """Return the fields of a clustering that hold arrays, lists or dicts, as the clustering keeps them."""
    kept = {
        field.name: getattr(clustering, field.name)
        for field in fields(clustering)
        if field.name not in ("rows", "model", "starts")
    }
    lists = {name: FixedList(kept[name], name) for name in REMEDIES if not isinstance(kept[name], FixedList)}
    return {name: owned(value) for name, value in (kept | lists).items()}
