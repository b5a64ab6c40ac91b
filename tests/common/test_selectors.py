"""Every registered selector through the same checks."""

import numpy as np
import pytest
import torch

from metaclust import ClusteringModel, ModelConfig
from metaclust.inference.pipeline import Search, pipeline_for
from metaclust.inference.select import SELECTORS
from metaclust.inference.stages import Selector
from metaclust.model.selector import SelectorNetwork


@pytest.fixture(scope="module")
def case():
    """A model with all that a selector may need, rows, and their candidates."""
    generator = np.random.default_rng(0)
    torch.manual_seed(0)
    model = ClusteringModel(ModelConfig((4,), 4, 8, hidden=8, task_hidden=8, learn_prior=True))
    model.set_prior(mean_precision=0.06, shape=40.0, rate=35.0)
    model.set_choice(SelectorNetwork())
    z = 4 * generator.normal(size=(5, 4))[np.arange(60) % 5] + generator.normal(size=(60, 4))
    pipeline = pipeline_for(model, Search(8, choose="bound"))
    sample = pipeline.sample(z)
    return model, sample, pipeline, pipeline.candidates(model, sample, list(range(1, 9)), 0)


@pytest.fixture(params=SELECTORS)
def selector(request, case):
    made = SELECTORS[request.param](case[0])
    assert isinstance(made, Selector)
    assert made.name == request.param
    return made


def test_each_candidate_has_a_score(selector, case):
    model, sample, _, candidates = case
    scores = selector.scores(model, sample, candidates)
    assert scores.shape == (len(candidates),)
    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) > 1


def test_the_order_of_candidates_changes_no_score(selector, case):
    model, sample, _, candidates = case
    order = np.random.default_rng(1).permutation(len(candidates))
    scores = selector.scores(model, sample, candidates)
    again = selector.scores(model, sample, [candidates[i] for i in order])
    np.testing.assert_allclose(again, scores[order], atol=1e-5, rtol=1e-5)


def test_what_is_made_of_the_best_has_no_lower_bound(selector, case):
    model, sample, pipeline, candidates = case
    for candidate in candidates:
        finished = selector.finish(model, sample, candidate, pipeline.refine)
        assert finished is candidate or finished.bound > candidate.bound
        assert finished.weight == candidate.weight


def test_the_pipeline_takes_what_the_selector_chooses(selector, case):
    model, sample, _, _ = case
    pipeline = pipeline_for(model, Search(8, choose=selector.name))
    selection = pipeline(model, sample, 8)
    assert selection.place == selector.choose(selection.candidates, selection.scores)
    best = selection.candidates[selection.place]
    finished = selector.finish(model, sample, best, pipeline.refine)
    np.testing.assert_array_equal(selection.best.labels, finished.labels)


def test_a_score_far_above_all_others_decides(selector, case):
    _, _, _, candidates = case
    for place in range(len(candidates)):
        scores = np.zeros(len(candidates))
        scores[place] = 30.0
        assert selector.choose(candidates, scores) == place
