"""Self-training: an encoder learns from rows of which few are labelled, and finds the categories of all of them.

First a row learns to be near the rows that are its neighbours already, and a labelled row near its category. Then, in
rounds, all rows are clustered, labelled ones in their categories; neighbours vote on the clusters of a row; and the
encoder learns to tell the clusters apart by these votes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from metaclust._util.progress import Bar
from metaclust._util.tensors import CheckpointError, read_tensors, with_prefix, write_tensors
from metaclust.training.optimizer import step_seed

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

BLOCK = 1000
"""Rows whose similarities to all others are in memory at a time."""
MOST_ITERATIONS = 60
"""Of k-means, which ends earlier where no row changes its cluster."""
CANDIDATES = 8
"""Rows that are compared for each new centroid of a start of k-means."""


@dataclass(frozen=True)
class SelfTraining:
    """How long is trained, and on what; chosen on validation divisions (docs/decisions)."""

    warm_steps: int = 100
    """Steps on neighbours, before rows are clustered."""
    steps: int = 80
    """Steps of each round."""
    rounds: int = 2
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    temperature: float = 0.07
    """Of cosine similarities, as where the sentence encoder is trained on known categories."""
    neighbours: int = 10
    """Rows that a row is pulled to."""
    voters: int = 20
    """Rows that vote on the cluster of a row."""
    votes: int = 3
    """How often they do, each time by what came of the last."""
    weight_of_votes: float = 0.7
    pairs: int = 64
    """Rows of a step on neighbours, each with one of these."""
    labelled: tuple[int, int] = (48, 32)
    """Labelled rows of a step on neighbours, and of one of a round."""
    rows: int = 96
    """Other rows of a step of a round."""
    prototype_rates: tuple[float, float] = (1e-2, 1e-3)
    """The learning rates of prototypes, in the same order."""
    last_rates: tuple[float, float] = (0.3, 0.1)
    """What the learning rate falls to, as a share, in the same order."""
    restarts: int = 10
    """Starts of k-means in the first round; later rounds go on from the centroids of the last."""

    @property
    def total(self) -> int:
        return self.warm_steps + self.rounds * self.steps


@dataclass(frozen=True, eq=False)
class SelfTrained:
    """What came of self-training, besides the encoder itself."""

    z: Floats
    """(rows, width), unit vectors."""
    labels: Labels
    """The cluster of each row; those of known categories have their numbers, and come first."""
    centroids: Floats
    """(clusters, width), unit vectors."""


@dataclass(eq=False)
class SelfTrainer:
    """Trains an encoder in place.

    Parameters
    ----------
    encoder : nn.Module
        Returns unit vectors of rows by their numbers.
    known : ndarray of shape (rows,)
        The category of each row, from 0, and -1 where it is not known. Each category has a row.
    count : callable
        From unit vectors of all rows to the number of categories.
    seed : int
    settings : SelfTraining
    folder : Path, optional
        Where the state after each stage is kept; ``resume`` goes on from there, and ends where it would have, bit for
        bit.
    """

    encoder: nn.Module
    known: Labels
    count: Callable[[Floats], int]
    seed: int = 0
    settings: SelfTraining = field(default_factory=SelfTraining)
    folder: Path | None = None
    resume: bool = False
    progress: bool = False
    start: Floats | None = None
    """The unit vectors of all rows before training, where they are known."""

    @cached_property
    def labelled(self) -> Labels:
        return np.flatnonzero(self.known >= 0)

    @cached_property
    def categories(self) -> int:
        return int(self.known.max()) + 1

    def run(self) -> SelfTrained:
        """Take all steps that are left."""
        settings = self.settings
        centroids, done = self._restored()
        with self._counted(done) as advance:
            z = self._neighbours(done, advance)
            if centroids is None:
                centroids = self._first_centroids(z)
            for stage in range(max(1, done), 1 + settings.rounds):
                labels, centroids = seeded_kmeans(z, self.known, centroids)
                votes = spread_votes(labels, self.known, nearest_rows(z, settings.voters), len(centroids), settings)
                centroids = self._learn_clusters(stage, votes, centroids, advance)
                self._save(centroids, stage + 1)
                z = self.embedded()
        labels, centroids = seeded_kmeans(z, self.known, centroids)
        return SelfTrained(z, labels, centroids)

    def learn_neighbours(self) -> Floats:
        """Take the steps of the first stage alone, and return the unit vectors of all rows."""
        _, done = self._restored()
        with self._counted(done) as advance:
            return self._neighbours(done, advance)

    @contextmanager
    def _counted(self, done: int) -> Iterator[Callable[[], object]]:
        """Show a bar for the steps that are left, and leave torch's generator as it was."""
        taken = 0 if not done else self.settings.warm_steps + (done - 1) * self.settings.steps
        show = Bar("self-training", self.settings.total, done=taken) if self.progress else nullcontext()
        with torch.random.fork_rng([]), show as bar:
            yield (lambda: None) if bar is None else bar.advance

    def _neighbours(self, done: int, advance: Callable[[], object]) -> Floats:
        if not done and self.settings.warm_steps:
            self._learn_neighbours(advance)
        if not done:
            self._save(None, 1)
        return self.embedded()

    def embedded(self) -> Floats:
        """Return the unit vectors of all rows, without dropout."""
        self.encoder.eval()
        with torch.no_grad():
            parts = [self.encoder(index).cpu() for index in torch.arange(len(self.known)).split(BLOCK)]
        found: Floats = torch.cat(parts).float().numpy()
        return found

    def _first_centroids(self, z: Floats) -> Floats:
        number = max(self.categories, int(self.count(z)))
        starts = [
            seeded_kmeans(
                z, self.known, first_centroids(z, self.known, number, np.random.default_rng([self.seed, 7, n]))
            )
            for n in range(self.settings.restarts)
        ]
        fits = [float((z * centroids[labels]).sum()) for labels, centroids in starts]
        return starts[int(np.argmax(fits))][1]

    def _learn_neighbours(self, advance: Callable[[], object]) -> None:
        """Pull rows to their neighbours, and labelled ones to prototypes of their categories."""
        settings, rows = self.settings, len(self.known)
        z = self.embedded() if self.start is None else self.start
        near = nearest_rows(z, settings.neighbours)
        weight = torch.from_numpy(means_of(z[self.labelled], self.known[self.labelled], self.categories))

        def loss(generator: np.random.Generator, prototypes: Tensor) -> Tensor:
            some = self._some_labelled(generator, settings.labelled[0])
            first = generator.choice(rows, min(settings.pairs, rows), replace=False)
            second = near[first, generator.integers(0, near.shape[1], len(first))]
            both = np.concatenate([first, second])
            encoded = self.encoder(torch.from_numpy(np.concatenate([some, both])))
            own = torch.from_numpy(self.known[some]).to(encoded.device)
            logits = encoded[: len(some)] @ functional.normalize(prototypes, dim=1).T / settings.temperature
            alike = torch.from_numpy(positives(both, near, self.known)).to(encoded.device)
            found: Tensor = functional.cross_entropy(logits, own) + contrastive(
                encoded[len(some) :], alike, settings.temperature
            )
            return found

        self._train(0, settings.warm_steps, weight, loss, advance)

    def _learn_clusters(self, stage: int, votes: Floats, centroids: Floats, advance: Callable[[], object]) -> Floats:
        """Train on the votes of a round; return the prototypes of the clusters."""
        settings, rows = self.settings, len(self.known)

        def loss(generator: np.random.Generator, prototypes: Tensor) -> Tensor:
            some = self._some_labelled(generator, settings.labelled[1])
            others = generator.choice(rows, min(settings.rows, rows), replace=False)
            both = np.concatenate([some, others])
            encoded = self.encoder(torch.from_numpy(both))
            logits = encoded @ functional.normalize(prototypes, dim=1).T / settings.temperature
            wanted = torch.from_numpy(votes[both]).to(encoded.device)
            each = -(wanted * logits.log_softmax(1)).sum(1)
            found: Tensor = each[: len(some)].mean() + each[len(some) :].mean()
            return found

        return self._train(stage, settings.steps, torch.from_numpy(centroids), loss, advance)

    def _some_labelled(self, generator: np.random.Generator, count: int) -> Labels:
        found: Labels = generator.choice(self.labelled, min(count, len(self.labelled)), replace=False)
        return found

    def _train(
        self,
        stage: int,
        steps: int,
        prototypes: Tensor,
        loss: Callable[[np.random.Generator, Tensor], Tensor],
        advance: Callable[[], object],
    ) -> Floats:
        """Take the steps of a stage; return its prototypes as unit vectors."""
        settings, second = self.settings, min(stage, 1)
        weights = [weight for weight in self.encoder.parameters() if weight.requires_grad]
        prototype = nn.Parameter(prototypes.clone().to(weights[0].device))
        groups = [{"params": weights}, {"params": [prototype]}]
        optimizer = torch.optim.AdamW(groups, weight_decay=settings.weight_decay)
        rates = (settings.learning_rate, settings.prototype_rates[second])
        self.encoder.train()
        for step in range(steps):
            share = rate_share(step, steps, settings.last_rates[second])
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * share
            # What is drawn depends on the seed, the stage and the step alone.
            seed = step_seed(step_seed(self.seed, stage), step)
            torch.manual_seed(seed)
            value = loss(np.random.default_rng(seed), prototype)
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            clip_grad_norm_(weights, 1.0)
            if not math.isfinite(value.item()):
                raise FloatingPointError(
                    f"at step {step} of stage {stage} of self-training the loss became {value.item()}: check the rows "
                    f"for extreme values, or lower learning_rate={settings.learning_rate}"
                )
            optimizer.step()
            advance()
        found: Floats = functional.normalize(prototype.detach(), dim=1).cpu().numpy()
        return found

    def _stage_file(self, done: int) -> Path | None:
        return None if self.folder is None else self.folder / f"stage-{done}.safetensors"

    def _facts(self) -> dict[str, Any]:
        """What must be the same when training is resumed."""
        given = {"settings": asdict(self.settings), "seed": self.seed, "rows": len(self.known)}
        return {**given, "labelled": len(self.labelled), "categories": self.categories}

    def _save(self, centroids: Floats | None, done: int) -> None:
        path = self._stage_file(done)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {f"encoder.{name}": value for name, value in trained(self.encoder).items()}
        if centroids is not None:
            tensors["centroids"] = torch.from_numpy(centroids)
        write_tensors(path, tensors, {"kind": "self-training", "facts": self._facts()})

    def _restored(self) -> tuple[Floats | None, int]:
        """Return the prototypes and the number of stages that are done; the encoder gets its weights."""
        kept = [(self._stage_file(done), done) for done in range(1 + self.settings.rounds, 0, -1)]
        path, done = next(((path, done) for path, done in kept if path is not None and path.exists()), (None, 0))
        if path is None:
            return None, 0
        if not self.resume:
            raise FileExistsError(f"{path} is of an earlier training: pass resume=True to go on, or use another folder")
        tensors, header = read_tensors(path, "self-training")
        if header.get("facts") != json.loads(json.dumps(self._facts())):
            raise CheckpointError(
                f"{path} belongs to a training with other settings or rows: resume with the same, or train into "
                "another folder"
            )
        self.encoder.load_state_dict(with_prefix(tensors, "encoder."), strict=False)
        centroids = tensors.get("centroids")
        return None if centroids is None else centroids.numpy(), done


def trained(encoder: nn.Module) -> dict[str, Tensor]:
    """Return the weights that training may change."""
    return {name: value.detach() for name, value in encoder.named_parameters() if value.requires_grad}


def rate_share(step: int, steps: int, last: float, warmup: int = 20) -> float:
    """Return the share of the learning rate: it rises over a few steps, and falls along a cosine to ``last``."""
    return min(1.0, (step + 1) / warmup) * (last + (1 - last) * 0.5 * (1 + math.cos(math.pi * step / steps)))


def nearest_rows(z: Floats, count: int) -> Labels:
    """Return (rows, count), the rows whose unit vectors are most similar to that of each row, in no order."""
    count = min(count, len(z) - 1)
    found = np.empty((len(z), count), np.int64)
    for start in range(0, len(z), BLOCK):
        similar = z[start : start + BLOCK] @ z.T
        place = np.arange(len(similar))
        similar[place, start + place] = -np.inf
        found[start : start + BLOCK] = np.argpartition(-similar, count - 1, axis=1)[:, :count]
    return found


def positives(rows: Labels, near: Labels, known: Labels) -> Floats:
    """Return (rows, rows), 1 where two rows are to be near each other, 0 elsewhere.

    They are where one is a neighbour of the other; of two labelled rows, if they are of one category. A row that is
    there twice is near itself.
    """
    neighbour = (near[rows][:, :, None] == rows).any(1)
    alike = neighbour | neighbour.T | (rows[:, None] == rows)
    own = known[rows]
    both = (own[:, None] >= 0) & (own >= 0)
    alike = np.where(both, own[:, None] == own, alike)
    np.fill_diagonal(alike, False)
    found: Floats = alike.astype(np.float32)
    return found


def contrastive(z: Tensor, alike: Tensor, temperature: float) -> Tensor:
    """Return the mean negative log-probability of the rows that are alike among all others."""
    similar = z @ z.T / temperature
    similar = similar.masked_fill(torch.eye(len(z), dtype=torch.bool, device=z.device), -1e4)
    log_probability = similar.log_softmax(1)
    found: Tensor = -((log_probability * alike).sum(1) / alike.sum(1).clamp_min(1)).mean()
    return found


def spread_votes(labels: Labels, known: Labels, near: Labels, clusters: int, settings: SelfTraining) -> Floats:
    """Return (rows, clusters), the probability of each cluster by the votes of a row and its neighbours.

    Labelled rows vote for their category, and cannot be outvoted.
    """
    own = np.eye(clusters, dtype=np.float32)[labels]
    fixed = known >= 0
    votes = own
    for _ in range(settings.votes):
        others = np.zeros_like(own)
        for column in near.T:
            others += votes[column]
        votes = (1 - settings.weight_of_votes) * own + settings.weight_of_votes / near.shape[1] * others
        votes[fixed] = np.eye(clusters, dtype=np.float32)[known[fixed]]
    return votes


def means_of(z: Floats, labels: Labels, clusters: int, empty: Floats | None = None) -> Floats:
    """Return (clusters, width), the mean direction of each cluster; ``empty`` is kept where there is no row."""
    sums = np.zeros((clusters, z.shape[1]), np.float64)
    order = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    sums[present] = np.add.reduceat(z[order].astype(np.float64), starts)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    means = (sums / np.maximum(lengths, 1e-12)).astype(np.float32)
    return means if empty is None else np.where(lengths > 1e-9, means, empty)


def first_centroids(z: Floats, known: Labels, clusters: int, generator: np.random.Generator) -> Floats:
    """Return the means of the known categories, and rows far from these as the other centroids, as k-means++ does."""
    fixed = known >= 0
    centroids = list(means_of(z[fixed], known[fixed], int(known.max()) + 1))
    free = z[~fixed]
    apart = np.maximum(2 - 2 * (free @ np.array(centroids).T).max(1), 0).astype(np.float64)
    while len(centroids) < clusters:
        weights = apart + 1e-12
        drawn = free[generator.choice(len(free), CANDIDATES, p=weights / weights.sum())]
        each = np.minimum(apart, np.maximum(2 - 2 * drawn @ free.T, 0))
        best = int(each.sum(1).argmin())
        centroids.append(drawn[best])
        apart = each[best]
    return np.array(centroids, np.float32)


def seeded_kmeans(z: Floats, known: Labels, centroids: Floats) -> tuple[Labels, Floats]:
    """Return the cluster of each row and the centroids, by spherical k-means; labelled rows stay where they are.

    The first centroids are those of the known categories.
    """
    labels: Labels = np.full(len(z), -1, np.int64)
    for _ in range(MOST_ITERATIONS):
        found = np.where(known >= 0, known, (z @ centroids.T).argmax(1))
        if (found == labels).all():
            break
        labels = found
        centroids = means_of(z, labels, len(centroids), centroids)
    return labels, centroids
