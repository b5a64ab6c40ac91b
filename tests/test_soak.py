"""Memory does not grow over calls: a short version of `python -m benchmarks soak`, and that it would see a leak."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.__main__ import MEASURED
from benchmarks.soak import NAMES, PARTS, WORK, batch, rows

pytestmark = pytest.mark.usefixtures("_without_type_checks")


def alone(code: str) -> Any:
    """Return what an expression is in a process of its own: threads of other tests make objects, too."""
    program = f"import json; from benchmarks.soak import WORK, soak; kept = []; print(json.dumps({code}))"
    root = Path(__file__).parents[1]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_a_leak_is_seen() -> None:
    leaking, clean = alone("[soak(lambda i: kept.append([bytes(1000)]), 200), soak(lambda i: [bytes(1000)], 200)]")
    assert leaking["objects beyond 10%"] == pytest.approx(180, abs=40)
    assert leaking["traced beyond 10%, bytes a call"] == pytest.approx(1100, rel=0.1)
    assert abs(clean["objects beyond 10%"]) < 40
    assert clean["traced beyond 10%, bytes a call"] < 50


@pytest.mark.parametrize(("name", "calls"), [("assign", 40), ("fit", 10)])
def test_calls_keep_nothing(name: str, calls: int) -> None:
    """scikit-learn #28162: memory grew over fits of different numbers of rows."""
    once = f"[call := WORK[{name!r}](), call(0)] and "
    dropped, held = alone(f"{once}[soak(call, {calls}), soak(lambda i: kept.append(call(i)), {calls})]")
    assert dropped["objects beyond 10%"] < calls / 4
    assert held["objects beyond 10%"] > calls / 2


def test_the_figures_are_those_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of call in its own process, measured at three points."""
    monkeypatch.setattr("benchmarks.soak.SHORT", {"fit": 10})
    monkeypatch.setattr("benchmarks.soak.WORK", {"fit": WORK["fit"]})
    assert MEASURED["soak"] is rows
    (row,) = rows(short=True)
    assert row.setting == NAMES["fit"]
    resident = [row.figures[f"resident at {part}%, MB"] for part in PARTS]
    assert min(resident) > 50
    assert row.figures["resident, 100% / 10%"] == resident[-1] / resident[0]


def test_batches_have_different_numbers_of_rows() -> None:
    sizes = {len(batch(i, 16)) for i in range(50)}
    assert sizes <= set(range(4, 17))
    assert len(sizes) > 5
    np.testing.assert_array_equal(batch(3, 16), batch(3, 16))
