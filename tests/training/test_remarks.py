"""What is said of a training on images from their pixels."""

import warnings

import numpy as np
import pytest

from metaclust import DataWarning, MetaClusterer, Rows, rows_from_array
from metaclust.training.remarks import LOW_ARI, remarks_on, warn_if_little_was_learned
from metaclust.training.runs import Run

USUAL = MetaClusterer().get_params()


def images(channels, count=12) -> Rows:
    return rows_from_array(np.zeros((count, channels, 4, 4), np.uint8), source="photos")


def test_colour_images_get_a_remark_and_other_rows_none():
    assert "images='embeddings' with an image_model" in remarks_on(images(3), (3, 4, 4))[0]
    assert remarks_on(images(1), (1, 4, 4)) == []
    assert remarks_on(images(3), (64,)) == []
    assert remarks_on(rows_from_array(np.eye(3)), (3,)) == []


def test_clusters_that_are_hardly_better_than_chance_are_a_warning():
    with pytest.warns(
        DataWarning, match=r"photos: .* by an ARI of 0\.09 only .* 12 images of 15 categories .*image_model"
    ):
        warn_if_little_was_learned(Run(best=0.091, best_step=5), images(3), USUAL, 15)


@pytest.mark.parametrize(
    ("run", "settings"),
    [
        (Run(best=LOW_ARI, best_step=5), {}),
        (Run(best=-1.0, best_step=-1), {}),
        (Run(best=0.1, best_step=5), {"images": "embeddings"}),
        (Run(best=0.1, best_step=5), {"steps": 1}),
        (Run(best=0.1, best_step=5), {"pretrain_steps": 5}),
    ],
)
def test_good_clusters_embeddings_and_trials_of_few_steps_are_none(run, settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_little_was_learned(run, images(3), {**USUAL, **settings}, 15)


def test_a_fit_on_colour_images_says_so_in_its_decisions():
    generator = np.random.default_rng(0)
    X = generator.integers(0, 255, (40, 8, 8, 3), np.uint8)
    settings = {"pretrain_steps": 2, "steps": 1, "validation": 0, "choice_tasks": 2, "choose": "bound"}
    model = MetaClusterer(progress=False, **settings).fit(X, np.arange(40) % 4)
    assert "Photographs are clustered far better as embeddings" in model.decisions_[0]
