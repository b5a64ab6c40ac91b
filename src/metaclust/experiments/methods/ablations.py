"""Ours with one thing changed: the paper's ablations, the other component families, and the paper's own recipe."""

from __future__ import annotations

from dataclasses import replace

from metaclust.experiments.methods.ours import Ours
from metaclust.experiments.settings import PAPER_MODEL
from metaclust.model.config import ModelConfig
from metaclust.training.config import TrainingConfig

Settings = tuple[ModelConfig, TrainingConfig]


class WithoutTaskNetwork(Ours):
    """Initial assignments are standard normal logits."""

    name = "without-f_r"
    title = "w/o f_R"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> Settings:
        return replace(config, initial="random"), training


class WithoutPretraining(Ours):
    """The continuous ARI from the first step on, for as many steps as the others have in both phases."""

    name = "without-pretraining"
    title = "w/o Pretrain"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> Settings:
        steps = training.steps + training.pretrain_steps
        return config, replace(training, pretrain_steps=0, steps=steps, proto_weight=0.0)


class WithEM(Ours):
    """Maximum likelihood of a mixture with K' clusters."""

    name = "with-em"
    title = "w/ EM"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> Settings:
        return replace(config, inference="em"), training


class WithProb(Ours):
    """The ARI from the probability that two rows are in different clusters."""

    name = "with-prob"
    title = "w/ Prob"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> Settings:
        return config, replace(training, distance="prob")


class FullCovariance(Ours):
    """Components with a full covariance."""

    name = "full-covariance"
    title = "full covariance"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> Settings:
        return replace(config, components="full"), training


class UnitMeanCovariance(Ours):
    """q(mu) has the paper's covariance, the identity."""

    name = "unit-mean-covariance"
    title = "unit mean covariance"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> Settings:
        return replace(config, mean_covariance=PAPER_MODEL.mean_covariance), training


class OptimalMeanCovariance(Ours):
    """q(mu) has the covariance that is best for the bound."""

    name = "optimal-mean-covariance"
    title = "optimal mean covariance"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> Settings:
        return replace(config, mean_covariance="optimal"), training


class PaperRecipe(Ours):
    """Trained as in the paper: T = 10, unit covariance of q(mu), the ARI after the last step alone, a constant rate."""

    name = "paper-recipe"
    title = "Ours, the paper's recipe"

    @classmethod
    def adapt(cls, config: ModelConfig, training: TrainingConfig) -> Settings:
        recipe = TrainingConfig.preset(
            "paper",
            seed=training.seed,
            pretrain_steps=training.pretrain_steps,
            steps=training.steps,
            validate_every=training.validate_every,
        )
        paper = PAPER_MODEL
        changed = replace(config, steps=paper.steps, mean_covariance=paper.mean_covariance, dropout=paper.dropout)
        return changed, recipe
