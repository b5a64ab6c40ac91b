"""Whatever finite table is given, the outcome is finite and in range, or an error names the row at fault."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from sklearn.exceptions import ConvergenceWarning

from metaclust import DataError, InfiniteGaussianMixture, MetaClusterer
from metaclust._util.facts import json_of
from metaclust.data.rows import DataWarning
from metaclust.inference.result import Start
from metaclust.mixture.components import Components
from metaclust.mixture.outcome import check_components, check_finite, check_labels, check_probabilities
from metaclust.report.headline import alternatives
from metaclust.report.page import chart
from metaclust.scale import cluster_shards

QUICK = {"pretrain_steps": 3, "steps": 1, "choose": "bound", "encoder": "network", "validation": 0.0, "progress": False}
TABLES = npst.arrays(
    np.float64,
    st.tuples(st.integers(2, 14), st.just(3)),
    elements=st.one_of(st.floats(-9, 9), st.floats(allow_nan=False, allow_infinity=False)),
    fill=st.floats(-5, 5),
)


def blobs(clusters=8, each=8, seed=0):
    generator = np.random.default_rng(seed)
    y = np.repeat(np.arange(clusters), each)
    return (9 * generator.normal(size=(clusters, 3))[y] + generator.normal(size=(len(y), 3))).astype(np.float32), y


@pytest.fixture(scope="module")
def model():
    return MetaClusterer(**QUICK).fit(*blobs())


@given(TABLES, st.sampled_from(["spherical", "diagonal", "full"]))
def test_a_mixture_of_any_finite_table_is_finite_or_an_error_of_the_data(x, covariance):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        try:
            mixture = InfiniteGaussianMixture(4, covariance=covariance, max_iter=5).fit(x)
            labels, probabilities = mixture.predict(x), mixture.predict_proba(x)
        except DataError:
            return
    assert np.isfinite(mixture.lower_bound_)
    for values in (mixture.weights_, mixture.means_, mixture.precisions_, mixture.score_samples(x)):
        assert np.isfinite(values).all()
    assert np.array_equal(labels, probabilities.argmax(1))
    np.testing.assert_allclose(probabilities.sum(1), 1)


@settings(max_examples=15)
@given(TABLES)
def test_clusters_of_any_finite_table_are_finite_or_an_error_of_the_data(model, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        try:
            found = model.cluster(x)
        except DataError:
            return
    assert np.isfinite(found.bound)
    assert ((found.confidence > 0) & (found.confidence <= 1 + 1e-9)).all()
    assert set(found.labels) == set(range(found.n_clusters))


@pytest.mark.parametrize("value", [1e12, 1e30, -3e38])
def test_one_cell_is_named_wherever_it_is(model, value, tmp_path):
    x, y = blobs(4, 10, seed=3)
    x[17, 1] = value
    with pytest.raises(DataError, match=r"X: row 17 \(counting from 0\), column 1: .* standard deviations from"):
        model.cluster(x)
    with pytest.raises(DataError, match=r"X: row 17 \(counting from 0\), column 1: .* is so far from the other rows"):
        MetaClusterer(**QUICK).fit(x, y)
    with pytest.raises(DataError, match=r"X: row 17 \(counting from 0\), column 1: .* is so far from the other rows"):
        InfiniteGaussianMixture(5).fit(x)
    (tmp_path / "shards").mkdir()
    for place in range(4):
        np.save(tmp_path / "shards" / f"s{place}.npy", x[10 * place : 10 * place + 10])
    with pytest.raises(DataError, match=r"s1.npy: row 7 \(counting from 0\), column 1: .* standard deviations from"):
        cluster_shards(model, tmp_path / "shards", tmp_path / "a", engine="local")
    with pytest.raises(DataError, match=r"row 7 \(counting from 0\) of s1.npy, column 1: .* is so far from the other"):
        cluster_shards(InfiniteGaussianMixture(5), tmp_path / "shards", tmp_path / "b", engine="local")


def test_a_cell_is_named_by_the_id_of_its_row_where_rows_before_it_were_left_out():
    x, y = blobs()
    x[30, 2] = 1e30
    y[:3] = [97, 98, 99]
    message = r"X: row 27 \(counting from 0\), id '30', column 2: 1e\+30"
    with pytest.warns(DataWarning, match="left out 3 rows"), pytest.raises(DataError, match=message):
        MetaClusterer(**QUICK).fit(x, y)


def test_a_far_cell_is_announced(model):
    x, _ = blobs(4, 10, seed=3)
    x[17, 1] = 1e5
    with pytest.warns(DataWarning, match=r"X: row 17 \(counting from 0\), column 1: 100000 is .* standard deviations"):
        model.cluster(x)


def test_units_do_not_matter_where_the_scaling_is_fitted(model):
    x, y = blobs()
    new, _ = blobs(3, 12, seed=5)
    unit = np.float32(2.0**63)
    large = MetaClusterer(**QUICK).fit(x * unit, y)
    expected, found = model.cluster(new), large.cluster(new * unit)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.confidence, expected.confidence)


def test_rows_far_from_a_fitted_mixture_are_named():
    x = 1e-100 * blobs()[0].astype(np.float64)
    mixture = InfiniteGaussianMixture(5).fit(x)
    x[9] = 1e100
    for method in (mixture.predict, mixture.predict_proba, mixture.score_samples):
        with pytest.raises(DataError, match=r"X: row 9 \(counting from 0\) is so far from"):
            method(x)


def test_each_check_names_what_is_wrong():
    good = Components(np.array([0.5, 0.5]), np.zeros((2, 3)), np.ones(2), np.zeros(2))
    check_components(good, -1.0, "X")
    with pytest.raises(DataError, match="X: the evidence lower bound is nan"):
        check_components(good, np.nan, "X")
    with pytest.raises(DataError, match="X: the means of cluster 1 are not finite"):
        check_components(replace(good, means=np.array([[0.0] * 3, [0, np.inf, 0]])), -1.0, "X")
    for wrong in (-1, 2):
        with pytest.raises(DataError, match=r"X: row 12 \(counting from 0\)"):
            check_labels(np.array([0, 1, wrong]), 2, "X", before=10)
    for value in (np.nan, 1.1, -0.1):
        with pytest.raises(DataError, match=r"X: row 1 \(counting from 0\)"):
            check_probabilities(np.array([[0.5, 0.5], [0.5, value]]), "X")
    with pytest.raises(DataError, match=r"X: row 2 \(counting from 0\)"):
        check_finite(np.array([0, 1, -np.inf]), "X")


def test_a_clustering_that_is_not_finite_cannot_be_made(model):
    found = model.cluster(blobs(3, 12, seed=5)[0])
    confidence = found.confidence.copy()
    confidence[4] = np.nan
    for change in ({"bound": np.nan}, {"confidence": confidence}, {"labels": found.labels + 99}):
        with pytest.raises(DataError):
            replace(found, **change)


@pytest.mark.parametrize("bounds", [(), (np.nan,), (np.nan, -np.inf), (-3.0, np.nan, -np.inf), (-3.0, -2.0, -2.0)])
def test_a_report_has_a_chart_for_any_bounds(model, bounds):
    found = model.cluster(blobs(3, 12, seed=5)[0])
    found = replace(found, starts=tuple(Start(k + 1, bound) for k, bound in enumerate(bounds)))
    numbers = [bound for bound in bounds if np.isfinite(bound)]
    assert [answer.clusters for answer in alternatives(found)] == [
        bounds.index(b) + 1 for b in dict.fromkeys(numbers)
    ] + ([3] if len(set(numbers)) < len(numbers) else [])
    drawn = chart(found)
    assert (drawn is None) == (len(numbers) < 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, [1.0, -np.inf]])
def test_facts_are_json_or_an_error_that_names_the_fact(value):
    assert json_of({"rows": 3}, 2) == '{\n  "rows": 3\n}'
    with pytest.raises(ValueError, match=r"'bound' is .* which JSON cannot hold"):
        json_of({"rows": 3, "bound": value}, 2)
