"""Inference in blocks of rows against the families, against inference in memory, and against the bound written out."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from metaclust.mixture import Prior, component_family, vb_steps
from metaclust.mixture.blocks import BlockSums, Map, Worker, rounding, summed_products
from metaclust.mixture.products import Products, products_of
from metaclust.mixture.sticks import expected_log_weights, sticks_kl, update_sticks
from metaclust.mixture.streaming import Memo, Setting, block_steps
from metaclust.mixture.threads import over_blocks

FAMILIES = {
    "spherical-unit": component_family("spherical"),
    "spherical-optimal": component_family("spherical", "optimal", Prior(0.3, 2.0, 0.7)),
    "full": component_family("full", prior=Prior(0.5, 1.5, 0.4)),
}
ALPHA = torch.tensor(0.8, dtype=torch.float64)


@dataclass(frozen=True)
class Cut:
    """Rows in blocks of a given size, whatever size is asked for."""

    z: Tensor
    size: int
    weights: Tensor | None = None

    def blocks(self, size: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        for first in range(0, len(self.z), self.size):
            rows = slice(first, first + self.size)
            yield self.z[rows], None if self.weights is None else self.weights[rows]


def identity_map(width: int) -> Map:
    return Map(torch.zeros(width, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))


def problem(rows: int, width: int, components: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn((rows, width), generator=generator, dtype=torch.float64) * 2
    return z, torch.randn((rows, components), generator=generator, dtype=torch.float64) * 3


def features_of(products: Products, z: Tensor) -> Tensor:
    features = z.new_empty((products.number(z.shape[1]), len(z)))
    products.place(features)[:] = z.T
    products.fill(features)
    return features


def memo_of(name: str, z: Tensor, r: Tensor, batches: int, size: int) -> Memo:
    """The statistics of assignments r, written out."""
    products = products_of(FAMILIES[name])
    features = features_of(products, z)
    parts = torch.stack([r[i : i + size].T @ features.T[i : i + size] for i in range(0, len(z), size)])
    assert len(parts) == batches
    start = FAMILIES[name].start(FAMILIES[name].features(z), r.shape[1])
    return Memo(parts, z.new_zeros(batches), len(z), start)


@pytest.mark.parametrize("name", FAMILIES)
@given(rows=st.integers(1, 40), width=st.integers(1, 6), components=st.integers(1, 7), seed=st.integers(0, 99))
def test_products_are_the_expected_log_likelihood_and_the_statistics(name, rows, width, components, seed):
    family, products = FAMILIES[name], products_of(FAMILIES[name])
    z, logits = problem(rows, width, components, seed)
    r, features = logits.softmax(-1), family.features(z)
    statistics = family.statistics(features, r)
    parameters = family.update(statistics, family.start(features, components))
    filled = features_of(products, z)
    scores = (products.weights(parameters) @ filled).T
    torch.testing.assert_close(scores, family.expected_log_likelihood(features, parameters), rtol=1e-9, atol=1e-9)
    read = products.read(r.T @ filled.T)
    for entry in ("count", "first", "second"):
        torch.testing.assert_close(getattr(read, entry), getattr(statistics, entry), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_components_around_means_differ_by_the_distance_alone(name):
    products = products_of(FAMILIES[name])
    z, _ = problem(30, 3, 1)
    filled = features_of(products, z)
    scores = (products.weights(products.around(z[:4], 1.7)) @ filled).T
    expected = -1.7 / 2 * torch.cdist(z, z[:4]).square()
    torch.testing.assert_close(scores - scores[:, :1], expected - expected[:, :1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FAMILIES)
def test_what_blocks_add_is_what_all_rows_add(name, dtype):
    """Whatever the blocks and in whatever order, also with weights; against logsumexp and softmax."""
    family, products = FAMILIES[name], products_of(FAMILIES[name])
    z, logits = problem(1500, 3, 5)
    features = family.features(z)
    parameters = family.update(family.statistics(features, logits.softmax(-1)), family.start(features, 5))
    weights = products.weights(parameters)
    counts = torch.rand(1500, dtype=torch.float64)
    scores = family.expected_log_likelihood(features, parameters)
    statistics = family.statistics(features, counts[:, None] * scores.softmax(-1))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    for cuts in ([1500], [700, 800], [1, 511, 512, 476], [513, 987]):
        worker = Worker(products, identity_map(3), weights, dtype, max(cuts))
        blocks = zip(z.split(cuts), counts.split(cuts), strict=True)
        parts = [worker.sums(x, w) for x, w in blocks][::-1]
        total = sum(parts[1:], parts[0])
        assert total.features.dtype == total.evidence.dtype == torch.float64
        torch.testing.assert_close(total.evidence, (counts * scores.logsumexp(-1)).sum(), rtol=1e-6, atol=1e-6)
        read = products.read(total.features)
        for entry in ("count", "first", "second"):
            expected = getattr(statistics, entry)
            assert (getattr(read, entry) - expected).abs().max() <= tolerance * expected.abs().max()


def test_sums_of_products_lose_nothing_in_chunks_of_any_number():
    for rows in (1, 511, 512, 513, 2048, 2500):
        one, other = torch.rand(3, rows, dtype=torch.float64), torch.rand(4, rows, dtype=torch.float64)
        torch.testing.assert_close(summed_products(one, other), one @ other.T, rtol=1e-13, atol=0)


def test_a_worker_tells_labels_probabilities_and_evidence():
    family, products = FAMILIES["full"], products_of(FAMILIES["full"])
    z, logits = problem(60, 2, 4)
    features = family.features(z)
    parameters = family.update(family.statistics(features, logits.softmax(-1)), family.start(features, 4))
    scores = family.expected_log_likelihood(features, parameters)
    worker = Worker(products, identity_map(2), products.weights(parameters), torch.float64, 60)
    torch.testing.assert_close(worker.probabilities(z), scores.softmax(-1))
    torch.testing.assert_close(worker.log_evidence(z), scores.logsumexp(-1))
    assert torch.equal(worker.labels(z), scores.argmax(-1))


def test_a_map_centres_scales_and_knows_its_volume():
    x = torch.randn(50, 3, dtype=torch.float64) + 1e6
    matrix = torch.tensor([[2.0, 0, 0], [1, 3, 0], [0, 1, 0.5]], dtype=torch.float64)
    for scale, expected in ((torch.tensor(2.0, dtype=torch.float64), 2 * torch.eye(3).double()), (matrix, matrix)):
        transform = Map(x.mean(0), scale)
        z = torch.empty(3, 50, dtype=torch.float64)
        transform(x, z)
        torch.testing.assert_close(z.T, (x - x.mean(0)) @ expected.T)
        assert transform.log_volume == pytest.approx(float(expected.det().log()))


def test_rounding_grows_with_the_distance_from_zero_in_units_of_the_spread():
    products = products_of(FAMILIES["spherical-unit"])
    found = []
    for far in (1.0, 10.0, 100.0):
        means = torch.full((1, 4), far, dtype=torch.float64)
        features = torch.cat((torch.ones(1, 1), means.square().sum(1, keepdim=True), means), 1).double()
        found.append(rounding(products.weights(products.around(means, 1.0)), features))
    assert found[1] / found[0] == pytest.approx(100, rel=0.6)
    assert found[2] / found[1] == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize("size", [1, 7, 40, 100])
@pytest.mark.parametrize("name", FAMILIES)
def test_passes_over_blocks_are_steps_in_memory(name, size):
    z, logits = problem(40, 3, 6)
    setting = Setting(Cut(z, size), products_of(FAMILIES[name]), identity_map(3), ALPHA, float32=False)
    passes = block_steps(setting, memo_of(name, z, logits.softmax(-1), 1, 40))
    steps = vb_steps(z, logits, FAMILIES[name], ALPHA)
    for ours, theirs in islice(zip(passes, steps, strict=False), 8):
        assert ours.bound == pytest.approx(float(theirs.exact_bound), rel=1e-11)
        for entry in ("theta", "a", "b"):
            torch.testing.assert_close(getattr(ours.parameters, entry), getattr(theirs.parameters, entry))


def test_a_row_of_weight_two_counts_as_two_rows():
    z, logits = problem(30, 2, 4)
    counts = torch.randint(0, 4, (30,), generator=torch.Generator().manual_seed(1))
    again = torch.arange(30).repeat_interleave(counts)
    products = products_of(FAMILIES["full"])
    r = logits.softmax(-1)
    memo = memo_of("full", z, counts[:, None] * r, 1, 30)
    repeated = memo_of("full", z[again], r[again], 1, len(again))
    one = block_steps(Setting(Cut(z, 8, counts.double()), products, identity_map(2), ALPHA, float32=False), memo)
    other = block_steps(Setting(Cut(z[again], 8), products, identity_map(2), ALPHA, float32=False), repeated)
    for ours, theirs in islice(zip(one, other, strict=False), 5):
        assert ours.bound == pytest.approx(theirs.bound, rel=1e-11)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_bound_of_memoized_batches_is_exact_and_never_falls(name):
    """Against the bound of dense assignments, of which only those of the batch just seen are new."""
    family, size, rows = FAMILIES[name], 12, 40
    z, logits = problem(rows, 3, 5)
    r, features = logits.softmax(-1), family.features(z)
    setting = Setting(Cut(z, 4), products_of(family), identity_map(3), ALPHA, batch_rows=size, float32=False)
    passes = block_steps(setting, memo_of(name, z, r, 4, size))
    parameters, bounds = family.start(features, 5), []
    for ours in islice(passes, 6):
        for first in range(0, rows, size):
            statistics = family.statistics(features, r)
            sticks = update_sticks(statistics.count, ALPHA)
            parameters = family.update(statistics, parameters)
            scores = family.expected_log_likelihood(features, parameters) + expected_log_weights(sticks)
            r = torch.cat((r[:first], scores[first : first + size].softmax(-1), r[first + size :]))
        entropy = -torch.xlogy(r, r).sum()
        expected = (r * scores).sum() + entropy - sticks_kl(sticks, ALPHA).sum() - family.kl(parameters).sum()
        assert ours.bound == pytest.approx(float(expected), rel=1e-10)
        bounds.append(ours.bound)
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(bounds))


def test_rows_that_change_between_passes_are_an_error():
    z, logits = problem(40, 3, 5)
    memo = memo_of("full", z, logits.softmax(-1), 1, 40)
    setting = Setting(Cut(z[:39], 8), products_of(FAMILIES["full"]), identity_map(3), ALPHA)
    with pytest.raises(ValueError, match="X has 39 rows in this pass and had 40 before: it must not change"):
        next(block_steps(setting, memo))


@pytest.mark.usefixtures("_without_type_checks")
def test_sums_of_something_else_are_refused():
    with pytest.raises(TypeError):
        BlockSums.zero(torch.zeros(2, 3, dtype=torch.float64)) + 1
    with pytest.raises(TypeError, match="there are products for Spherical and Full only"):
        products_of(object())


def test_the_result_is_the_same_to_the_last_bit_for_any_number_of_threads():
    z, logits = problem(3000, 3, 6)
    setting = Setting(Cut(z, 100), products_of(FAMILIES["full"]), identity_map(3), ALPHA)
    memo = memo_of("full", z, logits.softmax(-1), 1, 3000)
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        try:
            found.append(list(islice(block_steps(setting, memo), 3)))
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(1)
    for other in found[1:]:
        assert [step.bound for step in other] == [step.bound for step in found[0]]
        assert torch.equal(other[-1].memo.features, found[0][-1].memo.features)


def test_an_error_in_one_block_ends_all_and_leaves_the_threads_as_they_were():
    def broken(worker: Worker, number: int) -> int:
        if number == 7:
            raise RuntimeError("block 7")
        return number

    made = lambda: Worker(  # noqa: E731
        products_of(FAMILIES["full"]), identity_map(1), torch.zeros(1, 3).double(), torch.float64, 1
    )
    torch.set_num_threads(3)
    try:
        with pytest.raises(RuntimeError, match="block 7"):
            list(over_blocks(made, broken, ((number,) for number in range(1000))))
        assert torch.get_num_threads() == 3
        assert list(over_blocks(made, lambda worker, number: number, ((number,) for number in range(50)))) == [
            *range(50)
        ]
    finally:
        torch.set_num_threads(1)
