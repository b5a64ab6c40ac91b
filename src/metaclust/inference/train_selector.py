"""Training of the learned selector, from candidates whose ARI is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from metaclust.inference.features import TINY
from metaclust.inference.stages import Floats
from metaclust.model.selector import FEATURES, SelectorNetwork

OF_EXPECTED = slice(1, 4)
"""The features that compare with the width that categories had in training."""
WIDER = 0.3
"""By how much, in the logarithm, that width may be wrong: new categories may be wider or narrower than known ones."""


@dataclass(frozen=True)
class Example:
    """The candidates of one task: their features, and the ARI of each."""

    features: Floats
    ari: Floats


def fit_selector(examples: Sequence[Example], *, steps: int = 400, seed: int = 0) -> SelectorNetwork:
    """Train a selector on the expected ARI of a candidate that is drawn by the softmax of the scores.

    In every step, the variance expected of categories is off by another factor in each task.
    """
    if not examples:
        raise ValueError("examples is empty: give the candidates of one task or more")
    width = max(len(example.ari) for example in examples)
    features = torch.zeros(len(examples), width, 2 * len(FEATURES))
    ari, present = torch.zeros(len(examples), width), torch.zeros(len(examples), width, dtype=torch.bool)
    for i, example in enumerate(examples):
        size = len(example.ari)
        features[i, :size] = torch.from_numpy(example.features)
        ari[i, :size] = torch.from_numpy(example.ari)
        present[i, :size] = True
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        choice = SelectorNetwork()
        choice.mean.copy_(features[present].mean(0))
        choice.spread.copy_(features[present].std(0).clamp_min(1e-3))
        optimizer = torch.optim.AdamW(choice.parameters(), lr=1e-2, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            seen = features.clone()
            seen[..., OF_EXPECTED] += WIDER * torch.randn(len(examples), 1, 1)
            score = choice(seen).masked_fill(~present, float("-inf"))
            share = score.softmax(-1)
            # A little entropy: scores do not run away where one candidate is the best of all.
            entropy = -(share * (share + TINY).log()).sum(-1).mean()
            loss = -(share * ari).sum(-1).mean() - 0.005 * entropy
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return choice.eval()
