"""What the tests share: one thread, reproducible draws, and the five ways to fit a mixture as one fixture."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import settings

from metaclust.mixture import (
    PAPER,
    Posterior,
    Prior,
    component_family,
    em_steps,
    expectation_maximization,
    variational_bayes,
    vb_steps,
)

torch.set_num_threads(1)
settings.register_profile("metaclust", deadline=None, derandomize=True, database=None, max_examples=30)
settings.load_profile("metaclust")


@dataclass(frozen=True)
class Fit:
    """One way to fit a mixture, called alike whichever it is. EM has no concentration and ignores ``alpha``."""

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


VB = {
    "spherical-unit": Fit("spherical"),
    "spherical-optimal": Fit("spherical", "optimal"),
    "full": Fit("full"),
}
EM = {"em-spherical": Fit("spherical", em=True), "em-full": Fit("full", em=True)}


@pytest.fixture(scope="session", params=[*VB, *EM])
def fit(request: pytest.FixtureRequest) -> Fit:
    return {**VB, **EM}[request.param]


@pytest.fixture(scope="session", params=VB)
def vb_fit(request: pytest.FixtureRequest) -> Fit:
    return VB[request.param]


@pytest.fixture(scope="session", params=EM)
def em_fit(request: pytest.FixtureRequest) -> Fit:
    return EM[request.param]


@pytest.fixture(scope="session", autouse=True)
def _few_tasks() -> Iterator[None]:
    """Priors are compared on few tasks: with the checks of types each step of inference takes many times as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metaclust.training.prior.PRIOR_TASKS", 2)
        patch.setattr("metaclust.training.prior.EFFECTIVE_ROWS", (8.0, 20.0))
        yield


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def _without_type_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments of a wrong type or shape reach the package's own errors, as they do outside the tests."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
