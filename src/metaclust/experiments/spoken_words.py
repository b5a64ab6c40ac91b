"""Spoken words of a speech synthesiser: MetaClusterer on sounds of words that it has not heard.

    python -m metaclust.experiments.spoken_words make --out words
    python -m metaclust.experiments.spoken_words run --data words --split 0 1 2 --out results/spoken-words.jsonl
    python -m metaclust.experiments.spoken_words table results/spoken-words.jsonl

``make`` has espeak-ng speak each of 79 English words by 24 voices, at three speeds and pitches, into a folder for each
word. Of the words, 80% are known and passed to ``fit``; piles are of 2 to 10 of the others, all 24 voices of each. The
baselines are given the statistics of the sounds, standardised. ``--validate`` makes piles of the validation words, with
60% known: settings are chosen by that.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metaclust.data import Rows, fit_preparation, read_data
from metaclust.experiments.records import append_record, commit, read_records, shown_title
from metaclust.experiments.unseen import Data, printed, run, run_or_table, table
from metaclust.inference.baselines import Labels

WORDS = """
apple bread cloud dance eagle flower garden house island jacket kettle ladder mountain needle orange paper queen
river silver table uncle valley window yellow zebra anchor basket candle dinner engine finger guitar hammer iron
jungle king lemon mirror number ocean pencil quarter rabbit summer tiger umbrella village water winter yesterday
animal bottle carpet doctor elbow forest giant honey insect journey kitchen letter market nation oyster picture
question rocket shadow thunder ugly voice whisper bridge copper desert echo fabric glass
""".split()  # noqa: SIM905
VARIANTS = ("m1", "m2", "m3", "m4", "m5", "m7", "f1", "f2", "f3", "f4", "f5", "klatt")
ACCENTS = ("en-us", "en-gb")
FORMS = ("statistics", "spectrograms")
METHODS = ("metaclust", "KMeans, K by silhouette", "KMeans told K")
TEST = "tasks"


def speak(folder: Path) -> None:
    """Write a .wav of each word by each voice."""
    for number, word in enumerate(WORDS):
        (folder / word).mkdir(parents=True, exist_ok=True)
        for voice, (accent, variant) in enumerate((a, v) for a in ACCENTS for v in VARIANTS):
            speed, pitch = 130 + 25 * ((number + voice) % 3), 35 + 15 * ((number + voice // 3) % 3)
            out = folder / word / f"{accent}-{variant}.wav"
            command = [
                "espeak-ng",
                "-v",
                f"{accent}+{variant}",
                "-s",
                str(speed),
                "-p",
                str(pitch),
                "-w",
                str(out),
                word,
            ]
            subprocess.run(command, check=True)  # noqa: S603


@dataclass(frozen=True)
class Sounds(Data):
    """Sounds as they were read from files."""

    read: Rows | None = None

    def take(self, index: Labels) -> Any:
        return None if self.read is None else self.read.take(index)


def read_words(folder: Path, form: str) -> Sounds:
    rows = read_data(folder, kind="sounds")
    y, names = rows.numbered()
    preparation, _ = fit_preparation(rows, sounds="statistics")
    vectors = torch.as_tensor(preparation(rows)).numpy()
    bare = Rows("sounds", rows.values, rows.ids, source=rows.source)
    return Sounds(np.arange(len(rows)), vectors, y, names, {"sounds": form}, bare)


def main() -> None:
    parser, running = run_or_table(__doc__, "make piles of validation words")
    running.add_argument("--data", type=Path, required=True, help="folder that make has written")
    running.add_argument("--form", nargs="+", choices=FORMS, default=list(FORMS))
    running.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
    making = next(action for action in parser._actions if action.dest == "command")
    making.add_parser("make", help="speak the words").add_argument("--out", type=Path, required=True)  # type: ignore[attr-defined]
    arguments = parser.parse_args()
    if arguments.command == "make":
        speak(arguments.out)
        return
    if printed(arguments, table):
        return
    for form in arguments.form:
        data = read_words(arguments.data, form)
        for split in arguments.split:
            same = {"dataset": "spoken words", "vectors": form, "split": split, "validate": arguments.validate}
            known = read_records(arguments.out)
            done = {
                record["method"] for record in known if all(record.get(key) == value for key, value in same.items())
            }
            wanted = [(TEST, method) for method in METHODS if method not in done]
            for test, method, result in run(data, split, wanted, arguments.validate, dict(arguments.set)):
                append_record(arguments.out, {**same, "test": test, "method": method, **result, "commit": commit()})
                scores = f"{result['ari']:.4f} ({result['k_error']:.2f})"
                print(f"{form} {split} {shown_title(method)}: {scores}", flush=True)


if __name__ == "__main__":
    main()
