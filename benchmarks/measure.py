"""Time and memory of several calls, interleaved so that other load on the machine affects all of them."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping


def interleaved(calls: Mapping[str, Callable[[int], object]], rounds: int, warm_up: int = 3) -> dict[str, float]:
    """Return the median seconds of each call; its argument is the number of the round.

    Each round starts with another call, since one that follows a call with busy threads and caches takes longer.
    """
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for i in range(-warm_up, rounds):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            started = time.perf_counter()
            calls[name](i % rounds)
            if i >= 0:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_memory(code: str) -> float:
    """Return the peak resident memory, in GB, of a fresh Python process that runs ``code``; on Linux."""
    # Not ru_maxrss, which starts at the peak of the process that started this one.
    report = "\nprint(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    done = subprocess.run([sys.executable, "-c", code + report], check=True, capture_output=True, text=True)  # noqa: S603
    return int(done.stdout.split()[-1]) / 1e6
