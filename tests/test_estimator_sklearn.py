"""scikit-learn's own checks of an estimator, and sparse rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from metaclust import DataError, MetaClusterer

READS_CLASSIFIER_TAGS = (
    "scikit-learn's check takes every estimator with predict_proba for a classifier (it reads classifier_tags)"
)


@pytest.mark.usefixtures("_without_type_checks")
@parametrize_with_checks(
    [MetaClusterer(pretrain_steps=2, steps=1, restarts=2, choice_tasks=3, progress=False)],
    expected_failed_checks=lambda _: {
        "check_estimator_sparse_array": READS_CLASSIFIER_TAGS,
        "check_estimator_sparse_matrix": READS_CLASSIFIER_TAGS,
        "check_methods_subset_invariance": "predict clusters the rows it is given together, as documented",
    },
    # The last one may pass by chance.
    xfail_strict=False,
)
def test_scikit_learn_finds_nothing_wrong(estimator: MetaClusterer, check: Callable[..., Any]) -> None:
    check(estimator)


QUICK: dict[str, Any] = {
    "pretrain_steps": 3,
    "steps": 1,
    "restarts": 3,
    "encoder": "network",
    "choose": "bound",
    "progress": False,
}
FORMATS = [
    sparse.csr_array,
    sparse.csc_array,
    sparse.coo_array,
    sparse.csr_matrix,
    sparse.csc_matrix,
    sparse.coo_matrix,
]


def counts() -> tuple[np.ndarray, np.ndarray]:
    """Rows with few numbers that are not zero, where those differ between categories."""
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(9), 8)
    x = generator.poisson(0.1, (72, 27)).astype(np.float32)
    for row, category in enumerate(y):
        x[row, 3 * category : 3 * category + 3] += 4
    return x, y


@pytest.fixture(scope="module")
def dense() -> MetaClusterer:
    return MetaClusterer(**QUICK, scaling="none").fit(*counts())


@pytest.fixture(scope="module")
def of_sparse() -> MetaClusterer:
    x, y = counts()
    return MetaClusterer(**QUICK).fit(sparse.csr_array(x), y)


@pytest.mark.parametrize("make", FORMATS)
def test_sparse_rows_train_and_cluster_as_dense_ones_that_are_not_scaled(
    make: Callable[..., Any], dense: MetaClusterer
) -> None:
    x, y = counts()
    model = MetaClusterer(**QUICK).fit(make(x), y)
    for name, value in dense.model_.state_dict().items():
        assert torch.equal(model.model_.state_dict()[name], value)
    assert model.n_features_in_ == 27
    found, expected = model.cluster(make(x)), dense.cluster(x)
    np.testing.assert_allclose(found.representations, expected.representations, atol=1e-5)
    assert adjusted_rand_score(found.labels, expected.labels) == 1.0
    assert np.array_equal(model.predict(x), dense.predict(x))


@pytest.mark.parametrize("make", FORMATS)
def test_all_sparse_formats_give_the_same_clusters_in_any_order(
    make: Callable[..., Any], of_sparse: MetaClusterer
) -> None:
    x, _ = counts()
    expected = of_sparse.cluster(sparse.csr_array(x))
    assert np.array_equal(of_sparse.cluster(make(x)).probabilities, expected.probabilities)
    order = np.random.default_rng(1).permutation(len(x))
    assert np.array_equal(of_sparse.cluster(make(x[order])).probabilities, expected.probabilities[order])


def test_a_model_of_dense_rows_says_what_to_do_with_sparse_ones() -> None:
    x, y = counts()
    model = MetaClusterer(**QUICK).fit(x, y)
    with pytest.raises(DataError, match=r"^X is sparse, but the model was trained on dense rows: pass X.toarray\(\)$"):
        model.predict(sparse.csr_array(x))
    assert len(model.predict(sparse.csr_array(x).toarray())) == len(x)
