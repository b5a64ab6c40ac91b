"""Inputs that users of neighbouring projects had, and that ended in a confusing error or a silent wrong answer."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import run
from peer_rows import blobs, categories

from metaclust import Clustering, DataError, DataWarning, InfiniteGaussianMixture, MetaClusterer

QUICK = {"pretrain_steps": 2, "steps": 1, "encoder": "network", "choose": "bound", "validation": 0.0, "progress": False}
POINTS = [
    (1086, 348),
    (1087, 347),
    (1190, 244),
    (1185, 249),
    (1193, 241),
    (1188, 247),
    (1187, 233),
    (26, 111),
    (26, 110),
]


@pytest.fixture(scope="session")
def texts() -> MetaClusterer:
    words = [f"w{k} w{k} v{i % 3} common" for k in range(6) for i in range(4)]
    return MetaClusterer(**QUICK).fit(words, [f"c{k}" for k in range(6) for _ in range(4)])


def test_one_row_repeated_is_one_cluster_to_which_further_rows_are_assigned(model: MetaClusterer) -> None:
    """hdbscan #305: 600 copies of one row had no cluster at all, and further rows became noise."""
    row = categories(1, 1, 3)[0]
    found = model.cluster(np.repeat(row, 600, 0))
    assert found.sizes.tolist() == [600]
    assert (found.confidence == 1).all()
    further = found.assign(np.concatenate((row, row + 1)))
    assert further.labels.tolist() == [0, 0]
    with pytest.raises(DataError, match="all 600 rows of X are equal: there is nothing to cluster"):
        InfiniteGaussianMixture().fit(np.repeat(row, 600, 0))


def test_one_row_is_one_cluster_or_a_clear_error(model: MetaClusterer) -> None:
    """hdbscan #235: one row ended in an error about an array of another step."""
    assert model.cluster(np.ones((1, 4))).labels.tolist() == [0]
    with pytest.raises(ValueError, match=r"1 sample.*minimum of 2 is required by InfiniteGaussianMixture"):
        InfiniteGaussianMixture().fit(np.ones((1, 4)))


def test_a_row_without_its_second_axis_is_an_error_that_names_the_remedy(clustering: Clustering) -> None:
    """hdbscan #320: one row to predict, as a vector, ended in "tuple index out of range"."""
    with pytest.raises(ValueError, match=r"(?s)Expected 2D array, got 1D array.*reshape\(1, -1\)"):
        clustering.assign(np.ones(4))


def test_one_further_row_is_assigned_as_it_is_among_others(clustering: Clustering) -> None:
    """BERTopic #121: transform of a list with a single document raised "too many indices for array"."""
    x = categories(4, 20, 5)[0]
    alone = [int(clustering.assign(x[[i]]).labels[0]) for i in (0, 25, 79)]
    assert alone == clustering.labels[[0, 25, 79]].tolist()


@pytest.mark.parametrize(("text", "warned"), [("w1 v1", False), ("test", True)])
def test_equal_texts_are_one_cluster(texts: MetaClusterer, text: str, warned: bool) -> None:
    """Top2Vec #192: 51 equal texts, a single topic, failed; unknown words are warned about besides."""
    if warned:
        with pytest.warns(DataWarning, match="51 of 51 texts have no word that the model knows"):
            found = texts.cluster([text] * 51)
    else:
        found = texts.cluster([text] * 51)
    assert found.sizes.tolist() == [51]


@pytest.mark.parametrize("nothing", ["", "  ", None])
def test_a_text_without_words_is_named(texts: MetaClusterer, nothing: str | None) -> None:
    """BERTopic #107: documents of very few words ended in "attempt to get argmax of an empty sequence"."""
    with pytest.raises(DataError, match=r"row 1 \(counting from 0\) has an empty text \(1 such rows\)"):
        texts.cluster(["w1 w1", nothing, "w2 v1"])


def test_missing_numbers_are_named_by_the_command(model: MetaClusterer, tmp_path: Path) -> None:
    """pomegranate #1139, cuML #2050: NaN made a fit fail without a word, or put all rows into one cluster."""
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "new.csv").write_text("a,b,c,d\n1,2,3,4\n1,nan,3,4\n2,2,2,2\n")
    code, _, err = run("cluster", tmp_path / "model.safetensors", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert code == 2
    assert err.count("\n") == 1
    assert "new.csv: row 1 (counting from 0), column 'b': the cell is empty or NaN" in err
    assert "--missing drop" in err
    assert not (tmp_path / "out.csv").exists()
    x = blobs()
    x[7, 1] = np.nan
    with pytest.raises(DataError, match=r"NaN or infinity in row 7 \(counting from 0\): remove or impute"):
        InfiniteGaussianMixture().fit(lambda: iter([x[:5], x[5:]]))


def test_a_column_that_is_missing_or_moved_is_named(model: MetaClusterer) -> None:
    """river #779: a row without one of the features raised KeyError: 2 from within the algorithm."""
    x, y = categories(6, 4, 0)
    frame = pl.DataFrame(x, schema=["a", "b", "c", "d"])
    found = MetaClusterer(**QUICK).fit(frame, y).cluster(frame)
    with pytest.raises(ValueError, match=r"(?s)seen at fit time, yet now missing:\n- d"):
        found.assign(frame.drop("d"))
    with pytest.raises(ValueError, match="must be in the same order"):
        found.assign(frame.select("b", "a", "c", "d"))


def test_more_components_than_rows(covariance: str) -> None:
    """faiss #154: "nx >= k failed: need at least as many training points as clusters"."""
    x = blobs(2, 10)
    labels = InfiniteGaussianMixture(50, covariance=covariance).fit_predict(x)
    assert set(labels[:10]).isdisjoint(labels[10:])
    six = InfiniteGaussianMixture(50, covariance=covariance).fit(x[7:13])
    np.testing.assert_allclose(six.predict_proba(x).sum(1), 1)


def test_more_clusters_allowed_than_there_are_different_rows(model: MetaClusterer, covariance: str) -> None:
    """scikit-learn #10059, #28055: KMeans returned equal centres and skipped labels, and later did not end at all."""
    x = np.array(POINTS + POINTS[2:], float)
    labels = InfiniteGaussianMixture(12, covariance=covariance).fit_predict(x)
    different = {tuple(row): set(labels[(x == row).all(1)]) for row in x}
    assert all(len(found) == 1 for found in different.values())
    few = np.repeat(categories(3, 1, 1)[0], 4, 0)
    clustering = model.cluster(few, max_clusters=10)
    assert clustering.n_clusters <= 3
    assert (clustering.sizes > 0).all()


def test_blocks_without_rows_change_nothing(covariance: str) -> None:
    """dask-ml #551: KMeans failed where a block of the array had no rows."""
    x = blobs(rows=20)
    expected = InfiniteGaussianMixture(6, covariance=covariance).fit(x)
    found = InfiniteGaussianMixture(6, covariance=covariance).fit(lambda: iter([x[:0], x[:25], x[:0], x[25:], x[:0]]))
    assert found.lower_bounds_ == pytest.approx(expected.lower_bounds_, rel=1e-9)
    np.testing.assert_array_equal(found.predict(x), expected.predict(x))
