"""The trials of each experiment, and how one trial is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np
from sklearn.manifold import TSNE

from metaclust.experiments.lab import Lab
from metaclust.experiments.methods import EncoderMethod, Method
from metaclust.experiments.methods.base import settings_of
from metaclust.experiments.methods.headed import HeadedMethod, HeadedModel
from metaclust.experiments.settings import Variant
from metaclust.experiments.worth import compared
from metaclust.inference.baselines import BASELINES
from metaclust.training.evaluation import compare
from metaclust.training.losses import ari_loss
from metaclust.training.optimizer import new_optimizer

TABLE1 = ("ours", "proto", "ae", "siamese", "triplet", "nn", "vade", "pca", "flda", "proto-long", "paper-recipe")
TABLE1_BASELINES = ("kmeans-silhouette", "hdbscan", "bayesian-gaussian-mixture", "kmeans-true-k")
WITH_BASELINES = ("ours", "proto")
"""The methods on whose representations the baselines run."""
ABLATIONS = (
    "ours",
    "without-f_r",
    "without-pretraining",
    "with-em",
    "with-prob",
    "full-covariance",
    "unit-mean-covariance",
    "paper-recipe",
)
TIMED = ("ours", "proto", "ae", "siamese", "triplet", "nn", "vade", "pca", "flda", "paper-recipe")
SHOWN = ("ours", "proto", "ae", "triplet")
STEPS_IN_TRAINING = (1, 3, 5, 10, 50, 100)
STEPS_IN_TEST = (1, 2, 3, 5, 10, 20, 50, 100)
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
"""The shares of the training categories."""
TIMED_STEPS = 20


@dataclass(frozen=True)
class Trial:
    """One line of a results file."""

    experiment: str
    dataset: str
    method: str
    split: int
    variant: Variant = field(default_factory=Variant)
    steps: int | None = None
    """Steps of inference in testing, where they vary."""

    def identity(self, budget: str) -> dict[str, Any]:
        """Return what tells this trial from all others, as results files have it."""
        return {
            "experiment": self.experiment,
            "dataset": self.dataset,
            "method": self.method,
            "split": self.split,
            "setting": {**asdict(self.variant), "test_steps": self.steps},
            "budget": budget,
        }


def measure_test(trial: Trial, lab: Lab, progress: bool) -> dict[str, Any]:
    """Fit and test. Encoder methods are also tested by the paper's inference: T steps from their own start."""
    name, _, baseline = trial.method.partition(" + ")
    method = lab.fitted(name, trial.split, trial.variant, progress)
    number = trial.variant.categories
    if baseline:
        started = time.perf_counter()
        tasks = lab.problem(trial.split).test
        z = lab.representations(method, trial.split)
        labels = [BASELINES[baseline](rows, task.n_categories) for rows, task in zip(z, tasks, strict=True)]
        return {
            "test": compare(tasks, labels).summary(),
            "test_seconds_a_task": (time.perf_counter() - started) / len(tasks),
            "training_seconds": method.seconds,
        }
    result, seconds = lab.test(method, trial.split, number)
    measured = {
        "test": result.summary(),
        "test_seconds_a_task": seconds,
        "training_seconds": method.seconds,
        "training_categories": len(lab.problem(trial.split, number).sampler.categories),
        "settings": settings_of(method),
    }
    if isinstance(method, EncoderMethod):
        measured |= {"validation_ari": method.validation_ari, "scale": method.frame.scale}
        own, _ = lab.test(method, trial.split, number, starts=1, tol=None)
        measured["own_start"] = own.summary()
    return measured


def measure_steps(trial: Trial, lab: Lab, progress: bool) -> dict[str, Any]:
    """Test with the trial's number of steps: from the network's start, and from the best of ten starts."""
    method = lab.fitted(trial.method, trial.split, trial.variant, progress)
    own, _ = lab.test(method, trial.split, starts=1, tol=None, steps=trial.steps)
    best, seconds = lab.test(method, trial.split, starts=10, tol=None, steps=trial.steps)
    return {"test": best.summary(), "own_start": own.summary(), "test_seconds_a_task": seconds}


def measure_time(trial: Trial, lab: Lab, progress: bool) -> dict[str, Any]:
    """Time a step of the method and one of Proto in turn, so that other load on the machine affects both."""
    method = lab.fitted(trial.method, trial.split, trial.variant, progress)
    _, seconds = lab.test(method, trial.split)
    measured: dict[str, Any] = {"test_seconds_a_task": seconds, "training_seconds": method.seconds}
    step = stepper(method, lab, trial.split)
    if step is not None:
        proto = stepper(lab.fitted("proto", trial.split, trial.variant, progress), lab, trial.split)
        pairs = []
        for i in range(-2, TIMED_STEPS):
            pair = [clock(one, i) for one in (step, proto) if one is not None]
            if i >= 0:
                pairs.append(pair)
        own, other = np.median(pairs, axis=0)
        measured |= {"step_seconds": own, "proto_step_seconds": other}
        measured["step_ratio"] = float(np.median([mine / theirs for mine, theirs in pairs]))
    return measured


def stepper(method: Method, lab: Lab, split: int) -> Callable[[int], None] | None:
    """Return a training step of a copy of the method; None for methods that do not train by steps over tasks."""
    if not isinstance(method, EncoderMethod) or (method.objective is None and method.training.steps == 0):
        return None
    sampler = lab.problem(split).sampler
    loss = ari_loss if method.objective is None else method.objective.loss
    fresh = lab.new(method.name, split, Variant(s=method.config.representation, t=method.config.steps))
    if not isinstance(fresh, EncoderMethod) or not list(fresh.model.parameters()):
        return None
    model = HeadedModel(fresh.config, fresh.new_head(sampler)) if isinstance(fresh, HeadedMethod) else fresh.model
    optimizer = new_optimizer(model, fresh.training)

    def step(number: int) -> None:
        value, _ = loss(model.train(), sampler.batch(max(0, number)), fresh.training)
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()

    return step


def clock(step: Callable[[int], None], number: int) -> float:
    """Return the seconds that a step takes."""
    started = time.perf_counter()
    step(number)
    return time.perf_counter() - started


def measure_map(trial: Trial, lab: Lab, progress: bool) -> dict[str, Any]:
    """Project two test tasks by t-SNE: the first two that have five categories or more."""
    method = lab.fitted(trial.method, trial.split, trial.variant, progress)
    problem = lab.problem(trial.split)
    chosen = [i for i, task in enumerate(problem.test) if task.n_categories >= 5][:2] or [0]
    z = lab.representations(method, trial.split)
    maps = []
    for i in chosen:
        perplexity = min(30.0, (len(z[i]) - 1) / 3)
        points = TSNE(2, perplexity=perplexity, init="pca", random_state=0).fit_transform(z[i])
        task = problem.test[i]
        maps.append(
            {
                "task": i,
                "points": np.round(points, 2).tolist(),
                "labels": task.labels.tolist(),
                "categories": [problem.names[category] for category in task.categories],
            }
        )
    return {"maps": maps}


def measure_worth(trial: Trial, lab: Lab, progress: bool) -> dict[str, Any]:
    """Train MetaClusterer with and without the continuous ARI, and compare them."""
    quick = lab.budget.name == "quick"
    return compared(lab.data, trial.split, piles=lab.budget.test_tasks, quick=quick, progress=progress)


def shares_of_categories(lab: Lab) -> list[Variant]:
    """Return variants with fewer and fewer training categories, at least ten; the last has all."""
    whole = len(lab.problem(0).sampler.categories)
    numbers = sorted({max(10, round(share * whole)) for share in SHARES if round(share * whole) <= whole})
    return [Variant(categories=None if number >= whole else number) for number in numbers]


@dataclass(frozen=True)
class Experiment:
    """The trials behind a table or figure, and how one is measured."""

    name: str
    about: str
    measure: Callable[[Trial, Lab, bool], dict[str, Any]]
    methods: Callable[[], Sequence[str]] = lambda: ("ours",)
    variants: Callable[[Lab], Sequence[Variant]] = lambda _: (Variant(),)
    steps: Callable[[], Sequence[int | None]] = lambda: (None,)
    first_split_only: bool = False

    def trials(self, dataset: str, splits: int, lab: Lab) -> list[Trial]:
        """Return every method in every variant, on every split."""
        every = product(self.variants(lab), self.methods(), self.steps(), range(1 if self.first_split_only else splits))
        return [Trial(self.name, dataset, method, split, variant, steps) for variant, method, steps, split in every]


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "table1",
            "Every method of the paper's Table 1, and baselines on the same representations.",
            measure_test,
            lambda: [*TABLE1, *(f"{name} + {baseline}" for name in WITH_BASELINES for baseline in TABLE1_BASELINES)],
        ),
        Experiment(
            "ablation",
            "The paper's ablations, the component families and the paper's recipe, with S = 10 and S = 2.",
            measure_test,
            lambda: ABLATIONS,
            lambda _: [Variant(s=s) for s in (10, 2)],
        ),
        Experiment(
            "vb-steps-train",
            "Steps of inference that are trained through.",
            measure_test,
            variants=lambda _: [Variant(t=t) for t in STEPS_IN_TRAINING],
        ),
        Experiment(
            "vb-steps-test",
            "Steps of inference in testing, ten in training as in the paper.",
            measure_steps,
            steps=lambda: STEPS_IN_TEST,
        ),
        Experiment("categories", "The number of training categories.", measure_test, variants=shares_of_categories),
        Experiment(
            "time",
            "Seconds of a training step beside one of Proto's, and of the training and the test of the table.",
            measure_time,
            lambda: TIMED,
        ),
        Experiment(
            "worth",
            "MetaClusterer as it is trained through the clustering, and by Proto alone in the same time.",
            measure_worth,
        ),
        Experiment("tsne", "Two test tasks of the first split.", measure_map, lambda: SHOWN, first_split_only=True),
    )
}
