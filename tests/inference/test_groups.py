"""Sums over the rows of clusters, and inference that starts from them."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from metaclust.inference.groups import sums_of_clusters, sums_of_rows
from metaclust.mixture import component_family, vb_steps
from metaclust.mixture.inference import Sums, features_of

SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed, rows=20, columns=3):
    rng = np.random.default_rng(seed)
    partitions = [np.unique(rng.integers(0, most, rows), return_inverse=True)[1] for most in (1, 3, 6)]
    return rng.normal(size=(rows, columns)), partitions


@given(seed=SEEDS)
def test_sums_are_those_of_the_rows_of_each_cluster(seed):
    rows, partitions = drawn(seed)
    found = sums_of_clusters(rows, partitions)
    for own, labels in zip(found, partitions, strict=True):
        expected = [rows[labels == cluster].sum(0) for cluster in range(found.shape[1])]
        np.testing.assert_allclose(own, expected, atol=1e-12)
    np.testing.assert_allclose(sums_of_rows(rows, np.array([0, 5])), np.add.reduceat(rows, [0, 5]), atol=1e-12)


@given(seed=SEEDS, weight=st.sampled_from([1.0, 0.3]))
def test_inference_from_sums_is_that_from_assignments(seed, weight):
    rows, partitions = drawn(seed)
    z, family, alpha = torch.from_numpy(rows), component_family("spherical"), torch.tensor(1.0)
    sums = torch.from_numpy(sums_of_clusters(features_of(z, family).numpy(), partitions))
    logits = torch.full((len(partitions), len(rows), sums.shape[1]), -1e4, dtype=torch.float64)
    for own, labels in zip(logits, partitions, strict=True):
        own[torch.arange(len(rows)), torch.from_numpy(labels)] = 0
    one = vb_steps(z, Sums(sums), family, alpha, None, weight)
    other = vb_steps(z.expand(len(partitions), *z.shape), logits, family, alpha, None, weight)
    for _ in range(3):
        found, expected = next(one), next(other)
        torch.testing.assert_close(found.scores, expected.scores)
        torch.testing.assert_close(found.exact_bound, expected.exact_bound)
        assert found.steps.tolist() == expected.steps.tolist()
