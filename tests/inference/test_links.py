"""Rows that belong together or apart: against brute force over all groups, pairs and merges."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclust.data.rows import DataError
from metaclust.inference.links import EXCEPTION, MOST_ODDS, Links, agreeing, pairs_from
from metaclust.inference.trees import merge_trees

ROWS = 14


def some_rows(seed, rows=ROWS, columns=3):
    return np.random.default_rng(seed).normal(size=(rows, columns))


@st.composite
def said(draw):
    """Labels of some rows and pairs of rows, which agree with some hidden categories."""
    hidden = draw(st.lists(st.integers(0, 4), min_size=ROWS, max_size=ROWS))
    labelled = draw(st.lists(st.booleans(), min_size=ROWS, max_size=ROWS))
    pairs = draw(st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, ROWS - 1)), max_size=12))
    codes = np.array([category if known else -1 for category, known in zip(hidden, labelled, strict=True)])
    must = [pair for pair in pairs if pair[0] != pair[1] and hidden[pair[0]] == hidden[pair[1]]]
    cannot = [pair for pair in pairs if hidden[pair[0]] != hidden[pair[1]]]
    return codes, must, cannot


def links_of(codes, must, cannot):
    return Links.of(ROWS, codes, list("abcde"), *(np.array(p, np.int64).reshape(-1, 2) for p in (must, cannot)))


def violations(codes, must, cannot, labels):
    """Count what labels break, pair by pair."""
    broken = sum(labels[one] != labels[two] for one, two in must)
    broken += sum(labels[one] == labels[two] for one, two in cannot)
    for one, two in combinations(np.flatnonzero(codes >= 0), 2):
        broken += (codes[one] == codes[two]) != (labels[one] == labels[two])
    return broken


@given(said(), st.lists(st.integers(0, 3), min_size=ROWS, max_size=ROWS), st.integers(0, 99))
def test_no_link_is_broken_and_other_rows_stay_where_they_are(said, labels, seed):
    links, labels = links_of(*said), np.unique(labels, return_inverse=True)[1]
    if links is None:
        assert not said[1]
        assert not said[2]
        assert (said[0] < 0).all()
        return
    moved = links.moved(some_rows(seed), labels, 1.0)
    assert violations(*said, moved) == 0
    assert links.violated(moved) == (0, 0)
    free = links.group < 0
    np.testing.assert_array_equal(moved[free], labels[free])
    obeyed = links.obeyed(some_rows(seed), labels, 1.0)
    np.testing.assert_array_equal(obeyed[:, None] == obeyed, moved[:, None] == moved)
    # Whether anything is broken is said as counted pair by pair.
    assert (links.violated(labels) == (0, 0)) == (violations(*said, labels) == 0)


def test_what_no_link_contradicts_is_left_alone():
    links = Links.of(4, np.array([0, 0, 1, -1]), ["a", "b"])
    labels = np.array([0, 0, 1, 1])
    np.testing.assert_array_equal(links.moved(some_rows(0, 4), labels, 1.0), labels)


def test_a_labelled_group_far_from_all_others_opens_a_cluster():
    z = np.concatenate([np.zeros((5, 2)), np.full((3, 2), 9.0), np.zeros((4, 2))])
    labels = np.zeros(12, np.int64)
    codes = np.array([0] * 5 + [1] * 3 + [-1] * 4)
    moved = Links.of(12, codes, ["near", "far"]).moved(z, labels, 1.0)
    np.testing.assert_array_equal(moved, labels + (codes == 1))


@pytest.mark.parametrize("rows", [2, 3, 5, 17, 40])
def test_the_lowest_merge_of_two_rows_is_the_first_that_has_both(rows):
    for method in ("ward", "average"):
        (tree,) = merge_trees(some_rows(rows, rows), (method,))
        members = [{row} for row in range(rows)]
        for one, two in zip(tree.first, tree.second, strict=True):
            members.append(members[one] | members[two])
        one, two = np.triu_indices(rows, 1)
        expected = [
            min(merge for merge in range(rows - 1) if {a, b} <= members[rows + merge])
            for a, b in zip(one, two, strict=True)
        ]
        np.testing.assert_array_equal(tree.lowest_merges(one, two), expected)
        np.testing.assert_array_equal(tree.lowest_merges(two, one), expected)


def test_pairs_change_the_odds_of_the_merges_that_bring_them_together():
    (tree,) = merge_trees(some_rows(1), ("ward",))
    merge = tree.lowest_merges(np.array([0]), np.array([1]))[0]
    others = np.arange(ROWS - 1) != merge
    together = Links.of(ROWS, must=np.array([[0, 1]])).log_odds(tree)
    apart = Links.of(ROWS, cannot=np.array([[0, 1]])).log_odds(tree)
    assert apart[merge] < 0 < together[merge]
    assert not together[others].any()
    assert not apart[others].any()


@given(st.integers(0, 999))
def test_odds_are_those_of_counting_pairs_on_either_side(seed):
    codes = np.random.default_rng(seed).integers(-1, 3, size=ROWS)
    links = Links.of(ROWS, codes, list("abc"))
    (tree,) = merge_trees(some_rows(seed), ("average",))
    members = [{row} for row in range(ROWS)]
    found = np.zeros(ROWS - 1) if links is None else links.log_odds(tree)
    for merge, (one, two) in enumerate(zip(tree.first, tree.second, strict=True)):
        members.append(members[one] | members[two])
        if links is None:
            continue
        sides = sorted((members[one], members[two]), key=len)
        if len(sides[0]) == len(sides[1]):
            sides = [members[one], members[two]]
        crossing = [
            sum((a in sides[0]) != (b in sides[0]) and {a, b} <= members[-1] for a, b in each)
            for each in (links.together_pairs.tolist(), links.label_pairs.tolist())
        ]
        inside = sum({a, b} <= sides[0] for a, b in links.together_pairs.tolist())
        share = min(max(len(sides[1]) / len(members[-1]), EXCEPTION), 1 - EXCEPTION)
        odds = crossing[0] * np.log(share / EXCEPTION) + crossing[1] ** 0.5 * np.log(EXCEPTION / (1 - EXCEPTION))
        odds += inside * np.log((1 - share) / (1 - EXCEPTION)) if any(crossing) else 0
        assert found[merge] == pytest.approx(min(max(odds, -MOST_ODDS), MOST_ODDS), abs=1e-9)


def test_links_of_a_sample_are_found_by_the_values_of_its_rows():
    z = some_rows(2).astype(np.float32)
    links = Links.of(ROWS, np.array([0, 1] + [-1] * (ROWS - 2)), ["a", "b"], must=np.array([[3, 4]]))
    order = np.random.default_rng(0).permutation(ROWS)[:9]
    np.testing.assert_array_equal(links.of_rows(z[order].astype(float), z).group, links.group[order])
    np.testing.assert_array_equal(links.take(order).group, links.group[order])


def test_contradictions_are_named():
    with pytest.raises(DataError, match=r"^must_link: rows 0 and 2 have to be together, .* labels are 'a' and 'b'"):
        Links.of(4, np.array([0, -1, 1, -1]), ["a", "b"], must=np.array([[0, 1], [1, 2]]))
    with pytest.raises(DataError, match=r"^cannot_link: rows 2 and 0 have to be apart, but must_link puts them tog"):
        Links.of(4, must=np.array([[0, 1], [1, 2]]), cannot=np.array([[2, 0]]))
    with pytest.raises(DataError, match=r"^cannot_link: rows 0 and 1 have to be apart, but its label puts them tog"):
        Links.of(4, np.array([0, 0, -1, -1]), ["a"], cannot=np.array([[0, 1]]))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[0, 1, 2]], "cannot_link: pair 0 is .*: give two rows, by their places or by their ids"),
        ([[0, 1], [0, 9]], "cannot_link: pair 1 has 9: a row is given by its place, 0 to 3, or by its id"),
        ([[0, -1]], "cannot_link: pair 0 has -1"),
        ([[0, 1.5]], "cannot_link: pair 0 has 1.5"),
        ([["a", "z"]], "cannot_link: pair 0: no row has the id 'z'"),
        ([[2, 2]], "cannot_link: pair 0 is row 2 twice: leave it out"),
        ([3], "cannot_link: pair 0 is 3"),
    ],
)
def test_pairs_that_are_none_are_named(pairs, message):
    with pytest.raises(DataError, match=message):
        pairs_from(pairs, list("abcd"), "cannot_link")


def test_rows_of_pairs_are_places_or_ids():
    expected = [[0, 1], [3, 2]]
    for pairs in (expected, [["a", "b"], ("d", "c")], np.array(expected), [("a", 1), (3, "c")]):
        np.testing.assert_array_equal(pairs_from(pairs, list("abcd"), "must_link"), expected)
    np.testing.assert_array_equal(pairs_from(zip("ad", "bc", strict=True), list("abcd"), "must_link"), expected)
    assert pairs_from(None, list("ab"), "must_link").shape == (0, 2)
    assert pairs_from([[1, 1]], list("ab"), "must_link").shape == (0, 2)


def test_an_id_of_several_rows_is_no_place():
    with pytest.raises(DataError, match=r"^must_link: pair 1: id 'b' is of several rows, 1 and 3 among them: give pla"):
        pairs_from([["a", "c"], ["a", "b"]], list("abcb"), "must_link")


def test_contradictions_are_named_by_ids():
    ids = ["t1", "t2", "t3", "t4"]
    with pytest.raises(DataError, match=r"^must_link: rows 't1' and 't3' have to be together"):
        Links.of(4, np.array([0, -1, 1, -1]), ["a", "b"], must=np.array([[0, 1], [1, 2]]), ids=ids)
    with pytest.raises(DataError, match=r"^cannot_link: rows 't3' and 't1' have to be apart"):
        Links.of(4, must=np.array([[0, 1], [1, 2]]), cannot=np.array([[2, 0]]), ids=ids)


@given(
    st.lists(st.integers(-1, 2), min_size=ROWS, max_size=ROWS),
    *(st.lists(st.lists(st.integers(0, ROWS - 1), min_size=2, max_size=2, unique=True), max_size=9) for _ in range(2)),
)
def test_pairs_that_agree_with_labels_are_kept_and_can_be_obeyed(codes, must, cannot):
    codes, must, cannot = np.array(codes), *(np.array(p, np.int64).reshape(-1, 2) for p in (must, cannot))
    kept, apart = agreeing(codes, must, cannot)
    Links.of(ROWS, codes, list("abc"), kept, apart)
    # By following pairs: what is left out belongs to rows of two labels.
    near = {row: {row} for row in range(ROWS)}
    for _ in range(ROWS):
        for one, two in must.tolist():
            near[one] = near[two] = near[one] | near[two]
    torn = [len({codes[row] for row in near[one]} - {-1}) > 1 for one, _ in must.tolist()]
    np.testing.assert_array_equal(kept, must[~np.array(torn, bool)])
