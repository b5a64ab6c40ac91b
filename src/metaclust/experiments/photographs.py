"""Photographs as embeddings of an image model: MetaClusterer against KMeans, on categories that it has not seen.

    python -m metaclust.experiments.photographs run --dataset caltech101 --image-model MODEL.onnx --split 0 1 2 3 4 \
        --out results/photographs.jsonl
    python -m metaclust.experiments.photographs table results/photographs.jsonl

Of the categories, 80% are known and passed to ``fit``; piles are of 2 to 10 of the others, up to 40 photographs each.
The baselines are given the same embeddings. One JSON line for each (data set, image model, split, method); trials in
the file are not run again. ``--validate`` makes piles of the validation categories, with 60% known: settings are chosen
by that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from metaclust.data import load_dataset
from metaclust.data.datasets.named import Dataset
from metaclust.data.preparation.image_embedder import ImageEmbedder
from metaclust.experiments.records import append_record, commit, read_records, shown_title
from metaclust.experiments.unseen import Data, printed, run, run_or_table, table

METHODS = ("metaclust", "KMeans, K by silhouette", "KMeans told K")
TEST = "tasks"


def read_photographs(data: Dataset, image_model: str, scaling: str) -> Data:
    """Return photographs, and their embeddings for the baselines, from the cache that MetaClusterer reads, too."""
    settings: dict[str, Any] = {"images": "embeddings", "image_model": image_model, "image_scaling": scaling}
    embedder = ImageEmbedder(image_model, scaling=settings["image_scaling"])
    return Data(data.X, embedder.embed(list(np.asarray(data.X))), data.y, data.categories, settings)


def main() -> None:
    parser, running = run_or_table(__doc__, "make piles of validation categories")
    running.add_argument("--dataset", required=True)
    running.add_argument("--image-model", required=True, help="folder, name or .onnx file of the image model")
    running.add_argument("--image-scaling", default="auto", help="how pixels are scaled for an .onnx file")
    running.add_argument("--split", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    running.add_argument("--method", nargs="+", choices=METHODS, default=list(METHODS))
    arguments = parser.parse_args()
    if printed(arguments, table):
        return
    data = read_photographs(load_dataset(arguments.dataset), arguments.image_model, arguments.image_scaling)
    # Results name a model without its folder.
    model = Path(arguments.image_model).stem
    for split in arguments.split:
        same = {"dataset": arguments.dataset, "vectors": model, "split": split, "validate": arguments.validate}
        known = read_records(arguments.out)
        done = {record["method"] for record in known if all(record.get(key) == value for key, value in same.items())}
        wanted = [(TEST, method) for method in arguments.method if method not in done]
        for test, method, result in run(data, split, wanted, arguments.validate, dict(arguments.set)):
            append_record(arguments.out, {**same, "test": test, "method": method, **result, "commit": commit()})
            scores = f"{result['ari']:.4f} ({result['k_error']:.2f})"
            print(f"{arguments.dataset} {model} {split} {shown_title(method)}: {scores}", flush=True)


if __name__ == "__main__":
    main()
