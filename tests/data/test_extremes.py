"""Cells that are too far from all others are named; the rule does not depend on units, and spares ordinary data."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from metaclust.data.extremes import Extremes, check_columns, check_magnitude, check_scaled, check_sparse_magnitude
from metaclust.data.inputs import as_rows
from metaclust.data.preparation.prepare import fit_preparation
from metaclust.data.rows import DataError, DataWarning
from metaclust.data.streams import ArrayStream, FunctionStream
from metaclust.data.survey import survey, survey_part


def check(x, **options):
    double = x.astype(np.float64)
    extremes = Extremes.of_array(double, 0)
    check_columns(x, extremes, np.nanmean(double, 0), np.nanstd(double, 0), "things.csv", **options)


def rows(n=1000, seed=0):
    return np.random.default_rng(seed).normal(3, 2, (n, 3))


@given(st.lists(st.lists(st.floats(-9, 9), min_size=2, max_size=2), min_size=2, max_size=12), st.data())
def test_extremes_of_parts_add_up_to_those_of_all_rows(values, data):
    x = np.array(values)
    cut = data.draw(st.integers(1, len(x) - 1))
    found = Extremes.of_array(x[:cut], 0) + Extremes.of_array(x[cut:], cut)
    np.testing.assert_array_equal(found.lowest, x.min(0))
    np.testing.assert_array_equal(found.highest, x.max(0))
    np.testing.assert_array_equal(x[found.lowest_rows, [0, 1]], x.min(0))
    np.testing.assert_array_equal(x[found.highest_rows, [0, 1]], x.max(0))


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e25])
@pytest.mark.parametrize("sign", [1, -1])
def test_one_far_cell_is_announced_and_one_further_away_is_refused(unit, sign):
    x = rows()
    x[417, 1] = sign * 1e6
    with pytest.warns(DataWarning, match=r"things.csv: row 417 \(counting from 0\), column 'b': -?\d"):
        check(x * unit, columns=("a", "b", "c"))
    x[417, 1] = sign * 1e30
    with pytest.raises(DataError, match=r"things.csv: row 417 \(counting from 0\), column 1: -?\d.*correct it"):
        check(x * unit)


def test_several_far_cells_are_found_beside_missing_ones():
    x = rows()
    x[::3, 0] = np.nan
    x[[5, 50, 500], 2] = 1e20
    with pytest.raises(DataError, match=r"row 5 \(counting from 0\), column 2"):
        check(x)


@pytest.mark.parametrize("kind", ["normal", "cauchy", "lognormal", "rare", "two groups", "few rows"])
def test_ordinary_columns_are_spared(kind):
    generator = np.random.default_rng(1)
    x = {
        "normal": generator.normal(size=(5000, 4)),
        "cauchy": generator.standard_cauchy((20_000, 4)),
        "lognormal": np.exp(3 * generator.normal(size=(20_000, 4))),
        "rare": (generator.random((5000, 4)) < 0.001) * 1e12,
        "two groups": np.where(np.arange(1000)[:, None] % 20 == 0, 1e9, 0) + generator.normal(size=(1000, 4)),
        "few rows": np.array([[0.3], [0.30000000000000004], [5.0]]),
    }[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(x)


def test_cells_far_from_the_training_rows_are_counted_or_refused():
    values = np.zeros((4, 2), np.float32)
    values[2, 1] = 7
    scaled = np.zeros((4, 2), np.float32)
    assert check_scaled(values, scaled, "X") == (0, 0.0, "")
    scaled[2, 1], scaled[3, 0] = -5000, 2000
    count, distance, words = check_scaled(values, scaled, "X", first=10)
    assert (count, distance) == (2, 5000)
    assert words.startswith("X: row 12 (counting from 0), column 1: 7 is 5e+03 standard deviations")
    scaled[2, 1] = np.inf
    with pytest.raises(DataError, match=r"row 2 \(counting from 0\), column 1: 7 is inf standard deviations"):
        check_scaled(values, scaled, "X")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_value_beside_rounding_is_announced_and_used(dtype):
    """The column says nothing but which row is different, as one that is constant but for a cell."""
    x = rows(200)
    x[:, 1] = np.where(np.arange(200) % 3 == 0, dtype(0.3), np.nextafter(dtype(0.3), dtype(1)))
    x[17, 1] = 5
    x = x.astype(dtype)
    message = (
        r"row 17 \(counting from 0\), column 1: 5 is far from the other rows, which differ by no more than rounding"
    )
    with pytest.warns(DataWarning, match=message):
        check(x)
    with pytest.warns(DataWarning, match=message):
        found = survey(ArrayStream(x), None, 200, 0, moments="variances")
    assert float(found.covariance[1]) == pytest.approx(x[:, 1].astype(float).var())
    # A difference that is more than rounding would be lost beside the same cell.
    x = x.astype(np.float64)
    x[:, 1] = 0.3 + np.where(np.arange(200) % 3 == 0, 0, 1e-14)
    x[17, 1] = 5
    with pytest.raises(DataError, match=r"column 1: 5 is so far from the other rows that float32 holds no difference"):
        check(x)


def test_a_column_with_a_single_value_in_training_is_not_measured_in_standard_deviations():
    x = rows(50).astype(np.float32)
    x[:, 1] = 2020
    preparation, _ = fit_preparation(as_rows(x))
    x[3, 1] = 2021
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        preparation(as_rows(x))
    x[3, 1] = 9020
    words = r"column 1: 9020 is 7e\+03 from the mean of the training rows, in which the column had a single value"
    with pytest.warns(DataWarning, match=words):
        preparation(as_rows(x))
    x[3, 1] = 1e9
    with pytest.raises(DataError, match=r"is 1e\+09 from the mean .* single value.*: .*or train without the column"):
        preparation(as_rows(x))
    x[3, 1], x[4, 0] = 2020, 1e6
    with pytest.warns(
        DataWarning, match=r"column 0: 1e\+06 is [\d.e+]+ standard deviations from the mean of the training"
    ):
        preparation(as_rows(x))


def test_rows_that_are_not_scaled_must_have_squares():
    values = np.ones((5, 3), np.float32)
    check_magnitude(values, "X")
    values[3, 2] = -1e19
    with pytest.raises(DataError, match=r"X: row 3 \(counting from 0\), column 2: -1e\+19 is too large"):
        check_magnitude(values, "X")
    few = sparse.csr_array(np.where(values < 0, values, 0))
    with pytest.raises(DataError, match=r"X: row 3 \(counting from 0\), column 2: -1e\+19 is too large"):
        check_sparse_magnitude(few, "X")


@pytest.mark.parametrize("moments", ["mean", "variances", "covariance"])
def test_surveys_of_parts_give_the_moments_of_all_rows(moments):
    x = 1e4 + rows(300)
    weights = np.random.default_rng(2).integers(0, 3, 300).astype(float)
    whole = survey(FunctionStream(lambda: [x[:100], x[100:]]), weights, 50, 0, moments=moments)
    first = survey_part(ArrayStream(x[:120]), weights[:120], 50, 0, moments=moments)
    parts = (first + survey_part(ArrayStream(x[120:]), weights[120:], 50, 0, before=120, moments=moments)).survey("X")
    expected = np.cov(x.T, fweights=weights.astype(int), ddof=0)
    expected = {"mean": np.zeros(3), "variances": np.diag(expected), "covariance": expected}[moments]
    for found in (whole, parts):
        np.testing.assert_allclose(found.mean, np.average(x, 0, weights))
        np.testing.assert_allclose(found.covariance, expected, rtol=1e-9, atol=1e-9)
    assert torch.equal(whole.sample, parts.sample)


@pytest.mark.parametrize("value", [1e141, -1e300])
def test_a_cell_whose_square_is_no_number_is_refused(value):
    x = rows(20)
    x[7, 2] = value
    with pytest.raises(DataError, match=r"X: row 7 \(counting from 0\), column 2: .* is too large for its square"):
        survey(ArrayStream(x), None, 10, 0)


@pytest.mark.parametrize("constant", [-2.36727981e102, 0.1, 1e-150])
def test_a_constant_column_has_no_covariance(constant):
    x = rows(26)
    x[:, 0] = constant
    x[:, 1] *= 1e95
    found = survey(ArrayStream(x), None, 30, 0, moments="covariance").covariance
    assert not found[0].any()
    assert not found[:, 0].any()
    np.testing.assert_allclose(found[1:, 1:], np.cov(x[:, 1:].T, ddof=0), rtol=1e-9)


def test_a_row_of_no_weight_is_never_the_far_one():
    x = rows(50)
    x[7, 2] = 1e20
    weights = np.ones(50)
    weights[7] = 0
    survey(ArrayStream(x), weights, 50, 0, moments="variances")
    with pytest.raises(DataError, match=r"row 7 \(counting from 0\), column 2"):
        survey(ArrayStream(x), None, 50, 0, moments="variances")


def test_unscaled_rows_are_not_said_to_be_scaled():
    values = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    values[7, 1] = 1e9
    rows = as_rows(values)
    prepared = fit_preparation(rows, scaling="none")[0](rows)
    np.testing.assert_array_equal(prepared.numpy(), values)


def test_the_furthest_of_all_cells_is_named():
    generator = np.random.default_rng(0)
    known, new = generator.normal(size=(100, 2)), generator.normal(size=(20_001, 2))
    new[3, 0], new[20_000, 1] = 2000, 5e5
    preparation, _ = fit_preparation(as_rows(known))
    with pytest.warns(DataWarning, match=r"row 20000 .*, column 1: 500000 is .*\(2 such cells\)"):
        preparation(as_rows(new))
