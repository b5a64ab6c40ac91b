"""How a MetaClusterer learns: which encoder, how long, with which prior, and how to select among clusterings."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util.distributed import current
from metaclust._util.progress import Bar
from metaclust.data.preparation.tuned import TunedWeights
from metaclust.data.sparse import SparseRows, of_unit_length
from metaclust.inference.calibrate import CHOICE_TASKS, NONE, Unseen, calibrated_prior, learn_selector
from metaclust.inference.initialise import ward_labels
from metaclust.inference.known import Catalogue
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.model.encoders.residual import ResidualEncoder
from metaclust.training.batches import Task
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import TaskSampler
from metaclust.training.evaluation import compare, local_tasks
from metaclust.training.loop import train
from metaclust.training.prior import fit_prior
from metaclust.training.runs import Run
from metaclust.training.tuning import CannotTuneError, Tuner

log = logging.getLogger("metaclust")

STEPS = {"network": (1000, 300), "residual": (600, 0), "residual images": (300, 50)}
"""By encoder: steps of the pretraining and on the continuous ARI, where none are given. On embeddings the latter gain
nothing."""
RESIDUAL_WIDTH = 128
"""The columns of a residual encoder's representations, where there are so many and no other number is given."""
RESIDUAL_DROPOUT = 0.5
RESIDUAL_DECAY = 0.01
FURTHER, FURTHER_RATE = 0.4, 0.5
"""Steps with the held-out categories, too, as a share of those of the pretraining; and their share of its learning
rate."""
ENCODER_STEPS = (60, 200)
"""Steps of pretraining after which encoders are compared; after the larger number where the smaller shows no
:data:`CLEAR` difference in the ARI."""
CLEAR = 0.1
WIDE_ROWS = 600
"""Rows in a batch of the pretraining."""
FEWEST_ROWS, MOST_WIDE_ROWS = 10, 30
"""Rows of each category in such a batch."""
FOLDS = 3
TUNED_GAIN = 0.005
"""The sentence encoder is trained if this gains as much on unseen categories, in units of the ARI."""
SEPARATED = 0.97
"""Where unseen categories are separated as well as this, there is nothing to gain."""
KEPT_APART = 0.3
"""The share of the rows of known categories that the encoder of a fold is not trained on."""
FEWEST_FOR_CHOICE = 30
"""With fewer unseen categories than this, what other data taught about how to select is better than what they teach."""


@dataclass(frozen=True)
class Recipe:
    """What is learned from, and how."""

    sampler: TaskSampler
    validation: list[Task]
    model: ModelConfig
    training: TrainingConfig
    """Its steps are those of the network encoder where none are given below."""
    device: torch.device
    encoder: str = "auto"
    representation: int | None = None
    """S of a residual encoder; None for as many columns as there are, at most ``RESIDUAL_WIDTH``."""
    dropout: float | None = None
    """Of a residual encoder; None for ``RESIDUAL_DROPOUT``."""
    choose: Literal["auto", "learned", "bound"] = "auto"
    effective_rows: float | Literal["auto"] | None = "auto"
    choice_tasks: int = CHOICE_TASKS
    tuner: Tuner | None = None
    """Trains the sentence encoder itself, where it may be."""
    pretrain_steps: int | None = None
    steps: int | None = None
    """None for the number that suits the encoder."""
    folder: str | os.PathLike[str] | None = None
    resume: bool = False
    progress: bool = True

    def training_for(self, encoder: str) -> TrainingConfig:
        """Return the settings of training with the steps that were given, or those that suit the encoder."""
        pretrain, steps = STEPS.get(encoder, STEPS["network"])
        pretrain = pretrain if self.pretrain_steps is None else self.pretrain_steps
        steps = steps if self.steps is None else self.steps
        every = max(1, min(250, steps // 4))
        return replace(self.training, pretrain_steps=pretrain, steps=steps, validate_every=every)

    def keep(self, name: str | None = None) -> dict[str, Any]:
        """Return where one of several trainings is kept, as arguments of :func:`train`."""
        folder = None if self.folder is None else Path(self.folder) / name if name else Path(self.folder)
        return {"folder": folder, "resume": self.resume, "progress": self.progress}


@dataclass
class Decisions:
    """What was decided on the way, and why."""

    words: list[str] = field(default_factory=list)

    def __call__(self, words: str) -> None:
        self.words.append(words)
        log.info(words)


@dataclass(frozen=True)
class Learned:
    """A trained model, how the training went, and what was decided on the way and why."""

    model: ClusteringModel
    run: Run
    decisions: list[str] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    """Representations of categories by models that were not trained on them."""
    tuned: TunedWeights | None = None
    """Weights of the sentence encoder, if it was trained."""


def learn(recipe: Recipe) -> Learned:
    """Choose an encoder, train it, fit the prior to unseen categories, and learn to select among clusterings."""
    learned = learn_representation(recipe)
    decide = Decisions(learned.decisions)
    learn_to_select(learned.model, learned.unseen, recipe, decide)
    return replace(learned, model=learned.model.eval(), decisions=decide.words)


def learn_representation(recipe: Recipe) -> Learned:
    """Choose an encoder, train it, and fit the prior to unseen categories."""
    decide = Decisions()
    tuned = None
    if choose_encoder(recipe, decide) == "residual":
        model, run, parts, tuned = learn_residual(recipe, decide)
    else:
        model, run, parts = learn_network(recipe, decide)
    model.eval()
    if recipe.effective_rows != "auto":
        model.config = replace(model.config, effective_rows=recipe.effective_rows)
    if model.config.learn_prior and parts:
        with counted(recipe, "fitting the prior", 2) as advance:
            by_bound = recipe.choose == "bound"
            decide(fit_prior(model, parts, recipe.effective_rows, by_bound, recipe.training.seed, advance))
    elif model.config.learn_prior and recipe.choose != "bound":
        seen = unseen(model, recipe.sampler, recipe.sampler.categories)
        model.set_prior(**calibrated_prior([seen]))
        decide("The prior is that of the categories it was trained on: there are too few to keep some from training.")
    return Learned(model, run, decide.words, parts, tuned)


def learn_network(recipe: Recipe, decide: Callable[[str], None]) -> tuple[ClusteringModel, Run, list[Unseen]]:
    """Train a free network; validation categories choose its weights, and are trained on last."""
    model = new_model(recipe, recipe.model)
    pretraining = wide_batches(recipe.sampler) if recipe.model.learn_prior else None
    training = recipe.training_for("residual images" if recipe.model.encoder == "residual" else "network")
    run = train(model, recipe.sampler, recipe.validation, training, **recipe.keep(), pretraining=pretraining)
    held = held_out(recipe)
    if not len(held):
        return model, run, []
    parts = [unseen(model.eval(), recipe.sampler, held)]
    steps = round(FURTHER * training.pretrain_steps)
    if recipe.model.learn_prior and steps:
        model = trained_further(model, recipe, np.union1d(recipe.sampler.categories, held), steps)
        decide(
            f"The network is trained on {len(recipe.sampler.categories)} categories; {len(held)} are held out to "
            f"validate it and to learn what unseen ones are like. It is then trained on all for {steps} steps."
        )
    return model, run, parts


def trained_further(
    model: ClusteringModel, recipe: Recipe, categories: NDArray[np.int64], steps: int
) -> ClusteringModel:
    """Return a copy of a model whose encoder is also trained on the categories that were held out.

    What was learned of unseen categories by the model itself, the prior and how to select, serves the copy, too.
    """
    further = copy.deepcopy(model)
    sampler = wide_batches(replace(recipe.sampler, categories=categories))
    training = replace(
        recipe.training, pretrain_steps=steps, steps=0, learning_rate=FURTHER_RATE * recipe.training.learning_rate
    )
    train(further, sampler, None, training, **recipe.keep("further"), pretraining=sampler)
    # Its task network is still the one that learned to propose a start.
    further.config = model.config
    return further


@dataclass(frozen=True)
class Fold:
    """Some of the categories, which stand for unseen ones, and an encoder trained on the others."""

    recipe: Recipe
    number: int
    part: NDArray[np.int64]
    known: NDArray[np.int64]
    kept: NDArray[np.bool_]
    """Rows of known categories that the encoder is not trained on either."""

    def represented(self, x: Tensor | SparseRows | None = None, name: str = "fold") -> Unseen:
        """Train the residual encoder on rows as they are, or embedded otherwise; represent the others by it."""
        recipe = self.recipe if x is None else with_rows(self.recipe, x)
        # Rows without a category are not trained on.
        y = np.where(self.kept, -1, recipe.sampler.y)
        others = replace(recipe, sampler=replace(recipe.sampler, y=y))
        keep = recipe.keep(f"{name}-{self.number}")
        model, _ = train_residual(others, self.known, recipe.training_for("residual"), keep)
        catalogue = catalogued(model.eval(), others.sampler, self.known)
        return replace(
            unseen(model, recipe.sampler, self.part, self.known, self.kept), catalogue=catalogue, catalogued=self.known
        )

    def tuned(self, tuner: Tuner) -> Unseen:
        """Train the sentence encoder first."""
        weights = tuner.tune(self.known, ~self.kept, self.recipe.keep(f"tune-{self.number}"))
        return self.represented(tuner.embed(weights), "tuned-fold")


def folds_of(recipe: Recipe, categories: NDArray[np.int64]) -> list[Fold]:
    """Divide the categories; there are no folds of too few."""
    if len(categories) < 2 * FOLDS:
        return []
    generator = np.random.default_rng([recipe.training.seed, 0xF01D])
    kept = rows_kept_apart(recipe.sampler.y, generator)
    parts = np.array_split(generator.permutation(categories), FOLDS)
    return [Fold(recipe, n, part, np.setdiff1d(categories, part), kept) for n, part in enumerate(parts)]


def learn_residual(
    recipe: Recipe, decide: Callable[[str], None]
) -> tuple[ClusteringModel, Run, list[Unseen], TunedWeights | None]:
    """Train on all categories; what unseen ones are like is learned from folds, each with the others' encoder."""
    categories = np.union1d(recipe.sampler.categories, held_out(recipe))
    training = recipe.training_for("residual")
    parts, tuner = represent_folds(recipe, folds_of(recipe, categories), decide)
    tuned = None
    if tuner is not None:
        tuned = tuner.tune(categories, np.ones(len(recipe.sampler.y), bool), recipe.keep("tune"))
        recipe = with_rows(recipe, tuner.embed(tuned, cached=True))
    model, run = train_residual(recipe, categories, training, recipe.keep())
    if parts:
        # Which rows are of a known category is learned with the selector.
        model.set_known(catalogued(model.eval(), recipe.sampler, categories).kept(categories))
    unit = " of unit length" if model.config.unit else ""
    then = f", and then for {training.steps} steps on the expected ARI of candidates" if training.steps else ""
    decide(
        f"It starts as {model.config.representation} principal components{unit}, and is trained on all "
        f"{len(categories)} categories for {training.pretrain_steps} steps{then}."
    )
    return model, run, parts, tuned


def represent_folds(
    recipe: Recipe, folds: list[Fold], decide: Callable[[str], None]
) -> tuple[list[Unseen], Tuner | None]:
    """Return the representations of the categories of each fold, and what trains the sentence encoder, if it is.

    It is trained where that was asked for, or where the unseen categories of the first fold are separated better.
    """
    tuner, parts = recipe.tuner, []
    if tuner is not None and recipe.encoder == "tuned":
        decide(f"The sentence encoder is trained for {tuner.steps} steps, as requested.")
    elif tuner is not None and folds:
        frozen = folds[0].represented()
        try:
            after = folds[0].tuned(tuner) if worth_tuning(frozen, decide) else None
        except CannotTuneError as error:
            decide(f"The sentence encoder stays as it is: {error}.")
            after = None
        tuner = tuner if after is not None and gains(frozen, after, decide) else None
        parts = [frozen if tuner is None or after is None else after]
    else:
        tuner = None
    rest = folds[len(parts) :]
    return parts + [fold.represented() if tuner is None else fold.tuned(tuner) for fold in rest], tuner


def with_rows(recipe: Recipe, x: Tensor | SparseRows) -> Recipe:
    """Return the recipe with the same rows, embedded otherwise."""
    return replace(recipe, sampler=replace(recipe.sampler, x=x))


def worth_tuning(frozen: Unseen, decide: Callable[[str], None]) -> bool:
    """Return whether unseen categories are not separated so well already that nothing can be gained."""
    reached = frozen.separation
    if reached < SEPARATED:
        return True
    decide(
        "The sentence encoder stays as it is: with it, Ward's method given their number finds unseen categories with "
        f"an ARI of {reached:.3f} already."
    )
    return False


def gains(frozen: Unseen, tuned: Unseen, decide: Callable[[str], None]) -> bool:
    """Return whether unseen categories are separated better after the training of the sentence encoder."""
    ari = [frozen.separation, tuned.separation]
    # Processes on different machines may round differently, and must decide alike.
    before, after = current().broadcast(torch.tensor(ari, dtype=torch.float64)).tolist()
    better = bool(after >= before + TUNED_GAIN)
    decide(
        f"The sentence encoder {'is trained' if better else 'stays as it is'}: on categories that it was not trained "
        f"on, Ward's method given their number reaches an ARI of {after:.3f} after its training, and {before:.3f} "
        "without it."
    )
    return better


def train_residual(
    recipe: Recipe, categories: NDArray[np.int64], training: TrainingConfig, keep: dict[str, Any]
) -> tuple[ClusteringModel, Run]:
    """Train a residual encoder to separate ``categories``."""
    sampler = replace(recipe.sampler, categories=categories)
    model = new_model(recipe, residual_config(recipe, sampler.x))
    encoder = model.encoder
    rows: AbstractContextManager[Tensor | SparseRows] = nullcontext(sampler.x)
    if isinstance(encoder, ResidualEncoder):
        encoder.fit(rows_of(sampler, categories)[0], recipe.training.seed)
        # What training does not change is computed once for each row, unless steps draw fewer rows than there are.
        if len(sampler.x) <= WIDE_ROWS * (training.pretrain_steps + training.steps):
            rows = encoder.started(sampler.x)
    training = replace(training, weight_decay=RESIDUAL_DECAY, objective="candidates")
    with rows as x:
        sampler = replace(sampler, x=x)
        run = train(model, sampler, None, training, **keep, pretraining=wide_batches(sampler))
    return model, run


def residual_config(recipe: Recipe, x: Tensor | SparseRows) -> ModelConfig:
    """Return the model with a residual encoder; rows of unit length are embeddings, and taken by their direction."""
    config = recipe.model
    width = min(config.input_shape[0], recipe.representation or RESIDUAL_WIDTH, len(x) - 1)
    changes: dict[str, Any] = {"dropout": RESIDUAL_DROPOUT if recipe.dropout is None else recipe.dropout}
    if recipe.effective_rows != "auto":
        changes["effective_rows"] = recipe.effective_rows
    return replace(config, encoder="residual", unit=of_unit_length(x), representation=width, **changes)


def learn_to_select(model: ClusteringModel, parts: list[Unseen], recipe: Recipe, decide: Callable[[str], None]) -> None:
    """Learn the selector from unseen categories, where that is wanted and there are enough."""
    number = sum(len(np.unique(part.new.y)) for part in parts)
    if recipe.choose == "bound" or not model.config.learn_prior:
        decide("Clusterings are selected by the evidence lower bound, as requested.")
        model.set_known(None)
        return
    if number < FEWEST_FOR_CHOICE:
        decide(
            "Clusterings are selected as learned from other data, which comes with the package: learning to select "
            f"takes {FEWEST_FOR_CHOICE} categories that the encoder has not seen, and there are {number}."
        )
        model.set_known(None)
        return
    with counted(recipe, "learning to select", recipe.choice_tasks) as advance:
        selector = learn_selector(
            parts,
            tasks=recipe.choice_tasks,
            seed=recipe.training.seed,
            advance=advance,
            known=model.known,
        )
    model.set_choice(selector)
    decide(
        f"Clusterings are selected as learned from {recipe.choice_tasks} tasks of {number} categories that the encoder "
        "had not seen."
    )


@contextmanager
def counted(recipe: Recipe, words: str, total: int) -> Iterator[Callable[[], object]]:
    """Show a bar for so many things, if progress is wanted."""
    if not recipe.progress:
        yield lambda: None
        return
    with Bar(words, total) as bar:
        yield bar.advance


def wide_batches(sampler: TaskSampler) -> TaskSampler:
    """Draw batches of many categories at once: the more there are to separate, the more a step of Proto teaches."""
    many = min(len(sampler.categories), WIDE_ROWS // FEWEST_ROWS)
    rows = min(WIDE_ROWS // many, MOST_WIDE_ROWS)
    return replace(sampler, n_categories=(many, many), rows=rows, imbalanced=False, tasks=1)


def held_out(recipe: Recipe) -> NDArray[np.int64]:
    """Return the categories of the validation tasks."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *(task.categories for task in recipe.validation)]))


def new_model(recipe: Recipe, config: ModelConfig) -> ClusteringModel:
    with torch.random.fork_rng([]):
        torch.manual_seed(recipe.training.seed)
        return ClusteringModel(config).to(recipe.device)


def rows_of(sampler: TaskSampler, categories: NDArray[np.int64]) -> tuple[Tensor | SparseRows, NDArray[np.int64]]:
    place = np.flatnonzero(np.isin(sampler.y, categories))
    return sampler.x[torch.from_numpy(place)], sampler.y[place]


def unseen(
    model: ClusteringModel,
    sampler: TaskSampler,
    categories: NDArray[np.int64],
    known: NDArray[np.int64] = NONE,
    kept: NDArray[np.bool_] | None = None,
) -> Unseen:
    """Represent the rows of unseen categories, and those of known ones that were kept from training."""
    wanted = np.isin(sampler.y, categories)
    if kept is not None:
        wanted |= kept & np.isin(sampler.y, known)
    place = np.flatnonzero(wanted)
    z = model.transform(sampler.x[torch.from_numpy(place)]).double().cpu().numpy()
    return Unseen(z, sampler.y[place], model, np.intersect1d(known, sampler.y[place]))


def catalogued(model: ClusteringModel, sampler: TaskSampler, categories: NDArray[np.int64]) -> Catalogue:
    """Describe categories by their rows, as a model represents them."""
    x, y = rows_of(sampler, categories)
    return Catalogue.of(
        model.transform(x).double().cpu().numpy(), np.searchsorted(categories, y), len(categories), True
    )


def rows_kept_apart(y: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.bool_]:
    """Draw some rows of each category."""
    kept = np.zeros(len(y), bool)
    for category in np.unique(y):
        members = np.flatnonzero(y == category)
        kept[generator.permutation(members)[: int(KEPT_APART * len(members))]] = True
    return kept


def choose_encoder(recipe: Recipe, decide: Callable[[str], None]) -> str:
    """Choose by how well Ward's method, given the number, finds the validation categories with either encoder."""
    if len(recipe.model.input_shape) != 1:
        if recipe.encoder == "tuned":
            raise ValueError("encoder='tuned': it is for texts; images need 'auto', 'residual' or 'network'")
        # Trained as a free network is: which of the two image encoders it is, the configuration says.
        return "network"
    if recipe.encoder != "auto":
        decide(f"The encoder is {recipe.encoder!r}, as requested.")
        return "residual" if recipe.encoder == "tuned" else recipe.encoder
    if not recipe.validation:
        chosen = "residual" if of_unit_length(recipe.sampler.x) else "network"
        lengths = "unit length, as embeddings have" if chosen == "residual" else "different lengths"
        decide(f"The encoder is {chosen!r}: there are no categories to compare by, and rows have {lengths}.")
        return chosen
    for steps in ENCODER_STEPS:
        agreed = compared_encoders(recipe, steps)
        if abs(agreed[0] - agreed[1]) > CLEAR or steps >= recipe.training_for("network").pretrain_steps:
            break
    ari = dict(zip(("residual", "network"), agreed, strict=True))
    chosen = "residual" if ari["residual"] >= ari["network"] else "network"
    decide(
        f"The encoder is {chosen!r}: on categories held out from training, Ward's method given their number reaches an "
        f"ARI of {ari['residual']:.3f} with 'residual' and {ari['network']:.3f} with 'network', after short training."
    )
    return chosen


def compared_encoders(recipe: Recipe, steps: int) -> list[float]:
    """Return how well a residual encoder and a network separate the validation categories after so many steps."""
    wide = wide_batches(recipe.sampler)
    reached = []
    for name in ("residual", "network"):
        training = recipe.training_for(name)
        short = replace(training, steps=0, pretrain_steps=min(training.pretrain_steps, steps))
        keep = recipe.keep(f"compare-{name}-{steps}")
        if name == "residual":
            model, _ = train_residual(recipe, recipe.sampler.categories, short, keep)
        else:
            model = new_model(recipe, recipe.model)
            train(model, recipe.sampler, None, short, **keep, pretraining=wide)
        reached.append(separation(model, recipe.sampler.x, recipe.validation))
    # Processes on different machines may round differently, and must decide alike.
    agreed: list[float] = current().broadcast(torch.tensor(reached, dtype=torch.float64)).tolist()
    return agreed


def separation(model: ClusteringModel, x: Tensor | SparseRows, tasks: list[Task]) -> float:
    """Return the mean ARI of Ward's method given the number of categories."""
    generator = np.random.default_rng(0)
    rows, local = local_tasks(tasks)
    z = model.transform(x[torch.from_numpy(rows)]).double().cpu().numpy()
    found = [ward_labels(z[task.rows], [task.n_categories], generator)[0] for task in local]
    return float(compare(tasks, found).ari.mean())
