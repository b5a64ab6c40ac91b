"""Ours with one thing changed: the paper's ablations, the other component families, and the paper's own recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from metaclust.experiments.methods.ours import Ours
from metaclust.experiments.settings import PAPER_MODEL
from metaclust.model.config import ModelConfig
from metaclust.training.config import TrainingConfig

Settings = tuple[ModelConfig, TrainingConfig]


class WithoutPretraining(Ours):
    """The continuous ARI from the first step on, for as many steps as the others have in both phases."""

    name = "without-pretraining"
    title = "w/o Pretrain"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> Settings:
        steps = training.steps + training.pretrain_steps
        return config, replace(training, pretrain_steps=0, steps=steps, proto_weight=0.0)


class PaperRecipe(Ours):
    """Trained as in the paper: T = 10, unit covariance of q(mu), the ARI after the last step alone, a constant rate."""

    name = "paper-recipe"
    title = "Ours, the paper's recipe"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> Settings:
        kept = {name: getattr(training, name) for name in ("seed", "pretrain_steps", "steps", "validate_every")}
        changes = {name: getattr(PAPER_MODEL, name) for name in ("steps", "mean_covariance", "dropout")}
        return replace(config, **changes), TrainingConfig.preset("paper", **kept)


def changed(name: str, title: str, training: Mapping[str, Any] | None = None, **model: Any) -> type[Ours]:
    """Return Ours with other settings of the model, or of the training."""

    def adapt(cls: type[Ours], config: ModelConfig, usual: TrainingConfig) -> Settings:
        return replace(config, **model), replace(usual, **(training or {}))

    return type(name, (Ours,), {"name": name, "title": title, "adapt": classmethod(adapt), "__module__": __name__})


ABLATIONS = (
    # Initial assignments are standard normal logits.
    changed("without-f_r", "w/o f_R", initial="random"),
    WithoutPretraining,
    # Maximum likelihood of a mixture with K' clusters.
    changed("with-em", "w/ EM", inference="em"),
    # The ARI from the probability that two rows are in different clusters.
    changed("with-prob", "w/ Prob", {"distance": "prob"}),
    changed("full-covariance", "full covariance", components="full"),
    # q(mu) has the paper's covariance, the identity, or the one that is best for the bound.
    changed("unit-mean-covariance", "unit mean covariance", mean_covariance=PAPER_MODEL.mean_covariance),
    changed("optimal-mean-covariance", "optimal mean covariance", mean_covariance="optimal"),
    PaperRecipe,
)
