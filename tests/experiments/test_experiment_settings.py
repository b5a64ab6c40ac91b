"""The settings of the experiments, written out: what each method is trained with, whatever the presets are made of."""

from dataclasses import asdict
from types import SimpleNamespace

import pytest

from metaclust.experiments.budgets import BUDGETS
from metaclust.experiments.lab import Lab
from metaclust.experiments.settings import PAPER_MODEL, PAPER_TRAINING, Variant
from metaclust.model.config import ModelConfig
from metaclust.training.config import TrainingConfig


def settings(monkeypatch, method, *, dataset="omniglot", budget="standard", variant=None):
    lab = Lab(dataset, BUDGETS[budget], "unused")
    shape = (1, 28, 28) if dataset == "omniglot" else (40,)
    monkeypatch.setattr(lab, "problem", lambda *_: SimpleNamespace(input_shape=shape))
    new = lab.new(method, 3, variant or Variant())
    return new.config, new.training


MODEL = {
    "representation": 10,
    "max_clusters": 10,
    "steps": 10,
    "hidden": 256,
    "task_hidden": 64,
    "filters": 32,
    "strided": True,
    "dropout": 0.0,
    "mean_covariance": "optimal",
    "initial": "random",
}
OURS = {**MODEL, "initial": "network"}
TRAINING = {
    "seed": 3,
    "pretrain_steps": 0,
    "steps": 1000,
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "objective": "every-step",
    "proto_weight": 1.0,
    "seeded": 0,
    "task_clip": 0.1,
    "clip": 1.0,
    "validate_every": 500,
    "patience": None,
}
TWO_PHASES = {**TRAINING, "pretrain_steps": 1000, "steps": 800}
RECIPE = {
    **TWO_PHASES,
    "schedule": "constant",
    "objective": "last-step",
    "proto_weight": 0.0,
    "task_clip": None,
    "clip": None,
    "patience": 10,
}


@pytest.mark.parametrize(
    ("method", "model", "training"),
    [
        ("ours", OURS, TWO_PHASES),
        ("proto", MODEL, TRAINING),
        ("triplet", MODEL, TRAINING),
        ("pca", MODEL, TRAINING),
        ("proto-long", MODEL, {**TRAINING, "steps": 1800}),
        ("vade", OURS, {**TRAINING, "pretrain_steps": 100, "steps": 100}),
        ("unit-mean-covariance", {**OURS, "mean_covariance": "unit"}, TWO_PHASES),
        ("paper-recipe", {**OURS, "mean_covariance": "unit", "dropout": 0.1}, RECIPE),
    ],
)
def test_each_method_has_the_settings_of_the_protocol(method, model, training, monkeypatch):
    assert settings(monkeypatch, method) == (ModelConfig((1, 28, 28), **model), TrainingConfig(**training))


def test_budget_data_set_and_variant_change_what_is_theirs(monkeypatch):
    config, training = settings(monkeypatch, "ours", budget="paper", variant=Variant(s=2, t=50, categories=29))
    assert config == ModelConfig((1, 28, 28), **{**OURS, "representation": 2, "steps": 50, "strided": False})
    assert (training.pretrain_steps, training.steps, training.validate_every) == (10_000, 10_000, 500)
    config, _ = settings(monkeypatch, "ours", dataset="patents-ipc")
    assert config == ModelConfig((40,), **{**OURS, "dropout": 0.1})


def test_the_papers_settings_are_the_presets():
    """S, T, K', hidden units and filters of the paper; what the variants of an experiment start from."""
    paper = PAPER_MODEL
    assert (paper.representation, paper.steps, paper.max_clusters, paper.hidden, paper.filters) == (10, 10, 10, 256, 32)
    assert (paper.task_hidden, paper.mean_covariance, paper.dropout) == (256, "unit", 0.1)
    assert (PAPER_TRAINING.seeded, PAPER_TRAINING.learning_rate, PAPER_TRAINING.objective) == (0, 1e-3, "last-step")
    assert asdict(Variant()) == {"s": 10, "t": 10, "categories": None}
