"""The adjusted Rand index where that of neighbouring projects surprised their users."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch.nn.functional import one_hot

from metaclust import soft_ari
from metaclust.inference.result import label_scores


def index(labels: list[int] | np.ndarray, categories: list[int] | np.ndarray, dtype: torch.dtype) -> float:
    found = torch.as_tensor(np.unique(labels, return_inverse=True)[1])
    return soft_ari(one_hot(found).to(dtype), torch.as_tensor(categories)).item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_index_of_many_rows_does_not_overflow(dtype: torch.dtype) -> None:
    """scikit-learn #20305, and #21055: products of counts of 100,000 rows overflowed int64, far outside [-1, 1]."""
    generator = np.random.default_rng(0)
    categories = generator.integers(0, 6, 100_000)
    labels = np.where(generator.random(100_000) < 0.7, categories, generator.integers(0, 6, 100_000))
    expected = adjusted_rand_score(categories, labels)
    assert 0.4 < expected < 0.6
    assert index(labels, categories, dtype) == pytest.approx(expected, rel=1e-6)
    assert label_scores([str(name) for name in categories], labels)["ari"] == pytest.approx(expected)


def test_one_row_apart_from_a_single_category_has_the_index_zero() -> None:
    """scikit-learn #12940: of 22 rows of one category one stands apart, and the index is 0, as by chance; not a bug."""
    labels = [1] * 20 + [0, 1]
    assert index(labels, [1] * 22, torch.float64) == adjusted_rand_score([1] * 22, labels) == 0
    assert index([1] * 22, [1] * 22, torch.float64) == 1


@pytest.mark.parametrize(("labels", "categories"), [([1, 0], [1, 0]), ([0], [1]), ([3, 3], [3, 3]), ([0, 1], [2, 2])])
def test_very_few_rows_have_an_index(labels: list[int], categories: list[int]) -> None:
    """scikit-learn #11844, cuML #7202: two rows gave NaN, one row aborted the process."""
    assert index(labels, categories, torch.float32) == adjusted_rand_score(categories, labels)
