"""What a person should know of a training on images: that there is a better way, or that little was learned."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from metaclust.data.rows import DataWarning, Rows
from metaclust.training.runs import Run

LOW_ARI = 0.3
"""Below this ARI on held-out categories, clusters say little of categories."""
FROM_SCRATCH = ("pixels", "spectrograms")
"""Values of the options by which a network learns from images or sounds themselves."""
EMBEDDINGS = "images='embeddings' with an image_model (--images-as embeddings --image-model ...)"


def remarks_on(rows: Rows, input_shape: tuple[int, ...]) -> list[str]:
    """Return what is said of rows that are learned from their pixels."""
    if rows.kind != "images" or len(input_shape) != 3 or input_shape[0] == 1:
        return []
    return [
        "These are colour images, and what distinguishes them is learned from their pixels alone. Photographs are "
        f"clustered far better as embeddings by a network that has seen many others: {EMBEDDINGS}."
    ]


def warn_if_little_was_learned(run: Run, rows: Rows, settings: Mapping[str, Any], categories: int) -> None:
    """Warn where the categories that were held out are clustered badly, after as many steps as are usual."""
    by_pixels = rows.data_kind.values != "numbers" and settings.get(rows.data_kind.option or "") in FROM_SCRATCH
    if not by_pixels or run.best_step < 0 or run.best >= LOW_ARI:
        return
    if settings["pretrain_steps"] is not None or settings["steps"] is not None:
        return
    kind = rows.data_kind
    better = f", or give {EMBEDDINGS}" if kind.name == "images" else ""
    warnings.warn(
        f"{rows.source}: on categories held out from training, clusters agree with the categories by an ARI of "
        f"{run.best:.2f} only (1 is perfect, 0 is chance): {len(rows):,} {kind.plural} of {categories} categories are "
        f"too few, or too hard, to learn from. Give labelled {kind.plural} of more categories{better}",
        DataWarning,
        stacklevel=3,
    )
