"""The search for clusters: rows that count as less than one, the best of several starts, small clusters dissolved."""

import math
from itertools import islice

import numpy as np
import pytest
import torch
from scipy import special
from sklearn.metrics import adjusted_rand_score

from metaclust import ClusteringModel, ModelConfig, Posterior
from metaclust.inference.candidates import find_candidates
from metaclust.inference.search import Found, Search, clusters_of, find_clusters, with_all_rows
from metaclust.mixture import component_family, vb_steps
from metaclust.mixture.components import Components
from metaclust.mixture.inference import run

ALPHA = torch.tensor(0.7, dtype=torch.float64)
FAMILIES = [("spherical", "unit"), ("spherical", "optimal"), ("full", "unit")]
families = pytest.mark.parametrize(("components", "mean_covariance"), FAMILIES)


def problem(n=30, s=3, k=4, seed=0):
    """Rows around three places, and the logits of a start."""
    generator = torch.Generator().manual_seed(seed)
    places = 4 * torch.randn(3, s, generator=generator, dtype=torch.float64)
    z = places[torch.arange(n) % 3] + torch.randn(n, s, generator=generator, dtype=torch.float64)
    return z, torch.randn(n, k, generator=generator, dtype=torch.float64)


def posterior_after(steps, z, logits, family, weight=1.0, mask=None):
    return next(islice(vb_steps(z, logits, family, ALPHA, mask, weight), steps - 1, None))


def beta_kl(a, b, alpha):
    """KL(Beta(a, b) || Beta(1, alpha))."""
    return (
        special.betaln(1, alpha)
        - special.betaln(a, b)
        + (a - 1) * special.psi(a)
        + (b - alpha) * special.psi(b)
        + (1 + alpha - a - b) * special.psi(a + b)
    )


def spherical_terms(z, parameters):
    """E[log N(z | k)] of every row, and the KL of every component from N(0, I) and Gamma(1, 1); a loop."""
    theta, s, a, b = (getattr(parameters, name).numpy() for name in ("theta", "s", "a", "b"))
    width = z.shape[1]
    scores, kls = np.empty((len(z), len(a))), np.empty(len(a))
    for k in range(len(a)):
        for n, row in enumerate(z):
            square = ((row - theta[k]) ** 2).sum() + width * s[k]
            log_beta = special.psi(a[k]) - math.log(b[k])
            scores[n, k] = 0.5 * width * (log_beta - math.log(2 * math.pi)) - 0.5 * a[k] / b[k] * square
        mean = 0.5 * (width * s[k] + theta[k] @ theta[k] - width - width * math.log(s[k]))
        gamma = (a[k] - 1) * special.psi(a[k]) - special.gammaln(a[k]) + math.log(b[k]) + a[k] * (1 / b[k] - 1)
        kls[k] = mean + gamma
    return scores, kls


def full_terms(z, parameters):
    """The same for Normal-Wishart components with nu0 = S + 1, W0^-1 = (S + 1) I and kappa0 = 1."""
    theta, kappa, a, b = (getattr(parameters, name).numpy() for name in ("theta", "kappa", "a", "b"))
    width = z.shape[1]
    nu = width + 1
    scores, kls = np.empty((len(z), len(a))), np.empty(len(a))
    for k in range(len(a)):
        inverse = np.linalg.inv(b[k])
        log_det = sum(special.psi((a[k] - i) / 2) for i in range(width))
        log_det += width * math.log(2) - np.linalg.slogdet(b[k])[1]
        for n, row in enumerate(z):
            square = width / kappa[k] + a[k] * (row - theta[k]) @ inverse @ (row - theta[k])
            scores[n, k] = 0.5 * (log_det - width * math.log(2 * math.pi) - square)

        def log_normaliser(degrees, scale_log_det):
            return -0.5 * degrees * (scale_log_det + width * math.log(2)) - special.multigammaln(degrees / 2, width)

        mean = 0.5 * (width * (math.log(kappa[k]) - 1 + 1 / kappa[k]) + a[k] * theta[k] @ inverse @ theta[k])
        wishart = log_normaliser(a[k], -np.linalg.slogdet(b[k])[1]) - log_normaliser(nu, -width * math.log(nu))
        wishart += 0.5 * (a[k] - nu) * log_det + 0.5 * a[k] * (np.trace(nu * inverse) - width)
        kls[k] = mean + wishart
    return scores, kls


@families
@pytest.mark.parametrize("weight", [0.01, 0.3, 1.0])
def test_the_bound_is_the_weighted_evidence_minus_the_kls(components, mean_covariance, weight):
    z, logits = problem()
    posterior = posterior_after(4, z, logits, component_family(components, mean_covariance), weight)
    terms = full_terms if components == "full" else spherical_terms
    scores, kls = terms(z.numpy(), posterior.parameters)
    gamma1, gamma2 = posterior.sticks.gamma1.numpy(), posterior.sticks.gamma2.numpy()
    for k in range(scores.shape[1]):
        scores[:, k] += special.psi(gamma1[k]) - special.psi(gamma1[k] + gamma2[k])
        scores[:, k] += sum(special.psi(gamma2[j]) - special.psi(gamma1[j] + gamma2[j]) for j in range(k))
    sticks = sum(beta_kl(one, two, float(ALPHA)) for one, two in zip(gamma1, gamma2, strict=True))
    expected = weight * sum(special.logsumexp(row) for row in scores) - sticks - kls.sum()
    assert float(posterior.exact_bound) == pytest.approx(expected, rel=1e-10, abs=1e-9)


@families
@pytest.mark.parametrize("weight", [0.01, 0.1, 0.5, 1.0])
def test_the_bound_never_falls_over_the_steps(components, mean_covariance, weight):
    # With s_k fixed to 1 the updates are still coordinate ascent.
    for seed in range(5):
        z, logits = problem(40, 2, 6, seed)
        steps = vb_steps(z, logits, component_family(components, mean_covariance), ALPHA, None, weight)
        bounds = np.array([float(posterior.exact_bound) for posterior in islice(steps, 40)])
        assert (np.diff(bounds) >= -1e-10 * np.abs(bounds[:-1]) - 1e-12).all()
        assert bounds[-1] > bounds[0]


@families
def test_rows_that_count_one_are_rows_without_a_weight(components, mean_covariance):
    z, logits = problem()
    family = component_family(components, mean_covariance)
    plain = next(islice(vb_steps(z, logits, family, ALPHA), 6, None))
    weighted = posterior_after(7, z, logits, family, 1.0)
    assert torch.equal(plain.scores, weighted.scores)
    assert torch.equal(plain.exact_bound, weighted.exact_bound)


@families
@pytest.mark.parametrize("copies", [2, 3, 10])
def test_copies_that_count_their_share_are_the_row_itself(components, mean_covariance, copies):
    z, logits = problem()
    family = component_family(components, mean_covariance)
    one = posterior_after(10, z, logits, family)
    many = posterior_after(10, z.repeat(copies, 1), logits.repeat(copies, 1), family, 1 / copies)
    torch.testing.assert_close(many.assignments[: len(z)], one.assignments, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(many.assignments[-len(z) :], one.assignments, rtol=1e-9, atol=1e-11)
    for name in ("theta", "a", "b"):
        torch.testing.assert_close(
            getattr(many.parameters, name), getattr(one.parameters, name), rtol=1e-10, atol=1e-10
        )
    torch.testing.assert_close(many.sticks.gamma2, one.sticks.gamma2, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(many.exact_bound, one.exact_bound, rtol=1e-11, atol=1e-9)


def test_copies_that_count_their_share_converge_at_the_same_step():
    z, logits = problem(60, 2, 6, seed=3)
    family = component_family("spherical", "optimal")
    one = run(vb_steps(z, logits, family, ALPHA), 200, 1e-5)
    many = run(vb_steps(z.repeat(50, 1), logits.repeat(50, 1), family, ALPHA, None, 0.02), 200, 1e-5)
    assert int(many.steps) == int(one.steps)
    torch.testing.assert_close(many.exact_bound, one.exact_bound, rtol=1e-9, atol=1e-9)


def test_padding_has_no_influence_under_a_weight():
    z, logits = problem()
    family = component_family("spherical", "optimal")
    mask = torch.ones(len(z) + 5, dtype=torch.bool)
    mask[-5:] = False
    padded = posterior_after(
        5, torch.cat((z, 99 * torch.ones(5, 3))), torch.cat((logits, torch.zeros(5, 4))), family, 0.2, mask
    )
    plain = posterior_after(5, z, logits, family, 0.2)
    torch.testing.assert_close(padded.exact_bound, plain.exact_bound)
    torch.testing.assert_close(padded.assignments[:-5], plain.assignments)


def test_a_row_that_counts_less_says_less_of_the_parameters():
    """The counts of all clusters add up to weight times the rows."""
    z, logits = problem()
    posterior = posterior_after(3, z, logits, component_family("spherical"), 0.25)
    assert float((posterior.sticks.gamma1 - 1).sum()) == pytest.approx(0.25 * len(z))
    assert float((posterior.parameters.a - 1).sum()) == pytest.approx(0.25 * len(z) * z.shape[1] / 2)
    torch.testing.assert_close(posterior.assignments.sum(-1), torch.ones(len(z), dtype=torch.float64))


def small_model(**changes):
    torch.manual_seed(0)
    settings = {"input_shape": (3,), "representation": 3, "max_clusters": 5, "hidden": 8, **changes}
    return ClusteringModel(ModelConfig(**settings)).eval()


def blobs(sizes, s=3, seed=0, far=8.0, spread=1.0):
    generator = np.random.default_rng(seed)
    places = far * generator.normal(size=(len(sizes), s))
    which = np.repeat(np.arange(len(sizes)), sizes)
    return (places[which] + spread * generator.normal(size=(len(which), s))).astype(np.float32), which


def ends_of(model, z, search, weight):
    generator = torch.Generator().manual_seed(search.seed)
    return list(
        model.ends(
            torch.from_numpy(z),
            starts=search.restarts,
            max_clusters=search.max_clusters,
            generator=generator,
            weight=weight,
        )
    )


@pytest.mark.parametrize("components", ["spherical", "full"])
@pytest.mark.parametrize("effective", [None, 5.0, 20])
def test_the_start_with_the_best_bound_is_kept(components, effective):
    model = small_model(components=components)
    z, _ = blobs([20, 12, 8])
    search = Search(5, restarts=6, effective_rows=effective, seed=3)
    found = find_clusters(model, z, search)
    ends = ends_of(model, z, search, found.weight)
    bounds = [float(end.exact_bound) for end in ends]
    best = ends[int(np.argmax(bounds))]
    assert found.bound == max(bounds)
    assert [start.bound for start in found.starts] == bounds
    assert [start.clusters for start in found.starts] == [len(set(end.r.argmax(-1).tolist())) for end in ends]
    live = np.unique(best.assignments.argmax(-1).numpy())
    kept = best.assignments[:, live].numpy()
    kept = kept / kept.sum(1, keepdims=True)
    sizes = np.bincount(kept.argmax(1), minlength=len(live))
    assert sizes.min() > 0
    assert sorted(np.bincount(found.labels), reverse=True) == np.bincount(found.labels).tolist()
    by_cluster = {int(old): int(new) for old, new in zip(kept.argmax(1), found.labels, strict=True)}
    assert len(by_cluster) == len(live)
    order = sorted(by_cluster, key=by_cluster.__getitem__)
    np.testing.assert_allclose(found.confidence, kept.max(1), atol=1e-6)
    np.testing.assert_allclose(found.components.probabilities(z), kept[:, order], atol=1e-6)


def test_each_start_is_reported():
    z, _ = blobs([10, 10])
    done = []
    found = find_clusters(small_model(), z, Search(5, restarts=4, effective_rows=None), lambda: done.append(1))
    assert len(done) == len(found.starts) == 4


def test_the_weight_is_that_of_the_clusters_found():
    z, which = blobs([300, 300, 300], far=3.0, spread=0.1)
    found = find_clusters(small_model(), z, Search(5, restarts=5, effective_rows=30))
    assert len(found.components.weights) == 3
    assert found.weight == pytest.approx(30 * 3 / 900)
    assert [len(set(which[found.labels == k])) for k in range(3)] == [1, 1, 1]


def test_few_rows_count_in_full():
    z, _ = blobs([6, 5])
    some = find_clusters(small_model(), z, Search(5, restarts=3, effective_rows=20))
    every = find_clusters(small_model(), z, Search(5, restarts=3, effective_rows=None))
    assert some.weight == every.weight == 1.0
    assert np.array_equal(some.confidence, every.confidence)


@pytest.mark.parametrize("min_size", [2, 5, 9, 15, 1000])
@pytest.mark.parametrize("components", ["spherical", "full"])
def test_clusters_that_are_too_small_are_dissolved_the_smallest_first(min_size, components):
    z, _ = blobs([20, 12, 8, 4, 1])
    model = small_model(components=components)
    ends = ends_of(model, z, Search(5, restarts=6), 1.0)
    found = clusters_of(ends, z, min_size)
    best = max(ends, key=lambda end: float(end.exact_bound))
    scores, live = best.scores.numpy(), sorted(set(best.assignments.argmax(-1).tolist()))
    while True:
        labels = np.array(live)[scores[:, live].argmax(1)]
        sizes = {cluster: int((labels == cluster).sum()) for cluster in live}
        smallest = min(live, key=lambda cluster: sizes[cluster])
        if len(live) == 1 or sizes[smallest] >= min_size:
            break
        live.remove(smallest)
    assert np.bincount(found.labels).tolist() == sorted(sizes.values(), reverse=True)
    assert len(found.components.weights) == len(live)
    pairs = set(zip(labels.tolist(), found.labels.tolist(), strict=True))
    assert len(pairs) == len(live)
    assert len(live) == 1 or min(np.bincount(found.labels)) >= min_size
    np.testing.assert_allclose(found.confidence, found.components.probabilities(z).max(1))


def test_one_row_is_one_cluster():
    found = find_clusters(small_model(), np.ones((1, 3), np.float32), Search(5, restarts=3))
    assert found.labels.tolist() == [0]
    assert found.confidence.tolist() == [1.0]


def test_identical_rows_are_one_cluster():
    found = find_clusters(small_model(), np.ones((40, 3), np.float32), Search(5, restarts=3))
    assert set(found.labels) == {0}
    assert isinstance(found, Found)


def test_another_seed_draws_other_starts_and_the_same_seed_the_same():
    z, _ = blobs([20, 12, 8], far=1.5)
    ends = [
        find_clusters(small_model(), z, Search(5, restarts=6, effective_rows=None, seed=seed)) for seed in (0, 0, 1)
    ]
    assert ends[0].starts == ends[1].starts != ends[2].starts
    assert np.array_equal(ends[0].confidence, ends[1].confidence)


def test_equal_clusters_are_numbered_by_their_first_row():
    z, which = blobs([10, 10, 10], far=3.0, spread=0.1)
    shuffled = np.random.default_rng(1).permutation(30)
    found = find_clusters(small_model(), z[shuffled], Search(5, restarts=6))
    first = [int((found.labels == cluster).argmax()) for cluster in range(3)]
    assert first == sorted(first)
    assert [len(set(which[shuffled][found.labels == cluster])) for cluster in range(3)] == [1, 1, 1]


def test_components_come_from_the_posterior_of_the_kept_start():
    z, _ = blobs([20, 12])
    ends = ends_of(small_model(), z, Search(5, restarts=3), 0.5)
    best: Posterior = max(ends, key=lambda end: float(end.exact_bound))
    found = clusters_of(ends, z)
    everything = Components.of(best)
    assert set(found.components.weights) <= set(everything.weights)
    assert set(map(tuple, found.components.means)) <= set(map(tuple, everything.means))


@pytest.mark.parametrize("components", ["spherical", "full"])
def test_with_all_rows_the_blocks_end_where_the_inference_in_memory_does(components):
    z, which = blobs([400, 300, 200], far=3.0, spread=0.3)
    z = z + np.float32(5)
    model = small_model(components=components, learn_prior=True)
    mean = z.mean(0, dtype=np.float64)
    sample = z[::5] - mean
    start, *_ = find_candidates(model, sample, [3], effective_rows=None)
    found = with_all_rows(model, z, mean, start)
    rows = torch.from_numpy(z - mean)
    near = Components.of(start.posterior).probabilities(rows.numpy())
    end = Components.of(model.from_starts(rows, torch.from_numpy(np.log(near + 1e-300)), 100, width=start.width))
    np.testing.assert_allclose(found.means, end.means, atol=1e-4)
    np.testing.assert_allclose(found.precisions, end.precisions, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.weights, end.weights, atol=1e-5)
    labels = found.probabilities(rows.numpy()).argmax(1)
    assert adjusted_rand_score(which, labels) > 0.95
