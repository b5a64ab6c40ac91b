"""The losses of the comparing methods against plain loops over pairs and triplets, and the decoder of images."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclust.model.encoders.image import ImageDecoder
from metaclust.objectives.metric import contrastive_loss, triplet_loss


def drawn(seed: int, rows: int, categories: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(seed)
    z = torch.from_numpy(generator.normal(size=(rows, 3)))
    return z, torch.from_numpy(generator.integers(0, categories, rows))


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 4), st.floats(0.1, 3))
@settings(max_examples=60, deadline=None)
def test_contrastive_loss_is_the_sum_over_pairs(seed, rows, categories, margin):
    z, y = drawn(seed, rows, categories)
    same, other = [], []
    for i in range(rows):
        for j in range(i):
            distance = float((z[i] - z[j]).square().sum())
            if y[i] == y[j]:
                same.append(distance)
            else:
                other.append(max(0.0, margin - distance**0.5) ** 2)
    expected = (np.mean(same) if same else 0.0) + (np.mean(other) if other else 0.0)
    assert contrastive_loss(z, y, margin).item() == pytest.approx(expected, abs=1e-8)


def test_contrastive_loss_has_the_gradient_of_finite_differences_and_a_finite_one_where_rows_are_equal():
    z, y = drawn(0, 7, 3)
    assert torch.autograd.gradcheck(lambda rows: contrastive_loss(rows, y, 2.0), z.requires_grad_())
    equal = torch.zeros((4, 2), dtype=torch.float64, requires_grad=True)
    contrastive_loss(equal, torch.tensor([0, 0, 1, 1])).backward()
    assert equal.grad.isfinite().all()


def test_triplet_loss_is_the_mean_over_all_triplets_in_the_limit_of_many_draws():
    z, y = drawn(3, 9, 3)
    hinges = []
    for a in range(9):
        near = [i for i in range(9) if i != a and y[i] == y[a]]
        far = [i for i in range(9) if y[i] != y[a]]
        if near and far:
            squared = (z[a] - z).square().sum(-1)
            hinges.append(np.mean([max(0.0, 1.0 + float(squared[p] - squared[n])) for p in near for n in far]))
    torch.manual_seed(0)
    assert triplet_loss(z, y, draws=20_000).item() == pytest.approx(np.mean(hinges), rel=0.02)


@pytest.mark.parametrize("y", [[0, 0, 0], [0, 1, 2], [0]])
def test_triplet_loss_without_a_triplet_is_zero_with_a_gradient(y):
    z = torch.randn(len(y), 2, requires_grad=True)
    loss = triplet_loss(z, torch.tensor(y))
    loss.backward()
    assert loss.item() == 0
    assert (z.grad == 0).all()


def test_triplet_loss_is_zero_where_categories_are_far_apart_and_large_where_they_are_mixed():
    y = torch.tensor([0, 0, 1, 1])
    apart = torch.tensor([[0.0], [0.1], [9.0], [9.1]])
    assert triplet_loss(apart, y).item() == 0
    assert triplet_loss(apart[[0, 2, 1, 3]], y).item() > 20


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 20), (1, 9, 9), (1, 1, 5)])
def test_the_decoder_gives_images_of_the_shape_that_was_encoded(shape):
    decoder = ImageDecoder(shape, representation=3, filters=4, hidden=8)
    z = torch.randn(6, 3, requires_grad=True)
    x = decoder(z)
    assert x.shape == (6, *shape)
    x.square().sum().backward()
    assert (z.grad.abs().sum(1) > 0).all()
