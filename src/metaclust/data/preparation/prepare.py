"""From rows as read to what the encoder takes: fitted on the training rows, and described in the model file."""

from __future__ import annotations

import reprlib
from typing import Any

from metaclust.data.kinds import one_of
from metaclust.data.preparation.base import (
    ImagesAs,
    Options,
    Preparation,
    Scaling,
    SoundsAs,
    TextAs,
    described_fields,
)
from metaclust.data.preparation.embeddings import EmbeddingPreparation
from metaclust.data.preparation.image_embeddings import ImageEmbeddingPreparation
from metaclust.data.preparation.images import ImagePreparation
from metaclust.data.preparation.pixels import ImageScaling
from metaclust.data.preparation.sound_statistics import SoundStatisticsPreparation
from metaclust.data.preparation.sounds import SoundEmbeddingPreparation, SpectrogramPreparation
from metaclust.data.preparation.table import TablePreparation
from metaclust.data.preparation.vectors import VectorPreparation
from metaclust.data.preparation.vocabulary import WordRules
from metaclust.data.preparation.words import WordPreparation
from metaclust.data.readers.decoding import Fit
from metaclust.data.rows import DataError, Rows

__all__ = [
    "PREPARATIONS",
    "ImageScaling",
    "ImagesAs",
    "Preparation",
    "Scaling",
    "SoundsAs",
    "TextAs",
    "describe_preparation",
    "fit_preparation",
    "preparation_from",
]

PREPARATIONS: dict[str, Any] = {
    "vectors": VectorPreparation,
    "images": ImagePreparation,
    "image-embeddings": ImageEmbeddingPreparation,
    "spectrograms": SpectrogramPreparation,
    "sound-statistics": SoundStatisticsPreparation,
    "sound-embeddings": SoundEmbeddingPreparation,
    "words": WordPreparation,
    "embeddings": EmbeddingPreparation,
    "table": TablePreparation,
}
"""The preparations by the names that ``KINDS`` and the files of models use."""


def fit_preparation(
    rows: Rows,
    *,
    scaling: Scaling = "auto",
    text: TextAs = "tfidf",
    rules: WordRules | None = None,
    embedding_model: str | None = None,
    images: ImagesAs = "pixels",
    image_model: str | None = None,
    image_scaling: ImageScaling = "auto",
    sounds: SoundsAs = "statistics",
    fit: Fit = "stretch",
) -> tuple[Preparation, Rows]:
    """Learn from the training rows how rows like them are prepared for the encoder.

    Parameters
    ----------
    rows : Rows
        The training rows, as :func:`read_data` or :func:`rows_from_array` return them.
    scaling : {"auto", "standard", "none"}
        Scaling of the columns of vectors. "auto" standardises them, unless all rows have length one, as embeddings
        have.
    text : {"tfidf", "counts", "embeddings"}
        What texts become: TF-IDF, word counts, or sentence embeddings of ``embedding_model``.
    rules : WordRules, optional
        Which words and documents to keep for TF-IDF and word counts.
    embedding_model : str, optional
        The folder of a sentence-transformers model, or its name on the Hugging Face hub.
    images : {"pixels", "embeddings"}
        What images become: pixels of one size, or embeddings of ``image_model``.
    image_model : str, optional
        The folder of a vision model that transformers loads, its name on the Hugging Face hub, or an .onnx file.
    image_scaling : {"auto", "imagenet", "symmetric", "unit", "raw"}
        How pixels are scaled for an .onnx file: by the mean and deviation of ImageNet (the default), to -1 to 1, to
        0 to 1, or not.
    sounds : {"statistics", "spectrograms", "embeddings"}
        What sounds become: statistics of their cepstra, spectrograms as images, or embeddings of their spectrograms by
        ``image_model``.
    fit : {"stretch", "crop", "pad"}
        How later image files are brought to the size of these images, and images to that of an .onnx file.

    Returns
    -------
    preparation : Preparation
        Called with rows, it returns a tensor, or :class:`SparseRows` for bags of words.
    rows : Rows
        The rows that are kept: the word rules may leave some out.
    """
    kind = rows.data_kind
    asked = {"text": text, "images": images, "sounds": sounds}
    chosen = "" if kind.option is None else asked[kind.option]
    if chosen not in kind.preparations:
        raise ValueError(f"{kind.option}={chosen!r}: choose {one_of(kind.preparations)}")
    options = Options(scaling, text, rules, embedding_model, fit, images, image_model, image_scaling, sounds)
    fitted: tuple[Preparation, Rows] = PREPARATIONS[kind.preparations[chosen]].from_rows(rows, options)
    return fitted


def describe_preparation(preparation: Preparation) -> dict[str, Any]:
    """Return a preparation as JSON can hold it, for ``save_model(..., input=...)``.

    Parameters
    ----------
    preparation : Preparation
        As :func:`fit_preparation` returns it.
    """
    names = described_fields(preparation)
    return {"preparation": preparation.name, **{name: getattr(preparation, name) for name in names}}


def preparation_from(description: dict[str, Any]) -> Preparation:
    """Return the preparation that :func:`describe_preparation` described.

    Parameters
    ----------
    description : dict
        Read from a model file. Anything that does not describe a preparation is a :class:`DataError`.
    """
    settings = dict(description)
    name = settings.pop("preparation", None)
    if not isinstance(name, str) or name not in PREPARATIONS:
        raise DataError(f"the model file does not say how its rows were prepared (preparation={reprlib.repr(name)})")
    cls = PREPARATIONS[name]
    unknown = sorted(set(settings) - set(described_fields(cls)))
    if unknown:
        raise DataError(
            f"unknown settings {reprlib.repr(unknown)} of preparation {name!r}: the file was written by a newer "
            "metaclust"
        )
    frozen = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    try:
        preparation: Preparation = cls(**frozen)
    except TypeError as error:
        raise DataError(f"the description of preparation {name!r} is incomplete: {error}") from error
    return preparation
