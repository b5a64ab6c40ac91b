"""The alphabets of Omniglot's evaluation set, each clustered at once by what was learned from the background set.

    python -m metaclust.experiments.alphabets run --folder runs/alphabets --out results/alphabets.jsonl
    python -m metaclust.experiments.alphabets table results/alphabets.jsonl

964 characters of 30 alphabets are known. Each of the 20 other alphabets has 20 to 47 characters with 20 drawings each;
their number is unknown. One JSON line for each alphabet and method. The accuracy is the share of drawings
that are right under the best matching of clusters and characters.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from metaclust.data import load_dataset
from metaclust.estimator import MetaClusterer
from metaclust.experiments.records import append_record, commit, read_records, shown_title
from metaclust.experiments.unseen import COMPARED, MOST_AT_ONCE, printed, run_or_table
from metaclust.inference.result import label_scores
from metaclust.training.evaluation import mean_error_text

MCL = {
    "Angelic": 0.822,
    "Atemayar_Qelisayer": 0.892,
    "Atlantean": 0.833,
    "Aurek-Besh": 0.928,
    "Avesta": 0.858,
    "Ge_ez": 0.840,
    "Glagolitic": 0.853,
    "Gurmukhi": 0.787,
    "Kannada": 0.811,
    "Keble": 0.951,
    "Malayalam": 0.750,
    "Manipuri": 0.812,
    "Mongolian": 0.890,
    "Old_Church_Slavonic_(Cyrillic)": 0.907,
    "Oriya": 0.734,
    "Sylheti": 0.682,
    "Syriac_(Serto)": 0.820,
    "Tengwar": 0.764,
    "Tibetan": 0.802,
    "ULOG": 0.771,
}
"""The accuracy of MCL with 100 outputs (Hsu et al., Multi-class classification without multi-class labels, ICLR 2019),
as the README of the authors' code, github.com/GT-RIPL/L2C, has it; the mean of the 20 is 0.825."""

ON_REPRESENTATIONS = {f"{name}, on its representations": baseline for name, baseline in COMPARED.items()}


def alphabets(
    folder: Path, validate: bool, done: set[tuple[str, str]], seed: int = 0, **settings: Any
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (alphabet, method, results) for all that are not done.

    To validate, five alphabets of the background set are kept out.
    """
    known = load_dataset("omniglot")
    new = known if validate else load_dataset("omniglot", part="evaluation")
    of_known, of_new = (np.array(data.groups)[data.y] for data in (known, new))
    tested = np.unique(of_new)
    if validate:
        tested = np.sort(np.random.default_rng([seed, 0xA1F]).choice(tested, 5, replace=False))
    model_file = folder / f"alphabets-{seed}{'-validate' if validate else ''}.safetensors"
    about: dict[str, Any] = {}
    if model_file.exists():
        model = MetaClusterer.load(model_file).set_params(progress=False)
    else:
        place = ~np.isin(of_known, tested)
        started = time.perf_counter()
        model = MetaClusterer(seed=seed, augment="turn", **settings)
        run = folder / f"{model_file.stem}-run"
        model.fit(known.X[place], [known.categories[i] for i in known.y[place]], folder=run, resume=True)
        model.set_params(progress=False).save(model_file)
        about = {"fit_seconds": time.perf_counter() - started, "decisions": model.decisions_, "settings": settings}
    for alphabet in tested.tolist():
        rows = np.flatnonzero(of_new == alphabet)
        z = model.transform(new.X[rows])
        names = [new.categories[i] for i in new.y[rows]]
        true = len(set(names))
        for method in ("metaclust", *ON_REPRESENTATIONS):
            if (alphabet, method) in done:
                continue
            if method == "metaclust":
                labels = model.cluster(new.X[rows]).labels
            else:
                labels = ON_REPRESENTATIONS[method](z, true, MOST_AT_ONCE)
            counted = {"found": len(np.unique(labels)), "true": true}
            yield alphabet, method, {**label_scores(names, labels), **counted, **about}
            about = {}


def table(records: list[dict[str, Any]]) -> str:
    """Return means over the alphabets, and MCL's published ones; p: paired t-test of the accuracy against ours."""
    lines = ["| | accuracy | ARI | mean abs(K found - K) | alphabets | p |", "|---|---|---|---|---|---|"]
    accuracy: dict[str, dict[str, float]] = {}
    for record in records:
        accuracy.setdefault(record["method"], {})[record["alphabet"]] = record["acc"]
    ours = accuracy.get("metaclust", {})
    for method, of_method in accuracy.items():
        of_records = [record for record in records if record["method"] == method]
        wrong = np.mean([abs(record["found"] - record["true"]) for record in of_records])
        entries = " | ".join(mean_error_text([record[name] for record in of_records]) for name in ("acc", "ari"))
        lines.append(
            f"| {shown_title(method)} | {entries} | {wrong:.2f} | {len(of_records)} | {probability(ours, of_method)} |"
        )
    if set(MCL) <= set(ours):
        published = mean_error_text(list(MCL.values()))
        lines.append(f"| MCL, 100 outputs, as published | {published} | | | {len(MCL)} | {probability(ours, MCL)} |")
    return "\n".join(lines)


def probability(ours: dict[str, float], other: dict[str, float]) -> str:
    """Return the p-value of the difference; empty where there is nothing to compare."""
    both = sorted(set(ours) & set(other))
    if ours == other or len(both) < 2:
        return ""
    return f"{stats.ttest_rel([ours[name] for name in both], [other[name] for name in both]).pvalue:.2g}"


def main() -> None:
    parser, running = run_or_table(__doc__, "test on five alphabets of the background set")
    running.add_argument("--folder", type=Path, required=True, help="folder of the trained model")
    arguments = parser.parse_args()
    if printed(arguments, table):
        return
    done = {(record["alphabet"], record["method"]) for record in read_records(arguments.out)}
    for alphabet, method, result in alphabets(arguments.folder, arguments.validate, done, **dict(arguments.set)):
        append_record(arguments.out, {"alphabet": alphabet, "method": method, **result, "commit": commit()})
        found = f"{result['found']} of {result['true']}"
        print(f"{alphabet} {shown_title(method)}: {result['acc']:.3f} ({found})", flush=True)


if __name__ == "__main__":
    main()
