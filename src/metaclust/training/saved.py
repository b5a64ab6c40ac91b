"""What a model file says of its MetaClusterer besides the weights: settings, the preparation of rows, decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from metaclust._util import schema
from metaclust.data.preparation.model_folder import NamedByFile
from metaclust.data.preparation.prepare import Preparation, describe_preparation, preparation_from
from metaclust.data.rows import DataError
from metaclust.model.clustering_model import ClusteringModel
from metaclust.training.settings import SAVED_SETTINGS

DECISIONS = {"decisions": schema.list_of(schema.text)}


@dataclass(frozen=True)
class SavedEstimator:
    """The part of a fitted MetaClusterer that is not its model."""

    settings: Mapping[str, Any]
    preparation: Preparation
    feature_names: list[str] | None
    decisions: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        settings = {
            name: value.item() if isinstance(value, np.generic) else value for name, value in self.settings.items()
        }
        settings["task_rows"] = [int(rows) for rows in settings["task_rows"]]
        # 0 and 1 are as good as False and True in Python, but not in the checks of a file.
        settings["progress"] = bool(settings["progress"])
        if not isinstance(settings["augment"], str):
            settings["augment"] = bool(settings["augment"])
        return {
            **describe_preparation(self.preparation),
            "estimator": settings,
            "feature_names": self.feature_names,
            "decisions": self.decisions,
        }

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], model: ClusteringModel) -> SavedEstimator:
        """Return what a file says, if it is in order and fits the model; settings that are unknown are left out."""
        rest = dict(described)
        settings = rest.pop("estimator", {"max_clusters": model.config.max_clusters})
        schema.fields(settings, {}, SAVED_SETTINGS, "estimator")
        names = rest.pop("feature_names", None)
        decisions = rest.pop("decisions", [])
        schema.fields({"decisions": decisions}, DECISIONS)
        if "task_rows" in settings:
            settings = {**settings, "task_rows": tuple(settings["task_rows"])}
        for name in ("embedding_model", "image_model"):
            if isinstance(settings.get(name), str):
                settings = {**settings, name: NamedByFile(settings[name])}
        preparation = preparation_from(rest)
        if preparation.input_shape != model.config.input_shape:
            raise DataError(
                f"its rows are prepared as {preparation.input_shape}, but the model takes {model.config.input_shape}"
            )
        if model.weight_dtype != torch.float32:
            raise DataError(f"its weights are {model.weight_dtype}, but rows are prepared in float32: use load_model")
        if preparation.kind != "vectors":
            names = None
        if names is not None:
            check = schema.list_of(schema.text, preparation.input_shape[0])
            schema.fields({"feature_names": names}, {"feature_names": check})
            if (columns := getattr(preparation, "columns", ())) and columns != tuple(names):
                raise DataError("feature_names are not the columns of its preparation")
        return cls(settings, preparation, names, decisions)
