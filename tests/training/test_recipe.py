"""What MetaClusterer learns besides representations: the encoder's kind, the prior, the choice."""

import re
import warnings

import jaxtyping
import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from sklearn.metrics import adjusted_rand_score

from metaclust import DataWarning, MetaClusterer
from metaclust.data.sparse import SparseRows, of_unit_length
from metaclust.inference import calibrate as calibration
from metaclust.inference.calibrate import Unseen, calibrated_prior, draw_task, other_task, task_rows
from metaclust.inference.cluster import cluster_array
from metaclust.inference.pipeline import Search
from metaclust.model.checkpoint import load_model, save_model
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.model.encoders.residual import ResidualEncoder
from metaclust.training import losses, prior, recipe
from metaclust.training.episodes import TaskSampler

WIDTH = 12


def directions(categories, rows, seed, spread=0.35, unit=True):
    """Rows around category means, of length one as embeddings are; the last columns are noise."""
    rng = np.random.default_rng([seed, categories])
    means = rng.normal(size=(categories, WIDTH)) * (np.arange(WIDTH) < 8)
    y = np.repeat(np.arange(categories), rows)
    x = means[y] / np.linalg.norm(means[y], axis=1, keepdims=True) + spread * rng.normal(size=(len(y), WIDTH)) / 2
    return (x / np.linalg.norm(x, axis=1, keepdims=True) if unit else x).astype(np.float32), y


SMALL = {"progress": False, "pretrain_steps": 60, "steps": 0, "choice_tasks": 40, "seed": 1}


@pytest.fixture(scope="module", autouse=True)
def _short():
    """Shorter than it should be in earnest; and the checks of types would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(recipe.STEPS, "residual", (60, 0))
        patch.setattr(prior, "PRIOR_TASKS", 6)
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield


def unseen(z, y):
    return Unseen(z, y, ClusteringModel(ModelConfig((z.shape[1],), z.shape[1], learn_prior=True)))


@pytest.fixture(scope="module")
def learned():
    return MetaClusterer(**SMALL, encoder="residual").fit(*directions(24, 20, 0))


# The residual encoder


@pytest.mark.parametrize("unit", [True, False])
def test_it_starts_as_the_principal_components(unit):
    x, _ = directions(5, 20, 3, unit=unit)
    encoder = ResidualEncoder(WIDTH, 4, unit=unit).eval()
    encoder.fit(torch.from_numpy(x))
    _, vectors = np.linalg.eigh(np.cov(x.T))
    expected = (x - x.mean(0)) @ vectors[:, ::-1][:, :4]
    if unit:
        expected = 4.5 * expected / np.linalg.norm(expected, axis=1, keepdims=True)
    else:
        expected /= expected.std()
    z = encoder(torch.from_numpy(x)).detach().numpy()
    # Up to the sign of each axis: compared by the products of rows.
    np.testing.assert_allclose(z @ z.T, expected @ expected.T, atol=2e-4 * np.abs(expected @ expected.T).max())


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_fewer_rows_than_components_leave_some_at_zero(rows):
    x, _ = directions(5, 4, 3)
    encoder = ResidualEncoder(WIDTH, 8).eval()
    encoder.fit(torch.from_numpy(x[:rows]))
    assert torch.isfinite(encoder(torch.from_numpy(x))).all()
    if rows > 1:
        assert int(encoder.projection.any(0).sum()) == rows - 1


def test_few_rows_of_wide_vectors_are_learned_from():
    x = np.random.default_rng(0).normal(size=(36, 90)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    model = MetaClusterer(**{**SMALL, "pretrain_steps": 2, "choice_tasks": 2}).fit(x, np.repeat(np.arange(9), 4))
    assert len(model.predict(x[:10])) == 10


def test_sparse_rows_have_the_same_components():
    from scipy import sparse

    x, _ = directions(5, 20, 3)
    x[np.abs(x) < 0.1] = 0
    dense, thin = ResidualEncoder(WIDTH, 4).eval(), ResidualEncoder(WIDTH, 4).eval()
    dense.fit(torch.from_numpy(x))
    thin.fit(SparseRows(sparse.csr_array(x)))
    one, two = (encoder(torch.from_numpy(x)).detach().numpy() for encoder in (dense, thin))
    np.testing.assert_allclose(one @ one.T, two @ two.T, atol=1e-2)


def test_the_network_that_is_added_starts_at_zero_and_learns():
    encoder = ResidualEncoder(WIDTH, 4)
    assert not any(weight.any() for weight in encoder.network[-1].parameters())
    encoder(torch.randn(10, WIDTH)).square().sum().backward()
    encoder(torch.randn(10, WIDTH))[:, 0].sum().backward()
    assert encoder.network[-1].weight.grad.abs().sum() > 0


def test_it_is_for_vectors_that_are_wide_enough():
    shape, width = (3,), 4
    with pytest.raises(ValueError, match="encoder='residual' with input_shape"):
        ModelConfig(shape, representation=width, encoder="residual")


def test_rows_of_unit_length_are_known():
    x, _ = directions(5, 4, 0)
    assert of_unit_length(torch.from_numpy(x))
    assert not of_unit_length(torch.from_numpy(x * np.linspace(1, 2, len(x), dtype=np.float32)[:, None]))
    x[3] = 0
    assert of_unit_length(SparseRows(x))
    assert not of_unit_length(torch.zeros(3, 2))


# The prior


def test_the_prior_starts_at_the_papers_and_is_learned():
    model = ClusteringModel(ModelConfig((3,), representation=3, learn_prior=True, alpha=2.0))
    start = model.prior
    assert (start.mean_precision.item(), start.shape.item(), start.rate.item()) == (1, 1, 1)
    assert model.alpha.item() == pytest.approx(2)
    z = torch.randn(2, 9, 3)
    model.trajectory(z, model.initial_logits(z))[-1].square().sum().backward()
    assert all(weight.grad is not None and weight.grad != 0 for weight in model.prior_logs.values())


def test_a_model_with_the_papers_prior_has_no_other():
    model = ClusteringModel(ModelConfig((3,), representation=3))
    with pytest.raises(ValueError, match="learn_prior=True"):
        model.set_prior(shape=2.0)


def test_the_moments_of_categories_make_the_prior():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(300), 50)
    z = 3 * rng.normal(size=(300, 6))[y] + 0.5 * rng.normal(size=(len(y), 6))
    found = calibrated_prior([unseen(z[y < 100], y[y < 100]), unseen(z[y >= 100], y[y >= 100])], prior_rows=10)
    assert found["shape"] == 30
    assert found["rate"] / found["shape"] == pytest.approx(0.25, rel=0.03)
    assert 1 / found["mean_precision"] == pytest.approx(9, rel=0.1)


def test_tasks_are_of_all_kinds():
    x, y = directions(40, 60, 0)
    drawn = [draw_task(unseen(x.astype(float), y), np.random.default_rng(i))[1] for i in range(300)]
    numbers = np.array([len(np.unique(task)) for task in drawn])
    assert numbers.min() == 1
    assert numbers.max() > 30
    sizes = [np.unique(task, return_counts=True)[1] for task in drawn]
    assert 0.3 < np.mean([size.max() == size.min() for size in sizes]) < 0.9
    assert max(size.max() / size.min() for size in sizes) > 5
    assert max(len(task) for task in drawn) <= 40 * 60 * 1.12


def test_some_tasks_are_of_categories_that_are_alike(monkeypatch):
    centres = np.arange(40.0)
    y = np.repeat(np.arange(40), 10)
    part = unseen(centres[y][:, None], y)

    def span():
        drawn = [np.unique(draw_task(part, np.random.default_rng(i), junk=0)[1]) for i in range(200)]
        return np.mean([np.ptp(categories) for categories in drawn if len(categories) == 3])

    monkeypatch.setattr(calibration, "ALIKE", 0.0)
    anywhere = span()
    monkeypatch.setattr(calibration, "ALIKE", 1.0)
    # Three of the six that are next to one.
    assert span() <= 5 < anywhere


def test_some_tasks_also_have_known_categories():
    x, y = directions(30, 50, 0)
    part = unseen(x.astype(float), y)
    part = Unseen(part.z, part.y, part.model, known=np.arange(20))
    np.testing.assert_array_equal(np.unique(part.new.y), np.arange(20, 30))
    drawn = [np.unique(draw_task(part, np.random.default_rng(i), junk=0)[1]) for i in range(300)]
    known = np.mean([categories.min() < 20 for categories in drawn])
    assert 0.2 < known < 0.5
    assert max(map(len, drawn)) > 20


def test_of_very_many_categories_large_tasks_have_many_known_ones_too():
    x, y = directions(150, 12, 0)
    part = unseen(x.astype(float), y)
    part = Unseen(part.z, part.y, part.model, known=np.arange(100))
    drawn = [np.unique(draw_task(part, np.random.default_rng(i), junk=0, large=1.0)[1]) for i in range(100)]
    numbers = np.array([len(categories) for categories in drawn])
    assert numbers[numbers > 1].min() >= 15
    assert numbers.max() > 100
    assert all(categories.min() < 100 for categories in drawn if len(categories) > 60)
    few = Unseen(part.z[part.y >= 60], part.y[part.y >= 60], part.model, known=np.arange(60, 100))
    drawn = [np.unique(draw_task(few, np.random.default_rng(i), junk=0, large=1.0)[1]) for i in range(100)]
    assert 1 < min(len(categories) for categories in drawn if len(categories) > 1) < 9


def test_the_prior_is_that_of_unseen_categories_alone():
    x, y = directions(30, 50, 0)
    part = unseen(x.astype(float), y)
    both = Unseen(part.z, part.y, part.model, known=np.arange(20))
    assert calibrated_prior([both]) == calibrated_prior([unseen(part.z[y >= 20], y[y >= 20])])


@pytest.mark.parametrize(("rows", "enlarged"), [(12, True), (200, False)])
def test_categories_are_enlarged_where_all_have_few_rows(rows, enlarged):
    x, y = directions(20, rows, 0)
    part = unseen(x.astype(float), y)
    drawn = [draw_task(part, np.random.default_rng(i), junk=0) for i in range(100)]
    repeated = [len(np.unique(index)) < len(index) for index, _ in drawn]
    assert (0.2 < np.mean(repeated) < 0.6) if enlarged else not any(repeated)
    for index, of_rows in drawn:
        np.testing.assert_array_equal(part.y[index], of_rows)


def test_larger_sizes_are_drawn_of_larger_categories():
    x, _ = directions(20, 100, 0)
    y = np.repeat(np.arange(20), np.linspace(10, 190, 20).astype(int))
    part = unseen(x[: len(y)].astype(float), y)
    for number in range(100):
        _, drawn = draw_task(part, np.random.default_rng(number), junk=0)
        categories, size = np.unique(drawn, return_counts=True)
        np.testing.assert_array_equal(size, np.sort(size), err_msg=str(categories))


def test_made_rows_have_the_mean_and_the_spread_of_their_category():
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(40), 12)
    centres = 5 * rng.normal(size=(40, 4))
    z = centres[y] + rng.normal(size=(len(y), 4)) * [1.0, 0.5, 2.0, 1.0]
    index = np.concatenate([np.flatnonzero(y == 7), rng.choice(np.flatnonzero(y == 7), 20_000)])
    rows = task_rows(unseen(z, y), index, rng)
    np.testing.assert_array_equal(rows[:12], z[y == 7])
    made = rows[12:]
    np.testing.assert_allclose(made.mean(0), z[y == 7].mean(0), atol=0.06)
    # Half of the covariance is that of the category, half that within all categories.
    within = np.mean([np.cov(z[y == k].T) for k in range(40)], 0)
    np.testing.assert_allclose(np.cov(made.T), (np.cov(z[y == 7].T) + within) / 2, atol=0.15)
    # None of them is a copy.
    assert len(np.unique(made, axis=0)) == len(made)


@pytest.mark.parametrize("asked", [None, 5.0])
def test_candidates_are_trained_through_with_the_rows_that_were_asked_for(asked, monkeypatch):
    seen = set()

    def watched(model, *arguments):
        seen.add(model.config.effective_rows)
        return real(model, *arguments)

    real = losses.expected_indices
    monkeypatch.setattr(losses, "expected_indices", watched)
    settings = {**SMALL, "pretrain_steps": 2, "steps": 1, "choose": "bound", "effective_rows": asked}
    model = MetaClusterer(**settings, encoder="residual").fit(*directions(12, 20, 0))
    assert seen == {asked}
    assert model.model_.config.effective_rows == asked


def test_the_encoder_of_a_fold_has_not_seen_the_rows_it_is_judged_by(monkeypatch):
    x, y = directions(12, 20, 0)
    trained = []

    def watched(part, categories, *arguments):
        trained.append((part.sampler.y.copy(), categories))
        return real(part, categories, *arguments)

    real = recipe.train_residual
    monkeypatch.setattr(recipe, "train_residual", watched)
    parts = []
    monkeypatch.setattr(recipe, "learn_to_select", lambda model, found, *rest: parts.extend(found))
    MetaClusterer(**{**SMALL, "pretrain_steps": 2}, encoder="residual").fit(x, y)
    assert len(parts) == 3
    assert len(trained) == 4
    for part, (of_rows, categories) in zip(parts, trained, strict=False):
        np.testing.assert_array_equal(part.known, categories)
        # Six of the twenty rows of each known category were kept apart, all rows of the others.
        assert [(part.y == category).sum() for category in categories] == [6] * len(categories)
        assert {int((of_rows == category).sum()) for category in categories} == {14}
        assert set(np.unique(part.new.y)) == set(range(12)) - set(categories.tolist())
        assert len(part.new.y) == 20 * (12 - len(categories))
    # The encoder that is kept learns from every row.
    assert (trained[3][0] >= 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_in_other_tasks_categories_lie_nearer_and_keep_their_form(seed):
    x, y = directions(6, 7, seed)
    z = x.astype(float)
    other = other_task(z, y, np.random.default_rng(seed))
    parts = [(z[y == k], other[y == k]) for k in range(6)]
    scale = parts[0][1].std(0).sum() / parts[0][0].std(0).sum()
    for before, after in parts:
        np.testing.assert_allclose(after - after.mean(0), scale * (before - before.mean(0)), atol=1e-9)
    apart = [pdist([part[i].mean(0) for part in parts]) for i in (0, 1)]
    share = apart[1] / apart[0] / scale
    np.testing.assert_allclose(share, share[0])
    assert calibration.NEARER <= share[0] <= 1


def test_the_centres_are_the_means_of_categories():
    x, y = directions(6, 7, 5)
    order = np.random.default_rng(0).permutation(len(y))
    categories, centres = unseen(x[order].astype(float), 3 * y[order]).centres
    np.testing.assert_array_equal(categories, 3 * np.arange(6))
    np.testing.assert_allclose(centres, [x[y == k].astype(float).mean(0) for k in range(6)])


@pytest.mark.parametrize(("categories", "many", "rows"), [(4, 4, 30), (50, 50, 12), (200, 60, 10)])
def test_the_pretraining_tells_many_categories_apart(categories, many, rows):
    y = np.repeat(np.arange(categories), 40)
    sampler = TaskSampler(torch.zeros(len(y), 2), y, np.arange(categories), rows=(5, 30), imbalanced=True)
    batch = recipe.wide_batches(sampler).batch(0)
    found, count = batch.category.unique(return_counts=True)
    assert len(found) == many
    assert count.unique().tolist() == [rows]


# All of it


def test_unseen_categories_are_found_and_their_number(learned):
    for seed, many in ((1, 3), (2, 5), (3, 8)):
        x, y = directions(many, 25, seed)
        found = learned.cluster(x)
        assert found.about["chosen by"] == "learned choice"
        assert adjusted_rand_score(y, found.labels) > 0.85
        assert abs(found.n_clusters - many) <= 1
        assert all(start.score is not None for start in found.starts)


def test_decisions_say_what_and_why(learned):
    said = " ".join(learned.decisions_)
    assert "The encoder is 'residual', as requested." in said
    assert "trained on all 24 categories" in said
    assert re.search(r"The prior is that of .*: .*trees cut at the true number, and refined, have an ARI of 0", said)
    assert re.search(r"In the bound a cluster counts as \d+\.0 rows", said)
    assert "learned from 40 tasks of 24 categories that the encoder had not seen" in said


def test_a_file_keeps_the_prior_and_the_choice(learned, tmp_path):
    learned.save(tmp_path / "model.safetensors")
    loaded = MetaClusterer.load(tmp_path / "model.safetensors").set_params(progress=False)
    x, _ = directions(4, 20, 9)
    one, two = learned.cluster(x), loaded.cluster(x)
    np.testing.assert_array_equal(one.labels, two.labels)
    assert one.starts == two.starts
    assert loaded.model_.prior.shape == learned.model_.prior.shape
    assert loaded.model_.config.effective_rows == learned.model_.config.effective_rows


def test_the_bound_may_choose_instead(learned):
    x, _ = directions(4, 20, 9)
    found = learned.set_params(choose="bound").cluster(x)
    learned.set_params(choose="auto")
    assert found.about["chosen by"] == "bound"
    assert all(start.score is None for start in found.starts)


def test_more_clusters_than_in_any_task(learned):
    x, y = directions(30, 15, 5, spread=0.2)
    found = learned.cluster(x, max_clusters=60)
    assert 20 <= found.n_clusters <= 40
    assert adjusted_rand_score(y, found.labels) > 0.7


def test_of_very_many_rows_a_sample_chooses(learned, monkeypatch):
    monkeypatch.setattr("metaclust.inference.cluster.SAMPLE_ROWS", 100)
    x, y = directions(4, 100, 6)
    found = learned.cluster(x)
    assert found.probabilities.shape[0] == 400
    assert adjusted_rand_score(y, found.labels) > 0.85


def test_rows_in_another_order_have_the_same_clusters(learned):
    x, _ = directions(5, 20, 7)
    order = np.random.default_rng(0).permutation(len(x))
    np.testing.assert_array_equal(learned.cluster(x).labels[order], learned.cluster(x[order]).labels)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_and_equal_rows(learned, rows):
    x, _ = directions(2, 5, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        assert len(learned.cluster(x[:rows])) == rows
        assert learned.cluster(np.repeat(x[:1], 9, 0)).n_clusters == 1


def test_the_encoder_is_chosen_by_validation_categories():
    x, y = directions(15, 12, 0)
    model = MetaClusterer(**{**SMALL, "pretrain_steps": 2}).fit(x, y)
    assert model.decisions_[0].startswith(
        "The encoder is 'residual': on categories held out from training, Ward's method"
    )


@pytest.mark.parametrize(("unit", "kind"), [(True, "residual"), (False, "network")])
def test_without_validation_embeddings_are_known_by_their_length(unit, kind):
    x, y = directions(5, 8, 0, unit=unit)
    model = MetaClusterer(**{**SMALL, "pretrain_steps": 2}).fit(x * (1 if unit else np.float32(3)), y)
    assert model.model_.config.encoder == kind
    assert "no categories to compare by" in model.decisions_[0]


def test_few_categories_leave_the_choice_to_the_selector_of_the_package():
    model = MetaClusterer(**{**SMALL, "pretrain_steps": 2}, encoder="network").fit(*directions(8, 8, 0))
    assert model.model_.choice is None
    assert "which comes with the package: learning to select takes 6 categories" in model.decisions_[-1]
    rows = directions(3, 5, 1)[0]
    assert model.cluster(rows).about["chosen by"] == "learned choice"
    by_bound = model.set_params(choose="bound").cluster(rows)
    assert by_bound.about["chosen by"] == "bound"
    assert by_bound.k_probabilities == {}
    with pytest.raises(ValueError, match="the number of clusters was selected by the bound"):
        by_bound.k_interval()


def test_a_selector_of_its_own_takes_thirty_categories(monkeypatch):
    monkeypatch.setattr(recipe, "FEWEST_FOR_CHOICE", 30)
    settings = {**SMALL, "pretrain_steps": 2, "choice_tasks": 3}
    few, many = (MetaClusterer(**settings, encoder="residual").fit(*directions(k, 4, 0)) for k in (29, 30))
    assert "takes 30 categories that the encoder has not seen, and there are 29" in few.decisions_[-1]
    assert "learned from 3 tasks of 30 categories" in many.decisions_[-1]


def test_the_papers_preset_has_none_of_it():
    model = MetaClusterer(**{**SMALL, "pretrain_steps": 2}, preset="paper").fit(*directions(10, 8, 0))
    config = model.model_.config
    assert (config.encoder, config.learn_prior, config.choice) == ("network", False, False)


def test_the_papers_images_have_no_residual_network():
    images = np.random.default_rng(0).integers(0, 255, (12, 8, 8), dtype=np.uint8)
    with pytest.raises(ValueError, match=r"^encoder='residual' with preset='paper': the paper's images need"):
        MetaClusterer(**SMALL, encoder="residual", preset="paper").fit(images, np.arange(12) % 3)


@pytest.mark.parametrize(("encoder", "kind"), [("auto", "residual"), ("residual", "residual"), ("network", "network")])
def test_images_have_a_residual_network_unless_another_is_requested(encoder, kind):
    images = np.random.default_rng(0).integers(0, 255, (12, 8, 8), dtype=np.uint8)
    model = MetaClusterer(**{**SMALL, "pretrain_steps": 1}, encoder=encoder).fit(images, np.arange(12) % 3)
    assert model.model_.config.encoder == kind
    lengths = np.linalg.norm(model.model_.encode(torch.from_numpy(images)).detach(), axis=1)
    assert (np.ptp(lengths) < 1e-4) == (kind == "residual")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"encoder": "linear"}, r"^encoder='linear': choose one of \('auto', 'network', 'residual', 'tuned'\)$"),
        ({"choose": "best"}, r"^choose='best': choose one of \('auto', 'learned', 'bound'\)$"),
        ({"choice_tasks": 0}, r"^choice_tasks=0: it must be a whole number of 1 or more$"),
    ],
)
@pytest.mark.usefixtures("_without_type_checks")
def test_settings_that_cannot_be(setting, message):
    with pytest.raises(ValueError, match=message):
        MetaClusterer(**setting).fit(*directions(3, 4, 0))


def test_weights_of_a_choice_survive_a_model_file(tmp_path, learned):
    save_model(learned.model_, tmp_path / "m.safetensors")
    again, _ = load_model(tmp_path / "m.safetensors")
    z = learned.transform(directions(4, 10, 2)[0])
    one, two = (cluster_array(model, z, Search(10)) for model in (learned.model_, again))
    np.testing.assert_array_equal(one[1].labels, two[1].labels)
    assert one[0].starts == two[0].starts
