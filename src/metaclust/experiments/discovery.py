"""New categories among unlabelled texts, by the protocol of TEXTOIR (open intent discovery).

    metaclust experiment discovery --dataset banking --known 0.75 --seeds 3
    python -m metaclust.experiments.discovery results/discovery/*.jsonl

Some of the labels are known, and a tenth of the training rows of each keep theirs; all other training rows are there
without one. All test rows are scored; they are not used in training. METACLUST_DATA holds textoir/data.jsonl.gz, with
the fields dataset, split, text and label.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from metaclust._util.progress import Bar
from metaclust.data.datasets.places import ROOT_VARIABLE
from metaclust.data.preparation.embeddings import SentenceEmbedder
from metaclust.estimator import MetaClusterer
from metaclust.experiments.records import Record, append_record, commit, read_records
from metaclust.experiments.worth import embedding_model
from metaclust.inference.result import label_scores
from metaclust.training.self_training import Floats, Labels, first_centroids, means_of, seeded_kmeans

DATASETS = {"banking": 77, "clinc": 150, "stackoverflow": 20}
"""The numbers of labels."""
RATIOS = (0.25, 0.5, 0.75)
LABELLED = 0.1
"""The share of the training rows of a known label that keep it."""
HELD_OUT = 0.2
"""The share of the unlabelled training rows that stand for test rows in validation."""
SHRINKAGE = 0.5
"""Of the within-class covariance, for whitening."""
NEAR = 0.95
"""The share of the labelled rows that are nearer to their category than a row of a new one may be."""
DENSITY_COLUMNS, DENSITY_ROWS = 30, 10
"""Principal components in which densities are compared, and the fewest rows of a cluster."""
PUBLISHED = {
    ("banking", 0.25): (81.94, 56.53, 65.85),
    ("banking", 0.5): (85.05, 63.77, 73.27),
    ("banking", 0.75): (87.41, 69.54, 78.36),
    ("clinc", 0.25): (94.17, 77.95, 83.12),
    ("clinc", 0.5): (95.48, 82.99, 87.28),
    ("clinc", 0.75): (96.42, 86.77, 90.36),
    ("stackoverflow", 0.25): (74.91, 65.45, 75.76),
    ("stackoverflow", 0.5): (78.77, 71.63, 82.06),
    ("stackoverflow", 0.75): (80.13, 74.90, 85.66),
}
"""NMI, ARI and accuracy of USNID with BERT-base, told the number of labels."""


@dataclass(frozen=True, eq=False)
class Division:
    """What a method is given, and what it is scored on."""

    texts: list[str]
    """Of the training rows."""
    y: list[str | None]
    """Their labels, where they keep them."""
    test: list[str]
    truth: list[str]
    number: int
    """The number of labels."""

    @cached_property
    def known(self) -> Labels:
        """The labels of training rows as numbers, -1 where there is none."""
        names = {name: code for code, name in enumerate(sorted({name for name in self.y if name is not None}))}
        return np.array([-1 if name is None else names[name] for name in self.y], np.int64)


def read_textoir(dataset: str, root: str | os.PathLike[str] | None = None) -> dict[str, tuple[list[str], list[str]]]:
    """Return texts and labels of the train, dev and test rows of a data set."""
    folder = root or os.environ.get(ROOT_VARIABLE)
    if dataset not in DATASETS:
        raise ValueError(f"--dataset {dataset}: choose one of {', '.join(DATASETS)}")
    path = Path(folder or ".") / "textoir" / "data.jsonl.gz"
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path}: put the rows of TEXTOIR there, one JSON object a line with dataset, split, text and "
            f"label, and let {ROOT_VARIABLE} (or --root) name the folder"
        )
    found: dict[str, tuple[list[str], list[str]]] = {name: ([], []) for name in ("train", "dev", "test")}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["dataset"] == dataset:
                texts, labels = found[row["split"]]
                texts.append(row["text"])
                labels.append(row["label"])
    return found


def division(rows: dict[str, tuple[list[str], list[str]]], ratio: float, seed: int, validate: bool = False) -> Division:
    """Draw the known labels, and the rows that keep theirs; ``validate`` scores on unlabelled training rows instead."""
    texts, labels = rows["train"]
    names = sorted(set(labels))
    generator = np.random.default_rng([seed, 0x7E78])
    known = generator.choice(names, round(ratio * len(names)), replace=False)
    of_rows = np.array(labels)
    keeps = np.zeros(len(labels), bool)
    for name in sorted(known):
        place = np.flatnonzero(of_rows == name)
        keeps[generator.choice(place, round(LABELLED * len(place)), replace=False)] = True
    kept = np.arange(len(labels))
    test, truth = rows["test"]
    if validate:
        free = np.flatnonzero(~keeps)
        held = np.sort(generator.choice(free, round(HELD_OUT * len(free)), replace=False))
        kept = np.setdiff1d(kept, held)
        test, truth = [texts[i] for i in held], [labels[i] for i in held]
    y = [labels[i] if keeps[i] else None for i in kept]
    return Division([texts[i] for i in kept], y, list(test), list(truth), len(names))


@dataclass(frozen=True)
class Answer:
    """The cluster of each test row."""

    labels: NDArray[np.int64]
    facts: Record


@dataclass(frozen=True, eq=False)
class Trial:
    """One division of one data set, on which all methods are run."""

    division: Division
    seed: int
    folder: Path
    progress: bool

    @cached_property
    def vectors(self) -> tuple[Floats, Floats]:
        """The embeddings of training and test rows, as they come."""
        embedder = SentenceEmbedder(embedding_model())
        found = embedder.embed([*self.division.texts, *self.division.test], self.progress)
        return found[: len(self.division.texts)], found[len(self.division.texts) :]

    def self_trained(self, effort: str, told: bool) -> Answer:
        """MetaClusterer, trained by itself."""
        model = MetaClusterer(
            text="embeddings",
            embedding_model=embedding_model(),
            effort="fast" if effort == "fast" else "balanced",
            seed=self.seed,
            progress=self.progress,
        )
        division = self.division
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(
                division.texts,
                division.y,
                folder=self.folder / effort,
                resume=True,
                n_clusters=division.number if told else None,
            )
            found = model.discovered_.assign(division.test)
        return Answer(found.labels, {"clusters_of_train": model.discovered_.n_clusters})

    def kmeans(self) -> Answer:
        """KMeans on the embeddings of the test rows, told the number of labels."""
        found = KMeans(self.division.number, n_init=10, random_state=self.seed).fit_predict(self.vectors[1])
        return Answer(np.asarray(found, np.int64), {})

    def whitened(self) -> Answer:
        """KMeans seeded by the known labels on whitened embeddings of all rows, told the number."""
        train, test = self.vectors
        known = np.concatenate([self.division.known, np.full(len(test), -1)])
        both = whitened(np.concatenate([train, test]), known)
        start = first_centroids(both, known, self.division.number, np.random.default_rng(self.seed))
        return Answer(seeded_kmeans(both, known, start)[0][len(train) :], {})

    def fast_hdbscan(self) -> Answer:
        """Semi-supervised HDBSCAN of all rows; what it calls noise goes to the cluster with the nearest mean."""
        from fast_hdbscan import HDBSCAN

        train, test = self.vectors
        both = np.concatenate([train, test])
        known = np.concatenate([self.division.known, np.full(len(test), -1)])
        z = PCA(DENSITY_COLUMNS, random_state=self.seed).fit_transform(both)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = HDBSCAN(min_cluster_size=DENSITY_ROWS, semi_supervised=True).fit(z, known).labels_
        noise = found < 0
        facts = {"noise": round(float(noise[len(train) :].mean()), 4)}
        if noise.all():
            return Answer(np.zeros(len(test), np.int64), facts)
        means = means_of(both[~noise], found[~noise].astype(np.int64), int(found.max()) + 1)
        labels = np.where(noise, (both @ means.T).argmax(1), found)[len(train) :]
        return Answer(labels.astype(np.int64), facts)

    def nearest(self) -> Answer:
        """The nearest known label, and KMeans of the rows that are far from all, told the number."""
        (train, test), known = self.vectors, self.division.known
        own = train[known >= 0]
        means = np.array([own[known[known >= 0] == code].mean(0) for code in range(known.max() + 1)])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        limit = np.quantile((own * means[known[known >= 0]]).sum(1), 1 - NEAR)
        similar = test @ means.T
        labels, far = similar.argmax(1), np.flatnonzero(similar.max(1) < limit)
        new = self.division.number - len(means)
        if len(far) >= new > 0:
            labels[far] = len(means) + KMeans(new, n_init=10, random_state=self.seed).fit_predict(test[far])
        return Answer(labels.astype(np.int64), {"rows_of_new": len(far)})


def whitened(z: Floats, known: Labels) -> Floats:
    """Return unit vectors whose labelled rows have the same variance around their category in each direction."""
    own, codes = z[known >= 0].astype(np.float64), known[known >= 0]
    means = np.zeros((codes.max() + 1, z.shape[1]))
    np.add.at(means, codes, own)
    rest = own - (means / np.bincount(codes)[:, None])[codes]
    within = rest.T @ rest / len(rest)
    within = (1 - SHRINKAGE) * within + SHRINKAGE * np.trace(within) / len(within) * np.eye(len(within))
    values, axes = np.linalg.eigh(within)
    found = (z - z.mean(0)) @ (axes / np.sqrt(values)) @ axes.T
    unit: Floats = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
    return unit


Method = Callable[[Trial], Answer]
METHODS: dict[str, Method] = {
    "encoder": lambda trial: trial.self_trained("balanced", told=False),
    "residual": lambda trial: trial.self_trained("fast", told=False),
    "encoder-told": lambda trial: trial.self_trained("balanced", told=True),
    "residual-told": lambda trial: trial.self_trained("fast", told=True),
    "kmeans-told": Trial.kmeans,
    "whitened-told": Trial.whitened,
    "nearest-told": Trial.nearest,
    "fast-hdbscan": Trial.fast_hdbscan,
}
TITLES = {
    "encoder": "**metaclust, sentence encoder trained by itself**",
    "residual": "metaclust, residual encoder trained by itself",
    "encoder-told": "metaclust, sentence encoder, told K",
    "residual-told": "metaclust, residual encoder, told K",
    "kmeans-told": "KMeans on the embeddings of the test rows, told K",
    "whitened-told": "KMeans seeded by known labels, whitened embeddings, told K",
    "nearest-told": "nearest known label, KMeans of the rest, told K",
    "fast-hdbscan": "fast_hdbscan, semi-supervised, noise to the nearest cluster",
}


def available(methods: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return the methods that can be run here, of those that are wanted, and which cannot, and why."""
    chosen = list(METHODS if methods is None else methods)
    if unknown := sorted(set(chosen) - set(METHODS)):
        raise ValueError(f"--methods {', '.join(unknown)}: choose from {', '.join(METHODS)}")
    if "fast-hdbscan" in chosen and importlib.util.find_spec("fast_hdbscan") is None:
        chosen.remove("fast-hdbscan")
        return chosen, ["fast-hdbscan: not installed (pip install fast_hdbscan)"]
    return chosen, []


def run_discovery(
    dataset: str,
    *,
    known: float = 0.75,
    seeds: Sequence[int] = (0, 1, 2),
    out: str | os.PathLike[str] = "results",
    runs: str | os.PathLike[str] | None = None,
    root: str | os.PathLike[str] | None = None,
    methods: Sequence[str] | None = None,
    validate: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Run the missing trials, one record each in OUT/discovery/DATASET.jsonl; return where they are."""
    if known not in RATIOS:
        raise ValueError(f"--known {known}: choose one of {', '.join(str(ratio) for ratio in RATIOS)}")
    chosen, skipped = available(methods)
    rows = read_textoir(dataset, root)
    path = Path(out) / "discovery" / f"{dataset}{'-validation' if validate else ''}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, Bar("trials", len(seeds) * len(chosen), enabled=progress) as bar:
        for seed in seeds:
            same = {"dataset": dataset, "known": known, "seed": seed, "validate": validate}
            drawn = division(rows, known, seed, validate)
            place = Path(runs or temporary) / f"discovery-{dataset}-{known}-{seed}{'-validation' if validate else ''}"
            trial = Trial(drawn, seed, place, progress)
            for method in chosen:
                done = read_records(path)
                if not any(
                    all(one[name] == value for name, value in {**same, "method": method}.items()) for one in done
                ):
                    started = time.process_time()
                    answer = METHODS[method](trial)
                    seconds = round(time.process_time() - started, 1)
                    scores = {
                        name: round(100 * value, 3) for name, value in label_scores(drawn.truth, answer.labels).items()
                    }
                    record = {**same, "method": method, **scores, "clusters": len(set(answer.labels.tolist()))}
                    record |= {"labels": drawn.number, **answer.facts, "cpu_seconds": seconds, "commit": commit()}
                    append_record(path, record)
                bar.advance(facts=f"{dataset}, {known:.0%} known, seed {seed}, {method}")
    return {"results": str(path), "skipped": skipped}


def table(records: Sequence[Record]) -> str:
    """Return the mean over seeds of each method, and what is published."""
    lines = [
        "| data set, known | method | seeds | NMI | ARI | s.e. | ACC | K found | K | CPU s |",
        "|---" * 10 + "|",
    ]
    groups: dict[tuple[str, float], dict[str, list[Record]]] = {}
    for record in records:
        groups.setdefault((record["dataset"], record["known"]), {}).setdefault(record["method"], []).append(record)
    for (dataset, ratio), methods in sorted(groups.items(), key=lambda item: (-item[0][1], item[0][0])):
        name = f"{dataset}, {ratio:.0%}"
        for method in METHODS:
            group = methods.get(method, [])
            if not group:
                continue
            nmi, ari, acc, found, seconds = (
                np.mean([one[key] for one in group]) for key in ("nmi", "ari", "acc", "clusters", "cpu_seconds")
            )
            error = np.std([one["ari"] for one in group], ddof=1) / len(group) ** 0.5 if len(group) > 1 else None
            spread = "" if error is None else f"{error:.1f}"
            lines.append(
                f"| {name} | {TITLES[method]} | {len(group)} | {nmi:.1f} | {ari:.1f} | {spread} | {acc:.1f} | "
                f"{found:.1f} | {group[0]['labels']} | {seconds:.0f} |"
            )
        if (dataset, ratio) in PUBLISHED:
            nmi, ari, acc = PUBLISHED[dataset, ratio]
            lines.append(
                f"| {name} | USNID with BERT-base, told K (published) | 10 | {nmi:.1f} | {ari:.1f} | | {acc:.1f} | | "
                f"{DATASETS[dataset]} | |"
            )
    return "\n".join(lines)


def main(paths: Sequence[str]) -> None:
    """Print one table over results files."""
    print(table([record for path in paths for record in read_records(Path(path))]))


if __name__ == "__main__":
    main(sys.argv[1:])
