"""Run the benchmarks: `make bench`, or `python -m benchmarks vb_step soft_ari` for some, `--short` for a smoke test.

Tables are printed, and written to benchmarks.json and benchmarks.md in the folder `--out`.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    busy,
    default_fit,
    end_to_end,
    engines,
    images,
    imports,
    predict,
    shards,
    soak,
    soft_ari,
    tables,
    training_step,
    update,
    vb_step,
)
from benchmarks.report import Row, machine, markdown, write

MEASURED = {
    "vb_step": vb_step.rows,
    "end_to_end": end_to_end.rows,
    "training_step": training_step.rows,
    "soft_ari": soft_ari.rows,
    "imports": imports.rows,
    "engines": engines.rows,
    "shards": shards.rows,
    "soak": soak.rows,
    "busy": busy.rows,
    "predict": predict.rows,
    "default_fit": default_fit.rows,
    "update": update.rows,
}
PRINTED: dict[str, Callable[[], None]] = {"tables": tables.main, "images": images.main}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"{', '.join([*MEASURED, *PRINTED])} (default: all)")
    parser.add_argument("--short", action="store_true", help="use tiny sizes, to see that everything runs")
    parser.add_argument("--out", type=Path, help="folder for benchmarks.json and benchmarks.md")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in {**MEASURED, **PRINTED}]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}: choose from {', '.join([*MEASURED, *PRINTED])}")
    chosen = options.names or [*MEASURED, *([] if options.short else PRINTED)]
    rows: list[Row] = []
    for name in chosen:
        if name in MEASURED:
            rows += MEASURED[name](short=options.short)
            if options.out is not None:
                write(rows, machine(), options.out)
        else:
            PRINTED[name]()
    if rows:
        print(markdown(rows, machine()))


if __name__ == "__main__":
    main()
