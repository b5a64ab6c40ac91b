"""Tasks drawn from labelled data: the split, the sampler, and the padded batch."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metaclust import Task, TaskSampler, collate, split_categories


def labelled(categories=12, rows=8, seed=0):
    """Rows that hold their own number, in mixed order, and categories numbered with gaps."""
    y = np.random.default_rng(seed).permutation(np.repeat(3 * np.arange(categories) - 5, rows))
    return torch.arange(len(y), dtype=torch.float32)[:, None], y


def sampler(**changes):
    x, y = labelled()
    return TaskSampler(x, y, **{"categories": np.unique(y), "n_categories": (2, 5), **changes})


def sizes(task):
    return np.bincount(task.labels)


def same(one, other):
    values = [(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)]
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in values)


def test_the_964_characters_are_split_into_578_193_and_193():
    split = split_categories(np.repeat(np.arange(964), 20), seed=0)
    assert [len(split.train), len(split.validation), len(split.test)] == [578, 193, 193]


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=200), st.integers(0, 1000))
def test_every_category_is_in_exactly_one_part(y, seed):
    split = split_categories(y, seed)
    parts = np.concatenate([split.train, split.validation, split.test])
    assert sorted(parts.tolist()) == sorted(set(y))
    assert abs(len(split.train) - 0.6 * len(parts)) <= 0.5
    assert abs(len(split.validation) - 0.2 * len(parts)) <= 0.5


def test_a_split_follows_its_seed():
    y = np.arange(100)
    one, again, other = (split_categories(y, seed).train for seed in (3, 3, 4))
    assert one.tolist() == again.tolist()
    assert one.tolist() != other.tolist()


def test_a_split_does_not_depend_on_the_order_or_the_number_of_rows():
    y = np.arange(40)
    one, other = split_categories(y, 1), split_categories(np.repeat(y[::-1], 3), 1)
    assert one.test.tolist() == other.test.tolist()


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.6, 0.6, -0.2), (0.5, 0.2, 0.2)], ids=str)
@pytest.mark.usefixtures("_without_type_checks")
def test_fractions_must_add_up_to_one(fractions):
    with pytest.raises(ValueError, match=r"fractions=.*add up to 1"):
        split_categories([0, 1, 2], 0, fractions)


@given(
    st.integers(0, 100),
    st.integers(1, 6),
    st.integers(0, 6),
    st.one_of(st.none(), st.integers(1, 10), st.tuples(st.integers(1, 5), st.integers(5, 10))),
    st.integers(0, 3),
)
def test_a_task_has_the_categories_and_rows_it_was_asked_for(seed, low, more, rows, dropped):
    x, y = labelled()
    allowed = np.unique(y)[dropped:]
    tasks = TaskSampler(x, y, allowed, (low, low + more), rows, seed=seed).fixed(5)
    for task in tasks:
        names = [np.unique(y[task.rows[task.labels == label]]) for label in range(task.n_categories)]
        assert all(len(name) == 1 for name in names)
        assert np.concatenate(names).tolist() == task.categories.tolist()
        assert len(np.unique(names)) == task.n_categories
        assert set(np.concatenate(names)) <= set(allowed)
        assert low <= task.n_categories <= min(low + more, len(allowed))
        assert len(np.unique(task.rows)) == len(task.rows)
        least, most = (8, 8) if rows is None else rows if isinstance(rows, tuple) else (rows, rows)
        assert len(set(sizes(task))) == 1
        assert min(least, 8) <= sizes(task)[0] <= min(most, 8)


def test_a_range_of_rows_is_drawn_from_for_each_task():
    drawn = {int(sizes(task)[0]) for task in sampler(rows=(2, 6)).fixed(200)}
    assert drawn == {2, 3, 4, 5, 6}


def test_imbalanced_tasks_have_categories_of_different_sizes():
    x, y = labelled(rows=60)
    tasks = TaskSampler(x, y, np.unique(y), (4, 4), (5, 50), imbalanced=True).fixed(300)
    drawn = np.concatenate([sizes(task) for task in tasks])
    assert all(len(set(sizes(task))) > 1 for task in tasks[:20])
    assert drawn.min() == 5
    assert drawn.max() == 50
    # Uniform in the logarithm: as many below the geometric middle of 5 and 51 as above.
    assert abs((drawn < 16).mean() - 0.5) < 0.05


def test_the_number_of_categories_is_uniform():
    x, y = labelled(categories=20, rows=1)
    tasks = TaskSampler(x, y, np.unique(y), (2, 10)).fixed(4500)
    counts = np.bincount([task.n_categories for task in tasks], minlength=11)
    assert counts[:2].sum() == 0
    assert (np.abs(counts[2:] - 500) < 5 * np.sqrt(500 * 8 / 9)).all()


def test_every_category_is_drawn_equally_often():
    x, y = labelled()
    tasks = TaskSampler(x, y, np.unique(y), (3, 3), 1).fixed(2000)
    counts = np.unique(np.concatenate([y[task.rows] for task in tasks]), return_counts=True)[1]
    assert (np.abs(counts - 500) < 5 * np.sqrt(500)).all()


@given(st.integers(0, 50), st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_a_batch_depends_on_the_seed_and_the_step_alone(seed, steps):
    one, other = sampler(seed=seed), sampler(seed=seed)
    first = {step: one.batch(step) for step in steps}
    other.fixed(3)
    for step in reversed(steps):
        assert same(other.batch(step), first[step])


def test_other_steps_and_other_seeds_give_other_batches():
    batches = [sampler(seed=seed).batch(step) for seed in range(3) for step in range(3)]
    assert not any(same(one, other) for i, one in enumerate(batches) for other in batches[:i])


def test_fixed_tasks_are_always_the_same():
    drawn = sampler()
    drawn.batch(0)
    for one, other in zip(drawn.fixed(3), sampler().fixed(5), strict=False):
        assert one.rows.tolist() == other.rows.tolist()
        assert one.labels.tolist() == other.labels.tolist()


def test_batches_do_not_touch_the_callers_random_numbers():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    sampler(augment=lambda x, group, generator: x + torch.rand(x.shape, generator=generator)).batch(0)
    assert torch.equal(torch.get_rng_state(), state)


@given(st.integers(0, 1000), st.integers(1, 5))
def test_padding_a_batch_puts_each_row_in_its_place(seed, tasks):
    x, y = labelled()
    drawn = sampler(rows=(1, 8), tasks=tasks)
    generator = np.random.default_rng(seed)
    tasks = [drawn.draw(generator) for _ in range(tasks)]
    batch = collate(x, tasks)
    padded = batch.pad(batch.x)
    lengths = [len(task.rows) for task in tasks]
    assert len(batch.x) == sum(lengths)
    assert batch.category.tolist() == y[batch.x[:, 0].to(torch.int64)].tolist()
    assert padded.shape == (len(tasks), max(lengths), 1)
    assert batch.mask.sum(-1).tolist() == lengths
    for i, (task, length) in enumerate(zip(tasks, lengths, strict=True)):
        assert batch.mask[i, :length].all()
        assert padded[i, :length, 0].tolist() == task.rows.tolist()
        assert batch.y[i, :length].tolist() == task.labels.tolist()
        assert (padded[i, length:] == 0).all()


def test_padding_passes_gradients_to_the_real_rows_alone():
    numbers = np.arange(3)
    tasks = [Task(np.array([4]), np.array([0]), np.array([7])), Task(numbers, numbers, numbers)]
    batch = collate(torch.arange(5.0)[:, None], tasks)
    z = torch.ones(4, 2, requires_grad=True)
    batch.pad(z).sum().backward()
    assert torch.equal(z.grad, torch.ones(4, 2))


def test_augmentation_is_told_the_category_of_each_row_and_draws_by_step():
    seen = []

    def augment(x, category, generator):
        seen.append((x, category))
        return x + 0.5 * torch.rand(x.shape, generator=generator)

    drawn = sampler(augment=augment)
    batch, plain = drawn.batch(4), sampler().batch(4)
    x, category = seen[0]
    assert torch.equal(x, plain.x)
    assert torch.equal(category, plain.category)
    assert torch.equal(batch.x.floor(), plain.x)
    assert torch.equal(drawn.batch(4).x, batch.x)
    assert not torch.equal(drawn.batch(5).x[:20] % 1, batch.x[:20] % 1)


def test_the_repr_of_a_task_counts_its_rows_and_categories():
    task = Task(np.arange(1000), np.repeat([0, 1], 500), np.array([3, 8]))
    assert repr(task) == "Task(1000 rows, 2 categories)"


def test_the_repr_of_a_batch_gives_its_shape():
    task = Task(np.arange(90), np.zeros(90, dtype=np.int64), np.array([3]))
    assert repr(collate(torch.zeros(90, 7), [task, task])) == "Batch(2 tasks, x of shape (180, 7))"


def test_the_repr_of_a_sampler_gives_its_settings():
    assert repr(sampler(rows=(2, 6), seed=3)) == (
        "TaskSampler(96 rows, 12 categories, n_categories=(2, 5), rows=(2, 6), imbalanced=False, tasks=4, seed=3)"
    )


X = torch.zeros(12, 2)
Y = np.repeat(np.arange(4), 3)
WRONG = {
    "floats": ({"y": Y.astype(float)}, "y has type float64"),
    "strings": ({"y": Y.astype(str)}, "y has type <U.*return_inverse"),
    "booleans": ({"y": Y > 1}, "y has type bool"),
    "a column": ({"y": Y[:, None]}, r"y has type int64 and shape \(12, 1\)"),
    "names of categories": ({"categories": ["a", "b"]}, "categories has type"),
    "one axis": ({"x": X[:, 0]}, "x has shape .12,.: it needs rows and columns"),
    "not a number": ({"x": X / 0}, "x holds NaN or infinity, first in row 0"),
    "lengths": ({"y": Y[:-1]}, "x has 12 rows and y 11"),
    "a category without rows": ({"categories": np.arange(6)}, r"categories \[4, 5\] have no rows"),
    "too few categories": ({"n_categories": (5, 6)}, "categories has 4 entries.*n_categories=.5, 6."),
    "a reversed range": ({"n_categories": (3, 2)}, "n_categories=.3, 2."),
    "no categories": ({"n_categories": (0, 2)}, "n_categories=.0, 2."),
    "no rows": ({"rows": 0}, "rows=0"),
    "a range of rows from 0": ({"rows": (0, 5)}, "rows=.0, 5."),
    "a reversed range of rows": ({"rows": (5, 2)}, "rows=.5, 2."),
    "imbalanced over all rows": ({"imbalanced": True}, "imbalanced=True needs `rows` as a range"),
    "imbalanced over one number": ({"imbalanced": True, "rows": 2}, "imbalanced=True needs `rows` as a range"),
    "no tasks": ({"tasks": 0}, "tasks=0"),
}


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_argument_is_named_with_its_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        TaskSampler(**{"x": X, "y": Y, "categories": np.arange(4), "n_categories": (2, 3), **arguments})


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize("kind", [list, np.uint8, np.int32])
def test_whole_numbers_of_any_kind_are_labels(kind):
    y = Y.tolist() if kind is list else Y.astype(kind)
    assert TaskSampler(X, y, [0, 1, 2, 3], (2, 3)).batch(0).y.dtype == torch.int64
