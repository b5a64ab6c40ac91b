"""Checks of types and shapes at run time: in each test the first calls of every function, then one of many.

With every call checked, a training takes three to four times as long, and nearly all of that for calls that differ in
nothing that an annotation can see.
"""

import functools
import inspect
from typing import Any

import jaxtyping
from jaxtyping import _decorator

FIRST, EVERY = 25, 50
"""In each test, so many calls of a function are checked, and after them every one of so many."""

every_call_checked = _decorator.jaxtyped
_calls: list[int] = []


def jaxtyped(function: Any = None, **options: Any) -> Any:
    """Decorate as :func:`jaxtyping.jaxtyped` does, which calls this one for the parts of classes and properties."""
    if function is None:
        return functools.partial(jaxtyped, **options)
    if hasattr(function, "place_among_calls"):
        return function
    checked = every_call_checked(function, **options)
    if not inspect.isfunction(function):
        return checked
    place = len(_calls)
    _calls.append(0)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        _calls[place] += 1
        return (checked if _calls[place] <= FIRST or _calls[place] % EVERY == 0 else function)(*args, **kwargs)

    call.place_among_calls = place  # type: ignore[attr-defined]
    return call


# What the pytest plugin of jaxtyping puts on everything that is imported from now on.
jaxtyping.jaxtyped = _decorator.jaxtyped = jaxtyped


def start_again() -> None:
    """Count the calls of the next test."""
    _calls[:] = [0] * len(_calls)
