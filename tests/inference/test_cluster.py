"""Clusters of representations: in memory and in blocks, small ones dissolved, numbered by size."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from metaclust import ClusteringModel, ModelConfig
from metaclust.data.streams import ArrayStream
from metaclust.inference import cluster as module
from metaclust.inference.cluster import MemoryRows, by_size, cluster_array
from metaclust.inference.continued import Hooks, Mixture, with_all_rows
from metaclust.inference.pipeline import Search, pipeline_for
from metaclust.inference.settle import sizes_of
from metaclust.mixture.components import Components
from metaclust.mixture.state import FitState


def clustered(*arguments, **options):
    found, settled = cluster_array(*arguments, **options)
    return found, settled.labels, settled.confidence


def small_model(**changes):
    torch.manual_seed(0)
    settings = {"input_shape": (3,), "representation": 3, "max_clusters": 5, "hidden": 8, **changes}
    return ClusteringModel(ModelConfig(**settings)).eval()


def blobs(sizes, s=3, seed=0, far=8.0, spread=1.0):
    generator = np.random.default_rng(seed)
    places = far * generator.normal(size=(len(sizes), s))
    which = np.repeat(np.arange(len(sizes)), sizes)
    return (places[which] + spread * generator.normal(size=(len(which), s))).astype(np.float32), which


@pytest.mark.parametrize("learn_prior", [True, False], ids=["learned prior", "paper's prior"])
@pytest.mark.parametrize("components", ["spherical", "full"])
@pytest.mark.parametrize("effective", [None, 5.0, 20])
def test_the_candidate_with_the_best_bound_is_taken(components, effective, learn_prior):
    model = small_model(components=components, learn_prior=learn_prior)
    z, _ = blobs([20, 12, 8])
    search = Search(5, restarts=6, effective_rows=effective, seed=3, choose="bound")
    found, labels, confidence = clustered(model, z, search)
    assert found.selected_by == "bound"
    bounds = [start.bound for start in found.starts]
    # Merging may raise it further.
    assert found.bound >= max(bounds) - 1e-9 if learn_prior else found.bound == max(bounds)
    np.testing.assert_array_equal(labels, found.components.probabilities(z).argmax(1))
    np.testing.assert_allclose(confidence, found.components.probabilities(z).max(1))
    assert np.bincount(labels).tolist() == sorted(np.bincount(labels), reverse=True)


def test_the_weight_is_that_of_the_clusters_found():
    z, which = blobs([300, 300, 300], far=3.0, spread=0.1)
    found, labels, _ = clustered(small_model(), z, Search(5, restarts=5, effective_rows=30))
    assert len(found.components.weights) == 3
    assert found.weight == pytest.approx(30 * 3 / 900)
    assert [len(set(which[labels == k])) for k in range(3)] == [1, 1, 1]


def test_few_rows_count_in_full():
    z, _ = blobs([6, 5])
    some, _, _ = clustered(small_model(), z, Search(5, restarts=3, effective_rows=20))
    assert some.weight == 1.0


@pytest.mark.parametrize("min_size", [2, 5, 9, 15, 1000])
def test_clusters_that_are_too_small_are_dissolved_the_smallest_first(min_size):
    z, y = blobs([20, 12, 8, 4, 1])
    centres = np.stack([z[y == k].mean(0) for k in range(5)])
    components = Components(np.full(5, 0.2), centres.astype(float), np.ones(5), np.zeros(5))

    def count(now):
        return sizes_of(now.assigned(z)[0], len(now.weights))

    found = by_size(components, min_size, count)
    # By hand: drop the smallest, and let its rows go to the nearest of the others.
    live = list(range(5))
    while True:
        labels = np.array(live)[((z[:, None] - centres[live]) ** 2).sum(-1).argmin(1)]
        sizes = {k: int((labels == k).sum()) for k in live}
        smallest = min(live, key=lambda k: sizes[k])
        if len(live) == 1 or sizes[smallest] >= min_size:
            break
        live.remove(smallest)
    assert count(found)[0].tolist() == sorted(sizes.values(), reverse=True)
    assert {tuple(mean) for mean in found.means} == {tuple(centres[k].astype(float)) for k in live}


def test_one_row_is_one_cluster():
    _, labels, confidence = clustered(small_model(), np.ones((1, 3), np.float32), Search(5, restarts=3))
    assert labels.tolist() == [0]
    assert confidence.tolist() == [1.0]


def test_identical_rows_are_one_cluster():
    _, labels, _ = clustered(small_model(), np.ones((40, 3), np.float32), Search(5, restarts=3))
    assert set(labels) == {0}


def test_another_seed_draws_other_starts_and_the_same_seed_the_same():
    z, _ = blobs([20, 12, 8], far=1.5)
    search = [Search(5, restarts=6, effective_rows=None, seed=seed) for seed in (0, 0, 1)]
    ends = [clustered(small_model(), z, one)[0] for one in search]
    assert ends[0].starts == ends[1].starts != ends[2].starts


def test_neither_the_order_of_rows_nor_ties_change_the_clusters():
    z, which = blobs([10, 10, 10], far=3.0, spread=0.1)
    shuffled = np.random.default_rng(1).permutation(30)
    _, labels, _ = clustered(small_model(), z, Search(5))
    _, other, _ = clustered(small_model(), z[shuffled], Search(5))
    np.testing.assert_array_equal(labels[shuffled], other)
    assert [len(set(which[labels == cluster])) for cluster in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("learn_prior", [True, False], ids=["learned prior", "paper's prior"])
def test_of_many_rows_a_sample_is_clustered_and_all_are_refined(monkeypatch, learn_prior):
    monkeypatch.setattr(module, "SAMPLE_ROWS", 90)
    z, which = blobs([200, 150, 100], far=3.0, spread=0.3)
    if learn_prior:  # The paper's prior expects rows around zero.
        z = z + np.float32(5)
    done, search = [], Search(5, choose="bound")
    found, labels, _ = clustered(small_model(learn_prior=learn_prior), z, search, advance=lambda: done.append(1))
    assert found.passes == 20
    assert len(done) >= 2
    assert adjusted_rand_score(which, labels) > 0.95
    np.testing.assert_allclose(
        sorted(found.components.means[:, 0]), sorted(z[which == k].mean(0)[0] for k in range(3)), atol=0.2
    )


@pytest.mark.parametrize("components", ["spherical", "full"])
def test_with_all_rows_the_blocks_end_where_the_inference_in_memory_does(components):
    z, which = blobs([400, 300, 200], far=3.0, spread=0.3)
    z = z + np.float32(5)
    model = small_model(components=components, learn_prior=True)
    pipeline = pipeline_for(model, Search(3, effective_rows=None, choose="bound"))
    mean = z.mean(0, dtype=np.float64)
    start, *_ = pipeline.candidates(model, pipeline.sample(z[::5], mean), [3], 0)
    rows = MemoryRows(ArrayStream(z))
    state = FitState(rows.survey(100, 0))
    found, bounds = with_all_rows(model, rows, state, Mixture.of(model, start), mean, Hooks())
    assert len(bounds) == 20
    assert (np.diff(bounds) >= -1e-6 * abs(bounds[-1])).all()
    centred = torch.from_numpy(z - mean)
    near = Components.of(start.posterior).probabilities(centred.numpy())
    logits = torch.from_numpy(np.log(near + 1e-300))
    end = Components.of(model.from_starts(centred, logits, 100, variance_factor=start.variance_factor))
    np.testing.assert_allclose(found.means, end.means, atol=1e-4)
    np.testing.assert_allclose(found.precisions, end.precisions, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.weights, end.weights, atol=1e-5)
    assert adjusted_rand_score(which, found.probabilities(centred.numpy()).argmax(1)) > 0.95
