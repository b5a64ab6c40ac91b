"""Commands as a user types them, run in the process of the tests, and files for them to read."""

import contextlib
import io
import sys
from typing import NamedTuple

import numpy as np
import pytest

from metaclust.cli import main


class Printed(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def run(*arguments):
    """A command, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["metaclust", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
    return Printed(stopped.value.code or 0, out.getvalue(), err.getvalue())


def write_numbers(path, categories, rows=10):
    lines = ["id,a,b,c,d,kind"]
    for category in categories:
        drawn = np.random.default_rng([1, category])
        values = 4 * drawn.normal(size=4) + drawn.normal(size=(rows, 4))
        lines += [f"{category}-{i},{','.join(map(str, row.round(4)))},k{category}" for i, row in enumerate(values)]
    path.write_text("\n".join(lines) + "\n")
    return path
