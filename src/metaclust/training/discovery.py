"""From rows of which few are labelled to a model, the categories of all rows, and how further rows are assigned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional

from metaclust._util.checks import check_count
from metaclust.data.preparation.embeddings import SentenceEmbedder
from metaclust.data.preparation.model_folder import load_sentence_transformer
from metaclust.data.preparation.tuned import TunedWeights
from metaclust.data.rows import Rows
from metaclust.data.sparse import of_unit_length
from metaclust.inference.calibrate import Unseen, calibrated_prior
from metaclust.inference.result import label_scores
from metaclust.mixture.components import Components
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.model.encoders.residual import ResidualEncoder
from metaclust.training.runs import Run
from metaclust.training.self_training import Floats, Labels, SelfTrained, SelfTrainer, SelfTraining, means_of
from metaclust.training.upper_layers import UpperLayers

COLUMNS = 128
"""The most principal components of representations."""
COUNTED_ROWS, SAMPLES = 3000, 4
"""The most rows of a sample by which the number of categories is estimated, and how many samples are drawn."""
NUMBERS, MOST_TIMES = 80, 6
"""How many numbers are compared, and how many times as many as known there may be, and 50 more."""
FEWEST = 100
"""Of fewer rows no categories are found."""
NEARLY = 0.98
"""What is as large a share of the largest agreement is nearly as good."""
NEAR_PEAK = 0.95
"""The share of the largest agreement that values around it must have."""
FEW_KNOWN, MANY_KNOWN, BY_SIZE = 0.4, 0.8, 0.75
"""From the one share of known categories to the other, what their sizes say of the number of all counts more and more,
up to this weight."""
LEAST_FOUND = 0.2
"""A category of whose labelled rows fewer are in the cluster that stands for it is not taken for larger."""
SENTENCES = SelfTraining(rounds=0)
"""Of the sentence encoder, which learns from neighbours alone: rounds of a residual encoder on what it becomes gain as
much as its own, in a tenth of the time."""
RESIDUAL = SelfTraining(
    warm_steps=200,
    steps=200,
    rounds=3,
    learning_rate=1e-3,
    temperature=0.1,
    pairs=256,
    labelled=(128, 128),
    rows=384,
)
"""Of a residual encoder, whose steps take milliseconds."""


@dataclass(frozen=True, eq=False)
class PartlyLabelled:
    """Rows of which few are labelled, and how to learn from them."""

    x: Tensor
    """(rows, columns), as prepared; of texts, their embeddings."""
    known: Labels
    """The category of each row, from 0, and -1 where it is not known."""
    seed: int
    device: torch.device
    number: int | None = None
    """The number of all categories, if that is known."""
    texts: tuple[str, Sequence[str]] | None = None
    """An embedding model that is trained, too, and the texts."""
    settings: SelfTraining | None = None
    """Of the residual encoder; None for :data:`RESIDUAL`."""
    sentences: SelfTraining | None = None
    """Of the sentence encoder; None for :data:`SENTENCES`."""
    folder: Path | None = None
    resume: bool = False
    progress: bool = False


@dataclass(frozen=True, eq=False)
class Discovered:
    """A model, and the categories that were found with it."""

    model: ClusteringModel
    z: Floats
    """Representations of the rows."""
    labels: Labels
    """The cluster of each row, the largest first."""
    components: Components
    category: Labels
    """The known category of each cluster, -1 for a new one."""
    tuned: TunedWeights | None
    run: Run
    decisions: list[str] = field(default_factory=list)


class VectorRows(nn.Module):
    """A residual encoder of rows by their numbers, as unit vectors."""

    def __init__(self, encoder: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.held = (x,)

    def forward(self, index: Tensor) -> Tensor:
        unit: Tensor = functional.normalize(self.encoder(self.held[0][index]), dim=-1)
        return unit


def discovers(settings: Mapping[str, Any], rows: Rows, known: Labels) -> bool:
    """Return whether categories are found in training: of embeddings, of which at least half are unlabelled."""
    embeddings = settings.get(rows.data_kind.option or "") == "embeddings" or (
        rows.kind == "vectors" and isinstance(rows.values, np.ndarray) and of_unit_length(torch.from_numpy(rows.values))
    )
    usual = settings["preset"] == "default" and settings["encoder"] in ("auto", "residual", "tuned")
    labelled = int((known >= 0).sum())
    return embeddings and usual and len(np.unique(known)) > 2 and len(known) >= max(FEWEST, 2 * labelled)


def discover(rows: PartlyLabelled) -> Discovered:
    """Train an encoder on labelled and unlabelled rows, and find the categories of all."""
    check_number(rows)
    tuned, x, words, settings = None, rows.x.float(), "", rows.settings or RESIDUAL
    number = rows.number
    if rows.texts is not None:
        number = counted_before(rows, x) if number is None else number
        tuned, x, words = train_sentences(rows, x)
        # They have learned from neighbours already.
        settings = replace(settings, warm_steps=0)
    model = residual_model(x, rows.seed, rows.device)
    encoder = VectorRows(model.encoder, x.to(rows.device))

    def count(z: Floats) -> int:
        return number_of_categories(z, rows.known, rows.seed) if number is None else number

    keep = None if rows.folder is None else rows.folder / ("rows" if number is None else f"rows-{number}")
    trained = SelfTrainer(
        encoder, rows.known, count, rows.seed, settings, keep, rows.resume, progress=rows.progress
    ).run()
    return finished(model.eval(), x, rows, trained, tuned, words)


def counted_before(rows: PartlyLabelled, x: Tensor) -> int:
    """Return the number of categories by embeddings as they came, and a residual encoder that learns from neighbours.

    An embedding model that was trained sets the known categories apart so well that fewer clusters find them.
    """
    encoder = VectorRows(residual_model(x, rows.seed, rows.device).encoder, x.to(rows.device))
    keep = None if rows.folder is None else rows.folder / "number"
    settings = replace(rows.settings or RESIDUAL, rounds=0)
    trainer = SelfTrainer(encoder, rows.known, len, rows.seed, settings, keep, rows.resume, progress=rows.progress)
    return number_of_categories(trainer.learn_neighbours(), rows.known, rows.seed)


def train_sentences(rows: PartlyLabelled, x: Tensor) -> tuple[TunedWeights, Tensor, str]:
    """Train the upper layers of the embedding model; return their weights, the new embeddings, and what was done."""
    name, texts = rows.texts or ("", ())
    folder = SentenceEmbedder(name, device=rows.device).folder
    upper = UpperLayers(load_sentence_transformer(folder, rows.device), texts, rows.device, rows.progress)
    keep = None if rows.folder is None else rows.folder / "sentences"
    z = SelfTrainer(
        upper,
        rows.known,
        len,
        rows.seed,
        rows.sentences or SENTENCES,
        keep,
        rows.resume,
        progress=rows.progress,
        start=x.numpy(),
    ).learn_neighbours()
    return (
        TunedWeights(upper.changed()),
        torch.from_numpy(z),
        f"{len(upper.layers)} layer{'s' if len(upper.layers) > 1 else ''} of the sentence encoder and ",
    )


def finished(
    model: ClusteringModel,
    x: Tensor,
    rows: PartlyLabelled,
    trained: SelfTrained,
    tuned: TunedWeights | None,
    words: str,
) -> Discovered:
    """Describe the clusters by the representations of the model, and fit its prior to them."""
    z = model.transform(x).float().cpu().numpy()
    sizes = np.bincount(trained.labels, minlength=len(trained.centroids))
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    place = np.full(len(sizes), -1)
    place[order] = np.arange(len(order))
    labels = place[trained.labels]
    model.set_prior(**calibrated_prior([Unseen(z.astype(np.float64), labels, model)]))
    known = int(rows.known.max()) + 1
    category = np.where(order < known, order, -1)
    labelled = int((rows.known >= 0).sum())
    given = "as given" if rows.number is not None else "that with which Ward's method finds known ones best"
    decision = (
        f"{words.capitalize()}{'a' if words else 'A'} residual encoder learned from {labelled:,} labelled rows of "
        f"{known} categories and {len(z) - labelled:,} unlabelled ones. They have {len(order)} categories ({given})."
    )
    components = components_of(z, labels, len(order))
    return Discovered(model, z, labels, components, category, tuned, Run(finished=True), [decision])


def components_of(z: Floats, labels: Labels, clusters: int) -> Components:
    """Return clusters of representations of one length: a row is of that whose mean has the most similar direction."""
    length = float(np.linalg.norm(z, axis=1).mean())
    means = length * means_of(z, labels, clusters).astype(np.float64)
    apart = np.square(z - means[labels]).sum(1).mean() / z.shape[1]
    precisions = np.full(clusters, 1 / max(float(apart), 1e-12))
    weights = np.bincount(labels, minlength=clusters) / len(labels)
    return Components(weights, means, precisions, np.zeros(clusters))


def residual_model(x: Tensor, seed: int, device: torch.device) -> ClusteringModel:
    """Return a model whose encoder is principal components, by their direction, until it is trained."""
    width = min(x.shape[1], COLUMNS, len(x) - 1)
    config = ModelConfig(
        (x.shape[1],),
        representation=width,
        encoder="residual",
        unit=True,
        dropout=0.5,
        task_hidden=1,
        learn_prior=True,
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = ClusteringModel(config)
    if isinstance(model.encoder, ResidualEncoder):
        model.encoder.fit(x, seed)
    return model.to(device)


def number_of_categories(z: Floats, known: Labels, seed: int) -> int:
    """Estimate the number of categories of all rows, by clusters of Ward's method for many numbers of them.

    Labels are not shown to it. With too few clusters known categories share one, with too many they are divided. Of how
    well they are found the mean of accuracy and ARI over some samples is taken. Where most categories are known, the
    number at its peak is near the true one. Where few are, two of them seldom share a cluster, and fewer clusters do as
    well; so the largest number that does nearly as well counts the more, the fewer are known.

    The more of the categories are known, the better do their sizes say how many there are of that size in all rows;
    the estimate is between that number and the first.
    """
    fewest, most = max(2, int(known.max()) + 1), max(3, len(z) // 4)
    numbers = np.unique(
        np.geomspace(max(2, fewest // 2), min(most, MOST_TIMES * fewest + 50), NUMBERS).astype(np.int64)
    )
    generator = np.random.default_rng([seed, 0xC0])
    agreed, share = np.zeros(len(numbers)), np.zeros(len(numbers))
    samples = 1 if len(z) <= COUNTED_ROWS else SAMPLES
    for _ in range(samples):
        rows = generator.permutation(len(z))[:COUNTED_ROWS]
        own = known[rows] >= 0
        if not own.any():
            continue
        tree = linkage(z[rows].astype(np.float64), "ward")
        names = [str(name) for name in known[rows][own]]
        for place, found in enumerate(cut_tree(tree, numbers[numbers <= len(rows)]).T):
            scores = label_scores(names, found[own])
            agreed[place] += (scores["acc"] + scores["ari"]) / 2 / samples
            share[place] += mean_share(found, known[rows]) / samples
    best, last = peak(numbers, agreed), last_good(numbers, agreed)
    unknown = float(np.clip(2 * (1 - fewest / best), 0, 1))
    by_agreement = (1 - unknown) * np.log(best) + unknown * np.log(last)
    of_one = share[np.abs(numbers - last).argmin()]
    # Without a labelled row in any sample, sizes say nothing.
    by_size = -np.log(of_one) if of_one > 0 else by_agreement
    certain = float(np.clip((fewest / np.exp(by_size) - FEW_KNOWN) / (MANY_KNOWN - FEW_KNOWN), 0, 1))
    weight = BY_SIZE * certain
    return max(fewest, round(float(np.exp((1 - weight) * by_agreement + weight * by_size))))


def mean_share(found: Labels, known: Labels) -> float:
    """Return which share of all rows a known category has on average, by the cluster that stands for it.

    Of the rows of that cluster, so many are of the category as of the labelled ones in it; and so many of the category
    are elsewhere as of its labelled rows.

    >>> mean_share(np.array([0, 0, 0, 0, 1, 1, 2, 2]), np.array([0, -1, 0, -1, 1, -1, -1, -1]))
    0.375
    """
    own = known >= 0
    table = np.zeros((int(known.max()) + 1, int(found.max()) + 1))
    np.add.at(table, (known[own], found[own]), 1)
    category, cluster = linear_sum_assignment(-table)
    matched = table[category, cluster] > 0
    category, cluster = category[matched], cluster[matched]
    rows = np.bincount(found)[cluster]
    labelled = table[category, cluster]
    inside = labelled / table.sum(0)[cluster]
    there = np.maximum(labelled / table.sum(1)[category], LEAST_FOUND)
    return float(np.mean(rows * inside / there) / len(found))


def last_good(numbers: Labels, agreed: NDArray[np.float64]) -> int:
    """Return the largest number whose value, smoothed, is nearly the largest.

    >>> last_good(np.arange(1, 9), np.array([0.2, 0.6, 0.79, 0.8, 0.8, 0.8, 0.5, 0.2]))
    5
    """
    smooth = np.convolve(np.pad(agreed, 1, mode="edge"), [0.25, 0.5, 0.25], "valid")
    return int(numbers[np.flatnonzero(smooth >= NEARLY * smooth.max())[-1]])


def peak(numbers: Labels, agreed: NDArray[np.float64]) -> int:
    """Return the number at which a parabola, in the logarithm, through the values near the largest has its maximum.

    >>> numbers = np.arange(2, 40)
    >>> peak(numbers, 1 - np.square(np.log(numbers / 11.0)))
    11
    """
    best = int(agreed.argmax())
    near = np.flatnonzero(agreed >= NEAR_PEAK * agreed[best])
    place = np.log(numbers)
    if len(near) < 3:
        return int(numbers[best])
    curve, slope, _ = np.polyfit(place[near], agreed[near], 2)
    if curve >= 0:
        return int(numbers[best])
    return round(float(np.exp(np.clip(-slope / (2 * curve), place[near[0]], place[near[-1]]))))


def check_number(rows: PartlyLabelled) -> None:
    """Raise an error unless there may be so many categories."""
    known = int(rows.known.max()) + 1
    if rows.number is None:
        return
    check_count("n_clusters", rows.number)
    if not known <= rows.number <= len(rows.known):
        raise ValueError(
            f"n_clusters={rows.number!r}: the labelled rows have {known} categories, and there are {len(rows.known)} "
            "rows; give a number between these, or None to have it found"
        )
