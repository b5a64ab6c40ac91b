"""Training of the learned selector on candidates with known ARI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from metaclust.inference.features import TINY
from metaclust.inference.stages import Floats
from metaclust.model.selector import FEATURES, SelectorNetwork

OF_EXPECTED = slice(1, 4)
"""The features that are relative to the variance of the training categories."""
VARIANCE_NOISE = 0.3
"""Standard deviation of the noise on the log of that variance: new categories may vary more or less than known ones."""


@dataclass(frozen=True)
class Example:
    """The candidates of one task: their features, and the ARI of each."""

    features: Floats
    ari: Floats


def fit_selector(examples: Sequence[Example], *, steps: int = 400, seed: int = 0) -> SelectorNetwork:
    """Train a selector to maximise the expected ARI of a candidate drawn by the softmax of the scores.

    Each step perturbs the expected variance of the categories by a random factor for each task.
    """
    if not examples:
        raise ValueError("examples is empty: pass the candidates of at least one task")
    longest = max(len(example.ari) for example in examples)
    features = torch.zeros(len(examples), longest, 2 * len(FEATURES))
    ari, present = torch.zeros(len(examples), longest), torch.zeros(len(examples), longest, dtype=torch.bool)
    for i, example in enumerate(examples):
        size = len(example.ari)
        features[i, :size] = torch.from_numpy(example.features)
        ari[i, :size] = torch.from_numpy(example.ari)
        present[i, :size] = True
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        selector = SelectorNetwork()
        selector.mean.copy_(features[present].mean(0))
        selector.spread.copy_(features[present].std(0).clamp_min(1e-3))
        optimizer = torch.optim.AdamW(selector.parameters(), lr=1e-2, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            perturbed = features.clone()
            perturbed[..., OF_EXPECTED] += VARIANCE_NOISE * torch.randn(len(examples), 1, 1)
            score = selector(perturbed).masked_fill(~present, float("-inf"))
            probability = score.softmax(-1)
            # The entropy keeps the scores from diverging where one candidate is clearly the best.
            entropy = -(probability * (probability + TINY).log()).sum(-1).mean()
            loss = -(probability * ari).sum(-1).mean() - 0.005 * entropy
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return selector.eval()
