"""How clusters of known and new categories are compared with what is true."""

import json

import numpy as np
import pytest

from metaclust.experiments.mixed import agreement, calibration_error, table


def test_rows_of_known_and_new_categories_are_counted_apart():
    known = np.array([0, 1])
    y = np.array([0, 0, 1, 1, 5, 5, 5, 6, 6, -1])
    said = np.array([0, 0, 1, -1, -1, -1, 0, -1, -1, -1])
    labels = np.array([0, 0, 1, 7, 7, 7, 0, 8, 9, 9])
    facts = agreement(y, labels, said, known, np.r_[np.zeros(9), 1.0])
    # One row of category 1 is said to be new; of the new ones, two of 5 and one of 6 are where their category is.
    assert facts["known"] == 0.75
    assert facts["new"] == 0.6
    assert facts["harmonic"] == pytest.approx(2 * 0.75 * 0.6 / 1.35, abs=1e-4)
    assert facts["junk auc"] == 1.0
    assert (facts["clusters"], facts["new clusters"], facts["true"], facts["true new"]) == (5, 3, 4, 2)


def test_the_calibration_error_is_that_of_bins():
    probability = np.array([0.05, 0.95, 0.95, 0.95])
    true = np.array([False, True, True, False])
    assert calibration_error(probability, true) == pytest.approx((0.05 + (3 * 0.95 - 2)) / 4)


def test_a_table_has_a_row_for_each_way_and_no_figure_that_was_not_measured():
    same = {"dataset": "d", "trained on": None, "pile": "months", "split": 0, "validate": False}
    records = [
        {**same, "number": 0, "way": "five updates", "ari": 0.5, "cpu seconds": 2.0},
        {**same, "number": 1, "way": "five updates", "ari": 0.7, "cpu seconds": 4.0},
        {**same, "number": 0, "way": "all at once", "ari": 0.6},
    ]
    lines = table(json.loads(json.dumps(records))).splitlines()
    assert lines[0] == "| d, months (1 splits, 2 piles) | ari | cpu seconds |"
    assert lines[2:] == ["| five updates | 0.600 ± 0.100 | 3.000 |", "| all at once | 0.600 |  |"]
