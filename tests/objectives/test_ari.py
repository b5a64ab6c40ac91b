"""The losses against scikit-learn, against sums over pairs, and against finite differences."""

import re
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score
from torch.nn.functional import cross_entropy, one_hot

from metaclust.objectives import ari as objectives
from metaclust.objectives import pairs
from metaclust.objectives.ari import soft_ari
from metaclust.objectives.prototypical import prototypical_loss

DISTANCES = pytest.mark.parametrize("distance", ["tv", "prob"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def hard(labels, dtype=torch.float64):
    """One-hot assignments of cluster numbers."""
    return one_hot(torch.as_tensor(labels)).to(dtype)


def soft(*shape):
    return torch.randn(*shape, dtype=torch.float64).softmax(-1)


def pairs_ari(r, y, distance):
    """The index as a sum over pairs of rows, and scikit-learn's 1 where the denominator vanishes."""
    n1 = n2 = n3 = n4 = torch.zeros((), dtype=r.dtype)
    for i, j in combinations(range(len(y)), 2):
        d = 0.5 * (r[i] - r[j]).abs().sum() if distance == "tv" else 1 - (r[i] * r[j]).sum()
        if y[i] != y[j]:
            n1, n2 = n1 + d, n2 + 1 - d
        else:
            n3, n4 = n3 + d, n4 + 1 - d
    denominator = (n1 + n2) * (n2 + n4) + (n1 + n3) * (n3 + n4)
    return 2 * (n1 * n4 - n2 * n3) / denominator if denominator > 0 else 0 * r.sum() + 1


def value_and_gradient(function, r, *arguments):
    r = r.detach().clone().requires_grad_()
    value = function(r, *arguments)
    return value.detach(), torch.autograd.grad(value.sum(), r)[0]


def assert_equals_the_pairs(r, y, distance):
    value, gradient = value_and_gradient(lambda r: soft_ari(r, y, distance=distance), r)
    expected, expected_gradient = value_and_gradient(pairs_ari, r, y.tolist(), distance)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-12)


DEGENERATE = {
    "one row": ([0], [3]),
    "two rows together": ([0, 0], [1, 1]),
    "two rows apart": ([0, 1], [1, 0]),
    "one category, one cluster": ([0] * 5, [0] * 5),
    "one category, all alone": ([0, 1, 2, 3, 4], [0] * 5),
    "one category, two clusters": ([0, 0, 1, 1, 1], [0] * 5),
    "one cluster, two categories": ([0] * 5, [0, 0, 1, 1, 1]),
    "one cluster, all categories": ([0] * 5, [0, 1, 2, 3, 4]),
    "all alone, all categories": ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0]),
    "all alone, two categories": ([0, 1, 2, 3, 4], [0, 0, 1, 1, 1]),
}


@DISTANCES
def test_hard_assignments_have_scikit_learns_index(distance):
    rng = np.random.default_rng(0)
    for rows in np.tile(np.arange(1, 41), 25):
        clusters, categories = rng.integers(1, 9, 2)
        labels, y = rng.integers(0, clusters, rows), rng.integers(0, categories, rows)
        index = soft_ari(hard(labels), torch.tensor(y), distance=distance).item()
        assert index == pytest.approx(adjusted_rand_score(y, labels), rel=0, abs=1e-12)


@DISTANCES
@DTYPES
@pytest.mark.parametrize(("labels", "y"), DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_tables_have_scikit_learns_index_and_finite_gradients(labels, y, dtype, distance):
    value, gradient = value_and_gradient(lambda r: soft_ari(r, torch.tensor(y), distance=distance), hard(labels, dtype))
    assert value.dtype == gradient.dtype == dtype
    assert value.item() == pytest.approx(adjusted_rand_score(y, labels), rel=0, abs=1e-12)
    assert gradient.isfinite().all()


@DISTANCES
@pytest.mark.parametrize(("labels", "y"), DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_tables_equal_the_sum_over_pairs(labels, y, distance):
    assert_equals_the_pairs(hard(labels), torch.tensor(y), distance)


@DISTANCES
@pytest.mark.parametrize("categories", [1, 2, 4])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 15])
def test_soft_assignments_equal_the_sum_over_pairs(rows, categories, distance):
    for components in (1, 2, 5):
        assert_equals_the_pairs(soft(rows, components), torch.randint(categories, (rows,)), distance)


@DISTANCES
@given(
    quarters=st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=10),
    categories=st.lists(st.integers(0, 2), min_size=10, max_size=10),
)
def test_ties_and_repeated_rows_equal_the_sum_over_pairs(quarters, categories, distance):
    r = torch.tensor(quarters, dtype=torch.float64) / 4
    assert_equals_the_pairs(r, torch.tensor(categories[: len(quarters)]), distance)


@DISTANCES
def test_gradients_equal_finite_differences(distance):
    y = torch.tensor([[0, 1, 1, 0, 2, 2], [0, 0, 0, 1, 1, 1]])
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    r = soft(2, 6, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda r: soft_ari(r, y, mask, distance), (r,))


@DISTANCES
@given(
    y=st.lists(st.sampled_from([-(2**62), -(2**31), -1, 0, 5, 2**31, 2**60, 2**60 + 1]), min_size=2, max_size=12),
    seed=st.integers(0, 2**20),
)
def test_any_integers_name_the_categories(y, seed, distance):
    r = torch.rand(len(y), 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)
    numbers = torch.tensor([sorted(set(y)).index(name) for name in y])
    assert torch.equal(soft_ari(r, torch.tensor(y), distance=distance), soft_ari(r, numbers, distance=distance))


@DISTANCES
@pytest.mark.parametrize("kind", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_categories_may_have_any_integer_type(kind, distance):
    r, y = soft(9, 3), torch.tensor([100, 100, 3, 3, 3, 127, 0, 0, 100])
    torch.testing.assert_close(soft_ari(r, y.to(kind), distance=distance), pairs_ari(r, y.tolist(), distance))


LENGTHS = (8, 3, 1, 6)
MASK = torch.arange(9) < torch.tensor(LENGTHS)[:, None]


def ragged(width):
    """Padded rows, categories whose padding holds numbers of no row, and the tasks they are made of."""
    rows = [torch.randn(n, width, dtype=torch.float64) for n in LENGTHS]
    labels = [torch.randint(3, (n,)) for n in LENGTHS]
    batch, y = torch.zeros(4, 9, width, dtype=torch.float64), torch.full((4, 9), 2**60)
    for i, n in enumerate(LENGTHS):
        batch[i, :n], y[i, :n] = rows[i], labels[i]
    return batch, y, rows, labels


@DISTANCES
@pytest.mark.parametrize("filler", [0.0, 1e9, float("nan")])
def test_a_padded_batch_equals_the_loop_over_its_tasks(distance, filler):
    r, y, _, labels = ragged(3)
    r = r.softmax(-1).masked_fill(~MASK[..., None], filler)
    values, gradients = value_and_gradient(lambda r: soft_ari(r, y, MASK, distance), r)
    for i, n in enumerate(LENGTHS):
        one = r[i, :n]
        value, gradient = value_and_gradient(lambda r, i=i: soft_ari(r, labels[i], distance=distance), one)
        torch.testing.assert_close(values[i], value, rtol=0, atol=1e-13)
        torch.testing.assert_close(gradients[i, :n], gradient, rtol=1e-10, atol=1e-13)
    assert (gradients[~MASK] == 0).all()
    assert (gradients[MASK] != 0).any()


@DISTANCES
@pytest.mark.parametrize("components", [1, 3])
def test_the_index_does_not_change_its_arguments(components, distance):
    r, y, mask = torch.rand(2, 4, components, dtype=torch.float64), torch.tensor([0, 1, 0, 1]), torch.arange(4) < 3
    before = r.clone()
    soft_ari(r, y, mask, distance)
    assert torch.equal(r, before)


@DISTANCES
def test_categories_and_mask_broadcast_over_the_task_axes(distance):
    r, y, mask = soft(2, 3, 7, 4), torch.randint(3, (3, 7)), torch.arange(7) < 5
    batch = soft_ari(r, y, mask, distance)
    assert batch.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(batch[i, j], soft_ari(r[i, j, :5], y[j, :5], distance=distance))


@DISTANCES
def test_a_million_rows_have_scikit_learns_index(distance):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 20, 1_000_000)
    labels = np.where(rng.random(len(y)) < 0.3, rng.integers(0, 3, len(y)), y % 3)
    index = soft_ari(hard(labels), torch.tensor(y), distance=distance).item()
    assert index == pytest.approx(adjusted_rand_score(y, labels), rel=0, abs=1e-12)


@pytest.mark.parametrize("size", [1, 30, 61])
def test_sorting_in_blocks_of_columns_changes_nothing(monkeypatch, size):
    r, y = soft(2, 10, 7), torch.randint(3, (2, 10))
    whole = value_and_gradient(soft_ari, r, y)
    monkeypatch.setattr(objectives, "COLUMN_BLOCK", size)
    blocks = value_and_gradient(soft_ari, r, y)
    torch.testing.assert_close(blocks, whole, rtol=1e-13, atol=1e-15)


@DISTANCES
@given(seed=st.integers(0, 2**20), rows=st.integers(2, 15))
def test_the_index_is_at_most_one_and_ignores_the_order_of_rows_and_clusters(seed, rows, distance):
    generator = torch.Generator().manual_seed(seed)
    r = torch.randn(rows, 4, generator=generator, dtype=torch.float64).softmax(-1)
    y = torch.randint(3, (rows,), generator=generator)
    order, clusters = torch.randperm(rows, generator=generator), torch.randperm(4, generator=generator)
    index = soft_ari(r, y, distance=distance)
    assert index <= 1
    torch.testing.assert_close(soft_ari(r[order][:, clusters], y[order], distance=distance), index)


R, Y = torch.full((5, 2), 0.5), torch.zeros(5, dtype=torch.int64)
WRONG = {
    "distance": ((R, Y, None, "l2"), ValueError, "distance='l2'"),
    "r of integers": ((R.long(), Y), ValueError, "r is torch.int64 of shape (5, 2)"),
    "r 1-D": ((R[:, 0], Y), ValueError, "r is torch.float32 of shape (5,)"),
    "y of floats": ((R, Y.float()), TypeError, "y is torch.float32"),
    "y of booleans": ((R, Y.bool()), TypeError, "y is torch.bool"),
    "y too short": ((R, Y[:4]), ValueError, "y has shape (4,) and r (5, 2)"),
    "y of one row": ((R, Y[:1]), ValueError, "y has shape (1,) and r (5, 2)"),
    "y with more axes": ((R, Y.expand(3, 5)), ValueError, "y has shape (3, 5) and r (5, 2)"),
    "y of other tasks": ((R.expand(2, 5, 2), Y.expand(3, 5)), ValueError, "y has shape (3, 5) and r (2, 5, 2)"),
    "y a number": ((R, Y[0]), ValueError, "y has shape () and r (5, 2)"),
    "mask of integers": ((R, Y, Y), TypeError, "mask is torch.int64"),
    "mask too short": ((R, Y, Y[:4].bool()), ValueError, "mask has shape (4,) and r (5, 2)"),
}


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(("arguments", "error", "message"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        soft_ari(*arguments)


def prototypical_by_loops(z, y):
    """Mean cross-entropy of rows whose category has another row, by centroids without the row itself."""
    losses = []
    for n in range(len(y)):
        others = [m for m in range(len(y)) if m != n]
        if not any(y[m] == y[n] for m in others):
            continue
        categories = sorted({y[m] for m in others})
        centroids = torch.stack([z[[m for m in others if y[m] == c]].mean(0) for c in categories])
        scores = -(z[n] - centroids).square().sum(-1)
        losses.append(cross_entropy(scores, torch.tensor(categories.index(y[n]))))
    return torch.stack(losses).mean() if losses else 0 * z.sum()


@given(y=st.lists(st.integers(-2, 2), min_size=1, max_size=10), seed=st.integers(0, 2**20))
def test_the_prototypical_loss_equals_the_loops(y, seed):
    z = torch.randn(len(y), 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    value, gradient = value_and_gradient(prototypical_loss, z, torch.tensor(y))
    expected, expected_gradient = value_and_gradient(prototypical_by_loops, z, y)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-11)


def test_a_category_of_one_row_is_left_out_but_still_competes():
    z, y = torch.randn(5, 2, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 7])
    loss = prototypical_loss(z, y)
    torch.testing.assert_close(loss, prototypical_by_loops(z, y.tolist()))
    assert loss > prototypical_loss(z[:4], y[:4])


@pytest.mark.parametrize("filler", [0.0, 1e9, float("nan")])
def test_a_padded_batch_of_the_prototypical_loss_equals_the_loop_over_its_tasks(filler):
    z, y, rows, labels = ragged(2)
    z = z.masked_fill(~MASK[..., None], filler)
    values, gradients = value_and_gradient(prototypical_loss, z, y, MASK)
    for i, n in enumerate(LENGTHS):
        value, gradient = value_and_gradient(prototypical_by_loops, rows[i], labels[i].tolist())
        torch.testing.assert_close(values[i], value, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(gradients[i, :n], gradient, rtol=1e-9, atol=1e-11)
    assert (gradients[~MASK] == 0).all()


@DTYPES
def test_one_row_or_one_category_has_a_prototypical_loss_of_zero(dtype):
    for y in ([3], [3, 3, 3], [1, 2, 3]):
        value, gradient = value_and_gradient(prototypical_loss, torch.randn(len(y), 2, dtype=dtype), torch.tensor(y))
        assert value.item() == 0
        assert (gradient == 0).all()


@DTYPES
def test_equal_rows_have_a_finite_prototypical_loss(dtype):
    y = torch.tensor([0, 0, 1, 1, 1])
    value, gradient = value_and_gradient(prototypical_loss, torch.full((5, 2), 0.3, dtype=dtype), y)
    torch.testing.assert_close(value, torch.tensor(2.0, dtype=dtype).log())
    assert gradient.isfinite().all()


def test_several_task_axes_of_the_prototypical_loss_equal_the_loop():
    z, y = torch.randn(2, 3, 7, 2, dtype=torch.float64), torch.randint(3, (2, 3, 7))
    batch = prototypical_loss(z, y)
    assert batch.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(batch[i, j], prototypical_by_loops(z[i, j], y[i, j].tolist()))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_assignments_that_are_not_finite_are_refused_unless_they_are_padding(bad):
    r = torch.tensor([[1.0, 0.0], [0.0, 1.0], [bad, 0.0]])
    y = torch.tensor([0, 1, 1])
    with pytest.raises(ValueError, match="r holds NaN or infinity"):
        soft_ari(r, y)
    assert soft_ari(r, y, torch.tensor([True, True, False])).item() == 1.0


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 30), st.integers(1, 5), st.integers(0, 99))
def test_the_packed_sort_counts_as_the_plain_one_does(tasks, columns, rows, categories, seed):
    generator = torch.Generator().manual_seed(seed)
    # Few different values, so that many are equal; zeros of both signs, values below zero, tiny ones.
    values = torch.tensor([0.0, -0.0, 1.0, 0.5, -1.0, 1e-45, -1e-45, 1e-30, -7.5, 3.4e38])
    values = values[torch.randint(len(values), (tasks, columns, rows), generator=generator)]
    category = torch.randint(categories, (tasks, rows), generator=generator)
    present = torch.rand((tasks, rows), generator=generator) < 0.8
    category = objectives.dense_categories(category, present)
    size = objectives.category_sizes(category, present)
    for ours, plain in zip(
        pairs.pair_coefficients(values, category, present, size),
        pairs.pair_coefficients(values.double(), category, present, size),
        strict=True,
    ):
        assert torch.equal(ours, plain)


def test_where_the_keys_have_no_room_the_plain_sort_takes_over(monkeypatch):
    r, y = torch.randn(40, 3).softmax(-1), torch.arange(40) % 20
    expected = soft_ari(r, y)
    monkeypatch.setattr(pairs, "packed_middles", lambda *_: pytest.fail("no room for it"))
    monkeypatch.setattr(pairs, "CATEGORY_BITS", 4)
    assert soft_ari(r, y) == expected
