"""Customers of segments: what is drawn, and the table of results."""

import numpy as np

from metaclust.data.inputs import as_rows
from metaclust.experiments.tables_mixed import GAPS, customers, table, told


def test_customers_are_drawn_by_the_seed_and_their_columns_are_found():
    found, again, other = customers(3, 20, 30), customers(3, 20, 30), customers(4, 20, 30)
    assert found.table.equals(again.table)
    assert not found.table.equals(other.table)
    assert np.bincount(found.segment).tolist() == [30] * 20
    rows = as_rows(found.table)
    assert {name: usage.treatment for name, usage in rows.usage.items()} == {
        "customer_id": "id",
        "zip": "drop",
        **dict.fromkeys(("age", "spend", "visits", "business"), "number"),
        **dict.fromkeys(("plan", "channel"), "category"),
        **dict.fromkeys(("first_purchase", "last_visit"), "date"),
        "note": "text",
    }
    gaps = [rows.values.gaps(name).mean() for name in rows.columns]
    np.testing.assert_allclose(gaps, GAPS, atol=0.06)


def test_the_table_has_a_line_for_each_way():
    same = {"way": "all", "validate": False, "clusters": 9, "told": 0.5, "fit_cpu_seconds": 4.0}
    records = [{**same, "ari": ari} for ari in (0.6, 0.8)]
    lines = table([*records, {"way": "raw", "validate": True, "told": 0.25}]).splitlines()
    assert lines[2] == "| all (2) | 0.700 ± 0.100 | 1.0 | 0.500 ± 0.000 | 4 |"
    assert lines[3] == "| raw (validation) (1) |  |  | 0.250 |  |"


def test_kmeans_that_is_told_the_number_finds_what_is_far_apart():
    true = np.repeat(np.arange(8), 10)
    assert told(true, (10 * np.eye(8))[true].astype(np.float32)) == 1.0
