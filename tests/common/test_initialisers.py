"""Every registered start through the same checks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from metaclust import ClusteringModel, ModelConfig
from metaclust.inference.initialise import INITIALISERS
from metaclust.inference.stages import Initialiser, Sample

ROWS = 40


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = ClusteringModel(ModelConfig((4,), 4, 6, hidden=8, task_hidden=8, learn_prior=True))
    model.config = replace(model.config, learned_start=True)
    return model


@pytest.fixture(params=INITIALISERS)
def start(request, model):
    made = INITIALISERS[request.param](model, 2)
    assert isinstance(made, Initialiser)
    return made


def sample(seed=0, shift=0.0):
    generator = np.random.default_rng(seed)
    z = 4 * generator.normal(size=(5, 4))[np.arange(ROWS) % 5] + generator.normal(size=(ROWS, 4))
    return Sample.of(z + shift)


def proposed(start, model, rows, numbers=(1, 3, 6), seed=0):
    return start(model, rows, list(numbers), np.random.default_rng(seed))


def test_each_proposal_is_a_partition_of_the_rows(start, model):
    for initial in proposed(start, model, sample()):
        assert initial.labels.shape == (ROWS,)
        found = np.unique(initial.labels)
        assert found.tolist() == list(range(len(found)))
        assert len(found) <= 6
        logits = initial.as_logits(8)
        assert logits.shape == (ROWS, 8)
        assert torch.isfinite(logits).all()
        hard = logits.argmax(-1).numpy()
        # The same partition, under other numbers where it is soft.
        assert len(set(zip(hard.tolist(), initial.labels.tolist(), strict=True))) == len(found)


def test_a_seed_proposes_the_same_again(start, model):
    one, two = (proposed(start, model, sample(), seed=3) for _ in range(2))
    assert [initial.labels.tolist() for initial in one] == [initial.labels.tolist() for initial in two]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_have_no_more_clusters_than_rows(start, model, rows):
    some = Sample.of(sample().z[:rows])
    for initial in proposed(start, model, some, numbers=(1, rows)):
        assert initial.labels.max() < rows


@pytest.mark.parametrize("name", [name for name in INITIALISERS if name != "learned"])
def test_where_rows_lie_changes_nothing(name, model):
    start = INITIALISERS[name](model, 2)
    near, far = (proposed(start, model, sample(shift=shift)) for shift in (0.0, 8.0))
    assert [initial.labels.tolist() for initial in near] == [initial.labels.tolist() for initial in far]


def test_the_task_network_sees_rows_where_the_encoder_puts_them(model):
    rows = sample(shift=2.0)
    (initial,) = proposed(INITIALISERS["learned"](model, 1), model, rows)
    expected = model.proposed_logits(torch.from_numpy((rows.z + rows.mean).astype(np.float32)))
    torch.testing.assert_close(initial.logits, expected, atol=1e-4, rtol=1e-4)
    model.config = replace(model.config, learned_start=False)
    assert INITIALISERS["learned"](model, 1) is None
