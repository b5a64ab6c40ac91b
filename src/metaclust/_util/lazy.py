"""Public names that are imported when they are first asked for, so that the command line answers at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, where: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package (PEP 562) whose names are in the modules of ``where``."""
    modules = {name: module for module, names in where.items() for name in names}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    def names() -> list[str]:
        return sorted([*modules, *vars(import_module(package))])

    return get, names
