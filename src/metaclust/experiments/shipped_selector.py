"""Learn the selector that comes with the package, from the categories of several data sets.

    python -m metaclust.experiments.shipped_selector --out src/metaclust/inference/selector.safetensors \
        --embedding-model MODEL

It serves models that have too few categories to learn a selector of their own. Its tasks are of the WordNet glosses and
the questions of CLINC150 (texts, as sentence embeddings), the icons and Omniglot background alphabets (images), and of
two made tables of numbers. From each, representations of categories are taken that the encoder was not trained on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metaclust._util.tensors import write_tensors
from metaclust.data import load_dataset
from metaclust.data.inputs import as_rows
from metaclust.data.preparation.prepare import fit_preparation
from metaclust.data.rows import Rows
from metaclust.estimator import MetaClusterer
from metaclust.inference.calibrate import Unseen, learn_selector
from metaclust.training.plan import recipe_for
from metaclust.training.recipe import learn_representation

TASKS = 900
TABLES = {"table": (0, 24, 1.0), "wide table": (1, 60, 0.5)}
"""Made tables: the seed, the number of columns, and the standard deviation of the log variance of a column."""
SETTINGS: dict[str, dict[str, Any]] = {
    "icons": {"pretrain_steps": 300, "steps": 50},
    "omniglot": {"pretrain_steps": 300, "steps": 50},
}
SOURCES = ("wordnet", "clinc150", "icons", "omniglot", *TABLES)
TEXTS = ("wordnet", "clinc150")


def made_table(seed: int, columns: int, spread: float, categories: int = 80, rows: int = 60) -> tuple[Any, Any]:
    """Make a table of numbers: categories in groups, with different variances and heavy tails."""
    generator = np.random.default_rng([seed, 0x7AB1E])
    groups = generator.normal(size=(categories // 5, columns))
    y = np.repeat(np.arange(categories), rows)
    centre = groups[np.arange(categories) % len(groups)] + 0.8 * generator.normal(size=(categories, columns))
    scale = (
        0.9 * np.exp(spread / 2 * generator.normal(size=columns)) * np.exp(0.2 * generator.normal(size=(categories, 1)))
    )
    noise = generator.standard_t(6, size=(len(y), columns))
    return centre[y] + scale[y] * noise, y


def rows_of(source: str, root: Path | None) -> Rows:
    """Return labelled rows of a data set."""
    if source in TABLES:
        return as_rows(*made_table(*TABLES[source]))
    data = load_dataset(source, root=root)
    return as_rows(data.X, np.array(data.categories)[data.y])


def unseen_parts(rows: Rows, settings: dict[str, Any]) -> list[Unseen]:
    """Train a model on some of the categories, and return representations of others."""
    model = MetaClusterer(progress=True, **settings)
    rows = rows.without_small_categories()
    text = settings.get("text", "tfidf")
    preparation, rows = fit_preparation(
        rows, scaling="auto", text=text, embedding_model=settings.get("embedding_model")
    )
    y: NDArray[np.int64] = rows.numbered()[0]
    recipe = recipe_for(model.get_params(), preparation(rows), y, preparation.input_shape, folder=None, resume=False)
    return learn_representation(recipe).unseen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--source", nargs="+", choices=SOURCES, default=list(SOURCES), help="data sets to learn from")
    parser.add_argument("--embedding-model", help="folder or name of a sentence-transformers model")
    parser.add_argument("--root", type=Path, help="folder of the data sets")
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    parts: list[Unseen] = []
    for source in arguments.source:
        settings = dict(SETTINGS.get(source, {}))
        if source in TEXTS:
            settings |= {"text": "embeddings", "embedding_model": arguments.embedding_model}
        found = unseen_parts(rows_of(source, arguments.root), settings)
        # Each source has as many tasks as any other.
        parts += (found * 3)[:3]
        print(f"{source}: {[len(np.unique(part.y)) for part in found]} categories", flush=True)
    network = learn_selector(parts, tasks=arguments.tasks)
    header = {"kind": "selector", "sources": arguments.source, "tasks": arguments.tasks}
    write_tensors(arguments.out, network.state_dict(), header)


if __name__ == "__main__":
    main()
