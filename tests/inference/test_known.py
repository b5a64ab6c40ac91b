"""Categories that are known: against NumPy on their rows, and by made-up ones that are easy to tell apart."""

import numpy as np
import pytest
from far_rows import QUICK, WIDTH, made
from hypothesis import given
from hypothesis import strategies as st

from metaclust import MetaClusterer
from metaclust.inference.known import (
    Catalogue,
    Recognised,
    known_features,
    nearest_categories,
    rows_of_known,
)
from metaclust.inference.settle import Known, few_enough, with_new_names
from metaclust.model.known import KNOWN_FEATURES


def some_rows(seed, rows=60, columns=4, categories=5):
    generator = np.random.default_rng(seed)
    index = np.concatenate([np.arange(categories), generator.integers(categories, size=rows - categories)])
    return generator.normal(size=(rows, columns)) + 3 * index[:, None], index


def test_a_catalogue_describes_the_rows_of_each_category():
    z, index = some_rows(0)
    catalogue = Catalogue.of(z, index, 5, trained=True)
    for category in range(5):
        rows = z[index == category]
        assert catalogue.counts[category] == len(rows)
        np.testing.assert_allclose(catalogue.means[category], rows.mean(0))
        np.testing.assert_allclose(catalogue.squares[category], rows.var(0).sum())
    assert catalogue.trained.all()
    some = catalogue.take(np.array([3, 1]))
    np.testing.assert_array_equal(some.means, catalogue.means[[3, 1]])


@given(st.integers(0, 99), st.integers(10, 50))
def test_further_rows_of_a_category_are_as_if_they_had_been_there(seed, part):
    z, index = some_rows(seed)
    first, rest = Catalogue.of(z[:part], index[:part], 5, True), slice(part, None)
    present, own = np.unique(index[rest], return_inverse=True)
    both = first.with_rows_of(Catalogue.of(z[rest], own, len(present), False), present)
    every = Catalogue.of(z, index, 5, True)
    for name in ("means", "counts", "squares"):
        np.testing.assert_allclose(getattr(both, name), getattr(every, name), atol=1e-9)
    assert both.trained.all()


def test_the_nearest_categories_are_those_of_brute_force():
    z, index = some_rows(1)
    catalogue = Catalogue.of(z[:40], index[:40], 5, trained=False)
    near = nearest_categories(z[40:], catalogue)
    for row, first, distance, second in zip(z[40:], near.first, near.distance, near.second, strict=True):
        apart = [
            np.square(row - mean).sum() / (1 + 1 / count)
            for mean, count in zip(catalogue.means, catalogue.counts, strict=True)
        ]
        assert first == int(np.argmin(apart))
        np.testing.assert_allclose([distance, second], sorted(apart)[:2])


def test_features_are_numbers_whatever_the_clusters_are():
    z, index = some_rows(2)
    catalogue = Catalogue.of(z[:30], index[:30], 5, trained=True)
    for labels in (np.zeros(60, np.int64), np.arange(60), index):
        for known in (catalogue, catalogue.take(np.array([2]))):
            features, nearest = known_features(z, labels, known, 1.0)
            assert features.shape == (60, len(KNOWN_FEATURES))
            assert np.isfinite(features).all()
            assert nearest.max() < len(known)
    moved, _ = known_features(
        z + 100, index, Catalogue(catalogue.means + 100, *list(vars(catalogue).values())[1:]), 1.0
    )
    np.testing.assert_allclose(moved, known_features(z, index, catalogue, 1.0)[0], atol=1e-6)


def test_rows_that_are_not_recognised_go_where_most_of_their_cluster_is():
    z = np.concatenate([np.zeros((10, 2)), np.full((10, 2), 5.0)])
    catalogue = Catalogue(np.array([[0.0, 0.0], [9.0, 9.0]]), np.full(2, 20.0), np.ones(2), np.ones(2, bool))
    labels = np.repeat([0, 1], 10)
    probability = np.concatenate([np.full(8, 0.95), np.full(2, 0.2), np.full(10, 0.1)])
    found = Recognised(np.zeros(20, np.int64), probability)
    novelty = np.zeros(20)
    target, known = rows_of_known(z, labels, found, catalogue, 0.5, novelty)
    np.testing.assert_array_equal(target, np.where(labels == 0, 0, -1))
    np.testing.assert_array_equal(known, probability > 0.5)
    # Those that are rather new stay, unless the category is one that the encoder was not trained on.
    novelty[9] = 0.9
    target, _ = rows_of_known(z, labels, found, catalogue, 0.5, novelty)
    np.testing.assert_array_equal(target, np.where((labels == 0) & (novelty == 0), 0, -1))
    earlier = Catalogue(catalogue.means, catalogue.counts, catalogue.squares, np.zeros(2, bool))
    target, _ = rows_of_known(z, labels, found, earlier, 0.5, novelty)
    np.testing.assert_array_equal(target, np.where(labels == 0, 0, -1))
    # A label says otherwise.
    labelled = np.full(20, -1)
    labelled[3] = 1
    target, known = rows_of_known(z, labels, found, catalogue, 0.5, novelty, labelled)
    assert target[3] == 1
    assert known[3]


def test_clusters_are_dissolved_until_there_are_no_more_than_allowed():
    z = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [9.0]])
    labels = np.array([2, 2, 2, 3, 3, 0])
    np.testing.assert_array_equal(few_enough(z, labels, 1, None, 1), labels)
    np.testing.assert_array_equal(few_enough(z, labels, 1, 2, 1), [2, 2, 2, 3, 3, 3])
    # A known category may have a single row, a new one may not if that is asked for.
    np.testing.assert_array_equal(few_enough(z, labels, 1, None, 3), [2, 2, 2, 0, 0, 0])
    assert len(np.unique(few_enough(z, labels, 0, 1, 1))) == 1


def test_new_names_are_not_names_that_are_there():
    assert with_new_names([None, "new 1", None], ["new 3"]) == ["new 2", "new 1", "new 4"]


# A trained model

TRAINED = {**QUICK, "choice_tasks": 200}


@pytest.fixture(scope="module")
def model():
    return MetaClusterer(**TRAINED).fit(*made(18, 25, 0))


@pytest.fixture(scope="module")
def pile():
    """Rows of ten known categories, of six new ones, and of none."""
    x, y = (np.concatenate(both) for both in zip(made(10, 12, 1), made(6, 12, 2, start=50), strict=True))
    far = 40 * np.random.default_rng(3).normal(size=(3, WIDTH))
    return np.concatenate([x, far.astype(np.float32)]), np.concatenate([y, ["", "", ""]])


def test_rows_of_known_categories_are_named_and_new_ones_are_new(model, pile):
    x, y = pile
    result = model.cluster(x)
    known = np.char.startswith(y, "c") & np.isin(y, model.categories_)
    names = np.array(result.names)[result.labels]
    assert (names == y)[known].mean() > 0.9
    new = ~known
    assert result.is_new[result.labels][new].mean() > 0.9
    assert result.novelty[known].mean() < 0.2 < 0.8 < result.novelty[new].mean()
    assert ((result.novelty >= 0) & (result.novelty <= 1)).all()
    assert len(set(result.names)) == result.n_clusters == len(result.is_new)
    assert [not new for new in result.is_new] == [name in model.categories_ for name in result.names]
    frame = result.to_frame()
    assert frame["name"].to_list() == names.tolist()
    assert frame["new"].to_list() == result.is_new[result.labels].tolist()
    assert frame.columns[:5] == ["id", "cluster", "name", "new", "confidence"]


def test_known_categories_can_be_ignored(model, pile):
    x, _ = pile
    result = model.cluster(x, known="ignore")
    assert result.is_new.all()
    assert (result.novelty == 1).all()
    assert result.names == [f"new {number}" for number in range(1, result.n_clusters + 1)]


@pytest.mark.usefixtures("_without_type_checks")
def test_another_word_for_what_is_known_is_refused(model, pile):
    with pytest.raises(ValueError, match=r"^known='all': it must be 'auto', 'use' or 'ignore'$"):
        model.cluster(pile[0], known="all")


def test_new_categories_alone_are_clustered_as_if_none_were_known(model):
    x, _ = made(6, 15, 4, start=80)
    found, expected = model.cluster(x), model.cluster(x, known="ignore")
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.is_new.all()


def test_one_row_has_a_place(model):
    x, y = made(1, 1, 5)
    assert model.cluster(x).names == [str(y[0])]
    assert model.cluster(made(1, 1, 5, start=90)[0]).is_new.all()


def test_a_model_that_has_not_learned_to_recognise_says_so(pile):
    x, y = made(8, 12, 0)
    few = MetaClusterer(**{**TRAINED, "choose": "bound"}, max_clusters=10).fit(x, y)
    assert few.cluster(x).is_new.all()
    with pytest.raises(ValueError, match="known='use': this model has not learned to recognise the categories"):
        few.cluster(x, known="use")


def test_known_categories_survive_the_models_file(model, pile, tmp_path):
    model.save(tmp_path / "model")
    loaded = MetaClusterer.load(tmp_path / "model").set_params(progress=False)
    found, expected = loaded.cluster(pile[0]), model.cluster(pile[0])
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.novelty, expected.novelty)
    np.testing.assert_array_equal(found.outlier_probability, expected.outlier_probability)
    assert found.names == expected.names


def test_rows_come_in_any_order(model, pile):
    x, _ = pile
    order = np.random.default_rng(0).permutation(len(x))
    found, expected = model.cluster(x[order]), model.cluster(x)
    np.testing.assert_array_equal(found.labels, expected.labels[order])
    np.testing.assert_array_equal(found.novelty, expected.novelty[order])
    assert found.names == expected.names


# Labels of some rows, and links


def test_labelled_rows_are_where_their_label_says(model, pile):
    x, y = pile
    labels = np.array([name if row % 5 == 0 else None for row, name in enumerate(y)], dtype=object)
    labels[y == ""] = None
    result = model.cluster(x, labels)
    names = np.array(result.names)[result.labels]
    said = np.array([name is not None for name in labels])
    np.testing.assert_array_equal(names[said], labels[said])
    assert (names == y)[y != ""].mean() > 0.95
    assert (result.confidence[said] == 1).all()
    # A label of a new category is new to the model all the same.
    np.testing.assert_array_equal(result.novelty[said] == 0, np.isin(y[said], model.categories_))
    assert result.labelled() == labels.tolist()
    again = model.cluster(x, **result.constraints())
    np.testing.assert_array_equal(again.labels, result.labels)


def test_a_label_overrules_what_is_recognised(model, pile):
    x, _y = pile
    labels: list[str | None] = [None] * len(x)
    labels[0], labels[1] = "c17", "something else"
    result = model.cluster(x, labels)
    assert result.names[result.labels[0]] == "c17"
    assert result.names[result.labels[1]] == "something else"
    assert not result.is_new[result.labels[0]]
    assert result.is_new[result.labels[1]]


def test_links_hold_in_the_result(model, pile):
    x, _y = pile
    must, cannot = [[0, 130], [140, 2]], [[4, 5], [150, 151]]
    for known in ("auto", "ignore"):
        result = model.cluster(x, known=known, must_link=must, cannot_link=cannot)
        assert all(result.labels[one] == result.labels[two] for one, two in must)
        assert all(result.labels[one] != result.labels[two] for one, two in cannot)
        assert result.constraints()["must_link"] == must
        assert result.constraints()["cannot_link"] == cannot


def test_of_very_many_rows_labels_and_links_hold_for_all(model):
    x, y = made(12, 400, 6, start=60)
    labels = [name if row % 100 == 0 else None for row, name in enumerate(y)]
    result = model.cluster(x, labels, must_link=[[1, 401]], cannot_link=[[2, 3]])
    names = np.array(result.names)[result.labels]
    assert all(name is None or names[row] == name for row, name in enumerate(labels))
    assert result.labels[1] == result.labels[401]
    assert result.labels[2] != result.labels[3]


def test_what_is_known_counts_only_by_name():
    catalogue = Catalogue.of(*some_rows(3), 5, trained=True)
    known = Known(list("abcde"), catalogue, frozenset("abcde"))
    more = Catalogue.of(*some_rows(4, categories=2), 2, trained=False)
    both = known.joined(["c", "x"], more)
    assert both.names == ["a", "b", "c", "d", "e", "x"]
    assert len(both.catalogue) == 6
    assert both.catalogue.counts[2] == catalogue.counts[2] + more.counts[0]
    assert not both.catalogue.trained[5]
    assert len(known.joined(["c", "x"], more, look_for=False).catalogue) == 5
