"""Training of the networks of the learned selector on tasks with known categories."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from metaclust.inference.stages import Floats
from metaclust.model.selector import (
    CONFIDENCE_FEATURES,
    FARTHEST,
    FEATURES,
    MERGE_FEATURES,
    FeatureNetwork,
    relative_to_expected,
)

EXPECTED_NOISE = 0.3
"""Standard deviation of the noise on the log of the expected variance: new categories may vary more or less."""
ENTROPY = 0.01
"""Weight of the entropy, which keeps the scores from diverging where one candidate is clearly the best."""


MINI_BATCH = 2048
"""Merges or rows of a step."""


@dataclass(frozen=True)
class MergeExample:
    """The merges of one task: features, the share of pairs that are of one category, and the number of pairs."""

    features: Floats
    share: Floats
    pairs: Floats


@dataclass(frozen=True)
class Example:
    """The candidates of one task: their features, and what each is worth, which is its ARI or near it."""

    features: Floats
    worth: Floats


@dataclass(frozen=True)
class RowExample:
    """Some rows of one task: their features, and whether each is in the right cluster."""

    features: Floats
    right: Floats
    weight: float = 1.0
    """How much the task counts."""


def fit_merges(
    network: FeatureNetwork, examples: Sequence[MergeExample], *, steps: int, seed: int = 0, fresh: bool = True
) -> FeatureNetwork:
    """Train a network to predict whether pairs that a merge brings together are of one category.

    Tasks count alike; of a task, a merge counts by the root of its number of pairs.
    """
    weights = [np.sqrt(example.pairs) for example in examples]
    shares = [example.share for example in examples]
    weights = [each / max(each.sum(), 1e-9) for each in weights]
    features = tensor([example.features for example in examples])
    if fresh:
        network.standardize(features)
    loss = odds_loss(network, features, tensor(shares), weights, MERGE_FEATURES)
    return trained(network, loss, steps, 5e-3, seed)


def fit_scores(
    network: FeatureNetwork, examples: Sequence[Example], *, steps: int, seed: int = 0, fresh: bool = True
) -> FeatureNetwork:
    """Train a network to maximise the expected worth of a candidate drawn by the softmax of the scores."""
    if not examples:
        raise ValueError("examples is empty: pass the candidates of at least one task")
    sizes = torch.tensor([len(example.worth) for example in examples])
    features = tensor([example.features for example in examples])
    if fresh:
        network.standardize(features)
    rows, noise = network.standardized(features), noise_of(network, FEATURES)
    worth, present = torch.zeros(len(sizes), int(sizes.max())), torch.arange(int(sizes.max())) < sizes[:, None]
    worth[present] = tensor([example.worth for example in examples])
    index = torch.zeros(present.shape, dtype=torch.int64)
    index[present] = torch.arange(len(features))
    dropout, layers = network.parts

    def loss() -> Tensor:
        place = torch.randint(len(sizes), (min(64, len(sizes)),))
        here = present[place]
        # Only the candidates that there are go through the network, without those that fill up short tasks.
        task = here.nonzero()[:, 0]
        some = rows.index_select(0, index[place][here])
        some.add_((torch.randn(len(place), 1) * noise).index_select(0, task)).clamp_(-FARTHEST, FARTHEST)
        some.mul_(dropout.kept((len(place), some.shape[-1])).index_select(0, task))
        scores = torch.full(here.shape, float("-inf")).masked_scatter(here, layers(some)[:, 0])
        probability = scores.softmax(-1)
        entropy = -(probability * (probability + 1e-9).log()).sum(-1).mean()
        return -(probability * worth[place]).sum(-1).mean() - ENTROPY * entropy

    return trained(network, loss, steps, 1e-2, seed)


def fit_confidence(
    network: FeatureNetwork, examples: Sequence[RowExample], *, steps: int, seed: int = 0, fresh: bool = True
) -> FeatureNetwork:
    """Train a network to predict whether a row is in the right cluster; tasks count by the root of their rows."""
    weights = [np.full(len(example.right), len(example.right) ** -0.5) for example in examples]
    features = tensor([example.features for example in examples])
    right = tensor([example.right for example in examples])
    if fresh:
        network.standardize(features)
    loss = odds_loss(network, features, right, weights, CONFIDENCE_FEATURES)
    return trained(network, loss, steps, 5e-3, seed)


def fit_rows(
    network: FeatureNetwork, names: Sequence[str], examples: Sequence[RowExample], *, steps: int, seed: int = 0
) -> FeatureNetwork:
    """Train a new network to predict what is true of rows, such as whether they are of a known category."""
    weights = [np.full(len(example.right), example.weight * len(example.right) ** -0.5) for example in examples]
    features = tensor([example.features for example in examples])
    right = tensor([example.right for example in examples])
    network.standardize(features)
    loss = odds_loss(network, features, right, weights, names)
    return trained(network, loss, steps, 5e-3, seed)


def odds_loss(
    network: FeatureNetwork, features: Tensor, target: Tensor, weights: Sequence[Floats], names: Sequence[str]
) -> Callable[[], Tensor]:
    """Return the cross-entropy of predicted log odds on a mini-batch drawn by ``weights``."""
    reached = torch.from_numpy(np.cumsum(np.concatenate(weights)))
    rows, noise = network.standardized(features), noise_of(network, names)

    def loss() -> Tensor:
        drawn = torch.rand(MINI_BATCH, dtype=torch.float64) * reached[-1]
        place = torch.searchsorted(reached, drawn).clamp_max(len(features) - 1)
        some = rows.index_select(0, place).addcmul_(torch.randn(len(place), 1), noise)
        odds = network.of_standardized(some)
        return functional.binary_cross_entropy_with_logits(odds, target[place])

    return loss


def trained(network: FeatureNetwork, loss: Callable[[], Tensor], steps: int, rate: float, seed: int) -> FeatureNetwork:
    """Minimise a loss; the learning rate falls along a cosine."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        network.train()
        optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=1e-2, fused=True)
        (group,) = optimizer.param_groups
        for step in range(steps):
            group["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    return network.eval()


def noise_of(network: FeatureNetwork, names: Sequence[str]) -> Tensor:
    """Return what is added to standardized features where the expected variance of a category is larger or smaller.

    It is to be multiplied by a standard normal number.
    """
    noise = torch.zeros(len(names))
    relative = relative_to_expected(names)
    noise[relative] = EXPECTED_NOISE / network.spread[relative]
    return noise


def tensor(parts: Sequence[Floats]) -> Tensor:
    """Return arrays of several tasks as one tensor."""
    return torch.from_numpy(np.concatenate(parts)).float()
