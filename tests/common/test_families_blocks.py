"""Inference in blocks of rows against the families, against inference in memory, and against the bound written out."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from metaclust.mixture import component_family, vb_steps
from metaclust.mixture.blocks import BlockSums, Map, Worker, rounding, summed_products
from metaclust.mixture.families import Family
from metaclust.mixture.sticks import expected_log_weights, sticks_kl, update_sticks
from metaclust.mixture.streaming import BlockMixture, LocalPasses, Memo, block_steps
from metaclust.mixture.threads import over_blocks

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


def filled(family: Family, z: Tensor) -> Tensor:
    """The features (f, n) of a block."""
    features = z.new_empty((family.feature_count(z.shape[1]), len(z)))
    family.place(features)[:] = z.T
    family.fill(features)
    return features


def memo_of(family: Family, z: Tensor, r: Tensor, batches: int, size: int) -> Memo:
    """The statistics of assignments r, written out."""
    features = family.features(z)
    parts = torch.stack([r[i : i + size].T @ features[i : i + size] for i in range(0, len(z), size)])
    assert len(parts) == batches
    return Memo(parts, z.new_zeros(batches), len(z), family.start(features, r.shape[1]))


def passes_over(source: Cut, family: Family, float32: bool = False, batch_rows: int | None = None) -> LocalPasses:
    return LocalPasses(source, BlockMixture(family, identity_map(source.z.shape[1]), ALPHA, float32, batch_rows))


@given(rows=st.integers(1, 40), width=st.integers(1, 6), components=st.integers(1, 7), seed=st.integers(0, 99))
def test_products_with_the_features_are_the_expected_log_likelihood_and_the_statistics(
    family, rows, width, components, seed
):
    """Of a block's features, against the densities and the sums written out."""
    z, logits = problem(rows, width, components, seed)
    r, features = logits.softmax(-1), family.features(z)
    torch.testing.assert_close(filled(family, z), features.T, rtol=1e-13, atol=0)
    assert features.shape == (rows, family.feature_count(width))
    assert family.width(family.feature_count(width)) == width
    parameters = family.update(family.statistics(features, r), family.start(features, components))
    scores = (family.score_weights(parameters) @ filled(family, z)).T
    direct = family.expected_constant(parameters) - 0.5 * squares(family, parameters, z)
    torch.testing.assert_close(scores, direct, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(family.expected_log_likelihood(features, parameters), direct, rtol=1e-9, atol=1e-9)
    read = family.read(r.T @ filled(family, z).T)
    torch.testing.assert_close(read.count, r.sum(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(read.first, r.T @ z, rtol=1e-12, atol=1e-12)


def squares(family: Family, parameters: Any, z: Tensor) -> Tensor:
    """(z_n - theta_k)^T E[Lambda_k] (z_n - theta_k), as (n, k)."""
    precisions, difference = family.expected_precisions(parameters), z[:, None] - parameters.theta
    if family.precision_axes == 2:
        return torch.einsum("nks,kst,nkt->nk", difference, precisions, difference)
    return (precisions.reshape(len(precisions), -1) * difference.square()).sum(-1)


def test_components_around_means_differ_only_by_the_distance(family):
    z, _ = problem(30, 3, 1)
    scores = (family.score_weights(family.around(z[:4], 1.7)) @ filled(family, z)).T
    expected = -1.7 / 2 * torch.cdist(z, z[:4]).square()
    torch.testing.assert_close(scores - scores[:, :1], expected - expected[:, :1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_sums_of_blocks_are_the_sums_of_all_rows(family, dtype):
    """Whatever the blocks and in whatever order, also with weights; against logsumexp and softmax."""
    z, logits = problem(1500, 3, 5)
    features = family.features(z)
    parameters = family.update(family.statistics(features, logits.softmax(-1)), family.start(features, 5))
    weights = family.score_weights(parameters)
    counts = torch.rand(1500, dtype=torch.float64)
    scores = family.expected_log_likelihood(features, parameters)
    statistics = family.statistics(features, counts[:, None] * scores.softmax(-1))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    for cuts in ([1500], [700, 800], [1, 511, 512, 476], [513, 987]):
        worker = Worker(family, identity_map(3), weights, dtype, max(cuts))
        blocks = zip(z.split(cuts), counts.split(cuts), strict=True)
        parts = [worker.sums(x, w) for x, w in blocks][::-1]
        total = sum(parts[1:], parts[0])
        assert total.features.dtype == total.evidence.dtype == torch.float64
        torch.testing.assert_close(total.evidence, (counts * scores.logsumexp(-1)).sum(), rtol=1e-6, atol=1e-6)
        read = family.read(total.features)
        for entry in ("count", "first", "second"):
            expected = getattr(statistics, entry)
            assert (getattr(read, entry) - expected).abs().max() <= tolerance * expected.abs().max()


def test_sums_of_products_lose_nothing_in_chunks_of_any_number():
    for rows in (1, 511, 512, 513, 2048, 2500):
        one, other = torch.rand(3, rows, dtype=torch.float64), torch.rand(4, rows, dtype=torch.float64)
        torch.testing.assert_close(summed_products(one, other), one @ other.T, rtol=1e-13, atol=0)


def test_a_worker_computes_labels_probabilities_and_evidence(family):
    z, logits = problem(60, 2, 4)
    features = family.features(z)
    parameters = family.update(family.statistics(features, logits.softmax(-1)), family.start(features, 4))
    scores = family.expected_log_likelihood(features, parameters)
    worker = Worker(family, identity_map(2), family.score_weights(parameters), torch.float64, 60)
    torch.testing.assert_close(worker.probabilities(z), scores.softmax(-1))
    torch.testing.assert_close(worker.log_evidence(z), scores.logsumexp(-1))
    assert torch.equal(worker.labels(z), scores.argmax(-1))


def test_a_map_centres_scales_and_knows_its_volume():
    x = torch.randn(50, 3, dtype=torch.float64) + 1e6
    matrix = torch.tensor([[2.0, 0, 0], [1, 3, 0], [0, 1, 0.5]], dtype=torch.float64)
    number, columns = torch.tensor(2.0, dtype=torch.float64), torch.tensor([2.0, 0.1, 5.0], dtype=torch.float64)
    for scale, expected in ((number, 2 * torch.eye(3).double()), (columns, columns.diag()), (matrix, matrix)):
        transform = Map(x.mean(0), scale)
        z = torch.empty(3, 50, dtype=torch.float64)
        transform(x, z)
        torch.testing.assert_close(z.T, (x - x.mean(0)) @ expected.T)
        torch.testing.assert_close(transform.inverse(z.T), x)
        assert transform.log_volume == pytest.approx(float(expected.det().log()))


def test_rounding_grows_with_the_distance_from_zero_in_units_of_the_spread():
    family = component_family("spherical")
    found = []
    for far in (1.0, 10.0, 100.0):
        means = torch.full((1, 4), far, dtype=torch.float64)
        features = torch.cat((torch.ones(1, 1), means.square().sum(1, keepdim=True), means), 1).double()
        found.append(rounding(family.score_weights(family.around(means, 1.0)), features))
    assert found[1] / found[0] == pytest.approx(100, rel=0.6)
    assert found[2] / found[1] == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize("size", [1, 7, 40, 100])
def test_passes_over_blocks_are_steps_in_memory(family, size):
    z, logits = problem(40, 3, 6)
    passes = block_steps(passes_over(Cut(z, size), family), memo_of(family, z, logits.softmax(-1), 1, 40))
    steps = vb_steps(z, logits, family, ALPHA)
    for (ours, _), theirs in islice(zip(passes, steps, strict=False), 8):
        assert ours.bounds[-1] == pytest.approx(float(theirs.exact_bound), rel=1e-11)
        for entry in ("theta", "a", "b"):
            torch.testing.assert_close(getattr(ours.parameters, entry), getattr(theirs.parameters, entry))


def test_a_row_of_weight_two_counts_as_two_rows(family):
    z, logits = problem(30, 2, 4)
    counts = torch.randint(0, 4, (30,), generator=torch.Generator().manual_seed(1))
    again = torch.arange(30).repeat_interleave(counts)
    r = logits.softmax(-1)
    memo = memo_of(family, z, counts[:, None] * r, 1, 30)
    repeated = memo_of(family, z[again], r[again], 1, len(again))
    one = block_steps(passes_over(Cut(z, 8, counts.double()), family), memo)
    other = block_steps(passes_over(Cut(z[again], 8), family), repeated)
    for (ours, _), (theirs, _) in islice(zip(one, other, strict=False), 5):
        assert ours.bounds == pytest.approx(theirs.bounds, rel=1e-11)


def test_the_bound_of_memoized_batches_is_exact_and_never_falls(family):
    """Against the bound of dense assignments, of which only those of the batch just seen are new."""
    size, rows = 12, 40
    z, logits = problem(rows, 3, 5)
    r, features = logits.softmax(-1), family.features(z)
    passes = block_steps(passes_over(Cut(z, 4), family, batch_rows=size), memo_of(family, z, r, 4, size))
    parameters = family.start(features, 5)
    for ours, _ in islice(passes, 6):
        for first in range(0, rows, size):
            statistics = family.statistics(features, r)
            sticks = update_sticks(statistics.count, ALPHA)
            parameters = family.update(statistics, parameters)
            scores = family.expected_log_likelihood(features, parameters) + expected_log_weights(sticks)
            r = torch.cat((r[:first], scores[first : first + size].softmax(-1), r[first + size :]))
        entropy = -torch.xlogy(r, r).sum()
        expected = (r * scores).sum() + entropy - sticks_kl(sticks, ALPHA).sum() - family.kl(parameters).sum()
        assert ours.bounds[-1] == pytest.approx(float(expected), rel=1e-10)
    assert len(ours.bounds) == 6
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(ours.bounds))


def test_rows_that_change_between_passes_are_an_error():
    z, logits = problem(40, 3, 5)
    memo = memo_of(component_family("full"), z, logits.softmax(-1), 1, 40)
    with pytest.raises(ValueError, match="X has 39 rows in this pass and had 40 before: it must not change"):
        next(block_steps(passes_over(Cut(z[:39], 8), component_family("full")), memo))


@pytest.mark.usefixtures("_without_type_checks")
def test_sums_of_something_else_are_refused():
    with pytest.raises(TypeError):
        BlockSums.zero(torch.zeros(2, 3, dtype=torch.float64)) + 1


def test_the_result_is_the_same_to_the_last_bit_for_any_number_of_threads(family):
    z, logits = problem(3000, 3, 6)
    passes = passes_over(Cut(z, 100), family, float32=True)
    memo = memo_of(family, z, logits.softmax(-1), 1, 3000)
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        try:
            found.append(list(islice(block_steps(passes, memo), 3)))
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(1)
    for other in found[1:]:
        (ours, our_memo), (theirs, their_memo) = other[-1], found[0][-1]
        assert ours.bounds == theirs.bounds
        assert torch.equal(our_memo.features, their_memo.features)


def test_an_error_in_one_block_ends_all_and_leaves_the_threads_as_they_were():
    def broken(worker: Worker, number: int) -> int:
        if number == 7:
            raise RuntimeError("block 7")
        return number

    made = lambda: Worker(  # noqa: E731
        component_family("full"), identity_map(1), torch.zeros(1, 3).double(), torch.float64, 1
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
