"""Fuzz the files that metaclust reads: ``python tests/security/fuzz.py [KIND ...] --files 1000 --seed 3``.

It prints a table of outcomes, also where it is interrupted (Ctrl-C, SIGINT or SIGTERM), and exits with 1 if there was
any but a refusal or a sound result. See harness.py.
"""

from __future__ import annotations

import argparse
import signal
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path

import harness


def main() -> int:
    parser = argparse.ArgumentParser(description="Read damaged files in worker processes, and count the outcomes.")
    parser.add_argument("kinds", nargs="*", help="Kinds of file; by default all.")
    parser.add_argument("--files", type=int, default=100_000, help="Damaged files of each kind.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed.")
    parser.add_argument("--workers", type=int, default=1, help="Worker processes.")
    parser.add_argument("--kept", action="store_true", help="Read the files under regressions again instead.")
    parser.add_argument("--list", action="store_true", help="List the kinds of file.")
    for name, count in (("--scratch", 1), ("--work", 2), ("--replay", "+")):
        parser.add_argument(name, nargs=count, help=argparse.SUPPRESS)  # type: ignore[arg-type]
    arguments = parser.parse_args()
    harness.import_kinds()
    if unknown := sorted(set(arguments.kinds) - set(harness.KINDS)):
        parser.error(f"unknown kinds {', '.join(unknown)}: choose from {', '.join(harness.KINDS)}")
    kinds = [harness.KINDS[name] for name in arguments.kinds or harness.KINDS]
    if arguments.list:
        sys.stdout.write("".join(f"{kind.name}\n" for kind in kinds))
        return 0
    if arguments.work:
        first, last = map(int, arguments.work)
        harness.work(kinds[0], arguments.seed, range(first, last), Path(arguments.scratch[0]))
        return 0
    if arguments.replay:
        harness.replay(kinds[0], [Path(path) for path in arguments.replay], Path(arguments.scratch[0]))
        return 0
    if arguments.kept:
        return shown([harness.replay_kept(kind) for kind in kinds])
    edges = [part * arguments.files // arguments.workers for part in range(arguments.workers + 1)]
    ranges = [range(first, last) for first, last in pairwise(edges)]
    parts = {kind.name: [harness.Tally(kind.name) for _ in ranges] for kind in kinds}
    # A shell that starts a program in the background makes it ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    pool = ThreadPoolExecutor(arguments.workers)
    try:
        for kind in kinds:
            pairs = zip(ranges, parts[kind.name], strict=True)
            jobs = [pool.submit(harness.fuzz, kind, arguments.seed, *pair) for pair in pairs]
            while wait(jobs, timeout=1).not_done:
                pass
            for job in jobs:
                job.result()
    except KeyboardInterrupt:
        harness.stop_workers()
        pool.shutdown(cancel_futures=True)
        shown([whole(tallies) for tallies in parts.values()])
        return 130
    return shown([whole(tallies) for tallies in parts.values()])


def whole(parts: list[harness.Tally]) -> harness.Tally:
    """Return the outcomes of all parts of the files."""
    total = harness.Tally(parts[0].kind)
    for part in parts:
        total.add(part)
    return total


def shown(tallies: list[harness.Tally]) -> int:
    """Print the outcomes; return 1 if there was a failure among them."""
    sys.stdout.write(harness.table(tallies) + "\n")
    return 1 if any(tally.failed for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
