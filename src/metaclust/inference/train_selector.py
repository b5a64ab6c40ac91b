"""Training of the networks of the learned selector on tasks with known categories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from metaclust.inference.stages import Floats
from metaclust.model.selector import (
    CONFIDENCE_FEATURES,
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
    loss = odds_loss(network, features, tensor(shares), weights, MERGE_FEATURES)
    return trained(network, features, loss, steps, 5e-3, seed, fresh)


def fit_scores(
    network: FeatureNetwork, examples: Sequence[Example], *, steps: int, seed: int = 0, fresh: bool = True
) -> FeatureNetwork:
    """Train a network to maximise the expected worth of a candidate drawn by the softmax of the scores."""
    if not examples:
        raise ValueError("examples is empty: pass the candidates of at least one task")
    longest = max(len(example.worth) for example in examples)
    features = torch.zeros(len(examples), longest, len(FEATURES))
    worth, present = torch.zeros(len(examples), longest), torch.zeros(len(examples), longest, dtype=torch.bool)
    for i, example in enumerate(examples):
        size = len(example.worth)
        features[i, :size] = torch.from_numpy(example.features)
        worth[i, :size] = torch.from_numpy(example.worth)
        present[i, :size] = True

    def loss() -> Tensor:
        place = torch.randint(len(examples), (min(64, len(examples)),))
        some = perturbed(features[place], FEATURES, (len(place), 1, 1))
        scores: Tensor = network(some)
        probability = scores.masked_fill(~present[place], float("-inf")).softmax(-1)
        entropy = -(probability * (probability + 1e-9).log()).sum(-1).mean()
        return -(probability * worth[place]).sum(-1).mean() - ENTROPY * entropy

    return trained(network, features[present], loss, steps, 1e-2, seed, fresh)


def fit_confidence(
    network: FeatureNetwork, examples: Sequence[RowExample], *, steps: int, seed: int = 0, fresh: bool = True
) -> FeatureNetwork:
    """Train a network to predict whether a row is in the right cluster; tasks count by the root of their rows."""
    weights = [np.full(len(example.right), len(example.right) ** -0.5) for example in examples]
    features = tensor([example.features for example in examples])
    right = tensor([example.right for example in examples])
    loss = odds_loss(network, features, right, weights, CONFIDENCE_FEATURES)
    return trained(network, features, loss, steps, 5e-3, seed, fresh)


def fit_rows(
    network: FeatureNetwork, names: Sequence[str], examples: Sequence[RowExample], *, steps: int, seed: int = 0
) -> FeatureNetwork:
    """Train a new network to predict what is true of rows, such as whether they are of a known category."""
    weights = [np.full(len(example.right), len(example.right) ** -0.5) for example in examples]
    features = tensor([example.features for example in examples])
    right = tensor([example.right for example in examples])
    loss = odds_loss(network, features, right, weights, names)
    return trained(network, features, loss, steps, 5e-3, seed, fresh=True)


def odds_loss(
    network: FeatureNetwork, features: Tensor, target: Tensor, weights: Sequence[Floats], names: Sequence[str]
) -> Callable[[], Tensor]:
    """Return the cross-entropy of predicted log odds on a mini-batch drawn by ``weights``."""
    reached = torch.from_numpy(np.cumsum(np.concatenate(weights)))

    def loss() -> Tensor:
        drawn = torch.rand(MINI_BATCH, dtype=torch.float64) * reached[-1]
        place = torch.searchsorted(reached, drawn).clamp_max(len(features) - 1)
        odds = network(perturbed(features[place], names, (len(place), 1)))
        return functional.binary_cross_entropy_with_logits(odds, target[place])

    return loss


def trained(
    network: FeatureNetwork,
    features: Tensor,
    loss: Callable[[], Tensor],
    steps: int,
    rate: float,
    seed: int,
    fresh: bool,
) -> FeatureNetwork:
    """Minimise a loss; a ``fresh`` network is standardized by the features first, another keeps its own means."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        if fresh:
            network.standardize(features)
        network.train()
        optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=1e-2, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
        for _ in range(steps):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def perturbed(features: Tensor, names: Sequence[str], shape: tuple[int, ...]) -> Tensor:
    """Return features as if the expected variance of a category were larger or smaller."""
    changed = features.clone()
    changed[..., relative_to_expected(names)] += EXPECTED_NOISE * torch.randn(shape)
    return changed


def tensor(parts: Sequence[Floats]) -> Tensor:
    """Return arrays of several tasks as one tensor."""
    return torch.from_numpy(np.concatenate(parts)).float()
