"""From the settings of MetaClusterer to a recipe: which tasks train, which validate, and the model's configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util.devices import choose_device
from metaclust._util.distributed import current
from metaclust.data.kinds import KINDS, Kind
from metaclust.data.rows import Rows
from metaclust.data.sparse import SparseRows
from metaclust.model.config import ModelConfig
from metaclust.training.augmentation import ImageAugmentation
from metaclust.training.batches import Task
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import TaskSampler
from metaclust.training.recipe import Recipe
from metaclust.training.tuning import STEPS, Tuner

VALIDATION_TASKS = 40
DROPOUT = 0.1
"""For rows that are not images; chosen on validation categories of vectors and of sentence embeddings."""
SHIFT = 0.035
"""For images, see ``ModelConfig.shift``; chosen on validation alphabets of Omniglot."""
IMAGE_REPRESENTATION = 128
"""The columns of representations of images by a residual network, where no other number is given."""
TRAINED_CLUSTERS = 10
"""Where ``max_clusters`` is "auto": as in the paper."""
FEWEST_FOR_VALIDATION = 8
"""With fewer categories than this, all are trained on and none is held out."""


def recipe_for(
    settings: Mapping[str, Any],
    x: Tensor | SparseRows,
    y: NDArray[np.int64],
    input_shape: tuple[int, ...],
    kind: Kind = "images",
    *,
    folder: str | os.PathLike[str] | None,
    resume: bool,
    texts: EmbeddedTexts | None = None,
) -> Recipe:
    """Return how to learn from prepared rows ``x`` of the categories ``y``; ``kind`` is what they were.

    ``texts`` are what was embedded, where the embedding model may be trained, too.
    """
    images, paper = len(input_shape) == 3, settings["preset"] == "paper"
    if images and paper and settings["encoder"] == "residual":
        raise ValueError("encoder='residual' with preset='paper': the paper's images need encoder='network' or 'auto'")
    sampler, validation = training_tasks(settings, x, y, augmentation_of(settings, kind) if images else None)
    changes: dict[str, Any] = {
        "max_clusters": trained_clusters(settings),
        "components": settings["components"],
        "learn_prior": not paper,
    }
    if images and not paper and settings["encoder"] in ("auto", "residual"):
        changes |= {"encoder": "residual", "unit": True, "representation": IMAGE_REPRESENTATION}
    if settings["representation"] is not None:
        changes["representation"] = settings["representation"]
    if settings["dropout"] is not None:
        changes["dropout"] = settings["dropout"]
    elif not paper:
        changes["dropout"] = 0.0 if images else DROPOUT
    if images and not paper:
        changes["shift"] = SHIFT
    return Recipe(
        sampler,
        validation,
        ModelConfig.preset(settings["preset"], input_shape, **changes),
        TrainingConfig.preset(settings["preset"], seed=int(settings["seed"])),
        choose_device(settings["device"]),
        encoder="network" if paper and settings["encoder"] == "auto" else settings["encoder"],
        representation=settings["representation"],
        dropout=settings["dropout"],
        choose=settings["choose"],
        effective_rows=settings["effective_rows"],
        choice_tasks=int(settings["choice_tasks"]),
        tuner=tuner_for(settings, y, texts),
        pretrain_steps=settings["pretrain_steps"],
        steps=settings["steps"],
        folder=folder,
        resume=resume,
        progress=settings["progress"] and current().main,
    )


EmbeddedTexts = tuple[str, Sequence[str]]
"""The name or folder of an embedding model, and the texts that it embedded."""


def tuner_for(settings: Mapping[str, Any], y: NDArray[np.int64], texts: EmbeddedTexts | None) -> Tuner | None:
    """Return what trains the embedding model itself, where there is one and the settings allow it."""
    effort, encoder = settings["effort"], settings["encoder"]
    steps = STEPS["balanced" if encoder == "tuned" and effort == "fast" else effort]
    if texts is None or encoder not in ("auto", "tuned") or not steps or settings["preset"] == "paper":
        return None
    device = choose_device(settings["device"])
    return Tuner(
        texts[0],
        texts[1],
        y,
        steps,
        int(settings["seed"]),
        device,
        settings["progress"],
    )


def trained_clusters(settings: Mapping[str, Any]) -> int:
    """Return the largest number of categories of a training task, and of clusters that the learned start may have."""
    return TRAINED_CLUSTERS if settings["max_clusters"] == "auto" else int(settings["max_clusters"])


def training_tasks(
    settings: Mapping[str, Any], x: Tensor | SparseRows, y: NDArray[np.int64], augment: ImageAugmentation | None
) -> tuple[TaskSampler, list[Task]]:
    """Return the sampler of training tasks, and the fixed tasks of held-out categories."""
    categories, seed = np.unique(y), int(settings["seed"])
    held = 0
    if settings["validation"] and len(categories) >= FEWEST_FOR_VALIDATION:
        held = max(2, round(settings["validation"] * len(categories)))
    order = np.random.default_rng([seed, 0x5B1]).permutation(categories)
    low, high = settings["task_rows"]
    sampler = TaskSampler(
        x,
        y,
        order[held:],
        n_categories=(2, max(2, trained_clusters(settings))),
        rows=(low, high),
        imbalanced=True,
        seed=seed,
        augment=augment,
    )
    return sampler, replace(sampler, categories=order[:held], augment=None).fixed(VALIDATION_TASKS) if held else []


def augmentation_of(settings: Mapping[str, Any], kind: Kind) -> ImageAugmentation | None:
    """Return how training images are changed; of spectrograms, the axes keep their meaning."""
    if not settings["augment"]:
        return None
    if kind == "sounds":
        return ImageAugmentation(degrees=0, shear=0)
    return ImageAugmentation(turn_categories=settings["augment"] == "turn")


def options_of(rows: Rows) -> set[str]:
    """Return the settings that say how rows like these are prepared: of tables with texts, how these are."""
    option = rows.data_kind.option
    texts = rows.kind == "text" or any(each.treatment == "text" for each in rows.usage.values())
    return set() if option is None or (option == "text" and not texts) else {option}


def check_applicable(settings: Mapping[str, Any], rows: Rows) -> None:
    """Raise an error for a setting that would be ignored with rows of this kind."""
    kind = rows.data_kind
    form = settings.get(kind.option) if kind.option else None
    augmented = {"pixels": (True, "turn"), "spectrograms": (True,)}.get(str(form), ())
    if settings["augment"] in (True, "turn") and settings["augment"] not in augmented:
        held = f"{kind.plural} as {form}" if kind.option in ("images", "sounds") else kind.plural
        raise ValueError(f"augment={settings['augment']!r} is for images, but {rows.source} holds {held}")
    if settings["scaling"] != "auto" and kind.name != "vectors":
        raise ValueError(f"scaling={settings['scaling']!r} is for vectors, but {rows.source} holds {kind.plural}")
    applicable = options_of(rows)
    for other in KINDS.values():
        if other.option and other.option not in applicable and settings[other.option] != next(iter(other.preparations)):
            given = f"{other.option}={settings[other.option]!r}"
            raise ValueError(f"{given} is for {other.plural}, but {rows.source} holds {kind.plural}")
    if settings["encoder"] == "tuned" and settings["text"] != "embeddings":
        raise ValueError(
            "encoder='tuned' trains the embedding model of texts: it needs text='embeddings' and an embedding_model"
        )
    if settings["encoder"] == "tuned" and kind.name != "text":
        raise ValueError(
            f"encoder='tuned' trains the embedding model of texts alone, but {rows.source} holds {kind.plural}: choose "
            "another encoder, or rows of text"
        )
    if settings["embedding_model"] is not None and settings["text"] != "embeddings":
        raise ValueError(
            f"embedding_model={settings['embedding_model']!r} is for text='embeddings', but text={settings['text']!r}"
        )
    for name, usual in (("image_model", None), ("image_scaling", "auto")):
        if settings[name] != usual and settings["images"] != "embeddings":
            raise ValueError(f"{name}={settings[name]!r} is for images='embeddings', but images={settings['images']!r}")
