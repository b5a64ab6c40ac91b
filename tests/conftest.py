"""Shared by the tests: one thread, reproducible draws, every way to fit a mixture, a folder to run commands in."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
import type_checks  # Before anything of metaclust, whose functions it decorates.
from hypothesis import settings

from metaclust import MetaClusterer
from metaclust.mixture import (
    FAMILIES,
    PAPER,
    Posterior,
    Prior,
    component_family,
    em_steps,
    expectation_maximization,
    variational_bayes,
    vb_steps,
)
from metaclust.mixture.families import Family, has_mean_covariance
from metaclust.training import recipe

collect_ignore = ["golden/make.py"]
"""It needs the code of version 0.1.0."""

torch.set_num_threads(1)
# Small data learn a selector of their own here; test_recipe.py has the limit of earnest.
recipe.FEWEST_FOR_CHOICE = 6
settings.register_profile("metaclust", deadline=None, derandomize=True, database=None, max_examples=30)
settings.load_profile("metaclust")


@dataclass(frozen=True)
class Fit:
    """One way to fit a mixture, with the same signature for all. EM has no concentration and ignores ``alpha``."""

    components: str
    mean_covariance: str = "unit"
    em: bool = False
    prior: Prior = PAPER

    def __call__(self, z: torch.Tensor, logits: torch.Tensor, alpha: Any = 1.0, **options: Any) -> Posterior:
        options["components"] = self.components
        if self.em:
            return expectation_maximization(z, logits, **options)
        return variational_bayes(z, logits, alpha=alpha, mean_covariance=self.mean_covariance, **options)

    def steps(self, z: torch.Tensor, logits: torch.Tensor, alpha: Any = 1.0, mask: Any = None) -> Iterator[Posterior]:
        family = component_family(self.components, self.mean_covariance, self.prior)
        if self.em:
            return em_steps(z, logits, family, mask)
        return vb_steps(z, logits, family, torch.as_tensor(alpha, dtype=torch.float64), mask)

    @property
    def precision_axes(self) -> int:
        return FAMILIES[self.components].precision_axes

    @property
    def covariance_type(self) -> str:
        """scikit-learn's name of the covariances."""
        return ("spherical", "diag", "full")[self.precision_axes]


VB = {
    f"{name}-{kind}" if has_mean_covariance(family) else name: Fit(name, kind)
    for name, family in FAMILIES.items()
    for kind in ("unit", "optimal")
    if kind == "unit" or has_mean_covariance(family)
}
EM = {f"em-{name}": Fit(name, em=True) for name in FAMILIES}


@pytest.fixture(scope="session", params=[*VB, *EM])
def fit(request: pytest.FixtureRequest) -> Fit:
    return {**VB, **EM}[request.param]


@pytest.fixture(scope="session", params=VB)
def vb_fit(request: pytest.FixtureRequest) -> Fit:
    return VB[request.param]


@pytest.fixture(scope="session", params=EM)
def em_fit(request: pytest.FixtureRequest) -> Fit:
    return EM[request.param]


@pytest.fixture(scope="session", params=VB)
def family(request: pytest.FixtureRequest) -> Family:
    """Every component family, under a prior that is not the paper's."""
    return component_family(VB[request.param].components, VB[request.param].mean_covariance, Prior(0.5, 1.5, 0.4))


@pytest.fixture(scope="session", params=FAMILIES)
def covariance(request: pytest.FixtureRequest) -> str:
    """The name of every component family."""
    name: str = request.param
    return name


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to run commands in of the folder ``made``, which each file of tests has its own of."""
    shutil.copytree(made, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture(scope="session", autouse=True)
def _few_tasks() -> Iterator[None]:
    """Priors are compared on few tasks: with the checks of types each step of inference takes many times as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metaclust.training.plan.VALIDATION_TASKS", 8)
        patch.setattr("metaclust.training.prior.PRIOR_TASKS", 2)
        patch.setattr("metaclust.training.prior.EFFECTIVE_ROWS", (8.0, 20.0))
        yield


@pytest.fixture(scope="session")
def trained() -> MetaClusterer:
    """One that has learned to tell Gaussian categories in 8 columns apart, and to select among their clusterings."""
    generator = np.random.default_rng(0)
    means = 3 * generator.normal(size=(40, 8))
    x = np.repeat(means, 25, 0) + generator.normal(size=(1000, 8))
    settings = {"pretrain_steps": 20, "steps": 5, "representation": 8, "choice_tasks": 60, "progress": False}
    model = MetaClusterer(encoder="residual", effective_rows=20, **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        return model.fit(x.astype(np.float32), np.repeat(np.arange(40), 25))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    type_checks.start_again()


@pytest.fixture
def _without_type_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments of a wrong type or shape reach the package's own errors, as they do outside the tests."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
