"""The distribution over numbers of clusters: against sums, and a known one is recovered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import norm

from metaclust.inference.numbers import (
    COLDEST,
    HOTTEST,
    LEAST,
    NARROWEST,
    USUAL_ARI,
    WIDEST,
    NumberExample,
    NumberModel,
    Tasks,
    fit_numbers,
    interval,
)

SLOPES = st.tuples(st.floats(-1, 1), st.floats(-3, 3))
MODELS = st.builds(
    NumberModel,
    temperature=st.floats(0.05, 20),
    shift=st.floats(-1, 1),
    deviation=st.floats(NARROWEST, WIDEST),
    temperature_slopes=SLOPES,
    deviation_slopes=SLOPES,
)
ARI = st.floats(-0.5, 1)
CANDIDATES = st.lists(st.tuples(st.floats(-30, 30), st.integers(1, 300)), min_size=1, max_size=12)
DISTRIBUTIONS = st.dictionaries(st.integers(1, 200), st.floats(0.01, 1), min_size=1, max_size=30).map(
    lambda found: {number: value / sum(found.values()) for number, value in found.items()}
)


def split(candidates):
    scores, clusters = zip(*candidates, strict=True)
    return np.array(scores), list(clusters)


@given(model=MODELS, candidates=CANDIDATES)
def test_probabilities_sum_to_one(model, candidates):
    found = model.probabilities(*split(candidates), 10**6)
    assert sum(found.values()) == pytest.approx(1)
    assert min(found) >= 1
    assert all(LEAST <= value <= 1 + 1e-9 for value in found.values())


@given(model=MODELS, candidates=CANDIDATES, ari=ARI)
def test_probabilities_are_those_of_a_mixture_of_log_normals(model, candidates, ari):
    scores, clusters = split(candidates)
    (warmer, by_ari), (wider, unlike) = model.temperature_slopes, model.deviation_slopes
    temperature = model.temperature * clusters[int(scores.argmax())] ** warmer * np.exp(by_ari * (ari - USUAL_ARI))
    weights = softmax(scores / np.clip(temperature, COLDEST, HOTTEST))
    deviation = model.deviation * np.array(clusters) ** wider * np.exp(unlike * (ari - USUAL_ARI))
    deviation = np.clip(deviation, NARROWEST, WIDEST)

    def probability(number):
        edges = np.array([[np.log(number - 0.5) if number > 1 else -np.inf], [np.log(number + 0.5)]])
        below, up_to = norm.cdf(edges, np.log(clusters) + model.shift, deviation)
        return float(weights @ (up_to - below))

    found = model.probabilities(scores, clusters, 10**6, ari)
    # What is left out is small, and the others are larger by it.
    kept = sum(probability(number) for number in found)
    for number, value in list(found.items())[:10]:
        assert value == pytest.approx(probability(number) / kept, rel=1e-6)
        task = Tasks.of([NumberExample(scores, clusters, number, ari), NumberExample(np.zeros(20), [3] * 20, 3)])
        assert model.log_likelihoods(task)[0] == pytest.approx(np.log(probability(number)), abs=1e-6)


def test_a_clear_score_puts_the_probability_on_its_number():
    model = NumberModel(0.1, 0.0, NARROWEST)
    found = model.probabilities(np.array([0.0, 5.0, 0.0]), [3, 7, 12], 10**6)
    assert max(found, key=found.get) == 7
    assert found[7] > 0.99


@given(model=MODELS)
def test_what_is_stored_of_a_model_is_the_model(model):
    assert NumberModel.of(model.values).values == pytest.approx(model.values)


@given(found=DISTRIBUTIONS, level=st.floats(0.05, 0.99))
def test_no_interval_around_the_most_probable_number_of_this_length_is_nearer_to_the_level(found, level):
    low, high = interval(found, level)
    assert low >= min(found)
    assert high <= max(found)

    def probability(first, last):
        return sum(value for number, value in found.items() if first <= number <= last)

    off = abs(probability(low, high) - level)
    # With one number more or less on either side it would not be nearer.
    mode = max(found, key=lambda number: (found[number], -number))
    assert low <= mode <= high
    wider = max(probability(low - 1, high), probability(low, high + 1))
    assert off <= abs(wider - level) + 1e-9


def test_an_interval_passes_over_numbers_without_a_probability():
    assert interval({1: 0.5, 999_999_999: 0.5}) == (1, 999_999_999)
    assert interval({2: 0.05, 10: 0.5, 11: 0.35, 999_999_999: 0.1}) == (2, 11)


@given(found=DISTRIBUTIONS, levels=st.tuples(st.floats(0.05, 0.99), st.floats(0.05, 0.99)))
def test_a_higher_level_has_a_wider_interval(found, levels):
    (low, high), (wide_low, wide_high) = (interval(found, level) for level in sorted(levels))
    assert wide_low <= low <= high <= wide_high


def simulated(model, tasks, seed=0):
    """Tasks whose true numbers are drawn from the model itself."""
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(tasks):
        clusters = np.sort(generator.integers(1, 80, generator.integers(3, 15)))
        scores, ari = generator.normal(scale=3, size=len(clusters)), generator.uniform(0.3, 1)
        by_number, by_ari = model.temperature_slopes
        temperature = model.temperature * clusters[scores.argmax()] ** by_number * np.exp(by_ari * (ari - USUAL_ARI))
        centre = generator.choice(clusters, p=softmax(scores / temperature))
        wider, unlike = model.deviation_slopes
        deviation = model.deviation * centre**wider * np.exp(unlike * (ari - USUAL_ARI))
        true = max(1, round(centre * np.exp(model.shift + deviation * generator.normal())))
        made.append(NumberExample(scores, clusters.tolist(), true, ari))
    return made


@pytest.mark.parametrize(
    "model",
    [
        NumberModel(1.0, 0.0, 0.15),
        NumberModel(0.3, 0.2, 0.1),
        NumberModel(3.0, -0.2, 0.4),
        NumberModel(0.5, 0.0, 0.1, (0.1, -2.0), (0.2, -2.0)),
    ],
    ids=["neutral", "sure and too few", "unsure and too many", "sure where clusters lie apart"],
)
def test_a_known_model_is_recovered(model):
    found = fit_numbers(simulated(model, 1000))
    # Of 20 clusters: slopes and intercepts make up for each other.
    for expected in (0.5, 0.8, 1.0):
        for name in ("temperature", "deviation"):
            logs = [
                np.log(getattr(one, name)) + np.dot(getattr(one, f"{name}_slopes"), (np.log(20), expected - USUAL_ARI))
                for one in (found, model)
            ]
            assert logs[0] == pytest.approx(logs[1], abs=0.45)
    assert found.shift == pytest.approx(model.shift, abs=0.06)


def test_intervals_of_a_fitted_model_cover_new_tasks():
    model = NumberModel(0.7, 0.1, 0.25, (0.1, -1.0), (-0.1, -1.0))
    found = fit_numbers(simulated(model, 300))
    new = simulated(model, 600, seed=1)
    inside = []
    for task in new:
        low, high = interval(found.probabilities(task.scores, task.clusters, 10**6, task.expected_ari), 0.9)
        inside.append(low <= task.true <= high)
    # An interval of whole numbers covers more than it must, where numbers are small.
    assert 0.87 <= np.mean(inside) <= 0.985


def test_without_tasks_nothing_changes():
    found = fit_numbers([])
    assert found.temperature == pytest.approx(1, rel=0.01)
    assert found.shift == pytest.approx(0, abs=0.01)
    assert found.deviation == pytest.approx(0.15, rel=0.01)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_there_are_no_more_clusters_than_rows(rows):
    found = NumberModel(1.0, 0.2, 0.5).probabilities(np.zeros(2), [1, 40], rows)
    assert max(found) <= rows
    assert sum(found.values()) == pytest.approx(1)
